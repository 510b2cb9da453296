//! The manager: one resource with its two queues.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Event, Gone, ManagerId, Never, Outbox, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::{DattaToken, ToManager};
use crate::ring::token::Next;
use crate::ring::{EarlyDepartures, FromClient, Ring, RingMessage, Spot, ToUser, Token};

pub(super) type Out = Outbox<DattaToken, Never>;

/// Guards one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    id: ManagerId,
    strong: VecDeque<Entry>,
    weak: BTreeMap<RequestId, Spot>,
    pub(super) token: Token,
    /// Those at home here that wait to be moved, in the order they came.
    waiting: VecDeque<RequestId>,
    /// While the token is here: those that are moved before it goes on.
    turn: VecDeque<RequestId>,
    /// The request that is being moved, and how many managers have yet to say so.
    moving: Option<(RequestId, usize)>,
    early: EarlyDepartures,
}

/// A request in the strong queue.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    spot: Spot,
    /// At its home: how many of its other resources it heads.
    ready: usize,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} ready", self.spot, self.ready)
    }
}

impl Manager {
    pub(super) fn new(ring: &Ring, id: ManagerId) -> Self {
        Self {
            id,
            strong: VecDeque::new(),
            weak: BTreeMap::new(),
            token: Token::new(ring, id),
            waiting: VecDeque::new(),
            turn: VecDeque::new(),
            moving: None,
            early: EarlyDepartures::default(),
        }
    }

    /// The strong queue.
    pub(super) fn strong(&self) -> impl Iterator<Item = RequestId> {
        self.strong.iter().map(|entry| entry.spot.id())
    }

    pub(super) fn knows_strong(&self, id: RequestId) -> bool {
        self.strong().any(|other| other == id)
    }

    fn knows(&self, id: RequestId) -> bool {
        self.weak.contains_key(&id) || self.knows_strong(id)
    }

    fn on_message(&mut self, cfg: &DattaToken, from: Addr, msg: ToManager, out: &mut Out) {
        let honest = match &msg {
            ToManager::Client(message) => message.is_honest(from),
            _ => matches!(from, Addr::Manager(_)),
        };
        if !honest {
            return out.misbehaved(from, "a message that is another's to send");
        }
        if cfg.rules.late && self.early.is_late(from) {
            return;
        }
        match msg {
            ToManager::Client(FromClient::Ask(request)) => {
                self.on_ask(cfg, from, Spot::last(request), out);
            }
            ToManager::Ask(spot) => self.on_ask(cfg, from, spot, out),
            ToManager::Move(id) => self.on_move(cfg, from, id, out),
            ToManager::Moved(id) => self.on_moved(cfg, from, id, out),
            ToManager::Ready(id) => self.on_ready(cfg, id, out),
            ToManager::Client(FromClient::Done(id)) | ToManager::Done(id) => {
                self.on_done(cfg, from, id, out);
            }
            ToManager::Client(FromClient::Leave(id)) | ToManager::Leave(id) => {
                self.on_leave(cfg, from, id, out);
            }
            ToManager::Ring(message) => self.on_ring_message(cfg, message, out),
        }
    }

    /// A request is set aside, and goes on to its home, where it waits to be moved.
    fn on_ask(&mut self, cfg: &DattaToken, from: Addr, spot: Spot, out: &mut Out) {
        if !spot.is_honest(self.id, from) {
            return out.misbehaved(from, "ask: not for this resource, or not by who may ask");
        }
        if self.early.take(spot.id()) {
            return;
        }
        if self.knows(spot.id()) {
            // A manager passes on what the client asked for, however often.
            let client = Addr::User(spot.id().user);
            return out.misbehaved(client, "ask: twice for one request");
        }
        if let Some((manager, before)) = spot.before() {
            out.to_manager(manager, ToManager::Ask(before));
        }
        if spot.is_home() && spot.is_last() {
            return self.join(cfg, spot, out);
        }
        if spot.is_home() {
            self.waiting.push_back(spot.id());
        }
        self.weak.insert(spot.id(), spot);
        self.want_token(cfg, out);
    }

    fn join(&mut self, cfg: &DattaToken, spot: Spot, out: &mut Out) {
        self.strong.push_back(Entry { spot, ready: 0 });
        if self.strong.len() == 1 {
            self.serve_head(cfg, out);
        }
    }

