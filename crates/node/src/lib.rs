//! The agent of holdall: an engine without I/O, and the service around it.

#![forbid(unsafe_code)]

mod agent;
mod audit;
mod clock;
mod config;
mod containment;
mod data;
mod directory;
pub mod engine;
mod journal;
mod metrics;
mod service;
mod socket;

pub use agent::{Settings, run};
pub use config::{Config, Limits, Pool};
pub use data::InUse;
pub use directory::{Directory, Unsafe, replaceable_socket};
pub use socket::LastAgent;
