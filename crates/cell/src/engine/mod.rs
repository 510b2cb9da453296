//! The engine: one deterministic state machine that holds the manager and all users of a node.
//!
//! Inputs in, effects out: no clock (whoever calls says what time it is), no I/O, no randomness,
//! no hash order. The same inputs lead to the same state and the same effects, so a log of inputs
//! is enough to build an engine again.
//!
//! Messages between the roles of the node are delivered here, at once, oldest first. Each request
//! has a user of its own, which is forgotten when it is idle.
//!
//! # Invariants
//! - After a step no message is under way, and every role's own invariants hold: of the manager's,
//!   what the step can have broken is checked (all of them in tests).
//! - A request is known from `Ask` until it is refused or ended, and is granted at most once.
//! - What the protocol grants, the ledger has (`ledger`); anything else is a [`Defect`], and the
//!   engine must not be stepped again.

mod abroad;
mod alike;
mod cells;
mod defect;
mod elsewhere;
mod entry;
mod explain;
mod foreign;
mod ledger;
mod link;
mod look;
mod names;
mod needs;
mod own;
mod parts;
mod pools;
mod resemblance;
mod rest;
mod restore;
mod roles;
mod serving;
mod state;
mod stock;
#[cfg(test)]
mod tests;
mod users;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use holdall_core::{
    CellId, Home, Length, ManagerId, Need as Count, Needs, Options, Outbox, Protocol, Request,
    Resize, Rung, Topology, Unsupported, UserId,
};
use holdall_wire::{Ask, Change, Fault, Lasting, Need, Refusal, RequestNo, Taken, Who};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::cells::Cells;
pub use self::cells::{Member, Outgoing, home};
pub use self::defect::Defect;
pub use self::elsewhere::Elsewhere;
use self::entry::Entry;
pub use self::foreign::HeldFor;
use self::ledger::Ledger;
pub use self::look::Walk;
use self::roles::{Mail, ManagerTimer, Slot, Timers, UserTimer};
pub use self::serving::Serving;
use self::users::Users;

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A client asks. The request gets the number [`Engine::next_number`] told before.
    Ask {
        /// Who asks.
        who: Arc<Who>,
        /// For what.
        ask: Arc<Ask>,
        /// How long its use will probably take.
        length: Option<Length>,
    },
    /// The pools change.
    Change(Change),
    /// A request is withdrawn, or its grant given back.
    End(RequestNo),
    /// A reservation that is granted lasts until then.
    Renew {
        /// The reservation.
        request: RequestNo,
        /// The time.
        until: u64,
    },
    /// A grant of a former life of the node is in force again.
    Restore(Reservation),
    /// A timer rings.
    Timer(TimerNo),
}

/// A timer that was armed; each number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimerNo(u64);

/// A grant that outlives its client and its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation<W = Who, N = Vec<Need>, T = Vec<Taken>> {
    /// Its number.
    pub request: RequestNo,
    /// Whose it is.
    pub who: W,
    /// What was asked for.
    pub needs: N,
    /// What is held.
    pub taken: T,
    /// Since when.
    pub since: u64,
    /// Until when; none if it ends with the processes that use it.
    pub until: Option<u64>,
    /// The grant that it uses a part of.
    #[serde(default)]
    pub part_of: Option<RequestNo>,
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A timer shall ring after the delay of this rung.
    Arm(TimerNo, Rung),
    /// The change of the pools was made, or not.
    Changed(Result<(), Fault>),
    /// A timer shall not ring.
    Disarm(TimerNo),
    /// A request is over, and what it held is free.
    Ended(RequestNo),
    /// A request holds all it asked for.
    Granted {
        /// The request.
        request: RequestNo,
        /// What it holds.
        taken: Arc<[Taken]>,
        /// How many older requests it has passed that want some of the same; of many, not all are
        /// counted.
        overtook: u32,
    },
    /// Something is held for a request of another home: as it is then, since it may be let go before that is noted, and what follows may
    /// share it.
    HeldFor(Box<HeldFor>),
    /// A request of another home is a reservation, and lasts until then.
    Kept(RequestNo, u64),
    /// Nothing is held any more for a request of another home.
    LetGo(RequestNo),
    /// A grant is not held any more where another cell guards it: its use must stop.
    Lost(RequestNo),
    /// Another cell says what no honest one would.
    Misbehaved(CellId, &'static str),
    /// A request waits.
    Queued(RequestNo),
    /// A request is not granted, and forgotten.
    Refused {
        /// The request.
        request: RequestNo,
        /// Why.
        why: Refusal,
    },
    /// A reservation could not be put in force again.
    Unrestored(RequestNo),
}

