//! The agent over HTTP: a gateway between HTTP and the protocol of the agent's socket.
//!
//! The gateway knows nothing that the agent does not tell every client. For whoever calls over HTTP it
//! opens a connection to the service ([`Service::connect`]) as that user, and says there in the
//! ordinary protocol what it was told. So rights, quotas and words are those of the socket.
//!
//! It keeps no state: what is asked for over HTTP belongs to a session of the wire with a lease, whose number
//! and secret are computed from the user and the id that the client has picked (`lease`), and what was asked for there is told by
//! the number of its call (`mark`). A gateway that starts anew finds them again.
//!
//! ```text
//!  curl, browser, Python ── door (Unix socket, TCP, TLS) ── guard (who is it, may it be here) ── routes
//!                                                                                                  │
//!                            agent ◄── socket pairs, wire protocol ◄── link, lease, feed ◄─────────┘
//! ```
//!
//! `docs/http.md` describes the interface; `/openapi.json` is made from the code here.

#![forbid(unsafe_code)]

mod audit;
mod caller;
mod config;
mod door;
mod extract;
mod feed;
mod gateway;
mod guard;
mod lease;
mod link;
mod looks;
mod mark;
mod plain;
mod problem;
mod released;
mod rooms;
mod routes;
mod threads;
pub mod token;
mod unread;
mod view;
mod waiters;

pub use self::caller::{Peer, Service};
pub use self::config::{Config, Tcp, Unusable};
pub use self::gateway::{Doors, Gateway, Settings, THREAD, start};
pub use self::link::NO_CALL;
pub use self::routes::openapi;
