//! The `holdall` command.

mod check;
mod protocols;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Hands out sets of exclusive resources, all or nothing.
#[derive(Parser)]
#[command(name = "holdall", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
    Protocols(protocols::Args),
    Sim(sim::Args),
}

/// Bad input: one line that says what is wrong and how to mend it. Exit status 64.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

impl Usage {
    fn new(what: impl ToString) -> anyhow::Error {
        Self(what.to_string()).into()
    }
}

/// `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let asked = !error.use_stderr();
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(USAGE) };
        }
    };
    let done = match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Protocols(args) => protocols::run(&args),
        Command::Sim(args) => sim::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("holdall: {error:#}");
        ExitCode::from(if error.is::<Usage>() { USAGE } else { 1 })
    })
}
