//! What clients and nodes of holdall say to each other: names, needs, calls, replies, views, and
//! the frames that carry them. Nothing here does I/O.

#![forbid(unsafe_code)]

pub mod frame;
mod message;
mod name;
mod span;
mod view;

pub use message::{
    Answer, Ask, Body, Call, Change, Fault, From, Kind, Lasting, Leftovers, Place, Refusal, Reply,
    RequestNo, TEXT_MAX, Taken,
};
pub use name::{Amount, BadNeed, NAME_MAX, NEEDS_MAX, Name, Need, UNITS_MAX};
pub use span::span;
pub use view::{
    AgentView, Explanation, GrantView, Hindrance, PoolView, State, Status, UnitView, WaitView, Who,
    needs_size,
};
