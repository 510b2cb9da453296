//! The manager of a node: its pools, and every request that has to do with them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use holdall_core::{
    Addr, Broken, Event, Gone, Need, Needs, Outbox, Picked, PoolId, RequestId, Resize, Role,
};
use serde::{Deserialize, Serialize};

use super::entries::Entries;
use super::entry::{Entry, Patience};
use super::places::Order;
use super::{House, Marks, Round, Span, Stance, ToManager, ToUser};
use crate::lanes::{Lanes, State, ends_with};
use crate::stock::{Claims, Stock, Taken};

pub(super) type Out = Outbox<House, Timer>;

/// The manager's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// Somebody of this patience has waited for a while: look whose holds are getting old.
    Patience(Patience),
}

/// Guards the pools of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    pub(super) pools: BTreeMap<PoolId, Pool>,
    pub(super) entries: Entries,
    /// Those that were turned away and will choose a round.
    pub(super) choosing: BTreeMap<RequestId, Choosing>,
    pub(super) lanes: Lanes,
    /// The timers that are armed.
    pub(super) armed: BTreeSet<Patience>,
}

/// A request that was turned away.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Choosing {
    needs: Needs,
    /// The round it will probably choose.
    round: Round,
    span: Span,
}

/// A pool of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pool {
    pub(super) stock: Stock,
    /// The greatest round that was used. Never forgotten: rounds are only ever compared with each
    /// other, and no round is the first of all.
    floor: Round,
}

impl Pool {
    fn new(stock: Stock, floor: Round) -> Self {
        Self { stock, floor }
    }
}

impl Manager {
    pub(super) fn new<'a>(
        cfg: &House,
        pools: impl Iterator<Item = (PoolId, &'a holdall_core::Pool)>,
        floor: Round,
    ) -> Self {
        let pool = |(id, pool)| (id, Pool::new(Stock::of(pool), floor));
        Self {
            pools: pools.map(pool).collect(),
            entries: Entries::new(Order { by_round: cfg.rules.order, passes: cfg.passes }),
            choosing: BTreeMap::new(),
            lanes: Lanes::default(),
            armed: BTreeSet::new(),
        }
    }

    /// The invariants, as far as the last step can have broken them: what the two ways of counting
    /// say of the pools that it was about.
    ///
    /// # Errors
    /// Names the invariant that is broken.
    pub fn check_last_step(&self) -> Result<(), Broken> {
        let used = |pool| self.stock(pool).map_or(0, Stock::used);
        let same = |pool| used(pool) == self.entries.of_pool(pool).held;
        Broken::unless(self.entries.changes.is_empty(), "whatever has changed was looked at")?;
        Broken::unless(self.entries.looked_at().all(same), "H1: what is held makes up what is used")
    }

    /// The stance under which a request holds what it asked for, if it does.
    pub fn held_under(&self, request: RequestId) -> Option<u32> {
        self.entry(request).filter(|entry| entry.held).map(|entry| entry.n)
    }

    /// Whether a request is under way here.
    pub fn knows(&self, request: RequestId) -> bool {
        self.entry(request).is_some() || self.choosing.contains_key(&request)
    }

    /// Whether a request is among those that wait.
    pub fn has_waiting(&self, request: RequestId) -> bool {
        self.entry(request).is_some_and(|entry| !entry.held)
    }

    /// Whether a message is to be heard at all. Whoever was taken for dead is told so.
    fn hears(
        &mut self,
        cfg: &House,
        from: Addr,
        request: RequestId,
        state: State,
        out: &mut Out,
    ) -> bool {
        if from != Addr::User(request.user) {
            out.misbehaved(from, "a request of another user");
            return false;
        }
        match state {
            State::Current => true,
            State::New => {
                // Once this one has ended, the release of the one before will not be heard.
                let before = self.lanes.begin(request).filter(|_| cfg.rules.implied);
                if let Some(before) = before {
                    self.remove(cfg, before);
                    self.scan(cfg, out);
                }
                true
            }
            State::Over => false,
            State::Gone => {
                out.to_user(request.user, ToUser::Over(request));
                false
            }
        }
    }

