//! What is needed of etcd's interface (3.4 and later): its messages, written by hand, so that no
//! protobuf compiler is needed to build this, and a client that knows all members.
//!
//! The client is honest about what it does not know: a call that was not answered may have been
//! carried out ([`Kind::Unknown`]), and whoever made it has to look. It repeats nothing by itself
//! but what was refused for an old token.

#![forbid(unsafe_code)]

mod address;
mod client;
mod failure;
pub mod messages;

pub use self::address::{Address, Tls, Unreadable};
pub use self::client::{Client, Events, Settings, call};
pub use self::failure::{Failure, Kind};
