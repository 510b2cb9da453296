//! The words of holdall, and the shape every protocol has.
//!
//! A protocol is two state machines without input or output: a [`user`](Protocol::User), which
//! acts for a client, and a [`manager`](Protocol::Manager), which guards pools. A *world* drives
//! them: it feeds [`Event`]s to [`Role::step`] and carries out the [`Effect`]s that come back in
//! the [`Outbox`]. The same roles run in the simulator, in the model checker and in the service.
//!
//! Nothing here knows a clock, randomness, a hash order or I/O: this crate and the protocols are
//! `no_std`, so that a run is a function of its events.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod about;
pub mod contract;
mod ids;
mod length;
mod needs;
mod outbox;
mod role;
mod rules;
mod seldom;
mod stamp;

pub use about::{About, Assumes, Known, Options, Order, Pool, Property, Topology, Unsupported};
pub use ids::{
    Addr, CellId, Home, Lane, Life, ManagerId, NodeId, Party, PoolId, RequestId, UserId,
};
pub use length::{Length, NoLength};
pub use needs::{BadNeeds, Need, Needs, Picked, Request, Unit};
pub use outbox::{Effect, Note, Outbox, Rung};
pub use role::{Broken, Call, Capacity, Data, Event, Gone, Never, Protocol, Resize, Role, System};
pub use rules::Rule;
pub use seldom::{Seldom, Usual};
pub use stamp::{ChannelStamp, Clock, Family, LinkStamp, Origin, Stamp};