/// How many of those who were overtaken at a pool are counted.
const OVERTAKEN_MAX: usize = 64;

/// Room for so many of what a step leads to is kept for the next one.
pub(crate) const ROOM: usize = 256;

/// The state of a node.
pub struct Engine<P: Protocol> {
    cfg: P,
    manager: P::Manager,
    users: Users<P>,
    /// Each in a place of its own: a table that grows moves what is in it, and is half empty then.
    requests: FxHashMap<RequestNo, Box<Entry>>,
    /// Those of them that hold.
    held: BTreeSet<RequestNo>,
    /// For each grant, the requests that were asked inside it.
    inside: BTreeMap<RequestNo, BTreeSet<RequestNo>>,
    /// For each grant, the requests that use a part of it, or want to.
    parts: BTreeMap<RequestNo, BTreeSet<RequestNo>>,
    ledger: Ledger,
    cells: Cells<P>,
    timers: Timers<P>,
    mail: VecDeque<Mail<P>>,
    /// What is to be said to other cells.
    outgoing: Vec<Outgoing<P>>,
    /// Those who wait and were taken for dead by another cell.
    lost: Vec<RequestNo>,
    /// Room for what a step leads to.
    of_user: Outbox<P, UserTimer<P>>,
    of_manager: Outbox<P, ManagerTimer<P>>,
    resizes: Vec<Resize>,
    doomed: Vec<(RequestNo, Refusal)>,
    effects: Vec<Effect>,
    /// What the next request or fence is above of.
    counter: u64,
    /// The lanes that no user is in, each with the user to come next. There are as many lanes as
    /// there ever were requests at a time.
    lanes: Vec<UserId>,
    lanes_made: u32,
    now: u64,
    ephemeral: bool,
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// An engine without pools. Requests and fences are numbered from `epoch << 32`; with
    /// `ephemeral`, locks are made on first use.
    ///
    /// # Errors
    /// If the protocol has no such variant.
    pub fn new(variant: Option<&str>, epoch: u32, ephemeral: bool) -> Result<Self, Unsupported> {
        let variant = variant.or(P::Manager::VARIANT).map(Into::into);
        let options = Options { variant, ..Options::default() };
        let mut cfg = P::new(&Topology::of_pools(Vec::new()), &options)?;
        P::Manager::settle(&mut cfg, CellId::default());
        Ok(Self {
            manager: cfg.manager(ManagerId(0)),
            cfg,
            users: Users::new(Home::default()),
            requests: FxHashMap::default(),
            held: BTreeSet::new(),
            inside: BTreeMap::new(),
            parts: BTreeMap::new(),
            ledger: Ledger::default(),
            cells: Cells::default(),
            timers: Timers::default(),
            mail: VecDeque::new(),
            outgoing: Vec::new(),
            lost: Vec::new(),
            of_user: Outbox::default(),
            of_manager: Outbox::default(),
            resizes: Vec::new(),
            doomed: Vec::new(),
            effects: Vec::new(),
            counter: u64::from(epoch) << 32,
            lanes: Vec::new(),
            lanes_made: 0,
            now: 0,
            ephemeral,
        })
    }

    /// The epoch that numbers have reached. It must be on disk before effects are carried out.
    pub fn epoch(&self) -> u32 {
        (self.counter >> 32) as u32
    }

    /// The number the next `Ask` will get.
    pub fn next_number(&self) -> RequestNo {
        RequestNo(self.counter + 1)
    }

