//! Acts for one client, and watches what it is called to do.

use serde::{Deserialize, Serialize};

use super::{Probe, SERVING, Timer, ToManager, ToUser, What};
use crate::contract::Clause;
use crate::ids::{Addr, ManagerId, RequestId, UserId};
use crate::needs::Request;
use crate::outbox::Outbox;
use crate::role::{Broken, Call, Event, Role};

type Out = Outbox<Probe, Timer>;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    pub(super) id: UserId,
    pub(super) phase: Phase,
    /// The last request.
    request: Option<Request>,
    /// How many messages it has sent to each manager.
    sent: u64,
    /// How many managers have yet to answer that it leaves.
    farewells: usize,
    armed: bool,
    broken: Option<Clause>,
}

/// What the client is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Phase {
    Idle,
    Waiting,
    Using,
    Left,
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        let (phase, request, broken) = (Phase::Idle, None, None);
        Self { id, phase, request, sent: 0, farewells: 0, armed: false, broken }
    }

    fn complain(&mut self, clause: Clause) {
        self.broken.get_or_insert(clause);
    }

    fn tell_all(&mut self, cfg: &Probe, what: &What, out: &mut Out) {
        for manager in (0..cfg.nodes.len() as u64).map(ManagerId) {
            let msg = ToManager { n: self.sent, user: self.id, what: what.clone() };
            out.to_manager(manager, msg);
        }
        self.sent += 1;
    }

    /// Begins to wait, with the timer armed; or ceases to, with the timer disarmed.
    fn set_phase(&mut self, phase: Phase, out: &mut Out) {
        self.phase = phase;
        self.armed = phase == Phase::Waiting;
        if self.armed {
            out.arm(Timer::Tick, 0);
        } else {
            out.disarm(Timer::Tick);
        }
    }

    fn on_call(&mut self, cfg: &Probe, call: Call, out: &mut Out) {
        let last = self.request.as_ref().map_or(0, |request| request.id.seq);
        match call {
            _ if self.phase == Phase::Left => self.complain(Clause::Leaving),
            Call::Ask(request, _) => {
                if self.phase != Phase::Idle || request.id != self.numbered(last + 1) {
                    return self.complain(Clause::Asking);
                }
                self.set_phase(Phase::Waiting, out);
                self.tell_all(cfg, &What::Ask(request.clone()), out);
                self.request = Some(request);
            }
            Call::Done => {
                if self.phase != Phase::Using {
                    return self.complain(Clause::Using);
                }
                self.set_phase(Phase::Idle, out);
                self.tell_all(cfg, &What::Release(self.numbered(last)), out);
                out.released(self.numbered(last));
            }
            Call::Leave => {
                self.set_phase(Phase::Left, out);
                self.farewells = cfg.nodes.len();
                self.tell_all(cfg, &What::Leave, out);
            }
        }
    }

    fn numbered(&self, seq: u64) -> RequestId {
        RequestId { user: self.id, seq }
    }

    fn on_message(&mut self, from: Addr, msg: &ToUser, out: &mut Out) {
        match msg {
            ToUser::Farewell => self.farewells = self.farewells.saturating_sub(1),
            ToUser::Granted(_) if from != Addr::Manager(SERVING) => self.complain(Clause::Sender),
            ToUser::Granted(id) => {
                let granted = self.request.clone().filter(|request| request.id == *id);
                if let Some(request) = granted.filter(|_| self.phase == Phase::Waiting) {
                    self.set_phase(Phase::Using, out);
                    out.granted(request);
                }
            }
        }
    }
}

impl Role for User {
    type P = Probe;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Timer;

    fn step(&mut self, cfg: &Probe, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(call) => self.on_call(cfg, call, out),
            Event::Message { from, msg } => self.on_message(from, &msg, out),
            Event::Timer(Timer::Tick) if !self.armed => self.complain(Clause::Timers),
            Event::Timer(Timer::Tick) => self.armed = false,
            Event::Gone(_) => {}
        }
    }

    fn check(&self, _: &Probe) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), |clause| Err(clause.broken()))
    }

    fn is_idle(&self) -> bool {
        !matches!(self.phase, Phase::Waiting | Phase::Using) && self.farewells == 0
    }
}
