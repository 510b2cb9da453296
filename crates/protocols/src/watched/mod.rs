//! A participant detector made of heartbeats and time-outs: `watched:P` is a protocol P whose
//! managers find out by themselves who has stopped.
//!
//! Source: Datta, Devismes, Kawala, Larmore, Potop-Butucaru, "Multi-resource Allocation with
//! Unknown Participants", section IV, which asks for a perfect participant detector and leaves it,
//! "a straightforward adaptation" of C. Fetzer, "Perfect failure detection in timed asynchronous
//! systems" (2003), as an exercise.
//!
//! While a request of it is under way, a user sends a *beat* to the managers it has spoken to,
//! whenever a timer of the lowest rung rings. A manager watches whoever has spoken to it; if nothing
//! is heard of one until a timer of rung [`TIMEOUT`] rings, it tells its role of P that what that one
//! held is to be reclaimed. A user that has nothing under way says so (*rest*), and is not watched.
//! Whatever a user sends to a manager is numbered between them, so that a beat that comes after the
//! rest it was sent before does not begin the watch again.
//!
//! # What it rests on
//! Completeness (whoever has stopped is reported) needs nothing: timers ring in the end. Accuracy
//! (nobody else is) needs time: a beat must arrive before the manager's timer rings, that is, the
//! longest delay must be below the time-out less the time between two beats, on clocks that run
//! equally fast. No asynchronous protocol can do without such an assumption. Where it does not hold,
//! exclusion is lost: in the checker and in the fuzzer, where timers ring at any time; and in the
//! simulator where some messages take long (`--spikes`). So this is no protocol among the others, but
//! something to be looked at. (A lease that the user itself keeps to would make exclusion certain and
//! leave only progress to time; that is what a service does that reclaims.)
//!
//! P must understand that messages of somebody who was reclaimed may still come.

mod manager;
#[cfg(test)]
mod tests;
mod user;

use alloc::format;
use alloc::vec::Vec;

use holdall_core::{
    About, Broken, LinkStamp, ManagerId, NodeId, Options, Property, Protocol, Rung, System,
    Topology, Unsupported, UserId,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::registry::inner_variant;

/// How long a manager waits for a beat: sixteen times as long as a user between two.
pub const TIMEOUT: Rung = 4;

/// Counts what a user sends to a manager.
pub type Number = LinkStamp<2>;

/// What a manager may receive; `M` is what P's managers receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager<M> {
    /// The user is there.
    Beat(Number),
    /// The user has nothing under way.
    Rest(Number),
    /// What the user of P says.
    ByUser(Number, M),
    /// What another manager of P says.
    ByManager(M),
}

/// A user's timers; `T` is what P's user arms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UserTimer<T> {
    /// Time for a beat.
    Beat,
    /// Of the user of P.
    Inner(T),
}

/// A manager's timers; `T` is what P's manager arms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ManagerTimer<T> {
    /// Of the manager of P.
    Inner(T),
    /// Nothing was heard of this user for long.
    Silent(UserId),
}

/// The configuration.
#[derive(Debug)]
pub struct Watched<P> {
    inner: P,
}

impl<P: Protocol> Protocol for Watched<P> {
    const FAMILY: &'static str = "watched";
    /// A registry names one for each protocol under it.
    const NAMES: &'static [&'static str] = &[];
    const STARTS_AGAIN: bool = P::STARTS_AGAIN;
    const DRIFTS: bool = P::DRIFTS;
    const STAGES: u32 = 2 + P::STAGES;
    type ToUser = P::ToUser;
    type ToManager = ToManager<P::ToManager>;
    type User = User<P::User>;
    type Manager = Manager<P::Manager>;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let inner = P::about(inner_variant::<Self, P>(variant)?)?;
        let local = |p: &Property| *p == Property::AllOrNothing;
        Ok(About {
            name: format!("watched:{}", inner.name),
            summary: "who has stopped is found out by heartbeats; sound only where time is kept",
            source: "Datta et al., section IV; after Fetzer 2003",
            promises: inner.promises.into_iter().filter(local).collect(),
            with_patience: Vec::new(),
            rules: Vec::new(),
            ..inner
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let variant = inner_variant::<Self, P>(options.variant.as_deref())?.map(Into::into);
        Ok(Self { inner: P::new(topology, &Options { variant, without: Vec::new() })? })
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

    /// Those of P do not hold once a report was wrong.
    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let _ = system;
        Ok(())
    }
}
