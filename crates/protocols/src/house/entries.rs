//! The requests at a manager: in the order in which they came, and by what they have to do with.
//!
//! A change concerns few: whoever has changed, and whoever needs what was given up. The container
//! keeps both in mind from one look ([`Manager::scan`](super::Manager)) to the next, so that a look
//! costs what the change costs, however many others there are.
//!
//! Only the requests and their order are the state. Everything else follows from them, and is
//! neither compared nor hashed nor written down.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Bound;

use holdall_core::{PoolId, RequestId, Seldom};
use serde::{Deserialize, Serialize};

use super::Round;
use super::arrivals::Arrivals;
use super::entry::{Entry, Patience};
use super::places::{Arrival, AtPool, Order, Places, Rank};
use crate::few::Few;

/// The requests at a manager.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(super) struct Entries {
    by_arrival: BTreeMap<Arrival, Box<Entry>>,
    arrivals: Arrivals,
    next: Arrival,
    /// Those who wait and have a round.
    rounds: BTreeSet<Rank>,
    pub(super) places: Places,
    pub(super) changes: Changes,
    /// The pools that the last look was about.
    looked_at: Few<PoolId>,
}

/// What has changed since the last look.
#[derive(Clone, Default)]
pub(super) struct Changes {
    /// Something is different here.
    pub(super) touched: Few<PoolId>,
    /// There may be more room here than before.
    pub(super) freed: Few<PoolId>,
    /// Others may be overdue here than before.
    pub(super) overdue: Few<PoolId>,
    /// They wait, and did not in this way before.
    pub(super) fresh: Few<Arrival>,
}

/// What of a request may change.
struct Before {
    round: Option<Round>,
    held: bool,
    competes: bool,
    is_unplaced: bool,
    waited_for: Seldom<BTreeMap<Patience, u8>>,
}

impl Before {
    fn of(entry: &Entry) -> Self {
        Self {
            round: entry.round,
            held: entry.held,
            competes: entry.competes(),
            is_unplaced: entry.is_unplaced(),
            waited_for: entry.waited_for.clone(),
        }
    }
}

impl Changes {
    fn note(&mut self, at: Arrival, before: &Before, after: &Entry) {
        let moved = before.round != after.round;
        let gives_way =
            before.held != after.held || before.competes && (moved || !after.competes());
        let takes = before.competes && after.held;
        for need in after.needs.iter() {
            self.touched.insert(need.pool);
            if gives_way && !takes {
                self.freed.insert(need.pool);
            }
            if before.waited_for != after.waited_for {
                self.overdue.insert(need.pool);
            }
        }
        if after.held {
            self.fresh.remove(&at);
        } else {
            self.fresh.insert(at);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.fresh.is_empty()
    }

    fn clear(&mut self) {
        self.touched.clear();
        self.freed.clear();
        self.overdue.clear();
        self.fresh.clear();
    }
}

impl Entries {
    pub(super) fn new(order: Order) -> Self {
        Self {
            by_arrival: BTreeMap::new(),
            arrivals: Arrivals::default(),
            next: 0,
            rounds: BTreeSet::new(),
            places: Places::new(order),
            changes: Changes::default(),
            looked_at: Few::default(),
        }
    }

    /// The look is over: from here on, changes are noted anew.
    pub(super) fn looked(&mut self) {
        core::mem::swap(&mut self.looked_at, &mut self.changes.touched);
        self.changes.clear();
    }

    /// The pools that the last look was about.
    pub(super) fn looked_at(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.looked_at.iter().copied()
    }

    /// All of them, in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.by_arrival.values().map(|entry| &**entry)
    }

