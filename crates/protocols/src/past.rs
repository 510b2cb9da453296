//! What a manager remembers of requests that are over.

use alloc::collections::BTreeMap;
use core::fmt;

use holdall_core::RequestId;
use serde::{Deserialize, Serialize};

/// By lane, the last request that is over. A lane makes one request after another, so this is
/// enough to know every message that comes late or twice, and it is bounded by the number of lanes.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Past(BTreeMap<u32, Ended>);

/// All requests of a lane up to this one are over; and if the user is gone, all of its.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ended {
    last: RequestId,
    pub(crate) gone: bool,
}

impl Past {
    /// What is remembered of a request, if it is over.
    pub(crate) fn of(&self, request: RequestId) -> Option<Ended> {
        let ended = self.0.get(&request.user.lane()).copied();
        ended.filter(|ended| request <= ended.last || ended.gone && request.user == ended.last.user)
    }

    /// A request is over, and all before it in its lane; and its user is gone, or not.
    pub(crate) fn end(&mut self, request: RequestId, gone: bool) {
        let ended = Ended { last: request, gone };
        let known = self.0.entry(request.user.lane()).or_insert(ended);
        if known.last.user == request.user {
            *known = Ended { last: known.last.max(request), gone: known.gone || gone };
        } else if known.last < request {
            *known = ended;
        }
    }
}

impl fmt::Debug for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values()).finish()
    }
}
