//! Who is served next: looked through after every change at a manager.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use holdall_core::{PoolId, RequestId};

use super::entry::{Entry, Patience};
use super::manager::{Manager, Out, Timer, first_free};
use super::{House, PATIENCE, Round, ToUser};

/// What is set aside for those who come first, by pool.
type Reserved = BTreeMap<PoolId, u64>;

impl Manager {
    /// Serves whoever can be served, in order: first those with a round, then the solo requests
    /// without one. Those who must wait reserve what they need, the latter only if they are among
    /// the oldest.
    pub(super) fn scan(&mut self, cfg: &House, out: &mut Out) {
        self.look_for_overdue(cfg, out);
        if self.entries.iter().all(|entry| !entry.competes()) {
            return self.watch(cfg, out);
        }
        if cfg.rules.solo_rounds {
            self.give_solos_rounds(cfg);
        }
        let mut reserved = Reserved::new();
        for at in self.in_order_of_rounds(cfg) {
            if self.fits(at, &reserved) {
                self.hold(at, out);
            } else {
                if cfg.rules.yields {
                    self.ask_back(cfg, at, &reserved, out);
                }
                if cfg.rules.reserve {
                    self.reserve(at, &mut reserved);
                }
            }
        }
        let mut reserving = cfg.reserving;
        for at in 0..self.entries.len() {
            if !self.entries[at].competes() || self.entries[at].round.is_some() {
                continue;
            }
            if self.fits(at, &reserved) {
                self.hold(at, out);
            } else if reserving > 0 {
                reserving -= 1;
                self.reserve(at, &mut reserved);
            }
        }
        self.watch(cfg, out);
    }

    /// Those who compete under a round, first come first.
    fn in_order_of_rounds(&self, cfg: &House) -> Vec<usize> {
        let with_round =
            |at: &usize| self.entries[*at].competes() && self.entries[*at].round.is_some();
        let mut order: Vec<usize> = (0..self.entries.len()).filter(with_round).collect();
        order.sort_by_key(|at| self.rank(cfg, *at));
        order
    }

    /// The place of an entry in the order of service. Whoever has no round yet comes last.
    fn rank(&self, cfg: &House, at: usize) -> (bool, Option<(Round, RequestId)>, usize) {
        let key = self.entries[at].key();
        (key.is_none(), key.filter(|_| cfg.rules.order), at)
    }