    /// Takes one input at a time given in milliseconds since 1970, and returns what follows.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn step(&mut self, now: u64, input: Input) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        match input {
            Input::Ask { who, ask, length } => {
                let request = self.draw_request();
                self.on_ask(request, who, &ask, length)?;
            }
            Input::Change(change) => self.on_change(&change)?,
            Input::End(request) => {
                let waited = self.requests.contains_key(&request) && !self.is_held(request);
                self.end(request)?;
                if waited {
                    self.effects.push(Effect::Refused { request, why: Refusal::Withdrawn });
                }
            }
            Input::Renew { request, until } => {
                if let Some(entry) = self.requests.get_mut(&request) {
                    entry.besides.change(|besides| besides.until = Some(until));
                }
            }
            Input::Restore(reservation) => self.on_restore(reservation)?,
            Input::Timer(timer) => self.on_timer(timer)?,
        }
        Ok(std::mem::take(&mut self.effects))
    }

    /// Takes back what a step led to, once that is used up, for the room that it has.
    pub(crate) fn reuse(&mut self, mut effects: Vec<Effect>) {
        debug_assert!(effects.is_empty(), "all of it was done");
        if self.effects.is_empty() {
            effects.shrink_to(ROOM);
            self.effects = effects;
        }
    }

    fn on_ask(
        &mut self,
        request: RequestNo,
        who: Arc<Who>,
        ask: &Arc<Ask>,
        length: Option<Length>,
    ) -> Result<(), Defect> {
        if let Some(part) = ask.part {
            return self.on_ask_part(request, who, ask, part.of);
        }
        let resolved = self.resolve_everywhere(&ask.needs);
        let inside = ask.within.filter(|outer| self.requests.contains_key(outer));
        let resolved = resolved.and_then(|counts| match inside {
            Some(outer) => self.refuse_nesting(outer, &counts).map(|()| counts),
            None => Ok(counts),
        });
        let counts = match resolved {
            Ok(counts) => counts,
            Err(why) => {
                self.effects.push(Effect::Refused { request, why });
                return Ok(());
            }
        };
        let counts = self.counts_like(counts);
        self.tell_manager()?;
        let lasts = match ask.lasting {
            Lasting::Connection | Lasting::Command(_) => None,
            Lasting::Reservation(millis) => Some(millis),
        };
        self.enter(request, ask.clone(), counts, who, lasts, ask.within);
        if let Some(entry) = self.requests.get_mut(&request).filter(|_| length.is_some()) {
            entry.besides.change(|besides| besides.length = length);
        }
        if let Some(why) = self.waits_for_itself(request) {
            return self.refuse(request, why);
        }
        if let Some(why) = self.enter_abroad(request, ask.now) {
            return self.refuse(request, why);
        }
        self.ask_or_postpone(request)?;
        if self.is_held(request) || ask.now && self.waits_only_for_others(request) {
            return Ok(());
        }
        if ask.now {
            let why = Refusal::Busy(self.busy(request));
            return self.refuse(request, why);
        }
        if let Some(why) = self.waits_in_a_circle(request) {
            return self.refuse(request, why);
        }
        self.effects.push(Effect::Queued(request));
        Ok(())
    }

    pub(super) fn refuse(&mut self, request: RequestNo, why: Refusal) -> Result<(), Defect> {
        self.end(request)?;
        self.effects.push(Effect::Refused { request, why });
        Ok(())
    }

    fn enter(
        &mut self,
        request: RequestNo,
        ask: Arc<Ask>,
        counts: Needs,
        who: Arc<Who>,
        lasts: Option<u64>,
        within: Option<RequestNo>,
    ) {
        let user = self.fresh_user();
        let within = self.nest(request, who.uid, within);
        self.enter_as(request, ask, counts, who, user);
        if (lasts.is_some() || within.is_some())
            && let Some(entry) = self.requests.get_mut(&request)
        {
            entry.besides.change(|besides| (besides.lasts, besides.within) = (lasts, within));
        }
        self.enter_user(user, self.cfg.user(user), request);
    }

    /// A request that is entered for a user that is there already, or elsewhere.
    fn enter_as(
        &mut self,
        request: RequestNo,
        ask: Arc<Ask>,
        counts: Needs,
        who: Arc<Who>,
        user: UserId,
    ) {
        for count in counts.iter() {
            self.ledger.join(count.pool, request);
        }
        let entry = Entry::new(user, ask, counts, who, self.now);
        self.requests.insert(request, Box::new(entry));
    }

    /// A user acts for a request from now on.
    fn enter_user(&mut self, user: UserId, role: P::User, request: RequestNo) {
        self.users.insert(user, Box::new(Slot { role, request: Some(request) }));
    }

    /// A request is asked inside a grant. Whoever names one that is not its own user's names nothing.
    fn nest(
        &mut self,
        request: RequestNo,
        uid: u32,
        within: Option<RequestNo>,
    ) -> Option<RequestNo> {
        let same_uid =
            |outer: &RequestNo| self.requests.get(outer).is_some_and(|entry| entry.who.uid == uid);
        let within = within.filter(same_uid);
        if let Some(outer) = within {
            self.inside.entry(outer).or_default().insert(request);
        }
        within
    }

    /// The protocol has granted a request: note units, and draw a fence.
    fn on_granted(&mut self, granted: &Request) -> Result<(), Defect> {
        let Some(request) = self.users.get(granted.id.user).and_then(|slot| slot.request) else {
            return Ok(()); // It ended while its grant was under way.
        };
        let counted = (!P::Manager::PICKS).then(|| self.ledger.picked(&granted.needs));
        let counts = counted.as_ref().unwrap_or(&granted.needs);
        let former = self.requests.get(&request).and_then(|entry| entry.taken.clone());
        let overtook = self.overtaken_by(request, counts);
        let (fence, is_abroad) = (self.draw(), self.is_abroad(request));
        let mut taken = Vec::with_capacity(counts.len());
        let own = counts.iter().filter(|count| abroad::guard(count).is_none());
        for (i, count) in own.enumerate() {
            let same = former.as_ref().and_then(|former| former.get(i));
            taken.push(match same {
                Some(same) => {
                    self.ledger.assign_again(count, request, same)?;
                    same.clone()
                }
                None if is_abroad => self.ledger.confirm(count, request, fence)?,
                None => self.ledger.assign(count, request, fence)?,
            });
        }
        if is_abroad {
            taken.extend(self.given_abroad(request));
            self.in_order(request, &mut taken);
        }
        let taken: Arc<[Taken]> = taken.into();
        self.held.insert(request);
        if let Some(entry) = self.requests.get_mut(&request) {
            if former.is_none() {
                entry.since = self.now;
                if let Some(millis) = entry.besides.lasts {
                    let until = self.now.saturating_add(millis);
                    entry.besides.change(|besides| besides.until = Some(until));
                }
            }
            entry.taken = Some(taken.clone());
            entry.counts = counts.clone();
        }
        self.effects.push(Effect::Granted { request, taken, overtook });
        Ok(())
    }

    /// A request is over, whether it held or waited. Its units are free in the ledger before the
    /// protocol hears of it, since the protocol may pass them on at once.
    fn end(&mut self, request: RequestNo) -> Result<(), Defect> {
        if self.parts.contains_key(&request) && self.closes(request)? {
            return Ok(()); // It ends with its last part.
        }
        let foreign = self.requests.get(&request).map(|entry| entry.user);
        if let Some(user) = foreign.filter(|user| self.cells.foreign.contains_key(user)) {
            return P::Manager::end_foreign(self, user);
        }
        let Some(entry) = self.requests.remove(&request) else { return Ok(()) };
        self.cells.abroad.remove(&request);
        let held = self.held.remove(&request);
        if let Some(outer) = entry.besides.within
            && let Some(inside) = self.inside.get_mut(&outer)
        {
            inside.remove(&request);
            if inside.is_empty() {
                self.inside.remove(&outer);
            }
        }
        if let Some(of) = entry.besides.part_of {
            return self.end_part(request, &entry, of);
        }
        let mut unused = Vec::new();
        for count in entry.counts.iter() {
            unused.extend(self.ledger.leave(count, request));
        }
        if held {
            self.effects.push(Effect::Ended(request));
        }
        self.call_end(entry.user, held)?;
        self.resizes.append(&mut unused);
        self.tell_manager()
    }

    /// How many older requests want some of the same, counted up to [`OVERTAKEN_MAX`] for each pool.
    fn overtaken_by(&self, request: RequestNo, counts: &Needs) -> u32 {
        let older = counts.iter().flat_map(|count| {
            let pool = self.ledger.pool(count.pool).into_iter();
            let older = pool.flat_map(|pool| pool.waiting.before(request).take(OVERTAKEN_MAX));
            older.filter(|older| self.competes(**older, count))
        });
        older.collect::<BTreeSet<_>>().len() as u32
    }

    /// Whether a request holds what it asked for.
    pub fn is_held(&self, request: RequestNo) -> bool {
        self.requests.get(&request).is_some_and(|entry| entry.taken.is_some())
    }

    /// What a request holds, if it does.
    pub fn taken(&self, request: RequestNo) -> Option<&Arc<[Taken]>> {
        self.requests.get(&request)?.taken.as_ref()
    }

    /// Whether a request asks for what another needs of a pool, as far as that can be told: those who name
    /// all their units, and not the same, do not compete.
    fn competes(&self, request: RequestNo, count: &Count) -> bool {
        let other = self.requests.get(&request).and_then(|entry| entry.counts.of(count.pool));
        other.is_some_and(|other| {
            other.more() > 0 || count.more() > 0 || !other.named.is_disjoint(&count.named)
        })
    }

    fn draw_request(&mut self) -> RequestNo {
        RequestNo(self.draw())
    }

    fn draw(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}
