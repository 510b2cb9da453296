//! What the cells of several machines talk over: everything below the cell and above TCP.
//!
//! | module | what |
//! |---|---|
//! | [`cell`] | who is who: a name and 128 bits |
//! | [`ca`], [`card`] | the private authority of a cluster; what its certificates say |
//! | `tls` | whom to believe on a connection |
//! | [`token`] | what those show who are no members: to join, or to be a client |
//! | [`member`] | pure: what members know of each other, and how they come to know the same |
//! | [`home`], `store` | the directory of a member, and files that are known to be whole |
//! | `frame` | what is said on a connection, and the bytes of it |
//! | `bounds`, [`config`] | budgets, rooms, patience; times and sizes |
//! | `renew` | the own certificate, renewed in time |
//! | `door`, `dial`, `greet` | connections that come in and go out, and how they become links |
//! | `link`, [`peer`] | a link that is up; what can be seen of it |
//! | [`join`](mod@join), [`client`], [`carry`](fn@carry) | becoming a member; clients without an agent |
//! | [`hub`](Links), [`event`], [`Above`] | what all share; what those above are told and asked |
//!
//! What is carried means nothing here: bytes between cells, a greeting that those above may refuse, something that each
//! cell says about itself. **Links may lose** what was under way when one ends. Between an [`Event::Up`] and the following
//! [`Event::Down`] what arrives is a beginning of what was sent over the [`Way`] of that link, in order and once.
//!
//! Whoever is a member is trusted by all: it may remove others and speak about them. Whoever is none can make the
//! members spend a bounded amount of memory and time, and nothing else; `docs/cluster.md` says what he can see.

mod above;
mod bounds;
pub mod ca;
pub mod card;
mod carry;
pub mod cell;
pub mod client;
pub mod config;
mod dial;
mod door;
pub mod event;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod greet;
pub mod home;
mod hub;
pub mod join;
mod link;
mod links;
pub mod member;
pub mod peer;
mod renew;
mod store;
#[cfg(test)]
mod tests;
mod tls;
pub mod token;

pub use crate::above::Above;
pub use crate::ca::Pin;
pub use crate::carry::carry;
pub use crate::cell::{Cell, CellId, CellName};
pub use crate::config::Config;
pub use crate::event::{Event, Events};
pub use crate::frame::{GREETING_MAX, MESSAGE_MAX, OLDEST, Refusal, VERSION};
pub use crate::home::Home;
pub use crate::join::join;
pub use crate::links::{Links, Unsaid};
pub use crate::peer::{Unsent, Way};
pub use crate::store::Error as StoreError;