    /// How a request stands with this manager.
    fn state(&self, cfg: &House, request: RequestId) -> State {
        if cfg.rules.ended { self.lanes.state(request) } else { State::Current }
    }

    fn known(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.entries.iter().map(|entry| entry.request).chain(self.choosing.keys().copied())
    }

    fn on_message(&mut self, cfg: &House, from: Addr, msg: ToManager, out: &mut Out) {
        let request = msg.request();
        let state = self.state(cfg, request);
        let heard = self.hears(cfg, from, request, state, out);
        match msg {
            _ if heard && self.is_impossible(cfg, &msg) => {
                self.end(cfg, request, out);
                out.to_user(request.user, ToUser::Over(request));
            }
            ToManager::Queue(stance) if heard => {
                if stance.round < stance.base {
                    return out.misbehaved(from, "queue: under a round that was used");
                }
                self.on_queue(cfg, stance, out);
            }
            ToManager::Release(_) => {
                if heard {
                    self.end(cfg, request, out);
                }
                let acknowledges = cfg.acknowledges(request.user);
                if acknowledges && from == Addr::User(request.user) && state != State::Gone {
                    out.to_user(request.user, ToUser::Over(request));
                }
            }
            ToManager::Try { needs, solo, span, .. } if heard => {
                self.on_try(cfg, Entry::new(request, needs, solo, span), out);
            }
            ToManager::Queue(_) | ToManager::Try { .. } => {}
        }
    }

    /// A request is over.
    fn end(&mut self, cfg: &House, request: RequestId, out: &mut Out) {
        self.lanes.end(request);
        self.remove(cfg, request);
        self.scan(cfg, out);
    }

    fn on_try(&mut self, cfg: &House, mut entry: Entry, out: &mut Out) {
        let (request, solo, span) = (entry.request, entry.solo, entry.span);
        if let Some(entry) = self.entry(request) {
            if entry.n == 0 && entry.held {
                let units = Picked::clone(&entry.units);
                out.to_user(request.user, ToUser::Yes { request, n: 0, units });
            }
            return;
        }
        let is_undisputed = solo && self.is_undisputed(cfg, &entry.needs);
        if solo && !is_undisputed {
            self.entries.push(entry);
            return self.scan(cfg, out);
        }
        if is_undisputed || self.fits_behind_all(cfg, &entry.needs) {
            if !solo {
                self.choosing.remove(&request);
            }
            let units = self.take(cfg, &entry.needs);
            entry.hold(units.clone());
            out.to_user(request.user, ToUser::Yes { request, n: 0, units });
            let at = self.entries.push(entry);
            self.entries.note_passed(at);
            return self.watch(cfg, out);
        }
        let floor = self.floor(cfg, &entry.needs);
        let marks = self.marks(floor, &entry.needs, request);
        let round = marks.first_free(floor, span);
        self.choosing.insert(request, Choosing { needs: entry.needs, round, span });
        let marks = marks.told_above(floor);
        out.to_user(request.user, ToUser::No { request, n: 0, floor, marks });
    }

    /// A waiting user sends its stance again: perhaps something that concerns it was lost. Those who
    /// hold what it needs are asked again, and it is told again whether to park.
    fn repeat(&mut self, cfg: &House, request: RequestId, out: &mut Out) {
        let Some(entry) = self.entry(request).cloned() else { return };
        if entry.turns > 0 {
            let park = ToUser::Park { request, turn: entry.turns, on: entry.blocked };
            out.to_user(request.user, park);
        }
        for need in entry.needs.iter() {
            let holding = self.entries.of_pool(need.pool).holding.clone();
            for holder in holding.iter() {
                self.entries.change(*holder, |holder| holder.asked_back = false);
            }
            self.entries.free(need.pool);
        }
        self.scan(cfg, out);
    }