    /// There is a new head: its home is told, and grants if it heads all.
    fn serve_head(&self, cfg: &DattaToken, out: &mut Out) {
        let Some(head) = self.strong.front() else { return };
        match head.spot.manager(0).filter(|_| !head.spot.is_home()) {
            Some(home) => out.to_manager(home, ToManager::Ready(head.spot.id())),
            None => grant_if_ready(cfg, head, out),
        }
    }

    fn on_ready(&mut self, cfg: &DattaToken, id: RequestId, out: &mut Out) {
        let Some(at) = self.strong.iter().position(|entry| entry.spot.id() == id) else {
            return; // It has departed.
        };
        let entry = &mut self.strong[at];
        if !entry.spot.is_home() || entry.ready + 1 >= entry.spot.request.needs.len() {
            // A manager says what follows from what the client asked for there.
            let client = Addr::User(id.user);
            return out.misbehaved(client, "ask: for one thing here, for another elsewhere");
        }
        entry.ready += 1;
        if at == 0 && cfg.rules.ready {
            grant_if_ready(cfg, entry, out);
        }
    }

    /// Moves a request. Its home is told even if it has departed: it waits for that.
    fn on_move(&mut self, cfg: &DattaToken, from: Addr, id: RequestId, out: &mut Out) {
        let Addr::Manager(home) = from else {
            return out.misbehaved(from, "move: by a client");
        };
        out.to_manager(home, ToManager::Moved(id));
        if let Some(spot) = self.weak.remove(&id) {
            self.join(cfg, spot, out);
        }
    }

    fn on_moved(&mut self, cfg: &DattaToken, from: Addr, id: RequestId, out: &mut Out) {
        match &mut self.moving {
            Some((moving, left)) if *moving == id => *left -= 1,
            _ if cfg.rules.acks => return out.misbehaved(from, "moved: what was not to be"),
            _ => {}
        }
        if self.moving.is_some_and(|(_, left)| left == 0) {
            self.moving = None;
            self.move_next(cfg, out);
        }
    }

    /// The token is wanted for a request that waits here.
    fn want_token(&mut self, cfg: &DattaToken, out: &mut Out) {
        if self.waiting.is_empty() {
            return;
        }
        if self.token.held() || !cfg.rules.token {
            if self.turn.is_empty() && self.moving.is_none() {
                self.begin_turn(cfg, out);
            }
        } else if let Some(want) = self.token.want() {
            self.send_on(cfg, want, out);
        }
    }

    /// All that wait here are moved before the token goes on.
    fn begin_turn(&mut self, cfg: &DattaToken, out: &mut Out) {
        self.turn = core::mem::take(&mut self.waiting);
        self.move_next(cfg, out);
    }

    fn move_next(&mut self, cfg: &DattaToken, out: &mut Out) {
        while let Some(id) = self.turn.pop_front() {
            let Some(spot) = self.weak.remove(&id) else { continue };
            let others = (1..).map_while(|place| spot.manager(place));
            others.clone().for_each(|other| out.to_manager(other, ToManager::Move(id)));
            let others = others.count();
            self.join(cfg, spot, out);
            if cfg.rules.acks {
                self.moving = Some((id, others));
                return;
            }
        }
        self.rest(cfg, out);
    }

    fn on_done(&mut self, cfg: &DattaToken, from: Addr, id: RequestId, out: &mut Out) {
        let holds = |head: &&Entry| head.spot.id() == id && head.spot.speaker() == from;
        let Some(head) = self.strong.front().filter(holds) else {
            // A manager passes on what the client says, be it true or not.
            let client = Addr::User(id.user);
            return out.misbehaved(client, "done: by one who has not got this resource");
        };
        match head.spot.previous() {
            Some(previous) => out.to_manager(previous, ToManager::Done(id)),
            None => out.to_user(id.user, ToUser::Ended(id)),
        }
        self.strong.pop_front();
        self.serve_head(cfg, out);
    }

