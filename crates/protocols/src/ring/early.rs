//! Departures that overtook their requests.

use alloc::collections::BTreeSet;

use holdall_core::{Addr, Party, RequestId, UserId};
use serde::{Deserialize, Serialize};

use crate::early::EarlyReleases;

/// Departures that came before what they end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct EarlyDepartures {
    /// The client said so. If it then stops, what it sent may never arrive, and need not be waited
    /// for once it is reported.
    told: EarlyReleases,
    /// A manager passed it on, who will also pass on the request.
    passed_on: EarlyReleases,
    /// The detector said so of a client whose messages may still be under way. Nobody knows which was
    /// the last, so it is remembered until the client is reported departed, perhaps for ever.
    reclaimed: BTreeSet<UserId>,
}

impl EarlyDepartures {
    pub(crate) fn remember(&mut self, from: Addr, request: RequestId) {
        match from {
            Addr::Manager(_) => self.passed_on.remember(request),
            Addr::User(_) => self.told.remember(request),
        }
    }

    /// Whether the client of the request that arrives now has departed; that is then forgotten.
    pub(crate) fn take(&mut self, request: RequestId) -> bool {
        self.told.take(request) || self.passed_on.take(request)
    }

    /// A client is gone; messages of it may still come.
    pub(crate) fn reclaim(&mut self, user: UserId) {
        self.reclaimed.insert(user);
        self.told.forget(Party::User(user));
    }

    /// Whether what a client says comes too late.
    pub(crate) fn is_late(&self, from: Addr) -> bool {
        matches!(from, Addr::User(user) if self.reclaimed.contains(&user))
    }

    /// Nothing comes from them any more.
    pub(crate) fn forget(&mut self, who: Party) {
        self.told.forget(who);
        self.reclaimed.retain(|user| !who.includes(*user));
    }

    /// Whether no request is waited for. Who was reclaimed is remembered all the same.
    pub(crate) fn is_empty(&self) -> bool {
        self.told.is_empty() && self.passed_on.is_empty()
    }
}
