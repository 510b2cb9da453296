//! The user: a [`Client`] that is granted everything by the first of its resources, its home.

use holdall_core::{Addr, Broken, Call, Event, Never, Role, UserId};
use serde::{Deserialize, Serialize};

use super::DattaToken;
use super::manager::Out;
use crate::ring::{Client, ToUser};

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User(pub(super) Client);

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self(Client::new(id, false))
    }
}

impl Role for User {
    type P = DattaToken;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, _: &DattaToken, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(call) => self.0.on_call(call, out),
            Event::Message { from, msg } => self.0.on_message(from, &msg, <[_]>::first, out),
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &DattaToken) -> Result<(), Broken> {
        self.0.check()
    }

    fn is_stale(&self, _: &DattaToken, _: Addr, msg: &ToUser) -> bool {
        self.0.is_stale(msg)
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}
