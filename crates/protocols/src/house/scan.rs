//! Who is served next: looked through after every change at a manager, as far as the change can
//! matter.
//!
//! Whoever waits does so because something it needs is held or set aside for those who come first.
//! That ends only when somebody gives way: the pools where this happened are *freed*. All others
//! are passed over, but for those who wait in a new way (*fresh*), and with `thorough=1` nobody is:
//! the outcome is the same, which a test shows.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use holdall_core::{Need, PoolId, RequestId};

use super::entry::{Entry, Patience};
use super::manager::{Manager, Out, Timer, fits};
use super::places::{Arrival, Rank};
use super::{House, PATIENCE, ToUser};
use crate::stock::{Claims, Stock, Taken};

impl Manager {
    /// Serves whoever can be served, in order: first those with a round, then the solo requests
    /// without one. Those who must wait reserve what they need, the latter only if they are among
    /// the oldest.
    pub(super) fn scan(&mut self, cfg: &House, out: &mut Out) {
        if cfg.thorough {
            self.entries.doubt_everything();
        } else if self.entries.nobody_minds() {
            return self.watch(cfg, out);
        }
        self.look_for_overdue(cfg, out);
        if cfg.rules.solo_rounds {
            self.give_solos_rounds(cfg);
        }
        for rank in self.placed_to_look_at(cfg) {
            self.serve_placed(cfg, rank, out);
        }
        self.serve_unplaced(cfg, out);
        self.watch(cfg, out);
    }

    /// A solo request takes a round when a request with a round competes for the same, or when it
    /// was passed too often: from then on it has its place among them.
    fn give_solos_rounds(&mut self, cfg: &House) {
        let contested = |pool: &&PoolId| self.entries.of_pool(**pool).is_contested();
        let mut candidates = self.entries.passed();
        for pool in self.entries.changes.touched.iter().filter(contested) {
            candidates.extend(self.entries.of_pool(*pool).unplaced.iter());
        }
        for at in candidates {
            let Some(entry) = self.entries.at(at).filter(|entry| entry.solo) else { continue };
            let (needs, request, span) = (entry.needs.clone(), entry.request, entry.span);
            let floor = self.floor(cfg, &needs);
            let round = self.marks(floor, &needs, request).first_free(floor, span);
            self.entries.change(at, |entry| entry.round = Some(round));
        }
    }

    /// Those who compete under a round and to whom the change may matter, first come first.
    fn placed_to_look_at(&self, cfg: &House) -> BTreeSet<Rank> {
        let placed = |at: &Arrival| {
            let entry = self.entries.at(*at)?;
            let placed = entry.competes() && entry.round.is_some();
            placed.then(|| self.entries.rank(*at, entry))
        };
        let mut ranks: BTreeSet<Rank> =
            self.entries.changes.fresh.iter().filter_map(placed).collect();
        for pool in self.entries.changes.touched.iter() {
            let at_pool = self.entries.of_pool(*pool);
            // Whoever comes back takes from those behind, who may then have to ask.
            let last_to_ask = at_pool.may_be_asked_back.last();
            if !self.entries.changes.freed.contains(pool) && last_to_ask.is_none() {
                continue;
            }
            let Some(stock) = self.stock(*pool) else { continue };
            let mut claims = Claims::default();
            for rank in at_pool.placed.iter() {
                // Nobody further back fits, nor asks anything back.
                if stock.is_exhausted(&claims) && last_to_ask.is_none_or(|last| last < rank) {
                    break;
                }
                ranks.insert(*rank);
                self.set_aside(cfg, rank, *pool, &mut claims);
            }
        }
        ranks
    }

    /// What somebody with a round reserves of a pool while it waits.
    fn set_aside(&self, cfg: &House, (_, _, at): &Rank, pool: PoolId, claims: &mut Claims) {
        if let Some(entry) = self.entries.at(*at).filter(|_| cfg.rules.reserve) {
            self.claim(cfg, entry, pool, claims);
        }
    }

    /// What somebody reserves of a pool.
    fn claim(&self, cfg: &House, entry: &Entry, pool: PoolId, claims: &mut Claims) {
        let Some((need, stock)) = entry.needs.of(pool).zip(self.stock(pool)) else { return };
        if cfg.rules.by_name {
            claims.add(stock, need);
        } else {
            claims.add_count(need.units.into());
        }
    }

