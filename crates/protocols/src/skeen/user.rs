//! The user: gathers proposals, announces the latest, waits to be served everywhere.

use alloc::vec::Vec;

use holdall_core::{
    Addr, Broken, Call, Clock, Event, Never, Outbox, Request, RequestId, Role, UserId,
};
use serde::{Deserialize, Serialize};

use super::{Skeen, ToManager, ToUser};
use crate::line::Joining;

type Out = Outbox<Skeen, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    state: State,
}

/// `held` runs parallel to the needs of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Idle,
    Joining(Joining),
    Queued { request: Request, held: Vec<bool> },
}

impl State {
    fn request(&self) -> Option<&Request> {
        match self {
            Self::Idle => None,
            Self::Joining(joining) => Some(joining.request()),
            Self::Queued { request, .. } => Some(request),
        }
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, state: State::Idle }
    }

    fn ask(&mut self, request: Request, out: &mut Out) {
        for need in request.needs.iter() {
            let join = ToManager::Join { request: request.id, units: need.units };
            out.to_manager(Skeen::manager_of(need.pool), join);
        }
        self.state = State::Joining(Joining::new(request));
    }

    /// With the last proposal the time is known.
    fn on_proposed(&mut self, cfg: &Skeen, from: Addr, id: RequestId, time: Clock, out: &mut Out) {
        if self.is_stale(id) {
            return;
        }
        let State::Joining(joining) = &mut self.state else {
            return out.misbehaved(from, "proposed: after the time was agreed");
        };
        let times = match joining.on_proposed(cfg.line, from, Skeen::manager_of, time) {
            Ok(Some(times)) => times,
            Ok(None) => return,
            Err(what) => return out.misbehaved(from, what),
        };
        for (need, time) in times {
            let agreed = ToManager::Agreed { request: id, time };
            out.to_manager(Skeen::manager_of(need.pool), agreed);
        }
        let request = joining.request().clone();
        let held = alloc::vec![false; request.needs.len()];
        self.state = State::Queued { request, held };
    }

    fn on_held(&mut self, from: Addr, id: RequestId, out: &mut Out) {
        if self.is_stale(id) {
            return;
        }
        let State::Queued { request, held } = &mut self.state else {
            return out.misbehaved(from, "held: before the time was agreed");
        };
        let slot = need_guarded_by(request, from).and_then(|i| held.get_mut(i));
        let Some(slot) = slot.filter(|held| !**held) else {
            return out.misbehaved(from, "held: by a stranger, or twice");
        };
        *slot = true;
        if held.iter().all(|held| *held) {
            out.granted(request.clone());
        }
    }

    fn end(&mut self, out: &mut Out) {
        if let Some(request) = self.state.request() {
            for need in request.needs.iter() {
                out.to_manager(Skeen::manager_of(need.pool), ToManager::Release(request.id));
            }
            out.released(request.id);
        }
        self.state = State::Idle;
    }

    /// Whether a message about this request crossed our departure.
    fn is_stale(&self, id: RequestId) -> bool {
        self.state.request().is_none_or(|request| request.id != id)
    }
}

/// Which need of the request this manager guards.
fn need_guarded_by(request: &Request, manager: Addr) -> Option<usize> {
    request.needs.iter().position(|need| Addr::Manager(Skeen::manager_of(need.pool)) == manager)
}

impl Role for User {
    type P = Skeen;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Skeen, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(out),
            Event::Message { from, msg: ToUser::Proposed { request, time } } => {
                self.on_proposed(cfg, from, request, time, out);
            }
            Event::Message { from, msg: ToUser::Held(request) } => self.on_held(from, request, out),
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Skeen) -> Result<(), Broken> {
        let own = self.state.request().is_none_or(|request| request.id.user == self.id);
        Broken::unless(own, "a user asks for itself")
    }

    /// It gathers proposals, and then what is held for it, of which the last is its grant.
    fn is_prompt(&self, _: &Skeen, _: Addr, msg: &ToUser, _: bool) -> bool {
        match (msg, &self.state) {
            (ToUser::Proposed { request, .. }, State::Joining(_)) => !self.is_stale(*request),
            (ToUser::Held(request), State::Queued { held, .. }) => {
                !self.is_stale(*request) && held.iter().filter(|held| !**held).count() > 1
            }
            _ => false,
        }
    }

    fn stage(&self) -> &'static str {
        match &self.state {
            State::Joining(_) => "joining",
            State::Queued { held, .. } if held.contains(&false) => "queued",
            State::Idle | State::Queued { .. } => "",
        }
    }

    fn is_idle(&self) -> bool {
        self.state == State::Idle
    }
}