    /// Those who wait and have a round, in the order of service, from a place on.
    pub(super) fn with_round(&self, after: Option<Rank>) -> impl Iterator<Item = &Rank> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.rounds.range((start, Bound::Unbounded))
    }

    /// The others who wait, in the order in which they came, from an arrival on.
    pub(super) fn without_round(&self, from: Arrival) -> impl Iterator<Item = (Arrival, &Entry)> {
        let entries = self.by_arrival.range(from..).map(|(at, entry)| (*at, &**entry));
        entries.filter(|(_, entry)| !entry.held && entry.round.is_none())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    pub(super) fn get(&self, request: RequestId) -> Option<&Entry> {
        self.at(self.arrivals.get(request)?)
    }

    pub(super) fn arrival(&self, request: RequestId) -> Option<Arrival> {
        self.arrivals.get(request)
    }

    pub(super) fn at(&self, at: Arrival) -> Option<&Entry> {
        self.by_arrival.get(&at).map(|entry| &**entry)
    }

    pub(super) fn of_pool(&self, pool: PoolId) -> &AtPool {
        self.places.of_pool(pool)
    }

    pub(super) fn rank(&self, at: Arrival, entry: &Entry) -> Rank {
        self.places.rank(at, entry)
    }

    /// Whether nobody waits for what has changed since the last look, nor was passed too often.
    pub(super) fn nobody_minds(&self) -> bool {
        self.changes.fresh.is_empty()
            && self.has_passed_nobody()
            && self.changes.touched.iter().all(|pool| self.of_pool(*pool).is_undisputed())
    }

    /// Whether nobody without a round was passed too often.
    pub(super) fn has_passed_nobody(&self) -> bool {
        self.places.passed.is_empty() && self.places.order.passes > 0
    }

    pub(super) fn has_nobody_at(&self, pool: PoolId) -> bool {
        !self.places.pools.contains_key(&pool)
    }

    /// Those without a round who were passed too often at some pool.
    pub(super) fn passed(&self) -> BTreeSet<Arrival> {
        let mut passed = BTreeSet::new();
        if self.places.order.passes == 0 {
            passed.extend(&self.places.unplaced);
        }
        for pool in &self.places.passed {
            let at_pool = self.of_pool(*pool);
            // Whoever is older was passed at least as often.
            let mut times = at_pool.passed;
            for at in at_pool.unplaced.iter() {
                if times < u64::from(self.places.order.passes) {
                    break;
                }
                passed.insert(*at);
                times -= self.at(*at).map_or(0, |entry| u64::from(entry.passed_at(*pool)));
            }
        }
        passed
    }

    pub(super) fn push(&mut self, entry: Entry) -> Arrival {
        let at = self.next;
        self.next += 1;
        self.insert(at, entry);
        at
    }

    /// Somebody came then.
    pub(super) fn insert(&mut self, at: Arrival, entry: Entry) {
        self.changes.touched.extend(entry.needs.iter().map(|need| need.pool));
        if !entry.held {
            self.changes.fresh.insert(at);
        }
        self.places.enter(at, &entry);
        let key = entry.key().filter(|_| !entry.held);
        self.rounds.extend(key.map(|key| (false, Some(key), at)));
        self.arrivals.insert(entry.request, at);
        self.by_arrival.insert(at, Box::new(entry));
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Entry> {
        let at = self.arrivals.remove(request)?;
        let mut entry = *self.by_arrival.remove(&at)?;
        self.places.leave(at, &entry);
        if let Some(key) = entry.key() {
            self.rounds.remove(&(false, Some(key), at));
        }
        if entry.is_unplaced() {
            for (pool, more) in entry.take_passes() {
                self.add_passes(at, pool, more);
            }
        }
        for need in entry.needs.iter() {
            self.changes.touched.insert(need.pool);
            if entry.held || entry.competes() {
                self.changes.freed.insert(need.pool);
            }
            if !entry.waited_for.is_empty() {
                self.changes.overdue.insert(need.pool);
            }
        }
        self.changes.fresh.remove(&at);
        Some(entry)
    }

    /// Changes what is known of a request. What it needs stays as it is.
    pub(super) fn change(&mut self, at: Arrival, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.by_arrival.get_mut(&at) else { return };
        self.places.leave(at, entry);
        let before = Before::of(entry);
        let waited_under = entry.key().filter(|_| !entry.held);
        change(entry);
        let waits_under = entry.key().filter(|_| !entry.held);
        self.rounds.extend(waits_under.map(|key| (false, Some(key), at)));
        if let Some(key) = waited_under.filter(|_| waited_under != waits_under) {
            self.rounds.remove(&(false, Some(key), at));
        }
        let placed = before.is_unplaced && !entry.is_unplaced();
        let handed_down = placed.then(|| entry.take_passes());
        self.changes.note(at, &before, entry);
        self.places.enter(at, entry);
        for (pool, more) in handed_down.into_iter().flatten() {
            self.add_passes(at, pool, more);
        }
    }

    /// Somebody was served: those who came before, wait without a round, and want some of the same,
    /// were passed. Only the last of them counts one more than those behind it.
    pub(super) fn note_passed(&mut self, by: Arrival) {
        let Some(needs) = self.at(by).map(|entry| entry.needs.clone()) else { return };
        for need in needs.iter() {
            self.add_passes(by, need.pool, 1);
        }
    }

    /// Whoever waits without a round, and came last before somebody, was passed so often more than
    /// those behind it.
    fn add_passes(&mut self, before: Arrival, pool: PoolId, more: u32) {
        let Some(at_pool) = self.places.pools.get_mut(&pool) else { return };
        let Some(last) = at_pool.unplaced.last_before(before) else { return };
        let Some(entry) = self.by_arrival.get_mut(last) else { return };
        at_pool.passed += u64::from(entry.add_passes(pool, more));
        if at_pool.passed >= u64::from(self.places.order.passes) {
            self.places.passed.insert(pool);
        }
    }

    /// There may be more room in a pool than before.
    pub(super) fn free(&mut self, pool: PoolId) {
        self.changes.touched.insert(pool);
        self.changes.freed.insert(pool);
    }

    /// A pool has more units than before, or fewer.
    pub(super) fn resize(&mut self, pool: PoolId) {
        self.free(pool);
        self.changes.overdue.insert(pool);
    }

    /// Whatever there is may have changed.
    pub(super) fn doubt_everything(&mut self) {
        let pools = || self.places.pools.keys().copied();
        self.changes.touched.extend(pools());
        self.changes.freed.extend(pools());
        self.changes.overdue.extend(pools());
        let waiting = self.by_arrival.iter().filter(|(_, entry)| !entry.held);
        self.changes.fresh.extend(waiting.map(|(at, _)| *at));
    }

    /// Whether everything that follows from the requests is as if they had just been told. For
    /// tests: it takes as long as there are requests.
    pub(super) fn is_in_step(&self) -> bool {
        let anew = Self::from(Written::from(self.clone()));
        let places: BTreeMap<Arrival, Arrival> = self.by_arrival.keys().copied().zip(0..).collect();
        let place = |at: &Arrival| places.get(at).copied();
        let in_step = self.places.renumbered(place).is_some_and(|places| places == anew.places);
        let round = |(last, key, at): &Rank| Some((*last, *key, place(at)?));
        let rounds = self.rounds.iter().map(round).collect::<Option<_>>();
        let in_step = in_step && rounds == Some(anew.rounds);
        in_step && self.arrivals.iter().map(|at| place(&at)).eq(anew.arrivals.iter().map(Some))
    }
}

/// What is written down of it.
#[derive(Serialize, Deserialize)]
struct Written {
    order: Order,
    entries: Vec<Entry>,
}

impl From<Entries> for Written {
    fn from(entries: Entries) -> Self {
        let Entries { places, by_arrival, .. } = entries;
        let order = places.order;
        Self { order, entries: by_arrival.into_values().map(|entry| *entry).collect() }
    }
}

impl From<Written> for Entries {
    fn from(Written { order, entries }: Written) -> Self {
        let mut all = Self::new(order);
        for entry in entries {
            all.push(entry);
        }
        all.changes = Changes::default();
        all
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Entries {}

impl Hash for Entries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.by_arrival.len().hash(state);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