    /// Whether nobody else wants any of this, and all of it is free: then there is nothing to look for.
    fn is_undisputed(&self, cfg: &House, needs: &Needs) -> bool {
        !cfg.thorough
            && self.entries.has_passed_nobody()
            && needs.iter().all(|need| self.entries.of_pool(need.pool).is_undisputed())
            && self.fits_behind_all(cfg, needs)
    }

    /// Whether there is room beside all that is held and all that is waited for.
    fn fits_behind_all(&self, cfg: &House, needs: &Needs) -> bool {
        needs.iter().all(|need| {
            let Some(stock) = self.stock(need.pool) else { return false };
            let claims = match cfg.rules.behind {
                true => self.entries.of_pool(need.pool).claimed(cfg, stock),
                false => Claims::default(),
            };
            fits(cfg, stock, &claims, need)
        })
    }

    fn on_queue(&mut self, cfg: &House, stance: Stance, out: &mut Out) {
        let Stance { request, n, round, span, base, needs, parked } = stance;
        self.choosing.remove(&request);
        if let Some(entry) = self.entry(request) {
            if n == entry.n && entry.held {
                let units = Picked::clone(&entry.units);
                out.to_user(request.user, ToUser::Yes { request, n, units });
            } else if n == entry.n && cfg.resends() {
                self.repeat(cfg, request, out);
            }
            if self.entry(request).is_some_and(|entry| n <= entry.n) && cfg.rules.stance {
                return;
            }
        } else {
            self.entries.push(Entry::new(request, needs, false, span));
        }
        self.drop_hold(request);
        let Some(at) = self.entries.arrival(request) else { return };
        self.entries.change(at, |entry| {
            (entry.n, entry.round, entry.parked) = (n, Some(round), parked);
            entry.hint.clear();
        });
        let Some(needs) = self.entries.at(at).map(|entry| entry.needs.clone()) else { return };
        if cfg.rules.floor {
            self.raise_floor(&needs, base);
        }
        let floor = self.floor(cfg, &needs);
        let marks = self.marks(floor, &needs, request);
        if marks.meet(round, span) && !parked {
            let hint = marks.first_free(floor.max(round), span);
            self.entries.change(at, |entry| entry.hint = Some(hint).into());
            let marks = marks.told_above(floor.max(round));
            out.to_user(request.user, ToUser::No { request, n, floor, marks });
        }
        self.scan(cfg, out);
    }

    fn on_gone(&mut self, cfg: &House, gone: Gone, out: &mut Out) {
        let known: Vec<RequestId> = self.known().filter(|id| ends_with(*id, gone.who())).collect();
        let uses = |id: &RequestId, user| {
            id.user == user && self.entry(*id).is_some_and(|entry| entry.held)
        };
        // Whoever is only suspected keeps what it may be using.
        let keeps = matches!(gone, Gone::Suspected(user) if known.iter().any(|id| uses(id, user)));
        if !cfg.rules.purge || keeps || !self.lanes.end_all_of(gone.who()) {
            return;
        }
        for id in &known {
            self.remove(cfg, *id);
            if !matches!(gone, Gone::Departed(_)) {
                out.to_user(id.user, ToUser::Over(*id));
            }
        }
        self.scan(cfg, out);
    }

    fn on_resize(&mut self, cfg: &House, Resize { pool, capacity }: Resize, out: &mut Out) {
        if let Some(known) = self.pools.get_mut(&pool) {
            known.stock.resize(capacity);
            if !self.remove_if_empty(pool) {
                self.entries.resize(pool);
                self.scan(cfg, out);
            }
            return;
        }
        let mut stock = Stock::none();
        stock.resize(capacity);
        if !stock.is_empty() {
            self.pools.insert(pool, Pool::new(stock, Round::first(cfg.topology.origin)));
        }
    }