    fn serve_placed(&mut self, cfg: &House, rank: Rank, out: &mut Out) {
        let (_, _, at) = rank;
        let Some(needs) = self.entries.at(at).map(|entry| entry.needs.clone()) else { return };
        let reserved: Vec<Claims> = needs
            .iter()
            .map(|need| {
                let mut claims = Claims::default();
                for before in self.entries.of_pool(need.pool).placed.range(..rank) {
                    self.set_aside(cfg, before, need.pool, &mut claims);
                }
                claims
            })
            .collect();
        let fits = |(need, claims): (&Need, &Claims)| {
            self.stock(need.pool).is_some_and(|stock| fits(cfg, stock, claims, need))
        };
        if needs.iter().zip(&reserved).all(fits) {
            self.hold(cfg, at, out);
        } else if cfg.rules.yields {
            for (need, claims) in needs.iter().zip(&reserved) {
                self.ask_back(&rank, need, claims, out);
            }
        }
    }

    /// Asks those back who come later and hold what is missing: the units that are named, and then of
    /// others as many as are missing, the last first.
    fn ask_back(&mut self, rank: &Rank, need: &Need, claims: &Claims, out: &mut Out) {
        let (pool, at_pool) = (need.pool, self.entries.of_pool(need.pool));
        let Some(stock) = self.stock(pool) else { return };
        if at_pool.may_be_asked_back.last().is_none_or(|last| last < rank) {
            return;
        }
        let later = |at: &Arrival| {
            let entry = self.entries.at(*at).filter(|entry| !entry.solo)?;
            Some(self.entries.rank(*at, entry)).filter(|other| other > rank)
        };
        let holders: BTreeSet<Rank> = at_pool.holding.iter().filter_map(later).collect();
        let holders =
            holders.iter().rev().filter_map(|(_, _, at)| Some((*at, self.entries.at(*at)?)));
        let (mut asked, others): (Vec<_>, Vec<_>) = holders.partition(|(_, holder)| {
            holder.units_of(pool).is_some_and(|units| !units.is_disjoint(&need.named))
        });
        let gives = |holder: &Entry| match holder.units_of(pool) {
            Some(units) => claims.spare(units, need),
            None => holder.needs.units_of(pool),
        };
        let given = asked.iter().map(|(_, holder)| gives(holder)).sum();
        let mut missing = stock.lacking(claims, need).saturating_sub_unsigned(given);
        for (at, holder) in others {
            if missing > 0 && gives(holder) > 0 {
                missing = missing.saturating_sub_unsigned(gives(holder));
                asked.push((at, holder));
            }
        }
        let asked = asked.into_iter().filter(|(_, holder)| !holder.asked_back);
        for (at, request, n) in asked.map(|(at, e)| (at, e.request, e.n)).collect::<Vec<_>>() {
            out.to_user(request.user, ToUser::Yield { request, n });
            self.entries.change(at, |holder| holder.asked_back = true);
        }
    }

    /// Serves those without a round in the order in which they came: those who wait in a new way,
    /// and in each freed pool one after another while there is room.
    fn serve_unplaced(&mut self, cfg: &House, out: &mut Out) {
        let mut from = 0;
        while let Some(at) = self.next_unplaced(cfg, from) {
            self.hold(cfg, at, out);
            from = at + 1;
        }
    }

    /// The first without a round, from an arrival on, who can be served.
    fn next_unplaced(&self, cfg: &House, from: Arrival) -> Option<Arrival> {
        let oldest = self.entries.places.unplaced.iter().take(cfg.reserving);
        let oldest: Vec<(Arrival, &Entry)> =
            oldest.filter_map(|at| Some((*at, self.entries.at(*at)?))).collect();
        let fresh = self.entries.changes.fresh.range(from..);
        let mut fresh = fresh.filter(|at| self.entries.places.unplaced.contains(at)).peekable();
        let freed = self.entries.changes.freed.iter();
        let mut freed: Vec<_> = freed
            .map(|pool| (*pool, self.entries.of_pool(*pool).leaders.range(from..).peekable(), None))
            .collect();
        loop {
            // Who comes next in each pool, as long as there is room in it; it was looked at once if nobody has come since.
            freed.retain_mut(|(pool, queue, looked_at)| {
                let Some(next) = queue.peek().map(|at| **at) else { return false };
                if looked_at.replace(next) == Some(next) {
                    return true;
                }
                let Some(stock) = self.stock(*pool) else { return false };
                let claims = self.claimed_before_unplaced(cfg, &oldest, next, *pool, stock);
                !stock.is_exhausted(&claims)
            });
            let heads = freed.iter_mut().filter_map(|(_, queue, _)| queue.peek().copied());
            let at = *heads.chain(fresh.peek().copied()).min()?;
            if self.fits_unplaced(cfg, &oldest, at) {
                return Some(at);
            }
            fresh.next_if(|next| **next == at);
            for (_, queue, _) in &mut freed {
                queue.next_if(|next| **next == at);
            }
        }
    }