    /// A solo request takes a round when a request with a round competes for the same, or when it
    /// was passed too often: from then on it has its place among them.
    fn give_solos_rounds(&mut self, cfg: &House) {
        let placed = |entry: &&Entry| {
            !entry.solo && entry.round.is_some() && (entry.held || entry.competes())
        };
        let contested = pools(self.entries.iter().filter(placed));
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            if !entry.competes() || !entry.solo || entry.round.is_some() {
                continue;
            }
            let in_the_way = entry.needs.iter().any(|need| contested.contains(&need.pool));
            if in_the_way || entry.passed >= cfg.passes {
                let (needs, request) = (entry.needs.clone(), entry.request);
                let floor = self.floor(cfg, &needs);
                let round = first_free(floor, &self.marks(floor, &needs, request));
                self.entries[at].round = Some(round);
            }
        }
    }

    fn fits(&self, at: usize, reserved: &Reserved) -> bool {
        self.entries[at]
            .needs
            .iter()
            .all(|need| self.lacking(need.pool, u64::from(need.units), reserved) == 0)
    }

    /// How many units of a pool are missing for so many more.
    fn lacking(&self, pool: PoolId, units: u64, reserved: &Reserved) -> u64 {
        let Some(state) = self.pools.get(&pool) else { return units };
        let set_aside = reserved.get(&pool).copied().unwrap_or(0);
        (state.used + set_aside + units).saturating_sub(state.capacity)
    }

    fn reserve(&self, at: usize, reserved: &mut Reserved) {
        for need in self.entries[at].needs.iter() {
            *reserved.entry(need.pool).or_default() += u64::from(need.units);
        }
    }

    fn hold(&mut self, at: usize, out: &mut Out) {
        let entry = &mut self.entries[at];
        entry.set_held(true);
        let (request, n, needs) = (entry.request, entry.n, entry.needs.clone());
        self.take(&needs);
        out.to_user(request.user, ToUser::Yes { request, n });
        self.note_passed(at);
    }

    /// Those who came before the one served now, and still wait without a round, were passed.
    pub(super) fn note_passed(&mut self, by: usize) {
        let needs = self.entries[by].needs.clone();
        for older in &mut self.entries[..by] {
            let waits = older.solo && older.round.is_none() && older.competes();
            if waits && older.needs.share_a_pool_with(&needs) {
                older.passed = older.passed.saturating_add(1);
            }
        }
    }

    /// Asks those back who hold what is missing here and come later, the last first.
    fn ask_back(&mut self, cfg: &House, at: usize, reserved: &Reserved, out: &mut Out) {
        let rank = self.rank(cfg, at);
        for need in self.entries[at].needs.clone().iter() {
            let mut missing = self.lacking(need.pool, u64::from(need.units), reserved);
            let later = |i: &usize| {
                let entry = &self.entries[*i];
                let holds = entry.held && !entry.solo && entry.units_of(need.pool) > 0;
                holds && self.rank(cfg, *i) > rank
            };
            let mut holders: Vec<usize> = (0..self.entries.len()).filter(later).collect();
            holders.sort_by_key(|i| self.rank(cfg, *i));
            while let Some(i) = holders.pop().filter(|_| missing > 0) {
                let holder = &mut self.entries[i];
                missing = missing.saturating_sub(holder.units_of(need.pool));
                if !holder.asked_back {
                    holder.asked_back = true;
                    let (request, n) = (holder.request, holder.n);
                    out.to_user(request.user, ToUser::Yield { request, n });
                }
            }
        }
    }

    /// Notes who waits behind an overdue holder, and tells those who wait elsewhere as well.
    fn look_for_overdue(&mut self, cfg: &House, out: &mut Out) {
        if !cfg.rules.park {
            return;
        }
        if self.entries.iter().all(|entry| !entry.is_overdue() && !entry.blocked) {
            return;
        }
        for at in 0..self.entries.len() {
            if self.entries[at].held {
                continue;
            }
            let behind = self.is_behind_overdue(at);
            let entry = &mut self.entries[at];
            let tired = !entry.blocked && entry.turns / 2 >= cfg.parks;
            let blocked = behind && !tired;
            if blocked != entry.blocked {
                entry.blocked = blocked;
                entry.turns = entry.turns.saturating_add(1);
                if !entry.solo {
                    let park =
                        ToUser::Park { request: entry.request, turn: entry.turns, on: blocked };
                    out.to_user(entry.request.user, park);
                }
            }
        }
    }

    /// Whether some need of an entry does not fit beside those whom it has waited for too long.
    fn is_behind_overdue(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        let overdue = |other: &&Entry| other.is_overdue_for(entry.patience());
        entry.needs.iter().any(|need| {
            let holders = self.entries.iter().filter(overdue);
            let stuck: u64 = holders.map(|holder| holder.units_of(need.pool)).sum();
            let capacity = self.pools.get(&need.pool).map_or(0, |pool| pool.capacity);
            stuck > 0 && stuck + u64::from(need.units) > capacity
        })
    }

    /// Arms a timer for each patience with which somebody competes for what a holder has who is not
    /// overdue for it yet. Once armed it stays so while anybody of that patience competes: a ring too
    /// many changes nothing.
    pub(super) fn watch(&mut self, cfg: &House, out: &mut Out) {
        let competing = self.entries.iter().filter(|entry| entry.competes());
        let patiences: BTreeSet<Patience> = competing.map(Entry::patience).collect();
        for idle in self.armed.extract_if(.., |armed| !patiences.contains(armed)) {
            out.disarm(Timer::Patience(idle));
        }
        for patience in patiences {
            if !self.armed.contains(&patience) && self.someone_waits_with(cfg, patience) {
                self.armed.insert(patience);
                out.arm(Timer::Patience(patience), PATIENCE.saturating_add(patience));
            }
        }
    }

    /// Whether somebody of this patience waits for a holder that is not overdue for it yet.
    fn someone_waits_with(&self, cfg: &House, patience: Patience) -> bool {
        let young = |entry: &&Entry| entry.held && !entry.is_overdue_for(patience);
        let wanted = self.wanted_with(cfg, patience);
        !pools(self.entries.iter().filter(young)).is_disjoint(&wanted)
    }

    /// What those of this patience want who may step aside.
    fn wanted_with(&self, cfg: &House, patience: Patience) -> BTreeSet<PoolId> {
        let waits = |entry: &&Entry| entry.would_step_aside(cfg) && entry.patience() == patience;
        pools(self.entries.iter().filter(waits))
    }

    /// Somebody of this patience has waited for a while: those waited for are getting old.
    pub(super) fn on_patience(&mut self, cfg: &House, patience: Patience, out: &mut Out) {
        self.armed.remove(&patience);
        let wanted = self.wanted_with(cfg, patience);
        for entry in self.entries.iter_mut().filter(|entry| entry.held) {
            if entry.needs.iter().any(|need| wanted.contains(&need.pool)) {
                entry.waited_for(patience);
            }
        }
        self.scan(cfg, out);
    }
}

/// All pools that some entries need.
fn pools<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeSet<PoolId> {
    entries.flat_map(|entry| entry.needs.iter()).map(|need| need.pool).collect()
}