    /// A pool without units goes when nobody has to do with it any more.
    fn remove_if_empty(&mut self, pool: PoolId) -> bool {
        let empty =
            self.stock(pool).is_some_and(Stock::is_empty) && self.entries.has_nobody_at(pool);
        if empty {
            self.pools.remove(&pool);
        }
        empty
    }

    /// Takes a request out.
    fn remove(&mut self, cfg: &House, request: RequestId) {
        self.choosing.remove(&request);
        if let Some(entry) = self.entries.remove(request) {
            self.take_back(cfg, &entry);
        }
    }

    /// What a request needs is free, if it held that; it was taken out.
    pub(super) fn take_back(&mut self, cfg: &House, entry: &Entry) {
        if entry.held {
            self.give_back(entry);
        }
        if let Some(round) = entry.round.filter(|_| entry.held && cfg.rules.floor) {
            self.raise_floor(&entry.needs, entry.span.last(round));
        }
        for need in entry.needs.iter() {
            self.remove_if_empty(need.pool);
        }
    }

    pub(super) fn entry(&self, request: RequestId) -> Option<&Entry> {
        self.entries.get(request)
    }

    /// Takes what is needed, which fits. Returns the units that were picked of listed pools.
    pub(super) fn take(&mut self, cfg: &House, needs: &Needs) -> Picked {
        let mut units = Picked::new();
        for need in needs.iter() {
            let Some(pool) = self.pools.get_mut(&need.pool) else { continue };
            let at_pool = self.entries.of_pool(need.pool);
            let named_by = |unit| at_pool.first_to_name(unit).filter(|_| cfg.rules.by_name);
            let picked = pool.stock.pick(need, named_by);
            pool.stock.take(need.units, picked.as_ref());
            units.extend(picked.map(|picked| (need.pool, picked)));
        }
        units
    }

    fn give_back(&mut self, entry: &Entry) {
        for need in entry.needs.iter() {
            if let Some(pool) = self.pools.get_mut(&need.pool) {
                pool.stock.give_back(need.units, entry.units_of(need.pool));
            }
        }
    }

    /// Ends a hold; the entry stays.
    fn drop_hold(&mut self, request: RequestId) {
        let Some(at) = self.entries.arrival(request) else { return };
        let Some(entry) = self.entries.at(at).filter(|entry| entry.held) else { return };
        self.give_back(&entry.clone());
        self.entries.change(at, Entry::let_go);
    }

    fn raise_floor(&mut self, needs: &Needs, round: Round) {
        for need in needs.iter() {
            if let Some(pool) = self.pools.get_mut(&need.pool) {
                pool.floor = pool.floor.max(round);
            }
        }
    }

    /// The greatest round that was used of any of these.
    pub(super) fn floor(&self, cfg: &House, needs: &Needs) -> Round {
        let floors = needs.iter().filter_map(|need| Some(self.pools.get(&need.pool)?.floor));
        floors.max().unwrap_or_else(|| Round::first(cfg.topology.origin))
    }

    /// The rounds above the floor in which there is no room for these needs beside the others,
    /// each taken where it is expected.
    pub(super) fn marks(&self, floor: Round, needs: &Needs, except: RequestId) -> Marks {
        let mut marks = BTreeSet::new();
        for need in needs.iter() {
            let at_pool = self.entries.of_pool(need.pool);
            let there = at_pool.holding.iter().copied().chain(at_pool.waiting());
            let entries = there.filter_map(|at| self.entries.at(at));
            let entries = entries.filter_map(|entry| {
                Some((entry.request, &entry.needs, entry.expected()?, entry.span))
            });
            let choosing = self.choosing.iter();
            let choosing = choosing.map(|(id, one)| (*id, &one.needs, one.round, one.span));
            let mut taken: BTreeMap<Round, Taken> = BTreeMap::new();
            let others = entries.chain(choosing).filter(|(request, ..)| *request != except);
            for (_, theirs, round, span) in others {
                let Some(need) = theirs.of(need.pool) else { continue };
                for round in span.rounds(round).filter(|round| *round > floor) {
                    taken.entry(round).or_default().add(need.units, &need.named);
                }
            }
            let Some(stock) = self.stock(need.pool) else { continue };
            let full = taken.into_iter().filter(|(_, taken)| stock.is_too_small(need, taken));
            marks.extend(full.map(|(round, _)| round));
        }
        marks.into()
    }

