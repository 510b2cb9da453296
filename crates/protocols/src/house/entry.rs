//! What a manager knows of a request.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Needs, Picked, PoolId, RequestId, Seldom, Unit};
use serde::{Deserialize, Serialize};

use super::passed::Passed;
use super::{House, Round, Span};

/// A request at a manager.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) request: RequestId,
    /// Its needs here.
    pub(super) needs: Needs,
    /// Whether these are all its needs.
    pub(super) solo: bool,
    /// Its latest stance.
    pub(super) n: u32,
    /// Its place, if it has one.
    pub(super) round: Option<Round>,
    /// How many rounds it takes from there on.
    pub(super) span: Span,
    /// The round it will probably choose instead, since its own was taken.
    pub(super) hint: Seldom<Option<Round>>,
    pub(super) held: bool,
    /// The units that it holds of listed pools.
    pub(super) units: Seldom<Picked>,
    /// Whether it was asked to give this hold back.
    pub(super) asked_back: bool,
    /// By pool, as its needs are: how much more often it was passed by a younger request, while it
    /// waited without a round, than the next younger one that does so.
    pub(super) passed: Passed,
    /// While it is held: how many rings others have waited for it, by their patience.
    pub(super) waited_for: Seldom<BTreeMap<Patience, u8>>,
    /// Its user keeps only its place here, because it waits elsewhere behind an overdue holder.
    pub(super) parked: bool,
    /// It waits here behind an overdue holder.
    pub(super) blocked: bool,
    /// Those for whom it does, in order: who has passed it since is none of them, however long that one takes.
    pub(super) aside_for: Seldom<Vec<RequestId>>,
    /// How often it began or ceased to be blocked.
    pub(super) turns: u32,
}

/// How often a request has stepped aside before: it has twice the patience each time.
pub(super) type Patience = u8;

/// Nobody is more patient: whoever has stepped aside for many is behind a queue of long uses, and what it reserves meanwhile idles.
const PATIENCE_MAX: Patience = 4;

/// A holder is overdue for those who have waited for it through so many rings: one might have been
/// due soon when they began to wait, two were a whole time apart.
const OVERDUE: u8 = 2;

impl Entry {
    pub(super) fn new(request: RequestId, needs: Needs, solo: bool, span: Span) -> Self {
        Self {
            request,
            passed: Passed::none_of(needs.len()),
            needs,
            solo,
            n: 0,
            round: None,
            span,
            hint: Seldom::USUAL,
            held: false,
            units: Seldom::USUAL,
            asked_back: false,
            waited_for: Seldom::USUAL,
            parked: false,
            blocked: false,
            aside_for: Seldom::USUAL,
            turns: 0,
        }
    }

    /// Whether it waits and wants to be served.
    pub(super) fn competes(&self) -> bool {
        !self.held && !self.parked && !self.blocked
    }

    /// Whether it competes, and has no round.
    pub(super) fn is_unplaced(&self) -> bool {
        self.competes() && self.round.is_none()
    }

    /// How much more often it was passed at a pool than the next younger one.
    pub(super) fn passed_at(&self, pool: PoolId) -> u32 {
        self.place_of(pool).and_then(|at| self.passed.get(at).copied()).unwrap_or(0)
    }

    /// It was passed so often more at a pool. Returns by how much its count has grown.
    pub(super) fn add_passes(&mut self, pool: PoolId, more: u32) -> u32 {
        let Some(count) = self.place_of(pool).and_then(|at| self.passed.get_mut(at)) else {
            return 0;
        };
        let before = *count;
        *count = count.saturating_add(more);
        *count - before
    }

    /// It no longer waits without a round: what it was passed more often than the next younger one
    /// goes to those before it, by pool.
    pub(super) fn take_passes(&mut self) -> Vec<(PoolId, u32)> {
        let passed = self.passed.iter_mut().map(core::mem::take);
        self.needs.iter().map(|need| need.pool).zip(passed).filter(|(_, more)| *more > 0).collect()
    }

    fn place_of(&self, pool: PoolId) -> Option<usize> {
        self.needs.iter().position(|need| need.pool == pool)
    }

    /// Whether solo requests for the same must take rounds: it has one, and other nodes to go to.
    pub(super) fn contests(&self) -> bool {
        !self.solo && self.round.is_some() && (self.held || self.competes())
    }

    /// How long it waits behind a holder before it steps aside.
    pub(super) fn patience(&self) -> Patience {
        Patience::try_from(self.turns / 2).map_or(PATIENCE_MAX, |times| times.min(PATIENCE_MAX))
    }

    /// Whether it still steps aside for anybody who takes too long.
    pub(super) fn may_be_passed(&self, cfg: &House) -> bool {
        self.turns / 2 < cfg.parks
    }

    /// From now on it holds what it needs, with these units of listed pools.
    pub(super) fn hold(&mut self, units: Picked) {
        self.let_go();
        (self.held, self.units) = (true, units.into());
    }

    pub(super) fn let_go(&mut self) {
        (self.held, self.asked_back) = (false, false);
        self.units.clear();
        self.waited_for.clear();
    }

    /// The units that it holds of a pool, if the pool is listed.
    pub(super) fn units_of(&self, pool: PoolId) -> Option<&BTreeSet<Unit>> {
        self.units.get(&pool)
    }

    /// Whether it holds, and somebody of this patience has waited too long for it. Whoever outlasts
    /// the patient outlasts the impatient.
    pub(super) fn is_overdue_for(&self, patience: Patience) -> bool {
        self.held && self.waited_for.range(patience..).any(|(_, rings)| *rings >= OVERDUE)
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.is_overdue_for(0)
    }

    /// Somebody of this patience has waited for it through another ring.
    pub(super) fn note_waited_for(&mut self, patience: Patience) {
        self.waited_for.change(|waited_for| {
            let rings = waited_for.entry(patience).or_default();
            *rings = OVERDUE.min(*rings + 1);
        });
    }

    /// Its place in the order of service, if it has one.
    pub(super) fn key(&self) -> Option<(Round, RequestId)> {
        self.round.map(|round| (round, self.request))
    }

    /// The round in which others should expect it.
    pub(super) fn expected(&self) -> Option<Round> {
        (*self.hint).or(self.round)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} n{}", self.request, self.needs, self.n)?;
        if let Some(round) = self.round {
            write!(f, " {round:?}")?;
        }
        for (flag, name) in [
            (self.held, " held"),
            (self.asked_back, " asked back"),
            (self.is_overdue(), " overdue"),
            (self.parked, " parked"),
            (self.blocked, " blocked"),
        ] {
            f.write_str(if flag { name } else { "" })?;
        }
        Ok(())
    }
}
