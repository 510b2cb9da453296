//! `holdall play`: protocols for real, over TCP.

use std::process::ExitCode;

use holdall_play::{Bill, Options};

use crate::{Failure, Protocols, names, usage};

/// Play protocols for real: roles in separate processes, over TCP on loopback
///
/// Clients think, ask, use and give back by themselves; whoever uses a unit locks a file, so that it is
/// seen if two do. What is measured is printed beside what the simulator says with the same sets and the
/// measured times. `docs/play.md` says what each figure means.
///
/// Exit status: 0 also if it is ended by Ctrl-C, 1 if exclusion or an invariant was broken or a
/// process ended that should not have, 64 on bad input, 74 if the result cannot be written.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  holdall play ordered
  holdall play house,skeen --nodes 4 --clients 20 --seconds 10
  holdall play house --leave waiting:0.1 --stop using:0.05
  holdall play coordinator:skip --without room")]
pub struct Args {
    /// Protocols, as `holdall protocols` lists them, played one after another; `all` is all that
    /// are not named and can be played like that
    #[arg(required = true, value_name = "PROTOCOL,...")]
    protocols: Vec<String>,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let options = &args.options;
    let listed: Vec<_> = protocols.names().collect();
    let find = |name: &str| {
        let chosen = protocols.choose(name, &options.without).map_err(usage)?;
        chosen.cast().map_err(usage)
    };
    let bill = Bill::new(&names(&args.protocols), &listed, &options.settings(), find)?;
    bill.left_out().for_each(crate::say);
    holdall_play::run(&bill, options)
        .map_err(|error| Failure(error.status(), error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
