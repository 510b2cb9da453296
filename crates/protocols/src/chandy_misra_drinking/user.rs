//! The user: a drinker, with a diner inside.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{
    Addr, Broken, Call, Event, Never, Note, Outbox, PoolId, Protocol, Request, Role, UserId,
};
use serde::{Deserialize, Serialize};

use super::{Drinking, ToUser};
use crate::chandy_misra;

type Out = Outbox<Drinking, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    phase: Phase,
    /// In the order of [`Drinking::bottles`].
    bottles: Vec<Bottle>,
    diner: chandy_misra::User,
    /// Whether the diner eats.
    eating: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    Tranquil,
    Thirsty(Request),
    Drinking(Request),
}

impl Phase {
    fn needs(&self, pool: PoolId) -> bool {
        match self {
            Self::Tranquil => false,
            Self::Thirsty(request) | Self::Drinking(request) => {
                request.needs.iter().any(|need| need.pool == pool)
            }
        }
    }
}

/// One end of what is between two neighbours for a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Bottle {
    here: bool,
    /// With the token one may ask for the bottle; with both, one was asked.
    token: bool,
    /// The token was sent, and the bottle has not come since.
    asked: bool,
}

impl fmt::Debug for Bottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bottle = if self.here { "bottle" } else { "no bottle" };
        let token = if self.token { ", token" } else { "" };
        let asked = if self.asked { ", asked" } else { "" };
        write!(f, "{bottle}{token}{asked}")
    }
}

impl User {
    pub(super) fn new(cfg: &Drinking, id: UserId) -> Self {
        let neighbours = cfg.neighbours().of(id);
        let bottle = |(place, _): &(usize, PoolId)| {
            let here = cfg.dining.starts_with_fork(id, neighbours[*place]);
            Bottle { here, token: !here, asked: false }
        };
        Self {
            id,
            phase: Phase::Tranquil,
            bottles: cfg.bottles(id).iter().map(bottle).collect(),
            diner: cfg.dining.user(id),
            eating: false,
        }
    }

    fn ask(&mut self, cfg: &Drinking, request: Request, out: &mut Out) {
        if !matches!(self.phase, Phase::Tranquil)
            || !cfg.neighbours().may_ask(self.id, &request.needs)
        {
            return out.misbehaved(Addr::User(self.id), "asks twice, or for what it never named");
        }
        self.diner.wait_instead_for(&request);
        self.phase = Phase::Thirsty(request);
        self.settle(cfg, out);
    }

    /// The use ends. Users that depart are outside the assumptions: one that waits goes on waiting.
    fn end(&mut self, cfg: &Drinking, out: &mut Out) {
        let Phase::Drinking(request) = &self.phase else { return };
        out.released(request.id);
        self.phase = Phase::Tranquil;
        self.settle(cfg, out);
    }

    /// The bottle of that pool that is shared with the sender.
    fn bottle(&mut self, cfg: &Drinking, from: Addr, pool: PoolId) -> Option<&mut Bottle> {
        let place = cfg.neighbours().place(self.id, from)?;
        let at = cfg.bottles(self.id).binary_search(&(place, pool)).ok()?;
        Some(&mut self.bottles[at])
    }

    fn on_ask(&mut self, cfg: &Drinking, from: Addr, pool: PoolId, out: &mut Out) {
        match self.bottle(cfg, from, pool) {
            Some(bottle) if !bottle.token => bottle.token = true,
            _ => return out.misbehaved(from, "ask: no such bottle, or its token is here"),
        }
        self.settle(cfg, out);
    }

    fn on_bottle(&mut self, cfg: &Drinking, from: Addr, pool: PoolId, out: &mut Out) {
        match self.bottle(cfg, from, pool) {
            Some(bottle) if bottle.asked => {
                bottle.asked = false;
                bottle.here = true;
            }
            _ => return out.misbehaved(from, "bottle: not asked for"),
        }
        self.settle(cfg, out);
    }

    fn on_dining(&mut self, cfg: &Drinking, event: Event<chandy_misra::User>, out: &mut Out) {
        self.dine(cfg, event, out);
        self.settle(cfg, out);
    }

    fn dine(&mut self, cfg: &Drinking, event: Event<chandy_misra::User>, out: &mut Out) {
        let mut inner = Outbox::default();
        self.diner.step(&cfg.dining, event, &mut inner);
        for note in out.lift(inner, ToUser::Dining, |never| never, |never| never) {
            self.eating = matches!(note, Note::Granted(_));
        }
    }

    /// Does what has become possible: bottles first, then the diner, whose forks decide about
    /// bottles.
    fn settle(&mut self, cfg: &Drinking, out: &mut Out) {
        self.pour(cfg, out);
        if let Phase::Thirsty(request) = &self.phase
            && cfg.rules.hunger
            && self.diner.is_idle()
        {
            let hungry = Event::Call(Call::Ask(request.clone(), None));
            self.dine(cfg, hungry, out);
        }
        if self.eating && cfg.rules.rise && !matches!(self.phase, Phase::Thirsty(_)) {
            self.dine(cfg, Event::Call(Call::Done), out);
            self.pour(cfg, out);
        }
    }

    /// Gives bottles up, asks for others, and drinks if all are here.
    fn pour(&mut self, cfg: &Drinking, out: &mut Out) {
        let neighbours = cfg.neighbours().of(self.id);
        let drinking = matches!(self.phase, Phase::Drinking(_));
        let mut complete = true;
        for (bottle, (place, pool)) in self.bottles.iter_mut().zip(cfg.bottles(self.id)) {
            let needed = self.phase.needs(*pool);
            let in_use = drinking && cfg.rules.drink;
            let by_fork = cfg.rules.fork && self.diner.holds_fork(*place);
            if bottle.here && bottle.token && !(needed && (in_use || by_fork)) {
                bottle.here = false;
                out.to_user(neighbours[*place], ToUser::Bottle(*pool));
            }
            if needed && !bottle.here && bottle.token && !bottle.asked && !drinking {
                bottle.token = false;
                bottle.asked = true;
                out.to_user(neighbours[*place], ToUser::Ask(*pool));
            }
            complete &= !needed || bottle.here;
        }
        if let Phase::Thirsty(request) = &self.phase
            && complete
        {
            out.granted(request.clone());
            self.phase = Phase::Drinking(request.clone());
        }
    }
}

impl Role for User {
    type P = Drinking;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Drinking, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Message { from, msg: ToUser::Ask(pool) } => self.on_ask(cfg, from, pool, out),
            Event::Message { from, msg: ToUser::Bottle(pool) } => {
                self.on_bottle(cfg, from, pool, out);
            }
            Event::Message { from, msg: ToUser::Dining(msg) } => {
                self.on_dining(cfg, Event::Message { from, msg }, out);
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, cfg: &Drinking) -> Result<(), Broken> {
        self.diner.check(&cfg.dining)?;
        let mut bottles = self.bottles.iter();
        Broken::unless(
            bottles.all(|b| if b.here { !b.asked } else { b.token || b.asked }),
            "B1: whoever lacks a bottle has the token or has asked, and nobody asks for what it has",
        )?;
        let mut bottles = self.bottles.iter().zip(cfg.bottles(self.id));
        Broken::unless(
            !cfg.rules.drink
                || !matches!(self.phase, Phase::Drinking(_))
                || bottles.all(|(bottle, (_, pool))| bottle.here || !self.phase.needs(*pool)),
            "B2: whoever drinks has every bottle of every pool it uses",
        )
    }

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Tranquil) && self.diner.is_idle()
    }
}
