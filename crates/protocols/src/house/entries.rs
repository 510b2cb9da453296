//! The requests at a manager: in the order in which they came, and by what they have to do with.
//!
//! A change concerns few: whoever has changed, and whoever needs what was given up. The container
//! keeps both in mind from one look ([`Manager::scan`](super::Manager)) to the next, so that a look
//! costs what the change costs, however many others there are.
//!
//! Only the requests and their order are the state. Everything else follows from them, and is
//! neither compared nor hashed nor written down.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use holdall_core::{Needs, PoolId, RequestId};
use serde::{Deserialize, Serialize};

use super::Round;
use super::entry::{Entry, Patience};

/// When a request came, counted in requests.
pub(super) type Arrival = u64;

/// A place in the order of service. Whoever has no round yet comes last.
pub(super) type Rank = (bool, Option<(Round, RequestId)>, Arrival);

/// The requests at a manager.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(super) struct Entries {
    order: Order,
    by_arrival: BTreeMap<Arrival, Entry>,
    arrivals: BTreeMap<RequestId, Arrival>,
    next: Arrival,
    pools: BTreeMap<PoolId, AtPool>,
    /// Those who compete without a round.
    pub(super) unplaced: BTreeSet<Arrival>,
    /// The same by what they need.
    alike: BTreeMap<Needs, BTreeSet<Arrival>>,
    /// The pools where the oldest of them was passed too often.
    passed: BTreeSet<PoolId>,
    /// How many compete, by their patience.
    pub(super) patiences: BTreeMap<Patience, usize>,
    pub(super) changes: Changes,
    /// The pools that the last look was about.
    looked_at: BTreeSet<PoolId>,
}

/// How the queue is ordered.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Order {
    /// Whether rounds order it; otherwise arrival does.
    pub(super) by_round: bool,
    /// How often somebody without a round may be passed at a pool.
    pub(super) passes: u32,
}

/// Those who have to do with one pool.
#[derive(Clone, Default, PartialEq)]
pub(super) struct AtPool {
    pub(super) holding: BTreeSet<Arrival>,
    /// They compete under a round, in their order.
    pub(super) placed: BTreeSet<Rank>,
    /// They compete without one.
    pub(super) unplaced: BTreeSet<Arrival>,
    /// The first of those of them who need the same: where it does not fit, no other does.
    pub(super) leaders: BTreeSet<Arrival>,
    /// They wait, and do not compete.
    aside: BTreeSet<Arrival>,
    /// They hold, perhaps without having confirmed it, and have not been asked to give it back.
    pub(super) may_be_asked_back: BTreeSet<Rank>,
    /// How often the oldest without a round was passed.
    passed: u64,
    /// Units that are held.
    pub(super) held: u64,
    /// Units wanted by those who compete under a round.
    pub(super) wanted_placed: u64,
    /// Units wanted by all who compete.
    pub(super) wanted: u64,
    /// How many have a round, and other nodes to go to.
    contesting: usize,
    /// How many holders are overdue for somebody.
    overdue: usize,
    /// How many wait behind an overdue holder.
    blocked: usize,
}

impl AtPool {
    /// Those who wait, whether they compete or not.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Arrival> + '_ {
        let placed = self.placed.iter().map(|(_, _, at)| *at);
        placed.chain(self.unplaced.iter().copied()).chain(self.aside.iter().copied())
    }

    /// Whether a request that has other nodes to go to has a place here.
    pub(super) fn is_contested(&self) -> bool {
        self.contesting > 0
    }

    /// Whether somebody is overdue, or was, and others have stepped aside.
    pub(super) fn is_held_up(&self) -> bool {
        self.overdue > 0 || self.blocked > 0
    }

    fn is_empty(&self) -> bool {
        self.holding.is_empty() && self.waiting().next().is_none()
    }

    /// The same with other numbers for those who are here, if all are known.
    fn renumbered(&self, place: impl Fn(&Arrival) -> Option<Arrival>) -> Option<Self> {
        let rank = |(last, key, at): &Rank| Some((*last, *key, place(at)?));
        Some(Self {
            holding: self.holding.iter().map(&place).collect::<Option<_>>()?,
            placed: self.placed.iter().map(rank).collect::<Option<_>>()?,
            unplaced: self.unplaced.iter().map(&place).collect::<Option<_>>()?,
            leaders: self.leaders.iter().map(&place).collect::<Option<_>>()?,
            aside: self.aside.iter().map(&place).collect::<Option<_>>()?,
            may_be_asked_back: self.may_be_asked_back.iter().map(rank).collect::<Option<_>>()?,
            ..*self
        })
    }
}

