//! What the proof of exclusion sees of the roles: who holds what, and who knows (`docs/proof.md`); and its
//! heart, H2, looked at in every state of the whole system.

use alloc::vec::Vec;

use holdall_core::{Addr, Broken, ManagerId, Needs, Picked, RequestId, System};
use serde::Serialize;

use super::manager::Manager;
use super::user::{Phase, Quest, User};
use super::{House, ToUser};
use crate::lanes::Latest;

/// A manager as the proof sees it.
#[derive(Debug, Serialize)]
pub struct SeenManager<'a> {
    entries: Vec<SeenEntry<'a>>,
    choosing: Vec<RequestId>,
    lanes: Vec<Latest>,
}

#[derive(Debug, Serialize)]
struct SeenEntry<'a> {
    request: RequestId,
    needs: &'a Needs,
    n: u32,
    held: bool,
    units: &'a Picked,
}

/// The request of a user as the proof sees it.
#[derive(Debug, Serialize)]
pub struct SeenQuest<'a> {
    request: RequestId,
    needs: &'a Needs,
    granted: bool,
    parts: Vec<SeenPart<'a>>,
}

#[derive(Debug, Serialize)]
struct SeenPart<'a> {
    manager: ManagerId,
    n: u32,
    held: bool,
    units: &'a Picked,
}

impl Manager {
    /// What the proof sees of it.
    pub fn seen(&self) -> SeenManager<'_> {
        let entries = self.entries.iter().map(|entry| SeenEntry {
            request: entry.request,
            needs: &entry.needs,
            n: entry.n,
            held: entry.held,
            units: &entry.units,
        });
        SeenManager {
            entries: entries.collect(),
            choosing: self.choosing.keys().copied().collect(),
            lanes: self.lanes.latest().collect(),
        }
    }

    /// Whether it holds these units of listed pools for a stance of a request.
    fn holds(&self, request: RequestId, n: u32, units: &Picked) -> bool {
        let same = |entry: &super::entry::Entry| entry.n == n && *entry.units == *units;
        self.entry(request).is_some_and(|entry| entry.held && same(entry))
    }
}

impl User {
    /// What the proof sees of it.
    pub fn seen(&self) -> Option<SeenQuest<'_>> {
        let quest = self.quest.as_ref()?;
        let parts = quest.parts.iter().map(|part| SeenPart {
            manager: part.manager,
            n: part.n,
            held: part.held,
            units: &part.units,
        });
        Some(SeenQuest {
            request: self.request()?,
            needs: quest.parts.needs(),
            granted: quest.phase == Phase::Granted,
            parts: parts.collect(),
        })
    }
}

/// H2: whatever a manager has said of the latest stance of a request under way is still true, whether
/// its user has heard it or not.
pub(super) fn check(system: &impl System<House>) -> Result<(), Broken> {
    // Nothing is gathered first: the checker asks this of millions of states, and in most there is little to look at.
    let holds = |at: ManagerId, request: RequestId, n: u32, units: &Picked| {
        system.managers().nth(at.index()).is_some_and(|manager| manager.holds(request, n, units))
    };
    let quests = || system.users().filter_map(|user| Some((user.request()?, user.quest.as_ref()?)));
    for (request, quest) in quests() {
        let mut counted = quest.parts.iter().filter(|part| part.held);
        Broken::unless(
            counted.all(|part| holds(part.manager, request, part.n, &part.units)),
            "H2: what a user counts as held is held, for its latest stance",
        )?;
    }
    for (from, msg) in system.to_users() {
        let (Addr::Manager(from), ToUser::Yes { request, n, units }) = (from, msg) else {
            continue;
        };
        let latest = |(under_way, quest): (RequestId, &Quest)| {
            let mut parts = quest.parts.iter();
            under_way == *request && parts.any(|part| (part.manager, part.n) == (from, *n))
        };
        let counts = quests().any(latest);
        Broken::unless(
            !counts || holds(from, *request, *n, units),
            "H2: a yes to the latest stance is true when it arrives",
        )?;
    }
    Ok(())
}
