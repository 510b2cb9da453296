//! The user: asks, waits, gives back.

use holdall_core::{
    Addr, Broken, Call, Event, Need, Never, Outbox, Picked, Request, RequestId, Role, UserId,
};
use serde::{Deserialize, Serialize};

use super::{Coordinator, ToManager, ToUser};
use crate::stock::may_be_picked;

type Out = Outbox<Coordinator, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    pub(super) request: Option<Request>,
    pub(super) granted: bool,
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, request: None, granted: false }
    }

    fn on_grant(
        &mut self,
        cfg: &Coordinator,
        from: Addr,
        id: RequestId,
        units: &Picked,
        out: &mut Out,
    ) {
        if from != Addr::Manager(Coordinator::MANAGER) {
            return out.misbehaved(from, "grant: by one who grants nothing");
        }
        let Some(request) = self.request.as_ref().filter(|request| request.id == id) else {
            return; // It crossed our departure.
        };
        if self.granted {
            return out.misbehaved(from, "grant: twice for one request");
        }
        let is_listed = |need: &Need| cfg.topology.is_listed(need.pool);
        if !request.needs.iter().all(|need| may_be_picked(need, units, is_listed(need))) {
            return out.misbehaved(from, "grant: of other units than asked for");
        }
        self.granted = true;
        out.granted(Request { id, needs: request.needs.with(units) });
    }

    fn end(&mut self, out: &mut Out) {
        let Some(request) = self.request.take() else { return };
        self.granted = false;
        out.to_manager(Coordinator::MANAGER, ToManager::Release(request.id));
        out.released(request.id);
    }
}

impl Role for User {
    type P = Coordinator;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Coordinator, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => {
                out.to_manager(Coordinator::MANAGER, ToManager::Ask(request.clone()));
                self.request = Some(request);
            }
            Event::Call(Call::Done | Call::Leave) => self.end(out),
            Event::Message { from, msg: ToUser::Grant { request, units } } => {
                self.on_grant(cfg, from, request, &units, out);
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Coordinator) -> Result<(), Broken> {
        let own = self.request.as_ref().is_none_or(|request| request.id.user == self.id);
        Broken::unless(own, "a user asks for itself")
    }

    fn is_idle(&self) -> bool {
        self.request.is_none()
    }
}
