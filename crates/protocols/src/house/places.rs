//! Where the requests at a manager stand: by pool, by what they need, and in the order of service.
//!
//! All of it follows from the requests, one by one: what [`Places::enter`] adds for a request,
//! [`Places::leave`] takes away.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use holdall_core::{Need, Needs, PoolId, RequestId, Seldom, Unit};
use serde::{Deserialize, Serialize};

use super::entry::{Entry, Patience};
use super::{House, Round};
use crate::few::Few;
use crate::stock::{Claims, Stock};

/// When a request came, counted in requests.
pub(super) type Arrival = u64;

/// A place in the order of service. Whoever has no round yet comes last.
pub(super) type Rank = (bool, Option<(Round, RequestId)>, Arrival);

/// How the queue is ordered.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    /// Whether rounds order it; otherwise arrival does.
    pub(super) by_round: bool,
    /// How often somebody without a round may be passed at a pool.
    pub(super) passes: u32,
}

/// Where everybody stands.
#[derive(Clone, PartialEq)]
pub(super) struct Places {
    pub(super) order: Order,
    /// Each in a place of its own: they are large, and come and go.
    pub(super) pools: BTreeMap<PoolId, Box<AtPool>>,
    /// Those who compete without a round.
    pub(super) unplaced: BTreeSet<Arrival>,
    /// The same by what they need.
    alike: BTreeMap<Needs, Few<Arrival>>,
    /// The pools where the oldest of them was passed too often.
    pub(super) passed: BTreeSet<PoolId>,
    /// How many compete, by their patience.
    pub(super) patiences: BTreeMap<Patience, usize>,
}

/// Those who have to do with one pool.
#[derive(Clone, Default, PartialEq)]
pub(super) struct AtPool {
    pub(super) holding: Few<Arrival>,
    /// They compete under a round, in their order.
    pub(super) placed: Seldom<BTreeSet<Rank>>,
    /// They compete without one.
    pub(super) unplaced: Few<Arrival>,
    /// The first of those of them who need the same: where it does not fit, no other does.
    pub(super) leaders: Few<Arrival>,
    /// They wait, and do not compete.
    aside: Few<Arrival>,
    /// They hold, perhaps without having confirmed it, and have not been asked to give it back.
    pub(super) may_be_asked_back: Seldom<BTreeSet<Rank>>,
    /// How often the oldest without a round was passed.
    pub(super) passed: u64,
    /// Units that are held.
    pub(super) held: u64,
    /// Units wanted by those who compete under a round, beside those they named.
    counted_placed: u64,
    /// The same of all who compete.
    counted: u64,
    /// The units that those who compete have named, each with who did.
    named: Seldom<BTreeMap<Unit, BTreeSet<Rank>>>,
    /// How many have a round, and other nodes to go to.
    contesting: u32,
    /// How many holders are overdue for somebody.
    overdue: u32,
    /// How many wait behind an overdue holder.
    blocked: u32,
}

impl AtPool {
    /// Those who wait, whether they compete or not.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Arrival> + '_ {
        let placed = self.placed.iter().map(|(_, _, at)| *at);
        placed.chain(self.unplaced.iter().copied()).chain(self.aside.iter().copied())
    }

    /// Whether nobody waits here, nor has a request a place here that has other nodes to go to.
    pub(super) fn is_undisputed(&self) -> bool {
        !self.is_contested() && self.waiting().next().is_none()
    }

    /// What those who compete under a round claim.
    pub(super) fn claimed_by_placed(&self, cfg: &House, stock: &Stock) -> Claims {
        let placed = |(unbound, _, _): &&Rank| !*unbound;
        let named = self.named.iter();
        let named = named.map(|(unit, by)| (*unit, by.iter().take_while(placed).count()));
        claims(cfg, stock, self.counted_placed, named)
    }

    /// What all who compete claim.
    pub(super) fn claimed(&self, cfg: &House, stock: &Stock) -> Claims {
        claims(cfg, stock, self.counted, self.named.iter().map(|(unit, by)| (*unit, by.len())))
    }

    /// Who comes first of those who compete for a unit by name.
    pub(super) fn first_to_name(&self, unit: Unit) -> Option<&Rank> {
        self.named.get(&unit)?.first()
    }

    fn claim(&mut self, rank: Rank, need: &Need) {
        self.counted += u64::from(need.more());
        for unit in &need.named {
            self.named.change(|named| named.entry(*unit).or_default().insert(rank));
        }
    }

    /// The opposite of [`Self::claim`].
    fn give_up(&mut self, rank: &Rank, need: &Need) {
        self.counted -= u64::from(need.more());
        for unit in &need.named {
            self.named.change(|named| {
                let Some(by) = named.get_mut(unit) else { return };
                by.remove(rank);
                if by.is_empty() {
                    named.remove(unit);
                }
            });
        }
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
        let named = |(unit, by): (&Unit, &BTreeSet<Rank>)| {
            Some((*unit, by.iter().map(rank).collect::<Option<_>>()?))
        };
        Some(Self {
            holding: self.holding.iter().map(&place).collect::<Option<_>>()?,
            placed: self.placed.iter().map(rank).collect::<Option<BTreeSet<_>>>()?.into(),
            unplaced: self.unplaced.iter().map(&place).collect::<Option<_>>()?,
            leaders: self.leaders.iter().map(&place).collect::<Option<_>>()?,
            aside: self.aside.iter().map(&place).collect::<Option<_>>()?,
            may_be_asked_back: {
                let all = self.may_be_asked_back.iter().map(rank);
                all.collect::<Option<BTreeSet<_>>>()?.into()
            },
            named: self.named.iter().map(named).collect::<Option<BTreeMap<_, _>>>()?.into(),
            ..*self
        })
    }
}

