//! Real agents and real clients under faults, and a judge who knows nothing of how they are run.
//!
//! Every agent is the program that people run, with a directory, a socket and a port of its own; every client is a `holdall run`
//! whose command uses what it was given: it tells a store so, which checks fences, and writes to it. The torturer kills, stops
//! and cuts off, as a seed says, then lets everything heal; everybody who still waits must be served then.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | pure: what is done to whom and when, from a seed |
//! | [`journal`] | what happened, line by line |
//! | [`check`] | pure: what is wrong with a journal, and its figures |
//! | [`store`], [`section`] | where commands write, and what they do |
//! | [`ground`], [`proxy`] | the network between each two agents |
//! | [`agents`], [`clients`], [`process`] | processes |
//! | [`replicated`], [`members`] | a cell whose log is in etcd, and the members of that |
//! | [`course`] | all of it together |
//!
//! Invariant: everything that is judged comes from the commands by way of the store. Of what the torturer knows, only
//! whom it has stopped and killed is used, to excuse.

#![forbid(unsafe_code)]

pub mod agents;
pub mod check;
pub mod clients;
pub mod course;
pub mod ground;
pub mod journal;
pub mod members;
pub mod plan;
pub mod process;
pub mod proxy;
pub mod replicated;
pub mod section;
pub mod store;

pub use self::course::{Settings, Verdict, torture};

/// The time since the machine was started, in milliseconds: it goes on while that sleeps.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}
