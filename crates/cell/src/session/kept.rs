//! Sessions as a snapshot has them: without what can be counted again.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::one::Session;
use super::{ConnNo, SessionId, Sessions};
use crate::sorted;

/// As a snapshot has them.
#[derive(Deserialize)]
pub(super) struct Kept {
    #[serde(with = "sorted")]
    sessions: HashMap<SessionId, Session>,
    #[serde(with = "sorted")]
    attached: FxHashMap<ConnNo, SessionId>,
    lapses: BTreeSet<(u64, SessionId)>,
    of_users: BTreeMap<u32, u32>,
}

impl From<Kept> for Sessions {
    fn from(kept: Kept) -> Self {
        let Kept { sessions, attached, lapses, of_users } = kept;
        let unheard = count_unheard(&sessions);
        Self { sessions, attached, lapses, of_users, unheard }
    }
}

/// How many calls of each user are not acknowledged.
pub(super) fn count_unheard(sessions: &HashMap<SessionId, Session>) -> FxHashMap<u32, usize> {
    let mut unheard = FxHashMap::default();
    for session in sessions.values().filter(|session| session.unheard() > 0) {
        *unheard.entry(session.uid).or_default() += session.unheard();
    }
    unheard
}
