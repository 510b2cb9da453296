//! The user: its place in the queue, and what it knows of its neighbours'.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Call, Event, Never, Outbox, Request, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{AwerbuchSaks, Position, ToUser};

type Out = Outbox<AwerbuchSaks, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    queued: Option<Queued>,
    /// In the order of the neighbours.
    peers: Vec<Peer>,
}

/// A request under way, and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Queued {
    request: Request,
    at: Position,
}

/// What is known of a neighbour, and what was exchanged with it.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Peer {
    /// Where it was last, while it competes with the present request.
    seen: Option<Position>,
    balance: Balance,
    /// Whether the next report to it, or from it, is an even one.
    even_out: bool,
    even_in: bool,
    /// A report that overtook the one before it.
    early: Option<Option<Position>>,
}

/// Reports sent less reports received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Balance {
    /// One more received: an answer is owed.
    Owes,
    #[default]
    Even,
    /// One more sent: an answer is awaited.
    Awaits,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parity = |even| if even { '+' } else { '-' };
        write!(f, "{:?} {:?}", self.seen, self.balance)?;
        write!(f, " {}{}", parity(self.even_out), parity(self.even_in))?;
        self.early.map_or(Ok(()), |early| write!(f, " early {early:?}"))
    }
}

impl User {
    pub(super) fn new(cfg: &AwerbuchSaks, id: UserId) -> Self {
        let peers = cfg.neighbours.of(id).iter().map(|_| Peer::default()).collect();
        Self { id, queued: None, peers }
    }

    fn at(&self) -> Option<Position> {
        self.queued.as_ref().map(|queued| queued.at)
    }

    /// Joins above the levels in which it may meet a competitor: a neighbour that may ask for some
    /// pool of this request.
    fn ask(&mut self, cfg: &AwerbuchSaks, request: Request, out: &mut Out) {
        if self.queued.is_some() || !cfg.neighbours.may_ask(self.id, &request.needs) {
            return out.misbehaved(Addr::User(self.id), "asks twice, or for what it never named");
        }
        let mut at = Position::FRONT;
        for (peer, neighbour) in self.peers.iter_mut().zip(cfg.neighbours.of(self.id)) {
            let mut shared = cfg.neighbours.shared(self.id, *neighbour);
            if shared.any(|pool| request.needs.iter().any(|need| need.pool == pool)) {
                let unknown = Position::unknown(self.id, *neighbour);
                at.level = at.level.max(unknown.level + 1);
                peer.seen = Some(unknown);
            }
        }
        self.queued = Some(Queued { request, at });
        self.announce(cfg, out);
        self.go_on(cfg, out);
    }

    /// Reports to those in whose way it may come next, or who may come in its way; at the front,
    /// uses its pools.
    fn announce(&mut self, cfg: &AwerbuchSaks, out: &mut Out) {
        let Some(Queued { request, at }) = &self.queued else { return };
        if *at == Position::FRONT {
            return out.granted(request.clone());
        }
        let at = *at;
        for place in 0..self.peers.len() {
            if self.peers[place].seen.is_some_and(|seen| obstructs(cfg, seen, at)) {
                self.report(cfg, place, out);
            }
        }
    }

    fn report(&mut self, cfg: &AwerbuchSaks, place: usize, out: &mut Out) {
        let at = self.at();
        let peer = &mut self.peers[place];
        peer.balance = match peer.balance {
            Balance::Owes => Balance::Even,
            Balance::Even | Balance::Awaits => Balance::Awaits,
        };
        let odd = !peer.even_out;
        peer.even_out = odd;
        out.to_user(cfg.neighbours.of(self.id)[place], ToUser::Report { at, odd });
    }

    /// Advances as long as nobody's answer is awaited.
    fn go_on(&mut self, cfg: &AwerbuchSaks, out: &mut Out) {
        while let Some(at) = self.at().filter(|at| *at != Position::FRONT)
            && self.peers.iter().all(|peer| peer.balance != Balance::Awaits)
        {
            let next = match at.slot.checked_sub(1) {
                Some(slot) => Position { slot, ..at },
                None => self.enter(cfg, at.level.saturating_sub(1)),
            };
            self.queued.iter_mut().for_each(|queued| queued.at = next);
            self.answer_those_owed(cfg, out);
            self.announce(cfg, out);
        }
    }

