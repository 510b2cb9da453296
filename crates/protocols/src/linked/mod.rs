//! Reliable links made of unreliable ones: `linked:P` is any protocol P where messages may be lost,
//! and may arrive twice.
//!
//! Source: Datta, Devismes, Kawala, Larmore, Potop-Butucaru, "Multi-resource Allocation with
//! Unknown Participants", section II.C: "any unreliable link can be made reliable using a repetition
//! mechanism similar to the alternating bit protocol". One bit tells new from old only on links that
//! keep order; here messages overtake each other, so they are numbered. Whoever sends a message
//! keeps it and sends it again by a timer until it is acknowledged; whoever receives one acknowledges
//! it every time and takes it the first time only.
//!
//! P is a type parameter; its roles and messages are unchanged, and its messages still arrive in any
//! order. What is remembered for ever is one number for each party ever heard of: whoever forgets
//! would take a message that comes very late for a new one.
//!
//! To somebody who is gone one would send again for ever. So whoever leaves tells every manager
//! ([`Content::Close`]), and stays until all have acknowledged that; whoever stops without a word is
//! reported departed. Neither is sent anything after that, or again. A suspicion, or that what somebody
//! held is reclaimed, does not end a link: whoever lives may be waiting for an answer. So it must not be
//! all that is ever reported.
//!
//! # Invariants
//! - **L1** What is kept has been numbered, and what has arrived out of turn lies beyond a gap.
//!
//! Those of P hold of its own roles, and of its messages that are kept and have not arrived
//! (`Protocol::check_system`).

mod end;
mod links;
mod manager;
#[cfg(test)]
mod tests;
mod user;

use alloc::format;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Broken, ChannelStamp, ManagerId, NodeId, Options, Property, Protocol, Role,
    System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::registry::inner_variant;

/// What a role may receive; `M` is what P's role receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Packet<M> {
    /// The one of this number has arrived.
    Ack(ChannelStamp),
    /// A message, or the same once more.
    Frame {
        /// Its number among all from its sender to its receiver.
        n: ChannelStamp,
        /// What it says.
        content: Content<M>,
    },
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Content<M> {
    /// The sender has left, and wants to hear nothing any more.
    Close,
    /// For the role of P.
    Message(M),
}

/// The timers; `T` is what P's role arms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timer<T> {
    /// Of the role of P.
    Inner(T),
    /// Something has not been acknowledged for a while.
    Resend,
}

rules! {
    /// The rules in force.
    struct Rules {
        resend "resend": "what is not acknowledged is sent again",
        new "new": "what has arrived before is not taken again",
        acks "acks": "what comes again is acknowledged again",
        close "close": "whoever has left or is gone is sent nothing any more",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Linked<P> {
    inner: P,
    managers: u64,
    rules: Rules,
}

impl<P: Protocol> Protocol for Linked<P> {
    const FAMILY: &'static str = "linked";
    /// The registry names one for each protocol under it.
    const NAMES: &'static [&'static str] = &[];
    const STARTS_AGAIN: bool = P::STARTS_AGAIN;
    const DRIFTS: bool = P::DRIFTS;
    const STAGES: u32 = 2 + P::STAGES;
    type ToUser = Packet<P::ToUser>;
    type ToManager = Packet<P::ToManager>;
    type User = User<P::User, P::ToUser, P::ToManager>;
    type Manager = Manager<P::Manager, P::ToUser, P::ToManager>;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let inner = P::about(inner_variant::<Self, P>(variant)?)?;
        let lively = |p: &Property| !Property::sound_and(&[]).contains(p);
        let (alive, sound) = inner.promises.into_iter().partition(lively);
        Ok(About {
            name: format!("linked:{}", inner.name),
            summary: "any protocol over links that lose and repeat messages",
            source: "Datta et al., section II.C; sequence numbers for the alternating bit",
            assumes: Assumes {
                exactly_once: false,
                no_loss: false,
                suspicions: false,
                ..inner.assumes
            },
            promises: sound,
            with_patience: [alive, inner.with_patience].concat(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let variant = inner_variant::<Self, P>(options.variant.as_deref())?;
        let as_is = Options { variant: variant.map(Into::into), without: Vec::new() };
        let inner = P::new(topology, &as_is)?;
        Ok(Self { managers: inner.managers().len() as u64, inner, rules: Rules::new(options) })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.inner.managers()
    }

    fn user(&self, id: UserId) -> Self::User {
        User::new(id, self.inner.user(id))
    }

    fn manager(&self, id: ManagerId) -> Self::Manager {
        Manager::new(id, self.inner.manager(id))
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let users: Vec<_> = system.users().collect();
        let managers: Vec<_> = system.managers().collect();
        let links = users.iter().map(|user| &user.end.links);
        let links = links.chain(managers.iter().map(|manager| &manager.0.links));
        let to_managers = links.flat_map(|from| {
            let ends = (0..).map(ManagerId).zip(&managers);
            ends.flat_map(|(to, manager)| from.under_way_to(to, &manager.0.links))
        });
        let inside = Inside::<P> {
            to_managers: to_managers.collect(),
            users: users.iter().map(|user| &user.end.inner).collect(),
            managers: managers.iter().map(|manager| &manager.0.inner).collect(),
        };
        self.inner.check_system(&inside)
    }
}

/// The system as P sees it: a message is under way while its sender keeps it and its receiver has
/// not got it. What was sent by somebody who has stopped is not among them.
struct Inside<'a, P: Protocol> {
    users: Vec<&'a P::User>,
    managers: Vec<&'a P::Manager>,
    to_managers: Vec<&'a P::ToManager>,
}

impl<P: Protocol> System<P> for Inside<'_, P> {
    fn users(&self) -> impl Iterator<Item = &P::User> {
        self.users.iter().copied()
    }

    fn managers(&self) -> impl Iterator<Item = &P::Manager> {
        self.managers.iter().copied()
    }

    fn to_managers(&self) -> impl Iterator<Item = &P::ToManager> {
        self.to_managers.iter().copied()
    }
}

/// The outbox of a role over P.
type Out<R> = holdall_core::Outbox<Linked<<R as Role>::P>, Timer<<R as Role>::Timer>>;
