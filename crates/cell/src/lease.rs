//! Leases between pairs of cells, which no log knows of.
//!
//! A home *beats*: it sends the time, and a guard sends it back. What the home was given is its own for a lease from when
//! it sent the last beat that came back. The guard gives it to others a lease and a grace after it last heard
//! one. A beat is heard after it is sent, so the guard counts from later than the home, and longer: the home has stopped
//! before, as long as its clock runs at most as much slower than the guard's as the grace is of the lease and grace
//! together.
//!
//! Whoever has just started has heard from everybody just now: that only makes leases longer, for the guard. A home that has just
//! started has no lease until a beat comes back; whoever uses what it holds knows until when.
//!
//! Times are those of a clock that goes on while the machine sleeps.

use std::collections::BTreeMap;

use holdall_core::CellId;
use holdall_wire::RequestNo;

use crate::Cell;
use crate::books::Entry;

/// How long things take, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a home may use what it was given without hearing from the guard.
    pub lease: u64,
    /// How much longer the guard waits before it gives it to others.
    pub grace: u64,
    /// How long before the end of the lease a home begins to stop whoever uses it.
    pub stopping: u64,
    /// After how long without a word those who wait do not stand in the way of others any more.
    pub suspicion: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { lease: 60_000, grace: 10_000, stopping: 15_000, suspicion: 25_000 }
    }
}

impl Terms {
    /// After how long nobody uses any more what it was given and did not hear of since.
    pub fn patience(&self) -> u64 {
        self.lease.saturating_add(self.grace)
    }

    /// How often a home beats.
    pub fn beat(&self) -> u64 {
        (self.lease / 6).max(1)
    }
}

/// What is known of one other cell.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// As a home: when the last beat that came back was sent.
    confirmed: Option<u64>,
    /// Since when it is known here.
    since: u64,
    /// Whether it was said that the lease runs out.
    warned: bool,
    /// As a guard: when the last beat was heard.
    heard: u64,
    suspected: bool,
    lapsed: bool,
}

/// What has become of another cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not heard of for a while ([`Input::Suspected`](crate::Input)).
    Suspected(CellId),
    /// Its lease, and the grace, are over ([`Input::Lapsed`](crate::Input)).
    Lapsed(CellId),
    /// The own lease there is about to be over ([`Input::LeaseOver`](crate::Input)).
    LeaseOver(CellId),
}

/// How it stands with what some guards have given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// It needs no lease: nobody else guards it.
    Own,
    /// It may be used until then.
    Until(u64),
    /// A guard has not confirmed it since the start: it is told when one has.
    Unknown,
    /// That of this guard is about to end: it is over, and not told.
    Over(CellId),
}

/// The leases of a cell with all others.
#[derive(Clone, Debug)]
pub struct Leases {
    terms: Terms,
    pairs: BTreeMap<CellId, Pair>,
}

impl Leases {
    /// Leases with these cells, from now on.
    pub fn new(terms: Terms, now: u64, cells: impl IntoIterator<Item = CellId>) -> Self {
        let mut leases = Self { terms, pairs: BTreeMap::new() };
        cells.into_iter().for_each(|cell| leases.add(now, cell));
        leases
    }

    /// One more cell.
    pub fn add(&mut self, now: u64, cell: CellId) {
        let (confirmed, warned, suspected, lapsed) = (None, false, false, false);
        let pair = Pair { confirmed, since: now, warned, heard: now, suspected, lapsed };
        self.pairs.entry(cell).or_insert(pair);
    }

    /// A cell that is gone for good.
    pub fn remove(&mut self, cell: CellId) {
        self.pairs.remove(&cell);
    }

    /// There is a link to a cell. Whatever it had leased was taken from its users if it was said that the lease runs out: what it
    /// gives from now on counts from the next beat that comes back, not from the last one before.
    pub fn linked(&mut self, now: u64, cell: CellId) {
        if let Some(pair) = self.pairs.get_mut(&cell).filter(|pair| pair.warned) {
            (pair.confirmed, pair.since, pair.warned) = (None, now, false);
        }
    }

    /// A beat of another home has arrived.
    pub fn heard(&mut self, now: u64, cell: CellId) {
        if let Some(pair) = self.pairs.get_mut(&cell) {
            (pair.heard, pair.suspected, pair.lapsed) = (pair.heard.max(now), false, false);
        }
    }

    /// A beat that was sent at a time has come back from a guard.
    pub fn confirmed(&mut self, sent: u64, cell: CellId) {
        if let Some(pair) = self.pairs.get_mut(&cell) {
            pair.confirmed = pair.confirmed.max(Some(sent));
            pair.warned = false;
        }
    }

    /// Until when what a guard has given may be used; none if it has never confirmed it since the start.
    pub fn deadline(&self, cell: CellId) -> Option<u64> {
        let confirmed = self.pairs.get(&cell)?.confirmed?;
        Some(confirmed.saturating_add(self.terms.lease))
    }

