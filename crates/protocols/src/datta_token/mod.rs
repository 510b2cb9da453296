//! Allocation in one agreed order: a request joins the strong queues of all its resources at once,
//! as it were, under a token, so that no loop of waiting can form.
//!
//! Source: the pessimistic solution that section V of Datta, Devismes, Kawala, Larmore,
//! Potop-Butucaru, "Multi-resource Allocation with Unknown Participants", proposes for any number
//! of resources: "a request is stored in the weak queues of each resource [...]. Then, we use a
//! token circulation to atomically move the requests of a client from the weak queues to the
//! strong queues." The paper has no more than that; the rest is ours.
//!
//! A request goes from the last resource named to the first, its *home*, and stands aside in the
//! weak queues. When the home has the token it moves its requests one after another: it joins its
//! own strong queue, tells the others to do so, and hears from all before it goes on to the next.
//! Whoever is head elsewhere is reported to its home, and when a request heads all its queues, the
//! home grants it. A request for one resource needs no token.
//!
//! # Invariants
//! - **T1, one order.** Two requests that stand in two strong queues stand in the same order in
//!   both.
//! - **T2, heads.** Whatever is in use is in use by the head of its strong queue.
//! - **R1, one token** (see [`crate::ring::token`]).
//!
//! All three are looked at in every state (`Protocol::check_system`). Exclusion follows from T2,
//! and no deadlock from T1: the request whose turn came first heads all its queues.
//!
//! Assumes that every message arrives once, in any order.

mod manager;
mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Broken, ManagerId, Need, NodeId, Options, Property, Protocol, RequestId,
    System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::plain;
use crate::ring::{FromClient, Ring, RingMessage, Spot, ToUser, manager_of, token};

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// A client's word.
    Client(FromClient),
    /// Set this aside, on its way to its home.
    Ask(Spot),
    /// Move it to the strong queue.
    Move(RequestId),
    /// It was moved.
    Moved(RequestId),
    /// It heads the queue of one of its other resources.
    Ready(RequestId),
    /// Its use is over.
    Done(RequestId),
    /// Its client is gone.
    Leave(RequestId),
    /// What goes round the ring.
    Ring(RingMessage),
}

impl From<FromClient> for ToManager {
    fn from(message: FromClient) -> Self {
        Self::Client(message)
    }
}

rules! {
    /// The rules in force.
    struct Rules {
        acks "acks": "the next request is moved only when the last one has been",
        early "early": "a departure that overtakes its request is remembered",
        late "late": "what comes of a client that was reclaimed is ignored",
        purge "purge": "whoever is reported gone loses its place",
        ready "ready": "a home grants when the request heads all its queues",
        token "token": "requests are moved only where the token is",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct DattaToken {
    ring: Ring,
    rules: Rules,
}

impl Protocol for DattaToken {
    const FAMILY: &'static str = "datta-token";
    const NAMES: &'static [&'static str] = &["datta-token"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        plain(Self::FAMILY, variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "requests queue at all their resources at once, under a token on a ring",
            source: "Datta, Devismes, Kawala, Larmore, Potop-Butucaru, section V",
            assumes: Assumes {
                units: false,
                order_asked: true,
                suspicions: true,
                ..Assumes::RELIABLE
            },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        plain(Self::FAMILY, options.variant.as_deref())?;
        let rules = Rules::new(options);
        Ok(Self { ring: Ring::new(topology), rules })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.ring.nodes()
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(&self.ring, id)
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let managers: Vec<&Manager> = system.managers().collect();
        for (i, one) in managers.iter().enumerate() {
            let agrees = |other: &&Manager| {
                one.strong()
                    .filter(|id| other.knows_strong(*id))
                    .eq(other.strong().filter(|id| one.knows_strong(*id)))
            };
            Broken::unless(
                managers[i + 1..].iter().all(agrees),
                "T1: two requests stand in the same order wherever both queue",
            )?;
        }
        for request in system.users().filter_map(|user| user.0.uses()) {
            let has = |need: &Need| {
                managers[manager_of(need.pool).index()].strong().next() == Some(request.id)
            };
            Broken::unless(
                request.needs.iter().all(has),
                "T2: whatever is in use is in use by the head of its queue",
            )?;
        }
        let message = system.to_managers().filter_map(|msg| match msg {
            ToManager::Ring(message) => Some(message),
            _ => None,
        });
        token::one(managers.iter().map(|manager| &manager.token), message)
    }
}
