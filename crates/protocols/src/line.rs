//! A queue in the order of agreed times (Skeen's total order multicast), one for each pool.
//!
//! A manager proposes a time later than all it has seen; the user takes the latest proposal for
//! all its pools; that is the request's place in every queue. Ties are broken by the user's id.
//! Since a proposal can only grow, nothing can still come before an entry that is agreed and first;
//! so all queues serve common requests in the same order.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{
    Addr, Broken, Clock, ManagerId, Need, Origin, Party, PoolId, Request, RequestId, rules,
};
use serde::{Deserialize, Serialize};

use crate::pool::Share;

rules! {
    /// The rules of such queues that are in force.
    pub(crate) struct LineRules {
        latest "latest": "the agreed time is the latest proposal, the same for all queues",
        tentative "tentative": "a proposed time holds back later ones until it is agreed",
        ties "ties": "equal times are ordered by user, not by arrival",
        hear "hear": "a manager's clock passes every agreed time it hears of",
    }
}

/// Those who wait at one pool, in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Line {
    clock: Clock,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    share: Share,
    time: Clock,
    agreed: bool,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}{}", self.share, self.time, if self.agreed { "" } else { "?" })
    }
}

impl Line {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { clock: Clock::first(origin), entries: Vec::new() }
    }

    /// Lets a request join, at a time yet to be agreed; returns the time proposed.
    pub(crate) fn join(&mut self, rules: LineRules, share: Share) -> Clock {
        self.clock = self.clock.next();
        self.insert(rules, Entry { share, time: self.clock, agreed: false });
        self.clock
    }

    /// Sets the time of a request; of one that has left there is none to set. False if that is
    /// what no honest user does. No honest clock is far ahead of another, but strangers may have
    /// led it astray, and an honest user believes it: its request is lost here, and that is all.
    pub(crate) fn agree(&mut self, rules: LineRules, request: RequestId, time: Clock) -> bool {
        if time.leaps_beyond(self.clock) {
            self.remove(request);
            return true;
        }
        if rules.hear {
            self.clock = self.clock.max(time);
        }
        let Some(at) = self.place_of(request) else { return true };
        let entry = self.entries[at];
        if entry.agreed || time < entry.time {
            return false;
        }
        self.entries.remove(at);
        self.insert(rules, Entry { time, agreed: true, ..entry });
        true
    }

    /// Who is next, if its time is agreed.
    pub(crate) fn head(&self, rules: LineRules) -> Option<Share> {
        let next = match rules.tentative {
            true => self.entries.first().filter(|head| head.agreed),
            false => self.entries.iter().find(|entry| entry.agreed),
        };
        next.map(|entry| entry.share)
    }

    /// Takes a request out; false if it is not there.
    pub(crate) fn remove(&mut self, request: RequestId) -> bool {
        let at = self.place_of(request);
        at.map(|at| self.entries.remove(at)).is_some()
    }

    pub(crate) fn forget(&mut self, who: Party) {
        self.entries.retain(|entry| !who.includes(entry.share.request.user));
    }

    pub(crate) fn contains(&self, request: RequestId) -> bool {
        self.place_of(request).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn place_of(&self, request: RequestId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.share.request == request)
    }

    fn insert(&mut self, rules: LineRules, entry: Entry) {
        let user = entry.share.request.user;
        let before = |e: &Entry| {
            e.time < entry.time
                || e.time == entry.time && (!rules.ties || e.share.request.user < user)
        };
        self.entries.insert(self.entries.partition_point(before), entry);
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        Broken::unless(
            self.entries.is_sorted_by_key(|entry| entry.time),
            "S2: the queue is in the order of time",
        )
    }
}

/// A request that gathers proposals from the managers of its pools.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Joining {
    request: Request,
    /// In the order of its needs.
    proposals: Vec<Option<Clock>>,
}

impl Joining {
    pub(crate) fn new(request: Request) -> Self {
        let proposals = alloc::vec![None; request.needs.len()];
        Self { request, proposals }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Takes a proposal. With the last one, the time that each need is given.
    pub(crate) fn on_proposed(
        &mut self,
        rules: LineRules,
        from: Addr,
        manager_of: impl Fn(PoolId) -> ManagerId,
        time: Clock,
    ) -> Result<Option<Vec<(Need, Clock)>>, &'static str> {
        let guards = |need: &Need| Addr::Manager(manager_of(need.pool)) == from;
        let at = self.request.needs.iter().position(guards).ok_or("proposed: by a stranger")?;
        match &mut self.proposals[at] {
            slot @ None => *slot = Some(time),
            Some(_) => return Err("proposed: twice"),
        }
        let all: Option<Vec<Clock>> = self.proposals.iter().copied().collect();
        let latest = self.proposals.iter().copied().max().flatten().filter(|_| rules.latest);
        let agreed = |times: Vec<Clock>| {
            let times = times.into_iter().map(|time| latest.unwrap_or(time));
            self.request.needs.iter().cloned().zip(times).collect()
        };
        Ok(all.map(agreed))
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{Options, UserId};

    use super::*;

    /// Strangers lead one clock astray, leap by leap; whoever believes it is not at fault.
    #[test]
    fn a_time_too_far_ahead_loses_the_request_and_accuses_nobody() {
        let rules = LineRules::new(&Options::default());
        let mut line = Line::new(Origin::default());
        let share =
            |lane| Share { request: RequestId { user: UserId::first(lane), seq: 1 }, units: 1 };
        let proposed = line.join(rules, share(0));
        line.join(rules, share(1));
        assert!(line.agree(rules, share(0).request, proposed.plus(u64::MAX)));
        assert!(!line.contains(share(0).request));
        assert!(line.join(rules, share(2)) < proposed.plus(10), "the clock has not followed");
        assert!(line.contains(share(1).request));
    }
}