    /// What of a pool is reserved by those who come before a request without a round: all who have
    /// one, and the oldest of those who have none.
    fn claimed_before_unplaced(
        &self,
        cfg: &House,
        oldest: &[(Arrival, &Entry)],
        at: Arrival,
        pool: PoolId,
        stock: &Stock,
    ) -> Claims {
        let mut claims = match cfg.rules.reserve {
            true => self.entries.of_pool(pool).claimed_by_placed(cfg, stock),
            false => Claims::default(),
        };
        for (_, entry) in oldest.iter().filter(|(old, _)| *old < at) {
            self.claim(cfg, entry, pool, &mut claims);
        }
        claims
    }

    fn fits_unplaced(&self, cfg: &House, oldest: &[(Arrival, &Entry)], at: Arrival) -> bool {
        let Some(entry) = self.entries.at(at) else { return false };
        let nothing = Claims::default();
        // What does not fit as it is does not beside claims: mostly something is held.
        let is_free = |need: &Need| {
            self.stock(need.pool).is_some_and(|stock| fits(cfg, stock, &nothing, need))
        };
        entry.needs.iter().all(is_free)
            && entry.needs.iter().all(|need| {
                let Some(stock) = self.stock(need.pool) else { return false };
                let claims = self.claimed_before_unplaced(cfg, oldest, at, need.pool, stock);
                fits(cfg, stock, &claims, need)
            })
    }

    fn hold(&mut self, cfg: &House, at: Arrival, out: &mut Out) {
        let Some(entry) = self.entries.at(at) else { return };
        let (request, n, needs) = (entry.request, entry.n, entry.needs.clone());
        let units = self.take(cfg, &needs);
        self.entries.change(at, |entry| entry.hold(units.clone()));
        out.to_user(request.user, ToUser::Yes { request, n, units });
        self.entries.note_passed(at);
    }

    /// Notes who waits behind an overdue holder, and tells those who wait elsewhere as well.
    fn look_for_overdue(&mut self, cfg: &House, out: &mut Out) {
        if !cfg.rules.park {
            return;
        }
        let held_up = |pool: &&PoolId| {
            self.entries.of_pool(**pool).is_held_up()
                || self.stock(**pool).is_some_and(Stock::is_reduced)
        };
        let overdue = self.entries.changes.overdue.iter().filter(held_up);
        let fresh = self.entries.changes.fresh.iter().copied();
        let mut candidates: BTreeSet<Arrival> = fresh.collect();
        candidates.extend(overdue.flat_map(|pool| self.entries.of_pool(*pool).waiting()));
        for at in candidates {
            // Whoever comes back may be behind somebody else by now.
            while self.steps_aside_or_back(cfg, at, out) {}
        }
    }

    /// Has a request step aside or come back, if it is time to.
    fn steps_aside_or_back(&mut self, cfg: &House, at: Arrival, out: &mut Out) -> bool {
        let overdue = self.overdue_before(cfg, at);
        let Some(entry) = self.entries.at(at) else { return false };
        let blocked = !overdue.is_empty() || self.lacks_what_is_away(entry);
        let aside_for = if blocked { overdue } else { Vec::new() };
        if blocked == entry.blocked {
            if *entry.aside_for != aside_for {
                self.entries
                    .change(at, |entry| entry.aside_for.change(|for_whom| *for_whom = aside_for));
            }
            return false;
        }
        let (request, turn) = (entry.request, entry.turns.saturating_add(1));
        if !entry.solo {
            out.to_user(request.user, ToUser::Park { request, turn, on: blocked });
        }
        if !blocked {
            self.free_behind(cfg, at);
        }
        self.entries.change(at, |entry| {
            (entry.blocked, entry.turns) = (blocked, turn);
            entry.aside_for.change(|for_whom| *for_whom = aside_for);
        });
        true
    }

    /// Whoever comes back may take the place of the last of the oldest, who then reserves no more.
    fn free_behind(&mut self, cfg: &House, at: Arrival) {
        let Some(last) = cfg.reserving.checked_sub(1) else { return };
        let displaced = self.entries.places.unplaced.iter().nth(last).filter(|last| **last > at);
        let Some(displaced) = displaced.and_then(|at| self.entries.at(*at)) else { return };
        for need in displaced.needs.clone().iter() {
            self.entries.free(need.pool);
        }
    }

    /// Whether an entry needs units that are away. However long that takes, nothing is kept for it.
    fn lacks_what_is_away(&self, entry: &Entry) -> bool {
        let mut needs = entry.needs.iter();
        needs.any(|need| self.stock(need.pool).is_some_and(|stock| stock.is_too_reduced(need)))
    }

