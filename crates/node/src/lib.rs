//! The agent of holdall: the service around a cell and its log.

#![forbid(unsafe_code)]

mod agent;
mod audit;
mod clock;
pub mod cluster;
mod config;
mod containment;
mod data;
mod directory;
mod handoff;
mod handover;
mod history;
mod hosted;
mod http;
mod import;
mod look;
mod metrics;
mod rights;
mod service;
mod socket;

pub use agent::{Settings, run};
pub use config::{Config, Limits, Pool};
pub use data::InUse;
pub use directory::{Directory, Unsafe, replaceable_socket};
pub use handover::{UNDERSTOOD, is_handed_over};
pub use history::{Config as History, Keep};
pub use hosted::Hosted;
pub use look::{another, check_log, reserved};
pub use service::note_panic;
pub use socket::LastAgent;
