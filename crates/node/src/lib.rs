//! The agent of holdall: the service around the engine of a cell.

#![forbid(unsafe_code)]

mod agent;
mod audit;
mod clock;
mod config;
mod containment;
mod data;
mod directory;
mod journal;
mod metrics;
mod rights;
mod service;
mod socket;

use holdall_cell::engine;

pub use agent::{Settings, run};
pub use config::{Config, Limits, Pool};
pub use data::{InUse, reserved};
pub use directory::{Directory, Unsafe, replaceable_socket};
pub use socket::LastAgent;