    /// A client departs: its request leaves the queues, the last one first.
    fn on_leave(&mut self, cfg: &DattaToken, from: Addr, id: RequestId, out: &mut Out) {
        let at = self.strong.iter().position(|entry| entry.spot.id() == id);
        let spot = at.map(|at| &self.strong[at].spot).or_else(|| self.weak.get(&id)).cloned();
        let Some(spot) = spot else {
            if cfg.rules.early {
                self.early.remember(from, id);
            }
            return;
        };
        if spot.speaker() != from {
            // A manager passes on what the client says, be it true or not.
            let client = Addr::User(id.user);
            return out.misbehaved(client, "leave: not where the request was last asked for");
        }
        self.weak.remove(&id);
        at.map(|at| self.strong.remove(at));
        self.waiting.retain(|other| *other != id);
        if let Some(previous) = spot.previous() {
            out.to_manager(previous, ToManager::Leave(id));
        }
        if at == Some(0) {
            self.serve_head(cfg, out);
        }
    }

    /// A client is gone. Only the manager that hears from it acts on that, as if it had departed
    /// with notice; the others learn of it in the same order as they would then.
    fn on_gone(&mut self, cfg: &DattaToken, gone: Gone, out: &mut Out) {
        if !cfg.rules.purge {
            return;
        }
        match gone {
            Gone::Departed(who) => self.early.forget(who),
            Gone::Reclaimed(user) => self.early.reclaim(user),
            Gone::Suspected(_) => return, // It may be alive, and use what it has.
        }
        let who = gone.who();
        let all = self.strong.iter().map(|entry| &entry.spot).chain(self.weak.values());
        let heard_here = all.filter(|spot| spot.is_last()).map(Spot::id);
        let gone: Vec<RequestId> = heard_here.filter(|id| who.includes(id.user)).collect();
        for id in gone {
            self.on_leave(cfg, Addr::User(id.user), id, out);
        }
    }

    fn on_ring_message(&mut self, cfg: &DattaToken, message: RingMessage, out: &mut Out) {
        match message {
            RingMessage::Token { stop, lap } => {
                self.token.on_token(&cfg.ring, stop, lap);
                self.begin_turn(cfg, out);
            }
            RingMessage::Want { origin, until } => {
                if let Some(want) = self.token.on_want(&cfg.ring, origin, until) {
                    self.send_on(cfg, want, out);
                }
                self.rest(cfg, out);
            }
        }
    }

    /// Parts with the token if nothing is to be moved under it.
    fn rest(&mut self, cfg: &DattaToken, out: &mut Out) {
        if !self.turn.is_empty() || self.moving.is_some() {
            return;
        }
        match self.token.rest(!self.waiting.is_empty()) {
            Next::Keep => {}
            Next::Serve => self.begin_turn(cfg, out),
            Next::Send(token) => self.send_on(cfg, token, out),
        }
    }

    fn send_on(&self, cfg: &DattaToken, message: RingMessage, out: &mut Out) {
        out.tally(message.name(), 1);
        out.to_manager(cfg.ring.next(self.id), ToManager::Ring(message));
    }
}

/// Grants the head of the queue of its home, if it heads all others.
fn grant_if_ready(cfg: &DattaToken, head: &Entry, out: &mut Out) {
    let id = head.spot.id();
    if head.ready + 1 == head.spot.request.needs.len() || !cfg.rules.ready {
        out.to_user(id.user, ToUser::Grant(id));
    }
}

impl Role for Manager {
    type P = DattaToken;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &DattaToken, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Gone(gone) => self.on_gone(cfg, gone, out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, cfg: &DattaToken) -> Result<(), Broken> {
        let moves = self.moving.is_some() || !self.turn.is_empty();
        Broken::unless(
            !moves || self.token.held() || !cfg.rules.token,
            "requests are moved where the token is",
        )
    }

    fn is_stale(&self, cfg: &DattaToken, _: Addr, msg: &ToManager) -> bool {
        match msg {
            ToManager::Ready(id) => !self.knows(*id),
            ToManager::Ring(RingMessage::Want { origin, until }) => {
                self.token.is_obsolete(&cfg.ring, *origin, *until)
            }
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        let queued = self.strong.len() + self.weak.len() + self.waiting.len() + self.turn.len();
        queued == 0 && self.moving.is_none() && self.early.is_empty()
    }
}