    /// The first free slot of a level that is for users with such an id.
    fn enter(&self, cfg: &AwerbuchSaks, level: u8) -> Position {
        let taken =
            |slot| self.peers.iter().any(|peer| peer.seen == Some(Position { level, slot }));
        let mut slot = if cfg.rules.bits { Position::first_proper_slot(self.id, level) } else { 0 };
        while taken(slot) || (cfg.rules.gap && taken(slot + 1)) {
            slot += 4;
        }
        Position { level, slot }
    }

    fn answer_those_owed(&mut self, cfg: &AwerbuchSaks, out: &mut Out) {
        for place in 0..self.peers.len() {
            if self.peers[place].balance == Balance::Owes {
                self.report(cfg, place, out);
            }
        }
    }

    /// Takes reports in the order they were sent.
    fn on_report(
        &mut self,
        cfg: &AwerbuchSaks,
        place: usize,
        report: (Option<Position>, bool),
        out: &mut Out,
    ) {
        let (at, odd) = report;
        let peer = &mut self.peers[place];
        let overtook = odd == peer.even_in;
        if peer.balance == Balance::Owes || (overtook && peer.early.is_some()) {
            let neighbour = Addr::User(cfg.neighbours.of(self.id)[place]);
            return out.misbehaved(neighbour, "report: the one before it is not answered yet");
        }
        if overtook {
            peer.early = Some(at);
            return;
        }
        let early = peer.early.take();
        self.hear(cfg, place, at, out);
        if let Some(at) = early {
            self.hear(cfg, place, at, out);
        }
        self.go_on(cfg, out);
    }

    /// An answer, or news; the latter is answered at once, unless the sender is right behind.
    fn hear(&mut self, cfg: &AwerbuchSaks, place: usize, at: Option<Position>, out: &mut Out) {
        let mine = self.at();
        let neighbour = cfg.neighbours.of(self.id)[place];
        let concern =
            |at: Position| if cfg.rules.far { at.of_concern(self.id, neighbour) } else { at };
        let peer = &mut self.peers[place];
        peer.even_in = !peer.even_in;
        peer.seen = mine.and_then(|_| at.map(concern));
        if peer.balance == Balance::Awaits {
            peer.balance = Balance::Even;
            return;
        }
        peer.balance = Balance::Owes;
        let right_behind = mine.zip(at).is_some_and(|(mine, at)| at.is_right_behind(mine));
        if !(right_behind && cfg.rules.hold) {
            self.report(cfg, place, out);
        }
    }

    /// The use ends. Users that depart are outside the assumptions: one that waits goes on waiting.
    fn end(&mut self, cfg: &AwerbuchSaks, out: &mut Out) {
        let Some(queued) = self.queued.take_if(|queued| queued.at == Position::FRONT) else {
            return;
        };
        out.released(queued.request.id);
        self.peers.iter_mut().for_each(|peer| peer.seen = None);
        self.answer_those_owed(cfg, out);
    }
}

/// Whether a competitor last seen there may be in the way of a user that is at a place.
fn obstructs(cfg: &AwerbuchSaks, seen: Position, at: Position) -> bool {
    let ahead = seen == at || at.is_right_behind(seen);
    let where_to_enter = at.is_door_to(seen.level);
    let last_told = if cfg.rules.near { 1 } else { 2 };
    let about_to_enter = cfg.rules.newcomers && seen.is_door_to(at.level) && at.slot >= last_told;
    ahead || where_to_enter || about_to_enter
}

impl Role for User {
    type P = AwerbuchSaks;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &AwerbuchSaks, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Message { from, msg: ToUser::Report { at, odd } } => {
                match cfg.neighbours.place(self.id, from) {
                    Some(place) => self.on_report(cfg, place, (at, odd), out),
                    None => out.misbehaved(from, "no neighbour"),
                }
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &AwerbuchSaks) -> Result<(), Broken> {
        let waits = self.at().is_some_and(|at| at != Position::FRONT);
        let mut peers = self.peers.iter();
        Broken::unless(
            waits || peers.all(|peer| peer.balance != Balance::Awaits),
            "Q2: whoever does not wait in the queue awaits no answer",
        )
    }

    fn is_idle(&self) -> bool {
        self.queued.is_none()
    }
}