    /// How it stands now with what these guards have given: what is looked at before a grant is told, or prepared for.
    pub fn given(&self, guards: impl IntoIterator<Item = CellId>, now: u64) -> Given {
        let mut least: Option<u64> = None;
        for guard in guards {
            let Some(deadline) = self.deadline(guard) else { return Given::Unknown };
            if deadline <= now.saturating_add(self.terms.stopping) {
                return Given::Over(guard);
            }
            least = Some(least.map_or(deadline, |least| least.min(deadline)));
        }
        least.map_or(Given::Own, Given::Until)
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<u64> {
        self.pairs.values().flat_map(|pair| self.due(pair)).flatten().min()
    }

    /// When a cell is suspected, has lapsed, and when the own lease there is nearly over.
    fn due(&self, pair: &Pair) -> [Option<u64>; 3] {
        let Terms { lease, grace, stopping, suspicion } = self.terms;
        // What was confirmed before the start was so before: then whoever uses it knows better until when.
        let confirmed = pair.confirmed.unwrap_or(pair.since);
        let stops = confirmed.saturating_add(lease.saturating_sub(stopping));
        [
            (!pair.suspected).then(|| pair.heard.saturating_add(suspicion)),
            (!pair.lapsed).then(|| pair.heard.saturating_add(lease).saturating_add(grace)),
            (!pair.warned).then_some(stops),
        ]
    }

    /// What has become of the other cells by now; each thing once.
    pub fn look(&mut self, now: u64) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        let all: Vec<_> =
            self.pairs.iter().map(|(cell, pair)| (*cell, self.due(pair).map(is_due))).collect();
        for (cell, [suspected, lapsed, over]) in all {
            let Some(pair) = self.pairs.get_mut(&cell) else { continue };
            pair.suspected |= suspected;
            pair.lapsed |= lapsed;
            pair.warned |= over;
            verdicts.extend(over.then_some(Verdict::LeaseOver(cell)));
            verdicts.extend(suspected.then_some(Verdict::Suspected(cell)));
            verdicts.extend(lapsed.then_some(Verdict::Lapsed(cell)));
        }
        verdicts
    }
}

impl Cell {
    /// How it stands now with a grant: it is told together with the time until which it may be used, or not yet, or not at all.
    pub fn given(&self, leases: &Leases, request: RequestNo, now: u64) -> Given {
        let is_reserved = self.books().get(request).is_none_or(Entry::is_reserved);
        if is_reserved || self.books().ties().id(request).is_none() {
            return Given::Own;
        }
        leases.given(self.engine().leased_by(request), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: CellId = CellId(7);
    const TERMS: Terms = Terms { lease: 60, grace: 10, stopping: 15, suspicion: 20 };

    #[test]
    fn a_home_stops_before_its_guard_gives_to_others() {
        let (mut home, mut guard) =
            (Leases::new(TERMS, 0, [OTHER]), Leases::new(TERMS, 0, [OTHER]));
        // Sent at 100, heard at 130, back at 150.
        guard.heard(130, OTHER);
        home.confirmed(100, OTHER);
        assert_eq!(home.deadline(OTHER), Some(160));
        assert_eq!(home.look(144), [Verdict::Suspected(OTHER), Verdict::Lapsed(OTHER)]);
        assert_eq!(home.look(145), [Verdict::LeaseOver(OTHER)]);
        assert_eq!(home.look(200), []);
        assert_eq!(guard.look(149), [Verdict::LeaseOver(OTHER)], "it has none there");
        assert_eq!(guard.look(150), [Verdict::Suspected(OTHER)]);
        assert_eq!(guard.look(199), []);
        assert_eq!(guard.next_due(), Some(200));
        assert_eq!(guard.look(200), [Verdict::Lapsed(OTHER)]);
        assert_eq!(guard.next_due(), None);
    }

    #[test]
    fn what_is_given_lasts_as_long_as_the_shortest_lease() {
        let (own, third) = (Leases::new(TERMS, 0, []), CellId(8));
        assert_eq!(own.given([], 0), Given::Own);
        let mut home = Leases::new(TERMS, 0, [OTHER, third]);
        assert_eq!(home.given([OTHER], 0), Given::Unknown);
        home.confirmed(100, OTHER);
        assert_eq!(home.given([OTHER, third], 110), Given::Unknown);
        home.confirmed(90, third);
        assert_eq!(home.given([OTHER, third], 110), Given::Until(150));
        assert_eq!(home.given([OTHER, third], 134), Given::Until(150));
        assert_eq!(home.given([OTHER, third], 135), Given::Over(third), "it is to be stopped now");
    }

    #[test]
    fn whoever_has_started_and_hears_nothing_stops_what_it_found() {
        let mut home = Leases::new(TERMS, 100, [OTHER]);
        assert_eq!(home.deadline(OTHER), None);
        home.heard(144, OTHER);
        assert_eq!(home.look(144), []);
        assert_eq!(home.look(145), [Verdict::LeaseOver(OTHER)]);
        assert_eq!(home.look(146), [], "it is said once");
    }

    /// Who has waited while a guard was away is not stopped for a lease of before.
    #[test]
    fn after_a_lease_has_run_out_the_next_link_begins_anew() {
        let mut home = Leases::new(TERMS, 0, [OTHER]);
        home.confirmed(100, OTHER);
        home.linked(120, OTHER);
        assert_eq!(home.deadline(OTHER), Some(160), "it has not run out");
        assert!(home.look(145).contains(&Verdict::LeaseOver(OTHER)));
        home.linked(300, OTHER);
        assert_eq!(home.deadline(OTHER), None, "not known yet");
        assert!(!home.look(344).contains(&Verdict::LeaseOver(OTHER)));
        assert!(home.look(345).contains(&Verdict::LeaseOver(OTHER)), "no beat came back");
    }

    #[test]
    fn a_beat_that_comes_back_late_moves_nothing_back() {
        let mut home = Leases::new(TERMS, 0, [OTHER]);
        home.confirmed(50, OTHER);
        home.confirmed(20, OTHER);
        assert_eq!(home.deadline(OTHER), Some(110));
        home.remove(OTHER);
        assert_eq!((home.deadline(OTHER), home.next_due()), (None, None));
    }
}
