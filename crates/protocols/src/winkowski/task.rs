//! A task under way: its status, its stance at every pool, and what it sees there.

use alloc::vec::Vec;
use core::mem;

use holdall_core::{Addr, Broken, PoolId, Request};
use serde::{Deserialize, Serialize};

use super::user::Timer;
use super::{Level, Number, Out, Stance, Ticket, Turn, Version, View, Winkowski, manager_of};

/// The alarm clock waits longer after each ring, up to this.
const RUNG_MAX: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) request: Request,
    pub(super) status: Status,
    ticket: Option<Ticket>,
    /// One for each need of the request.
    parts: Vec<Part>,
    /// Whether the alarm is set, and how long it waits.
    armed: bool,
    rung: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Status {
    /// Registering, or stranded: waits until the way is free to compete.
    Entering,
    /// Competing: brings all its stances to this level, from `Adm` to `Ord`.
    Competing(Level),
    /// All orders are confirmed.
    Winning,
    /// Everything is granted.
    Accessing,
    /// Leaves all pools.
    Leaving {
        /// Because it was taken for dead.
        lost: bool,
    },
}

/// What stands at one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Part {
    /// The number of the latest stance.
    n: Turn,
    level: Level,
    special: bool,
    /// The version of the latest view since; none as long as there is no answer.
    version: Option<Version>,
    view: View,
    /// While registered: the greatest number on a ticket there.
    top: Option<Number>,
}

impl Part {
    /// Out of the game at a pool, which is known.
    fn out(n: Turn, version: Version) -> Self {
        let version = Some(version);
        Self { n, level: Level::Out, special: false, version, view: View::default(), top: None }
    }

    fn is_answered(&self) -> bool {
        self.version.is_some()
    }

    fn stands_at(&self, level: Level) -> bool {
        self.is_answered() && self.view.level == level
    }
}

impl Task {
    pub(super) fn new(request: Request) -> Self {
        let user = request.id.user;
        let managers = request.needs.iter().map(|need| manager_of(need.pool));
        let part = |at| Part::out(Turn::first(user, at), Version::first(user, at));
        let parts = managers.map(part).collect();
        Self { request, status: Status::Entering, ticket: None, parts, armed: false, rung: 0 }
    }

    pub(super) fn part_of(&self, manager: Addr) -> Option<usize> {
        self.request.needs.iter().position(|need| Addr::Manager(manager_of(need.pool)) == manager)
    }

    /// Whether a view is no news.
    pub(super) fn is_old<const C: bool>(
        &self,
        cfg: &Winkowski<C>,
        at: usize,
        n: Turn,
        version: Version,
    ) -> bool {
        let part = &self.parts[at];
        n < part.n && cfg.rules.answer
            || n == part.n && Some(version) <= part.version && cfg.rules.latest
    }

    /// Whether no honest manager can show this: it has never taken such a stance, or the latest is
    /// followed to another level. Only an order may fall short, and is then a request.
    pub(super) fn is_impossible(&self, at: usize, n: Turn, view: View) -> bool {
        let part = &self.parts[at];
        let follows = match part.level {
            Level::Ord => matches!(view.level, Level::Req | Level::Ord),
            level => view.level == level,
        };
        n > part.n || n == part.n && !follows
    }

    pub(super) fn see(&mut self, at: usize, version: Version, view: View, top: Option<Number>) {
        let part = &mut self.parts[at];
        (part.version, part.view, part.top) = (Some(version), view, top);
    }

    /// Whether it has left one pool, and that is confirmed.
    pub(super) fn is_out(&self, at: usize) -> bool {
        self.parts[at].level == Level::Out && self.parts[at].stands_at(Level::Out)
    }

    /// It is out of the game at one pool; what was said there before counts no more.
    pub(super) fn put_out(&mut self, at: usize) {
        if !self.is_out(at) {
            let (user, pool) = (self.request.id.user, self.request.needs[at].pool);
            let n = self.parts[at].n.next();
            self.parts[at] = Part::out(n, Version::first(user, manager_of(pool)));
        }
    }

    /// Whether all it waits for is one answer from each of several pools, and this is one of them: that it
    /// uses, or that it has left.
    pub(super) fn gathers(&self, at: usize, n: Turn) -> bool {
        let level = match self.status {
            Status::Winning => Level::Use,
            Status::Leaving { .. } => Level::Out,
            Status::Entering | Status::Competing(_) | Status::Accessing => return false,
        };
        let part = &self.parts[at];
        let missing = self.parts.iter().filter(|part| !part.stands_at(level)).count();
        part.n == n && part.level == level && !part.is_answered() && missing > 1
    }

