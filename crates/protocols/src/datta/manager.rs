//! The manager: one resource with its two queues (the paper's Algorithm 2).

use alloc::collections::BTreeSet;

use holdall_core::{Addr, Broken, Event, Gone, ManagerId, Never, Outbox, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::entry::{Claim, Entry};
use super::loops::Way;
use super::queues::Queues;
use super::{Datta, ToManager};
use crate::ring::token::Next;
use crate::ring::{EarlyDepartures, FromClient, Ring, RingMessage, Spot, ToUser, Token};

pub(super) type Out<const MOST: u32> = Outbox<Datta<MOST>, Never>;

/// Guards one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager<const MOST: u32> {
    pub(super) id: ManagerId,
    pub(super) queues: Queues,
    pub(super) token: Token,
    /// While the token is here: those it stays for (the paper's Qtoken).
    turn: BTreeSet<RequestId>,
    early: EarlyDepartures,
}

impl<const MOST: u32> Manager<MOST> {
    pub(super) fn new(ring: &Ring, id: ManagerId) -> Self {
        Self {
            id,
            queues: Queues::default(),
            token: Token::new(ring, id),
            turn: BTreeSet::new(),
            early: EarlyDepartures::default(),
        }
    }

    fn on_message(&mut self, cfg: &Datta<MOST>, from: Addr, msg: ToManager, out: &mut Out<MOST>) {
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
            ToManager::Promote { claim, shielded } => {
                self.on_promote(cfg, from, claim, shielded, out);
            }
            ToManager::Probe(probe) => self.on_probe(cfg, probe, out),
            ToManager::Kill(claim) => self.on_kill(cfg, claim, out),
            ToManager::Rollback(claim) => self.on_rollback(cfg, claim, out),
            ToManager::Client(FromClient::Done(id)) | ToManager::Done(id) => {
                self.on_done(cfg, from, id, out);
            }
            ToManager::Client(FromClient::Leave(id)) | ToManager::Leave(id) => {
                self.on_leave(cfg, from, id, out);
            }
            ToManager::Ring(message) => self.on_ring_message(cfg, message, out),
        }
    }

    /// A request arrives at its last resource, and goes on from there to its home; only at its
    /// home does it queue at once (lines 19 to 34).
    fn on_ask(&mut self, cfg: &Datta<MOST>, from: Addr, spot: Spot, out: &mut Out<MOST>) {
        if spot.request.needs.len() > MOST as usize || !spot.is_honest(self.id, from) {
            return out.misbehaved(from, "ask: not for this resource, or not by who may ask");
        }
        if self.early.take(spot.id()) {
            return;
        }
        if self.queues.knows(spot.id()) {
            // A manager passes on what the client asked for, however often.
            let client = Addr::User(spot.id().user);
            return out.misbehaved(client, "ask: twice for one request");
        }
        if let Some((manager, before)) = spot.before() {
            out.to_manager(manager, ToManager::Ask(before));
        }
        if !spot.is_home() && cfg.rules.aside {
            self.queues.set_aside(Entry::new(spot));
        } else if self.queues.join(Entry::new(spot)) {
            self.serve_head(cfg, out);
        }
    }

    /// There is a new head: it has this resource. It is granted everything if this is its last
    /// one, or else may queue at the next (lines 36 to 48).
    pub(super) fn serve_head(&self, cfg: &Datta<MOST>, out: &mut Out<MOST>) {
        let Some(head) = self.queues.head() else { return };
        match head.spot.next() {
            None => out.to_user(head.request().user, ToUser::Grant(head.request())),
            Some(next) => {
                let shielded = self.level(cfg, head).0;
                out.to_manager(next, ToManager::Promote { claim: head.onward, shielded });
            }
        }
    }

    /// The resource before this one is its own: it queues here (lines 50 to 58).
    fn on_promote(
        &mut self,
        cfg: &Datta<MOST>,
        from: Addr,
        claim: Claim,
        shielded: bool,
        out: &mut Out<MOST>,
    ) {
        let Some(entry) = self.queues.call_in(claim.request) else {
            return; // It has departed.
        };
        if entry.spot.previous().map(Addr::Manager) != Some(from)
            || claim.attempt < entry.claim.attempt
        {
            self.queues.set_aside(entry);
            // A manager promotes what the client asked for there.
            let client = Addr::User(claim.request.user);
            return out.misbehaved(client, "ask: for one thing here, for another elsewhere");
        }
        if self.queues.join(Entry { claim, shielded, ..entry }) {
            self.serve_head(cfg, out);
        } else if cfg.rules.probe {
            self.look_on(cfg, Way::new(claim, self.id), out);
        }
    }

    /// The use is over: the request leaves the queues, the last one first (lines 70 to 84).
    fn on_done(&mut self, cfg: &Datta<MOST>, from: Addr, id: RequestId, out: &mut Out<MOST>) {
        let holds = |head: &&Entry| head.request() == id && head.spot.speaker() == from;
        let Some(head) = self.queues.head().filter(holds) else {
            // A manager passes on what the client says, be it true or not.
            let client = Addr::User(id.user);
            return out.misbehaved(client, "done: by one who has not got this resource");
        };
        match head.spot.previous() {
            Some(previous) => out.to_manager(previous, ToManager::Done(id)),
            None if cfg.brief => {}
            None => out.to_user(id.user, ToUser::Ended(id)),
        }
        self.queues.pop();
        self.serve_head(cfg, out);
        self.forget(cfg, id, out);
    }

    /// A client departs: its request leaves the queues, the last one first.
    fn on_leave(&mut self, cfg: &Datta<MOST>, from: Addr, id: RequestId, out: &mut Out<MOST>) {
        if self.queues.spot(id).is_some_and(|spot| spot.speaker() != from) {
            // A manager passes on what the client says, be it true or not.
            let client = Addr::User(id.user);
            return out.misbehaved(client, "leave: not where the request was last asked for");
        }
        let Some((entry, was_head)) = self.queues.forget(id) else {
            if cfg.rules.early {
                self.early.remember(from, id);
            }
            return;
        };
        if let Some(previous) = entry.spot.previous() {
            out.to_manager(previous, ToManager::Leave(id));
        }
        if was_head {
            self.serve_head(cfg, out);
        }
        self.forget(cfg, id, out);
    }

    /// A client is gone. Only the manager that hears from it acts on that, as if it had departed
    /// with notice; the others learn of it in the same order as they would then. Were each to act
    /// by itself, a request still on its way between two managers would come to stay.
    fn on_gone(&mut self, cfg: &Datta<MOST>, gone: Gone, out: &mut Out<MOST>) {
        if !cfg.rules.purge {
            return;
        }
        match gone {
            Gone::Departed(who) => self.early.forget(who),
            Gone::Reclaimed(user) => self.early.reclaim(user),
            Gone::Suspected(_) => return, // It may be alive, and use what it has.
        }
        let who = gone.who();
        for (id, speaker) in self.queues.of(who, cfg.rules.relay) {
            if cfg.rules.relay {
                self.on_leave(cfg, speaker, id, out);
            } else if let Some((_, true)) = self.queues.forget(id) {
                self.serve_head(cfg, out);
                self.forget(cfg, id, out);
            }
        }
    }

    fn forget(&mut self, cfg: &Datta<MOST>, id: RequestId, out: &mut Out<MOST>) {
        self.turn.remove(&id);
        self.rest(cfg, out);
    }

    fn on_ring_message(&mut self, cfg: &Datta<MOST>, message: RingMessage, out: &mut Out<MOST>) {
        match message {
            RingMessage::Token { stop, lap } => {
                self.token.on_token(&cfg.ring, stop, lap);
                self.begin_turn();
            }
            RingMessage::Want { origin, until } => {
                if let Some(want) = self.token.on_want(&cfg.ring, origin, until) {
                    self.send_on(cfg, want, out);
                }
            }
        }
        self.rest(cfg, out);
    }

    /// A request of this home was the victim: it is to be protected some day.
    pub(super) fn want_token(&mut self, cfg: &Datta<MOST>, out: &mut Out<MOST>) {
        if !cfg.rules.token {
            return;
        }
        if self.token.held() {
            if self.turn.is_empty() {
                self.begin_turn();
            }
        } else if let Some(want) = self.token.want() {
            self.send_on(cfg, want, out);
        }
    }

    /// If a victim is at home here, the token stays until all are served that are at home here now
    /// (lines 4 to 8).
    fn begin_turn(&mut self) {
        if self.has_victim() {
            let home = self.queues.strong().filter(|entry| entry.spot.is_home());
            self.turn = home.map(Entry::request).collect();
        }
    }

    fn has_victim(&self) -> bool {
        self.queues.strong().any(|entry| entry.beaten)
    }

    /// Parts with the token if it is here for nobody (lines 12 to 16).
    fn rest(&mut self, cfg: &Datta<MOST>, out: &mut Out<MOST>) {
        if !self.turn.is_empty() {
            return;
        }
        match self.token.rest(self.has_victim()) {
            Next::Keep => {}
            Next::Serve => self.begin_turn(),
            Next::Send(token) => self.send_on(cfg, token, out),
        }
    }

    fn send_on(&self, cfg: &Datta<MOST>, message: RingMessage, out: &mut Out<MOST>) {
        out.tally(message.name(), 1);
        out.to_manager(cfg.ring.next(self.id), ToManager::Ring(message));
    }
}

