//! The commands that study protocols: `check`, `explore`, `fuzz`, `locality`, `play`, `protocols`
//! and `sim`, for any protocols they are given.
//!
//! The `holdall` command gives them those that it comes with. A program that adds one of its own is
//! a call of [`main`]; `examples/new-protocol` is one.

#![forbid(unsafe_code)]

mod check;
mod explore;
pub mod files;
mod fuzz;
mod locality;
mod play;
mod program;
mod progress;
mod protocols;
mod registry;
mod say;
mod search;
mod sim;

use std::process::ExitCode;

use clap::Subcommand;
pub use holdall_registry::questions::{Question, Snapshot};

pub use self::program::{main, parse};
pub use self::progress::{BytesBar, EstimatesBar, RequestsBar};
pub use self::registry::Protocols;
pub use self::say::{
    Failure, UNWRITTEN, USAGE, Usage, cannot_write, print, print_to_reader, say, usage,
};
pub use self::sim::names;

/// One of the commands, with its arguments.
#[derive(Subcommand)]
#[allow(missing_docs, reason = "each is described by its arguments, which is what --help prints")]
pub enum Command {
    Check(Box<check::Args>),
    Explore(explore::Args),
    Fuzz(fuzz::Args),
    Locality(locality::Args),
    Play(play::Args),
    Protocols(protocols::Args),
    Sim(sim::Args),
}

impl Command {
    /// Does what the command says.
    ///
    /// # Errors
    /// [`Usage`] if a person asked for what cannot be, anything else if something went wrong.
    pub fn run(&self, protocols: &Protocols) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(args) => check::run(args, protocols),
            Self::Explore(args) => explore::run(args, protocols),
            Self::Fuzz(args) => fuzz::run(args, protocols),
            Self::Locality(args) => locality::run(args, protocols),
            Self::Play(args) => play::run(args, protocols),
            Self::Protocols(args) => protocols::run(args, protocols),
            Self::Sim(args) => sim::run(args, protocols),
        }
    }
}
