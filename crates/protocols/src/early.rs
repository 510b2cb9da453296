//! Releases that overtook the request they belong to.

use alloc::collections::BTreeSet;
use core::fmt;

use holdall_core::{Party, RequestId};
use serde::{Deserialize, Serialize};

/// On a network without order, a client that asks and departs at once may be heard to depart
/// first. The manager remembers the release until the request arrives, which it must, since
/// nothing is lost; so the memory is bounded by what is under way.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct EarlyReleases(BTreeSet<RequestId>);

impl fmt::Debug for EarlyReleases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl EarlyReleases {
    pub(crate) fn remember(&mut self, request: RequestId) {
        self.0.insert(request);
    }

    /// Whether the request that arrives now was released before; that is then forgotten.
    pub(crate) fn take(&mut self, request: RequestId) -> bool {
        self.0.remove(&request)
    }

    pub(crate) fn forget(&mut self, who: Party) {
        self.0.retain(|request| !who.includes(request.user));
    }

    pub(crate) const fn all(&self) -> &BTreeSet<RequestId> {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