static NOBODY: AtPool = AtPool {
    holding: Few::None,
    placed: Seldom::USUAL,
    unplaced: Few::None,
    leaders: Few::None,
    aside: Few::None,
    may_be_asked_back: Seldom::USUAL,
    passed: 0,
    held: 0,
    counted_placed: 0,
    counted: 0,
    named: Seldom::USUAL,
    contesting: 0,
    overdue: 0,
    blocked: 0,
};

/// What is claimed: so many units, and each of these by so many.
fn claims(
    cfg: &House,
    stock: &Stock,
    counted: u64,
    named: impl Iterator<Item = (Unit, usize)>,
) -> Claims {
    let mut claims = Claims::default();
    claims.add_count(counted);
    for (unit, by) in named.filter(|(_, by)| *by > 0) {
        if cfg.rules.by_name {
            claims.add_name(stock, unit);
        } else {
            claims.add_count(by as u64);
        }
    }
    claims
}

impl Places {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            pools: BTreeMap::new(),
            unplaced: BTreeSet::new(),
            alike: BTreeMap::new(),
            passed: BTreeSet::new(),
            patiences: BTreeMap::new(),
        }
    }

    pub(super) fn of_pool(&self, pool: PoolId) -> &AtPool {
        self.pools.get(&pool).map_or(&NOBODY, |at| at)
    }

    /// The pools that anybody has to do with.
    pub(super) fn pools(&self) -> impl Iterator<Item = (PoolId, &AtPool)> {
        self.pools.iter().map(|(pool, at)| (*pool, &**at))
    }

    /// The same with other numbers for those who are here, if all are known.
    pub(super) fn renumbered(&self, place: impl Fn(&Arrival) -> Option<Arrival>) -> Option<Self> {
        let all = |some: &Few<Arrival>| some.iter().map(&place).collect::<Option<_>>();
        let pools =
            self.pools.iter().map(|(pool, at)| Some((*pool, Box::new(at.renumbered(&place)?))));
        let alike = self.alike.iter().map(|(needs, alike)| Some((needs.clone(), all(alike)?)));
        Some(Self {
            order: self.order,
            pools: pools.collect::<Option<_>>()?,
            unplaced: self.unplaced.iter().map(&place).collect::<Option<_>>()?,
            alike: alike.collect::<Option<_>>()?,
            passed: self.passed.clone(),
            patiences: self.patiences.clone(),
        })
    }

    pub(super) fn rank(&self, at: Arrival, entry: &Entry) -> Rank {
        let key = entry.key();
        (key.is_none(), key.filter(|_| self.order.by_round), at)
    }

    /// A request has come, or is different from now on.
    pub(super) fn enter(&mut self, at: Arrival, entry: &Entry) {
        let rank = self.rank(at, entry);
        for need in entry.needs.iter() {
            let pool = self.pools.entry(need.pool).or_default();
            pool.contesting += u32::from(entry.contests());
            pool.blocked += u32::from(entry.blocked);
            if entry.held {
                pool.holding.insert(at);
                pool.held += u64::from(need.units);
                pool.overdue += u32::from(entry.is_overdue());
                if !entry.solo && !entry.asked_back {
                    pool.may_be_asked_back.change(|all| all.insert(rank));
                }
            } else if !entry.competes() {
                pool.aside.insert(at);
            } else if entry.round.is_some() {
                pool.placed.change(|placed| placed.insert(rank));
                pool.counted_placed += u64::from(need.more());
            } else {
                pool.unplaced.insert(at);
                pool.passed += u64::from(entry.passed_at(need.pool));
                if pool.passed >= u64::from(self.order.passes) {
                    self.passed.insert(need.pool);
                }
            }
            if entry.competes() {
                pool.claim(rank, need);
            }
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
    pub(super) fn leave(&mut self, at: Arrival, entry: &Entry) {
        let rank = self.rank(at, entry);
        if entry.is_unplaced() {
            self.leave_alike(at, &entry.needs);
        }
        for need in entry.needs.iter() {
            let Some(pool) = self.pools.get_mut(&need.pool) else { continue };
            pool.contesting -= u32::from(entry.contests());
            pool.blocked -= u32::from(entry.blocked);
            if entry.held {
                pool.holding.remove(&at);
                pool.held -= u64::from(need.units);
                pool.overdue -= u32::from(entry.is_overdue());
                if !pool.may_be_asked_back.is_empty() {
                    pool.may_be_asked_back.change(|all| all.remove(&rank));
                }
            } else if !entry.competes() {
                pool.aside.remove(&at);
            } else if entry.round.is_some() {
                pool.placed.change(|placed| placed.remove(&rank));
                pool.counted_placed -= u64::from(need.more());
            } else {
                pool.unplaced.remove(&at);
                pool.passed -= u64::from(entry.passed_at(need.pool));
                if pool.passed < u64::from(self.order.passes) {
                    self.passed.remove(&need.pool);
                }
            }
            if entry.competes() {
                pool.give_up(&rank, need);
            }
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