impl<const MOST: u32> Role for Manager<MOST> {
    type P = Datta<MOST>;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Datta<MOST>, event: Event<Self>, out: &mut Out<MOST>) {
        match event {
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Gone(gone) => self.on_gone(cfg, gone, out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Datta<MOST>) -> Result<(), Broken> {
        let home = |id: &RequestId| {
            self.queues.strong().any(|entry| entry.spot.is_home() && entry.request() == *id)
        };
        Broken::unless(
            self.turn.iter().all(home) && (self.token.held() || self.turn.is_empty()),
            "the token stays for those who are at home here, where it is",
        )
    }

    /// What is about an attempt that is over changes nothing any more; nor does a probe, or a
    /// kill, that finds its claim at the head for good.
    fn is_stale(&self, cfg: &Datta<MOST>, _: Addr, msg: &ToManager) -> bool {
        match msg {
            ToManager::Probe(probe) => {
                let granted = |head: &Entry| head.claim == probe.edge && head.spot.is_last();
                self.queues.is_over(probe.edge)
                    || self.queues.gave_up(probe.way.start)
                    || self.queues.head().is_some_and(granted)
            }
            ToManager::Kill(claim) => {
                self.queues.is_over(*claim) || cfg.rules.head && self.queues.is_head(*claim)
            }
            ToManager::Promote { claim, .. } | ToManager::Rollback(claim) => {
                !self.queues.knows(claim.request)
            }
            ToManager::Ring(RingMessage::Want { origin, until }) => {
                self.token.is_obsolete(&cfg.ring, *origin, *until)
            }
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.turn.is_empty() && self.early.is_empty()
    }
}