    /// Whether a request cannot be served, though its user may be honest: what it asks for was taken
    /// away while it was under way, or it was told a round that no honest manager has come to.
    fn is_impossible(&self, cfg: &House, msg: &ToManager) -> bool {
        // What was heard before may be in use, however the pools are now.
        let heard = self.entry(msg.request()).map(|entry| entry.n);
        match msg {
            ToManager::Queue(Stance { n, needs, round, .. }) => {
                let impossible =
                    !self.feasible(needs) || round.leaps_beyond(self.floor(cfg, needs));
                impossible && heard.is_none_or(|heard| *n > heard)
            }
            ToManager::Try { needs, .. } => !self.feasible(needs) && heard.is_none(),
            ToManager::Release(_) => false,
        }
    }

    fn feasible(&self, needs: &Needs) -> bool {
        needs.iter().all(|need| self.stock(need.pool).is_some_and(|stock| stock.has(need)))
    }

    pub(super) fn stock(&self, pool: PoolId) -> Option<&Stock> {
        self.pools.get(&pool).map(|pool| &pool.stock)
    }
}

/// Whether what is needed of a pool is free beside what is claimed.
pub(super) fn fits(cfg: &House, stock: &Stock, claims: &Claims, need: &Need) -> bool {
    let only_named = !cfg.rules.by_count && need.more() == 0;
    stock.fits(claims, need) || only_named && stock.names_are_free(claims, need)
}

impl Role for Manager {
    type P = House;
    type Call = Resize;
    type Msg = ToManager;
    type Timer = Timer;

    fn step(&mut self, cfg: &House, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(resize) => self.on_resize(cfg, resize, out),
            Event::Gone(gone) => self.on_gone(cfg, gone, out),
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Timer(Timer::Patience(patience)) => self.on_patience(cfg, patience, out),
        }
    }

    fn check(&self, cfg: &House) -> Result<(), Broken> {
        self.check_last_step()?;
        if cfg.thorough {
            Broken::unless(self.entries.is_in_step(), "whoever is at a pool is found there")?;
        }
        let mut held: BTreeMap<PoolId, Taken> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.held) {
            for need in entry.needs.iter() {
                let units = entry.units_of(need.pool).into_iter().flatten();
                held.entry(need.pool).or_default().add(need.units, units);
            }
        }
        let same = self.pools.iter().all(|(id, pool)| match held.get(id) {
            Some(held) => pool.stock.is_used_by(held),
            None => pool.stock.used() == 0,
        });
        Broken::unless(same, "H1: what is held makes up what is used")
    }

    fn is_stale(&self, cfg: &House, from: Addr, msg: &ToManager) -> bool {
        let request = msg.request();
        if from != Addr::User(request.user) {
            return false;
        }
        match self.state(cfg, request) {
            State::Gone => return false,
            State::Over => return !(cfg.resends() && matches!(msg, ToManager::Release(_))),
            State::New | State::Current => {}
        }
        let stance = self.entry(request).map(|entry| entry.n);
        match msg {
            ToManager::Queue(Stance { n, .. }) => cfg.rules.stance && stance > Some(*n),
            ToManager::Release(_) => false,
            ToManager::Try { .. } => stance > Some(0),
        }
    }

    fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.choosing.is_empty()
    }
}
