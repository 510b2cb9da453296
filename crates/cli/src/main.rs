//! The `holdall` command.

mod check;
mod protocols;
mod sim;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
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

/// For `map_err`: what a person did wrong.
fn usage(what: impl std::fmt::Display) -> anyhow::Error {
    Usage(what.to_string()).into()
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

/// Prints a text and a line end. Whoever reads may stop reading: that is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        done => done.context("cannot write to standard output"),
    }
}
