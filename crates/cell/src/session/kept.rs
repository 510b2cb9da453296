//! Sessions as a snapshot has them: without what can be counted again. Which of them hold reservations is not known before the
//! books are read, so among the times at which leases lapse are those of all that have no connection.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use rustc_hash::FxHashMap;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::one::Session;
use super::{ConnNo, SessionId, Sessions};
use crate::sorted::{self, Sorted};

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

impl Serialize for Sessions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let lapses = self.sessions.iter();
        let lapses = lapses.filter_map(|(id, one)| Some((one.lapses_otherwise()?, *id)));
        let mut kept = to.serialize_struct("Kept", 4)?;
        kept.serialize_field("sessions", &Sorted(&self.sessions))?;
        kept.serialize_field("attached", &Sorted(&self.attached))?;
        kept.serialize_field("lapses", &lapses.collect::<BTreeSet<_>>())?;
        kept.serialize_field("of_users", &self.of_users)?;
        kept.end()
    }
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