    /// Whether it has a ticket and has not won yet.
    pub(super) fn competes(&self) -> bool {
        matches!(self.status, Status::Competing(_) | Status::Winning)
    }

    /// Whether something happens to it whatever anybody says: its use ends, or its alarm rings.
    pub(super) fn moves_by_itself(&self) -> bool {
        self.armed || self.status == Status::Accessing
    }

    /// The stance that was answered at a pool, and the latest view since; nothing where it is out.
    pub(super) fn last_seen(&self, pool: PoolId) -> Option<(Turn, Option<Version>)> {
        let part = self.request.needs.iter().position(|need| need.pool == pool)?;
        let part = &self.parts[part];
        let out = part.level == Level::Out && part.is_answered();
        (!out).then_some((part.n, part.version))
    }

    /// A word for where it stands.
    pub(super) fn stage(&self) -> &'static str {
        match self.status {
            Status::Entering => "registering",
            Status::Competing(Level::Adm) => "admitted",
            Status::Competing(Level::Req) => "requesting",
            Status::Competing(_) => "ordering",
            Status::Winning => "winning",
            Status::Accessing => "accessing",
            Status::Leaving { .. } => "leaving",
        }
    }

    /// Plays on as far as possible: changes the status, then takes the stances it asks for.
    pub(super) fn play<const C: bool>(&mut self, cfg: &Winkowski<C>, out: &mut Out<C, Timer>) {
        while let Some(next) = self.next_status(cfg, out) {
            self.status = next;
        }
        for at in 0..self.parts.len() {
            self.take_stance(cfg, at, out);
        }
        self.set_alarm(cfg, out);
    }

    fn next_status<const C: bool>(
        &mut self,
        cfg: &Winkowski<C>,
        out: &mut Out<C, Timer>,
    ) -> Option<Status> {
        match self.status {
            Status::Entering => {
                let free = |part: &Part| !part.view.waits && !part.view.stranded;
                let entered = self.all_at(Level::Reg) && self.parts.iter().all(free);
                entered.then(|| Status::Competing(self.enter(cfg)))
            }
            Status::Competing(goal) => self.compete(cfg, goal, out),
            Status::Winning if self.all_at(Level::Use) => {
                out.granted(self.request.clone());
                Some(Status::Accessing)
            }
            Status::Winning | Status::Accessing | Status::Leaving { .. } => None,
        }
    }

    /// Takes a ticket, unless it was stranded and has one, and decides how to begin.
    fn enter<const C: bool>(&mut self, cfg: &Winkowski<C>) -> Level {
        let tops: Vec<Option<Number>> = self.parts.iter_mut().map(|p| p.top.take()).collect();
        if self.ticket.is_some() {
            return Level::Adm;
        }
        let top = tops.into_iter().flatten().max().filter(|_| cfg.settings.numbers);
        let number = top.map_or_else(|| Number::first(cfg.topology.origin), Number::next);
        self.ticket = Some(cfg.settings.ticket(number, self.request.id.user.lane()));
        if C && cfg.settings.fast && self.parts.iter().all(|part| part.view.fits) {
            Level::Ord
        } else if cfg.settings.merge {
            Level::Req
        } else {
            Level::Adm
        }
    }

    /// The progressive and the regressive behaviour.
    fn compete<const C: bool>(
        &mut self,
        cfg: &Winkowski<C>,
        goal: Level,
        out: &mut Out<C, Timer>,
    ) -> Option<Status> {
        let some = |is: &dyn Fn(&Part) -> bool| self.parts.iter().any(|p| p.is_answered() && is(p));
        let all = |is: &dyn Fn(&Part) -> bool| self.parts.iter().all(is);
        if some(&|part| part.view.stranded) {
            out.tally("strands", 1);
            return Some(Status::Entering);
        }
        if goal == Level::Adm {
            let ready = self.all_at(Level::Adm) && all(&|part| part.view.may);
            let next = if cfg.rules.once { Level::Req } else { Level::Ord };
            return ready.then_some(Status::Competing(next));
        }
        let refused = |part: &Part| part.level == Level::Ord && part.view.level < Level::Ord;
        let in_the_way = |part: &Part| part.view.level >= Level::Adm && !part.view.may;
        if goal == Level::Ord && some(&refused) {
            out.tally("refusals", 1);
            return Some(Status::Competing(Level::Adm));
        }
        if cfg.rules.regress && some(&in_the_way) {
            out.tally("regressions", 1);
            return Some(Status::Competing(Level::Adm));
        }
        let ordered =
            self.all_at(Level::Ord) || !cfg.rules.all && some(&|p| p.view.level == Level::Ord);
        match goal {
            Level::Ord => ordered.then_some(Status::Winning),
            _ if !self.all_at(Level::Req) || !all(&|part| part.view.fits) => None,
            _ if C => Some(Status::Competing(Level::Ord)),
            _ => Some(Status::Winning),
        }
    }

    fn all_at(&self, level: Level) -> bool {
        self.parts.iter().all(|part| part.level == level && part.stands_at(level))
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(self.status, Status::Leaving { .. }) && self.all_at(Level::Out)
    }

    /// The stance that the status asks for at a pool.
    fn wanted<const C: bool>(&self, cfg: &Winkowski<C>, at: usize) -> (Level, bool) {
        let part = &self.parts[at];
        match self.status {
            Status::Entering => (Level::Reg, false),
            Status::Competing(Level::Adm) => (Level::Adm, self.is_passive(cfg, at)),
            Status::Competing(level) => (level, part.level == level && part.special),
            Status::Winning | Status::Accessing => (Level::Use, false),
            Status::Leaving { .. } => (Level::Out, false),
        }
    }

    /// Whether it is admitted where it might go on, but not elsewhere. Then others need not wait
    /// for its turn. Once it has said so, it stays with it until it goes on everywhere.
    fn is_passive<const C: bool>(&self, cfg: &Winkowski<C>, at: usize) -> bool {
        let part = &self.parts[at];
        let blocked = |part: &Part| part.stands_at(Level::Adm) && !part.view.may;
        let waits = part.stands_at(Level::Adm) && part.view.may && self.parts.iter().any(blocked);
        let before = part.level == Level::Adm && part.special;
        cfg.settings.turns && (before || waits)
    }

    /// Takes a new stance if another is wanted and the latest is answered. To leave, nobody waits.
    fn take_stance<const C: bool>(
        &mut self,
        cfg: &Winkowski<C>,
        at: usize,
        out: &mut Out<C, Timer>,
    ) {
        let wanted = self.wanted(cfg, at);
        let part = &self.parts[at];
        let waits = !part.is_answered() && wanted.0 != Level::Out;
        if (part.level, part.special) != wanted && !waits {
            self.stand(at, wanted, out);
        }
    }

    fn stand<const C: bool>(
        &mut self,
        at: usize,
        (level, special): (Level, bool),
        out: &mut Out<C, Timer>,
    ) {
        let part = &mut self.parts[at];
        part.n = part.n.next();
        (part.level, part.special, part.version) = (level, special, None);
        let need = &self.request.needs[at];
        let competes = (Level::Adm..=Level::Ord).contains(&level);
        let stance = Stance {
            request: self.request.id,
            n: part.n,
            level,
            units: need.units,
            ticket: self.ticket.filter(|_| competes),
            special,
        };
        out.to_manager(manager_of(need.pool), stance);
    }

    /// Whether a request waits somewhere behind others, with nobody who comes first in the way,
    /// and has not tried to pass them.
    fn is_blocked(&self) -> bool {
        self.status == Status::Competing(Level::Req)
            && self.all_at(Level::Req)
            && self.parts.iter().all(|part| part.view.may)
            && self.parts.iter().any(|part| !part.view.fits && !part.special)
    }

    fn set_alarm<const C: bool>(&mut self, cfg: &Winkowski<C>, out: &mut Out<C, Timer>) {
        let blocked = C && cfg.rules.advance && self.is_blocked();
        if mem::replace(&mut self.armed, blocked) == blocked {
            return;
        }
        match blocked {
            true => out.arm(Timer::Alarm, cfg.settings.gamma.saturating_add(self.rung)),
            false => out.disarm(Timer::Alarm),
        }
    }

    /// The alarm rings: asks to pass those of lower priority.
    pub(super) fn on_alarm<const C: bool>(&mut self, cfg: &Winkowski<C>, out: &mut Out<C, Timer>) {
        self.armed = false;
        if !self.is_blocked() {
            return;
        }
        out.tally("rings", 1);
        self.rung = RUNG_MAX.min(self.rung + 1);
        for at in 0..self.parts.len() {
            if !self.parts[at].view.fits {
                self.stand(at, (Level::Req, true), out);
            }
        }
        self.play(cfg, out);
    }

    pub(super) fn check(&self) -> Result<(), Broken> {
        let confirmed = match self.status {
            Status::Winning => self.parts.iter().all(|part| part.level >= Level::Ord),
            Status::Accessing => self.all_at(Level::Use),
            _ => true,
        };
        Broken::unless(confirmed, "whoever wins has ordered, and whoever is granted uses")
    }
}
