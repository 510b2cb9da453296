//! The two queues of a resource.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use holdall_core::{Addr, Party, RequestId};
use serde::{Deserialize, Serialize};

use super::entry::{Claim, Entry};
use crate::ring::Spot;

/// The strong queue, whose head has the resource, and the weak one, where requests stand aside
/// until the resource named before this one is theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Queues {
    strong: VecDeque<Entry>,
    weak: BTreeMap<RequestId, Entry>,
}

impl Queues {
    pub(super) fn head(&self) -> Option<&Entry> {
        self.strong.front()
    }

    pub(super) fn is_head(&self, claim: Claim) -> bool {
        self.head().is_some_and(|head| head.claim == claim)
    }

    pub(super) fn strong(&self) -> impl Iterator<Item = &Entry> {
        self.strong.iter()
    }

    /// The entry of a claim in the strong queue, with its position.
    pub(super) fn find(&self, claim: Claim) -> Option<(usize, &Entry)> {
        self.strong.iter().enumerate().find(|(_, entry)| entry.claim == claim)
    }

    fn aside(&self, request: RequestId) -> Option<&Entry> {
        self.weak.get(&request)
    }

    fn entry(&self, request: RequestId) -> Option<&Entry> {
        self.aside(request).or_else(|| self.strong.iter().find(|e| e.request() == request))
    }

    pub(super) fn knows(&self, request: RequestId) -> bool {
        self.entry(request).is_some()
    }

    pub(super) fn spot(&self, request: RequestId) -> Option<&Spot> {
        self.entry(request).map(|entry| &entry.spot)
    }

    /// Whether this claim can never again be found in the strong queue. It may still come there
    /// while its request stands aside without having failed at it.
    pub(super) fn is_over(&self, claim: Claim) -> bool {
        let to_come = self.aside(claim.request).is_some_and(|e| e.claim.attempt <= claim.attempt);
        self.find(claim).is_none() && !to_come
    }

    /// Whether a claim, here or at the place after this one, is known to have been given up.
    pub(super) fn gave_up(&self, claim: Claim) -> bool {
        let given_up = |known: Claim| known.place == claim.place && known.attempt > claim.attempt;
        self.entry(claim.request).is_some_and(|e| given_up(e.claim) || given_up(e.onward))
    }

    /// Joins the strong queue; whether it is now the head.
    pub(super) fn join(&mut self, entry: Entry) -> bool {
        self.strong.push_back(entry);
        self.strong.len() == 1
    }

    /// Stands aside.
    pub(super) fn set_aside(&mut self, entry: Entry) {
        self.weak.insert(entry.request(), entry);
    }

    /// Ends standing aside.
    pub(super) fn call_in(&mut self, request: RequestId) -> Option<Entry> {
        self.weak.remove(&request)
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.strong.pop_front()
    }

    /// Takes an entry out of the strong queue.
    pub(super) fn take(&mut self, position: usize) -> Option<Entry> {
        self.strong.remove(position)
    }

    /// Takes a request out, wherever it is; whether it was the head.
    pub(super) fn forget(&mut self, request: RequestId) -> Option<(Entry, bool)> {
        if let Some(entry) = self.weak.remove(&request) {
            return Some((entry, false));
        }
        let position = self.strong.iter().position(|entry| entry.request() == request)?;
        Some((self.strong.remove(position)?, position == 0))
    }

    /// The requests of a user, and who speaks for them here; only those for which this is the last
    /// resource, if told so.
    pub(super) fn of(&self, who: Party, last: bool) -> Vec<(RequestId, Addr)> {
        let all = self.strong.iter().chain(self.weak.values());
        let own = all.filter(|e| who.includes(e.request().user) && (e.spot.is_last() || !last));
        own.map(|entry| (entry.request(), entry.spot.speaker())).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.strong.is_empty() && self.weak.is_empty()
    }
}