    /// The holders beside which some need of an entry does not fit, and for whom it has waited for too long. If it has stepped aside
    /// it is those of them for whom it has: else those who pass it meanwhile would keep it aside, one after the other for ever.
    fn overdue_before(&self, cfg: &House, at: Arrival) -> Vec<RequestId> {
        let mut all = Vec::new();
        let Some(entry) = self.entries.at(at) else { return all };
        for need in entry.needs.iter() {
            let at_pool = self.entries.of_pool(need.pool);
            if !at_pool.is_held_up() {
                continue;
            }
            let holding =
                at_pool.holding.iter().filter_map(|at| Some((*at, self.entries.at(*at)?)));
            let overdue = holding.filter(|holder| self.waits_aside(cfg, (at, entry), *holder));
            let overdue: Vec<_> = overdue.map(|(_, holder)| holder).collect();
            let mut stuck = Taken::default();
            for holder in &overdue {
                let units = holder.units_of(need.pool).into_iter().flatten();
                let held = holder.needs.of(need.pool);
                stuck.add(held.map_or(0, |need| need.units), units);
            }
            if self.stock(need.pool).is_none_or(|stock| stock.is_too_small(need, &stuck)) {
                all.extend(overdue.iter().map(|holder| holder.request));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether somebody steps aside for a holder, or has done so. For anybody it does only some times: those who pass it might be
    /// without end. For those it must wait for anyway it does always. They are so many: they came before it, and it cannot ask them back.
    fn waits_aside(
        &self,
        cfg: &House,
        (at, entry): (Arrival, &Entry),
        (came, holder): (Arrival, &Entry),
    ) -> bool {
        if entry.blocked {
            let noted = entry.aside_for.binary_search(&holder.request).is_ok();
            return holder.is_overdue() && (noted || !cfg.rules.aside);
        }
        let rank = |at, entry| self.entries.rank(at, entry);
        let comes_first = || came < at && (holder.solo || rank(came, holder) < rank(at, entry));
        holder.is_overdue_for(entry.patience()) && (entry.may_be_passed(cfg) || comes_first())
    }

    /// Arms a timer for each patience with which somebody competes for what a holder has who is not
    /// overdue for it yet. Once armed it stays so while anybody of that patience competes: a ring too
    /// many changes nothing. Ends the look.
    pub(super) fn watch(&mut self, cfg: &House, out: &mut Out) {
        let patiences = &self.entries.places.patiences;
        for idle in self.armed.extract_if(.., |armed| !patiences.contains_key(armed)) {
            out.disarm(Timer::Patience(idle));
        }
        let unarmed = |patience: &&Patience| !self.armed.contains(*patience);
        let unarmed: Vec<Patience> = patiences.keys().filter(unarmed).copied().collect();
        for patience in unarmed {
            let mut touched = self.entries.changes.touched.iter();
            if touched.any(|pool| self.someone_waits_with(cfg, patience, *pool)) {
                self.armed.insert(patience);
                out.arm(Timer::Patience(patience), PATIENCE.saturating_add(patience));
            }
        }
        self.entries.looked();
    }

    /// Whether somebody of this patience waits for a holder of a pool that is not overdue for it yet.
    fn someone_waits_with(&self, cfg: &House, patience: Patience, pool: PoolId) -> bool {
        let mut holders = self.holders(pool);
        holders.any(|holder| !holder.is_overdue_for(patience))
            && self.is_wanted_with(cfg, patience, pool)
    }

    fn holders(&self, pool: PoolId) -> impl Iterator<Item = &Entry> {
        self.entries.of_pool(pool).holding.iter().filter_map(|at| self.entries.at(*at))
    }

    /// Whether somebody of this patience wants a pool who may step aside.
    fn is_wanted_with(&self, cfg: &House, patience: Patience, pool: PoolId) -> bool {
        let at_pool = self.entries.of_pool(pool);
        let oldest_holder = at_pool.holding.first();
        let steps_aside = |at: Arrival, entry: &Entry| {
            let may = entry.may_be_passed(cfg) || oldest_holder.is_some_and(|holder| *holder < at);
            may && entry.competes() && entry.patience() == patience
        };
        let mut waiting = at_pool.waiting();
        cfg.rules.park && waiting.any(|at| self.entries.at(at).is_some_and(|e| steps_aside(at, e)))
    }

    /// Somebody of this patience has waited for a while: those waited for are getting old.
    pub(super) fn on_patience(&mut self, cfg: &House, patience: Patience, out: &mut Out) {
        self.armed.remove(&patience);
        let wanted = self.entries.places.pools().filter(|(pool, at_pool)| {
            !at_pool.holding.is_empty() && self.is_wanted_with(cfg, patience, *pool)
        });
        let waited_for: BTreeSet<Arrival> =
            wanted.flat_map(|(_, at_pool)| at_pool.holding.iter().copied()).collect();
        for at in waited_for {
            self.entries.change(at, |holder| holder.note_waited_for(patience));
        }
        self.scan(cfg, out);
    }
}