/// What has changed since the last look.
#[derive(Clone, Default)]
pub(super) struct Changes {
    /// Something is different here.
    pub(super) touched: BTreeSet<PoolId>,
    /// There may be more room here than before.
    pub(super) freed: BTreeSet<PoolId>,
    /// Others may be overdue here than before.
    pub(super) overdue: BTreeSet<PoolId>,
    /// They wait, and did not in this way before.
    pub(super) fresh: BTreeSet<Arrival>,
}

/// What of a request may change.
struct Before {
    round: Option<Round>,
    held: bool,
    competes: bool,
    is_unplaced: bool,
    waited_for: BTreeMap<Patience, u8>,
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
}

static NOBODY: AtPool = AtPool {
    holding: BTreeSet::new(),
    placed: BTreeSet::new(),
    unplaced: BTreeSet::new(),
    leaders: BTreeSet::new(),
    aside: BTreeSet::new(),
    may_be_asked_back: BTreeSet::new(),
    passed: 0,
    held: 0,
    wanted_placed: 0,
    wanted: 0,
    contesting: 0,
    overdue: 0,
    blocked: 0,
};

impl Entries {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            by_arrival: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next: 0,
            pools: BTreeMap::new(),
            unplaced: BTreeSet::new(),
            alike: BTreeMap::new(),
            passed: BTreeSet::new(),
            patiences: BTreeMap::new(),
            changes: Changes::default(),
            looked_at: BTreeSet::new(),
        }
    }

    /// The look is over: from here on, changes are noted anew.
    pub(super) fn looked(&mut self) {
        self.looked_at = core::mem::take(&mut self.changes).touched;
    }

    /// The pools that the last look was about.
    pub(super) fn looked_at(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.looked_at.iter().copied()
    }

    /// All of them, in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.by_arrival.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    pub(super) fn get(&self, request: RequestId) -> Option<&Entry> {
        self.by_arrival.get(self.arrivals.get(&request)?)
    }

    pub(super) fn arrival(&self, request: RequestId) -> Option<Arrival> {
        self.arrivals.get(&request).copied()
    }

    pub(super) fn at(&self, at: Arrival) -> Option<&Entry> {
        self.by_arrival.get(&at)
    }

    pub(super) fn of_pool(&self, pool: PoolId) -> &AtPool {
        self.pools.get(&pool).unwrap_or(&NOBODY)
    }

    /// The pools that anybody has to do with.
    pub(super) fn pools(&self) -> impl Iterator<Item = (PoolId, &AtPool)> {
        self.pools.iter().map(|(pool, at)| (*pool, at))
    }

    pub(super) fn has_nobody_at(&self, pool: PoolId) -> bool {
        !self.pools.contains_key(&pool)
    }

    /// Those without a round who were passed too often at some pool.
    pub(super) fn passed(&self) -> BTreeSet<Arrival> {
        let mut passed = BTreeSet::new();
        if self.order.passes == 0 {
            passed.extend(&self.unplaced);
        }
        for pool in &self.passed {
            let at_pool = self.of_pool(*pool);
            // Whoever is older was passed at least as often.
            let mut times = at_pool.passed;
            for at in &at_pool.unplaced {
                if times < u64::from(self.order.passes) {
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
        self.changes.touched.extend(entry.needs.iter().map(|need| need.pool));
        if !entry.held {
            self.changes.fresh.insert(at);
        }
        self.enter(at, &entry);
        self.arrivals.insert(entry.request, at);
        self.by_arrival.insert(at, entry);
        at
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Entry> {
        let at = self.arrivals.remove(&request)?;
        let mut entry = self.by_arrival.remove(&at)?;
        self.leave(at, &entry);
        if entry.is_unplaced() {
            self.hand_down_passes(at, &mut entry);
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
        let Some(mut entry) = self.by_arrival.remove(&at) else { return };
        self.leave(at, &entry);
        let before = Before::of(&entry);
        change(&mut entry);
        if before.is_unplaced && !entry.is_unplaced() {
            self.hand_down_passes(at, &mut entry);
        }
        self.changes.note(at, &before, &entry);
        self.enter(at, &entry);
        self.by_arrival.insert(at, entry);
    }

    /// Somebody was served: those who came before, wait without a round, and want some of the same,
    /// were passed. Only the last of them counts one more than those behind it.
    pub(super) fn note_passed(&mut self, by: Arrival) {
        let Some(needs) = self.at(by).map(|entry| entry.needs.clone()) else { return };
        for need in needs.iter() {
            self.add_passes(by, need.pool, 1);
        }
    }

    /// Somebody no longer waits without a round. Those before it were passed as often as ever.
    fn hand_down_passes(&mut self, at: Arrival, entry: &mut Entry) {
        let passed = core::mem::replace(&mut entry.passed, vec![0; entry.needs.len()]);
        for (need, more) in entry.needs.iter().zip(passed) {
            self.add_passes(at, need.pool, more);
        }
    }

    /// Whoever waits without a round, and came last before somebody, was passed so often more than
    /// those behind it.
    fn add_passes(&mut self, before: Arrival, pool: PoolId, more: u32) {
        let Some(at_pool) = self.pools.get_mut(&pool) else { return };
        let Some(last) = at_pool.unplaced.range(..before).next_back() else { return };
        let Some(entry) = self.by_arrival.get_mut(last) else { return };
        at_pool.passed += u64::from(entry.add_passes(pool, more));
        if at_pool.passed >= u64::from(self.order.passes) {
            self.passed.insert(pool);
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
        self.changes.touched.extend(self.pools.keys());
        self.changes.freed.extend(self.pools.keys());
        self.changes.overdue.extend(self.pools.keys());
        let waiting = self.by_arrival.iter().filter(|(_, entry)| !entry.held);
        self.changes.fresh.extend(waiting.map(|(at, _)| *at));
    }

    /// Whether everything that follows from the requests is as if they had just been told. For
    /// tests: it takes as long as there are requests.
    pub(super) fn is_in_step(&self) -> bool {
        let anew = Self::from(Written::from(self.clone()));
        let places: BTreeMap<Arrival, Arrival> = self.by_arrival.keys().copied().zip(0..).collect();
        let place = |at: &Arrival| places.get(at).copied();
        let renumbered =
            |(pool, at_pool): (&PoolId, &AtPool)| Some((*pool, at_pool.renumbered(place)?));
        let pools: Option<BTreeMap<PoolId, AtPool>> = self.pools.iter().map(renumbered).collect();
        pools.is_some_and(|pools| pools == anew.pools)
            && self.unplaced.iter().map(place).eq(anew.unplaced.iter().map(|at| Some(*at)))
            && self.arrivals.values().map(place).eq(anew.arrivals.values().map(|at| Some(*at)))
            && (&self.passed, &self.patiences) == (&anew.passed, &anew.patiences)
    }

    pub(super) fn rank(&self, at: Arrival, entry: &Entry) -> Rank {
        let key = entry.key();
        (key.is_none(), key.filter(|_| self.order.by_round), at)
    }

    fn enter(&mut self, at: Arrival, entry: &Entry) {
        let rank = self.rank(at, entry);
        for need in entry.needs.iter() {
            let (pool, units) = (self.pools.entry(need.pool).or_default(), u64::from(need.units));
            pool.contesting += usize::from(entry.contests());
            pool.blocked += usize::from(entry.blocked);
            if entry.held {
                pool.holding.insert(at);
                pool.held += units;
                pool.overdue += usize::from(entry.is_overdue());
                if !entry.solo && !entry.asked_back {
                    pool.may_be_asked_back.insert(rank);
                }
            } else if !entry.competes() {
                pool.aside.insert(at);
            } else if entry.round.is_some() {
                pool.placed.insert(rank);
                pool.wanted_placed += units;
            } else {
                pool.unplaced.insert(at);
                pool.passed += u64::from(entry.passed_at(need.pool));
                if pool.passed >= u64::from(self.order.passes) {
                    self.passed.insert(need.pool);
                }
            }
            pool.wanted += if entry.competes() { units } else { 0 };
        }
        if entry.competes() {
            *self.patiences.entry(entry.patience()).or_default() += 1;
            if entry.round.is_none() {
                self.unplaced.insert(at);
                self.join_alike(at, &entry.needs);
            }
        }
    }

    fn join_alike(&mut self, at: Arrival, needs: &Needs) {
        let alike = self.alike.entry(needs.clone()).or_default();
        let first = alike.first().copied();
        alike.insert(at);
        if first.is_none_or(|first| at < first) {
            self.lead(needs, first, Some(at));
        }
    }

    fn leave_alike(&mut self, at: Arrival, needs: &Needs) {
        let Some(alike) = self.alike.get_mut(needs) else { return };
        let led = alike.first() == Some(&at);
        alike.remove(&at);
        let next = alike.first().copied();
        if next.is_none() {
            self.alike.remove(needs);
        }
        if led {
            self.lead(needs, Some(at), next);
        }
    }

    /// Others lead those who need this.
    fn lead(&mut self, needs: &Needs, before: Option<Arrival>, now: Option<Arrival>) {
        for need in needs.iter() {
            let Some(pool) = self.pools.get_mut(&need.pool) else { continue };
            if let Some(before) = before {
                pool.leaders.remove(&before);
            }
            pool.leaders.extend(now);
        }
    }

    /// The opposite of [`Self::enter`].
    fn leave(&mut self, at: Arrival, entry: &Entry) {
        let rank = self.rank(at, entry);
        if entry.is_unplaced() {
            self.leave_alike(at, &entry.needs);
        }
        for need in entry.needs.iter() {
            let Some(pool) = self.pools.get_mut(&need.pool) else { continue };
            let units = u64::from(need.units);
            pool.contesting -= usize::from(entry.contests());
            pool.blocked -= usize::from(entry.blocked);
            if entry.held {
                pool.holding.remove(&at);
                pool.held -= units;
                pool.overdue -= usize::from(entry.is_overdue());
                pool.may_be_asked_back.remove(&rank);
            } else if !entry.competes() {
                pool.aside.remove(&at);
            } else if entry.round.is_some() {
                pool.placed.remove(&rank);
                pool.wanted_placed -= units;
            } else {
                pool.unplaced.remove(&at);
                pool.passed -= u64::from(entry.passed_at(need.pool));
                if pool.passed < u64::from(self.order.passes) {
                    self.passed.remove(&need.pool);
                }
            }
            pool.wanted -= if entry.competes() { units } else { 0 };
            if pool.is_empty() {
                self.pools.remove(&need.pool);
                self.passed.remove(&need.pool);
            }
        }
        if entry.competes() {
            if let Some(count) = self.patiences.get_mut(&entry.patience()) {
                *count -= 1;
                if *count == 0 {
                    self.patiences.remove(&entry.patience());
                }
            }
            self.unplaced.remove(&at);
        }
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
        let Entries { order, by_arrival, .. } = entries;
        Self { order, entries: by_arrival.into_values().collect() }
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
