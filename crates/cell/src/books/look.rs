//! What the books tell, and whether they are right.

use std::collections::{BTreeMap, BTreeSet};

use holdall_wire::{Drained, Name, RequestNo};

use super::{Books, Entry, Held, OfUser, Pool};
use crate::facts::Clock;
use crate::session::Sessions;

impl Books {
    /// A pool.
    pub fn pool(&self, name: &Name) -> Option<&Pool> {
        self.pools.get(name)
    }

    /// How many requests of a user wait.
    pub fn waiting_of(&self, uid: u32) -> u32 {
        self.of_users.get(&uid).map_or(0, |of_user| of_user.waiting)
    }

    /// How many requests wait or hold.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// How many reservations a user has, granted or not.
    pub fn reservations_of(&self, uid: u32) -> u32 {
        self.of_users.get(&uid).map_or(0, |of_user| of_user.reserved)
    }

    /// What the times here mean.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// New whenever memory may have been lost.
    pub fn life(&self) -> u128 {
        self.life
    }

    /// The pools there are.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, &Pool)> {
        self.pools.iter()
    }

    /// The units that are given to nobody, by name.
    pub fn drained(&self) -> &[(Name, Drained)] {
        self.drained.all()
    }

    /// When the next of them is no longer.
    pub fn next_undrain(&self) -> Option<u64> {
        self.drained.until()
    }

    /// What is held, oldest request first.
    pub fn grants(&self) -> impl Iterator<Item = (RequestNo, &Entry, &Held)> {
        let all = self.requests.iter();
        let held =
            all.filter_map(|(request, entry)| Some((*request, &**entry, entry.held.as_ref()?)));
        let mut held: Vec<_> = held.collect();
        held.sort_unstable_by_key(|(request, ..)| *request);
        held.into_iter()
    }

    /// What waits, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestNo, &Entry)> {
        let all = self.requests.iter().filter(|(_, entry)| entry.held.is_none());
        let mut waiting: Vec<_> = all.map(|(request, entry)| (*request, &**entry)).collect();
        waiting.sort_unstable_by_key(|(request, _)| *request);
        waiting.into_iter()
    }

    /// The highest number or fence there was: whoever goes on does so above it.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// A request that waits or holds.
    pub fn get(&self, request: RequestNo) -> Option<&Entry> {
        self.requests.get(&request).map(|entry| &**entry)
    }

    /// Whether a request is that of a user of this machine. A number that another home tells means nobody here.
    pub fn is_of(&self, request: RequestNo, uid: Option<u32>) -> bool {
        let is_theirs = self.get(request).is_some_and(|entry| uid == Some(entry.who.uid));
        is_theirs && self.ties.foreign(request).is_none()
    }

    /// When a grant is next to be looked at, and which.
    pub fn next_due(&self) -> Option<(u64, RequestNo)> {
        self.due.first().copied()
    }

    /// Looks whether the invariants hold, all of them: for tests, and for checkers.
    ///
    /// # Errors
    /// Names the one that does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let all = self.requests.iter();
        let due = all.filter_map(|(request, entry)| Some((entry.due()?, *request)));
        if due.collect::<BTreeSet<_>>() != self.due {
            return Err("B5: the times to look at grants are others than those of the grants");
        }
        self.check_uses()?;
        for (request, entry) in &self.requests {
            if request.0 > self.highest {
                return Err("B2: a number is above all that there were");
            }
            let open = entry.session.map(|(session, call)| self.sessions.request(session, call));
            if open.is_some_and(|open| open != Some(*request)) {
                return Err("B6: a request is not what the call that asked has open");
            }
        }
        let mut of_users: BTreeMap<u32, OfUser> = BTreeMap::new();
        for entry in self.requests.values().filter(|e| e.held.is_none() || e.is_reserved()) {
            let of_user = of_users.entry(entry.who.uid).or_default();
            of_user.waiting += u32::from(entry.held.is_none());
            of_user.reserved += u32::from(entry.is_reserved());
        }
        let owed: u64 = self.requests.values().map(|entry| u64::from(entry.owed)).sum();
        if (&of_users, owed) != (&self.of_users, self.owed) {
            return Err("what users have, or is owed, is other than what the requests say");
        }
        let mut reserved = BTreeMap::new();
        self.reserved_by().for_each(|session| *reserved.entry(session).or_default() += 1);
        if reserved != self.sessions.reserved() {
            return Err("sessions hold other numbers of reservations than are counted");
        }
        if !self.ties.is_about(|request| self.get(*request).is_some_and(|one| one.held.is_some())) {
            return Err("something is agreed with other cells about what is not held");
        }
        self.sessions.check()
    }
}
