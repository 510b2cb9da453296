//! `ping-pong`: a coordinator that serves one request after another, and then never comes to rest.
//!
//! Whoever has ended its use and the coordinator send each other messages for ever. With
//! `ping-pong:over` the user may ask again at once; with `ping-pong:held` only after a last message
//! that never comes. Everybody is served, and no state is dead: nothing but a search for livelock
//! shows it.

use holdall_core::{
    About, Broken, Call, Event, ManagerId, Never, NodeId, Options, Outbox, Protocol, Request,
    RequestId, Role, Topology, Unsupported, UserId,
};
use holdall_protocols::ordered::Ordered;
use serde::{Deserialize, Serialize};

type Out = Outbox<PingPong, Never>;

/// What the coordinator may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Queue this.
    Ask(RequestId),
    /// The answer to a ping.
    Pong(RequestId),
    /// Take this back.
    Release(RequestId),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// It is your turn.
    Grant,
    /// Answer this.
    Ping(RequestId),
}

/// The configuration.
#[derive(Debug)]
pub struct PingPong {
    /// Whether the user may ask again at once.
    over: bool,
}

impl Protocol for PingPong {
    const FAMILY: &'static str = "ping-pong";
    const NAMES: &'static [&'static str] = &["ping-pong:over", "ping-pong:held"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let name = match variant {
            Some("over") => "ping-pong:over",
            Some("held") => "ping-pong:held",
            _ => {
                let known = "ping-pong:over or ping-pong:held";
                return Err(Unsupported::VariantMissing { family: "ping-pong", known });
            }
        };
        let sound = Ordered::about(None)?;
        Ok(About {
            name: name.into(),
            summary: "specimen: messages go to and fro for ever after a request",
            source: "made up for the checker",
            assumes: holdall_core::Assumes { departures: false, named: false, ..sound.assumes },
            rules: Vec::new(),
            ..sound
        })
    }

    fn new(_: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self { over: options.variant.as_deref() == Some("over") })
    }

    fn managers(&self) -> Vec<NodeId> {
        vec![NodeId(0)]
    }

    fn user(&self, _: UserId) -> User {
        User { request: None }
    }

    fn manager(&self, _: ManagerId) -> Manager {
        Manager { queue: Vec::new() }
    }
}

/// Asks, waits, gives back, and answers pings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    request: Option<Request>,
}

impl Role for User {
    type P = PingPong;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &PingPong, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => {
                out.to_manager(ManagerId(0), ToManager::Ask(request.id));
                self.request = Some(request);
            }
            Event::Call(Call::Done | Call::Leave) => {
                let Some(request) = self.request.take() else { return };
                out.to_manager(ManagerId(0), ToManager::Release(request.id));
                if cfg.over {
                    out.released(request.id);
                }
            }
            Event::Message { msg: ToUser::Grant, .. } => {
                if let Some(request) = self.request.clone() {
                    out.granted(request);
                }
            }
            Event::Message { msg: ToUser::Ping(id), .. } => {
                out.to_manager(ManagerId(0), ToManager::Pong(id));
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &PingPong) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.request.is_none()
    }
}

/// Serves one after another, and pings those who were served.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    queue: Vec<RequestId>,
}

impl Role for Manager {
    type P = PingPong;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, _: &PingPong, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { msg: ToManager::Ask(id), .. } => {
                self.queue.push(id);
                if self.queue.len() == 1 {
                    out.to_user(id.user, ToUser::Grant);
                }
            }
            Event::Message { msg: ToManager::Release(id), .. } => {
                self.queue.retain(|other| *other != id);
                if let Some(next) = self.queue.first() {
                    out.to_user(next.user, ToUser::Grant);
                }
                out.to_user(id.user, ToUser::Ping(id));
            }
            Event::Message { msg: ToManager::Pong(id), .. } => {
                out.to_user(id.user, ToUser::Ping(id));
            }
            Event::Gone(_) => {}
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &PingPong) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}
