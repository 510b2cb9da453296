//! The user: a [`Client`] that is granted everything by the last of its resources.

use holdall_core::{Addr, Broken, Call, Event, Never, Role, UserId};
use serde::{Deserialize, Serialize};

use super::Datta;
use super::manager::Out;
use crate::ring::{Client, ToUser};

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User<const MOST: u32>(pub(super) Client);

impl<const MOST: u32> User<MOST> {
    pub(super) fn new(id: UserId, brief: bool) -> Self {
        Self(Client::new(id, brief))
    }
}

impl<const MOST: u32> Role for User<MOST> {
    type P = Datta<MOST>;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, _: &Datta<MOST>, event: Event<Self>, out: &mut Out<MOST>) {
        match event {
            Event::Call(call) => self.0.on_call(call, out),
            Event::Message { from, msg } => self.0.on_message(from, &msg, <[_]>::last, out),
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Datta<MOST>) -> Result<(), Broken> {
        self.0.check()
    }

    fn is_stale(&self, _: &Datta<MOST>, _: Addr, msg: &ToUser) -> bool {
        self.0.is_stale(msg)
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}
