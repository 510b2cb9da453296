//! `holdall bench`: the load generator.

use std::process::ExitCode;

use crate::failure::{Failure, UNAVAILABLE};
use crate::usage;

/// Measure an agent under load, beside a yardstick
///
/// Clients ask for some of the locks, hold them and give them back, over and over. The agent is one of
/// our own, in a directory of its own, unless --agent names one. The yardstick is the smallest server
/// that queues in memory behind the same socket and frames: a bound, since it keeps and checks nothing.
///
/// Exit status: 0, 1 if two clients had the same lock at a time, 64 on bad input, 69 if a server
/// cannot be started or goes away, 130 after Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  holdall bench scale
  holdall bench mixed hot --rounds 3 --json
  holdall bench --clients 256 --resources 128 --hold 1
  holdall bench --clients 100000 --connections 100 --resources 50000")]
pub(crate) struct Args {
    #[command(flatten)]
    options: holdall_bench::Options,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    holdall_bench::run(&args.options).map_err(|error| match error.is::<holdall_bench::Bad>() {
        true => usage(error),
        false => Failure(UNAVAILABLE, format!("{error:#}")).into(),
    })
}
