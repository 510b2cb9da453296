//! The `holdall` command.

mod agent;
mod check;
mod deal;
mod explain;
mod explore;
mod failure;
mod figures;
mod fuzz;
mod hold;
mod locality;
mod manual;
mod play;
mod pool;
mod protocols;
mod reach;
mod run;
mod search;
mod show;
mod sim;
mod status;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
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
    Run(run::Args),
    Hold(hold::Args),
    Renew(hold::RenewArgs),
    Release(hold::ReleaseArgs),
    Status(status::Args),
    Explain(explain::Args),
    Explore(explore::Args),
    Pool(pool::Args),
    Agent(agent::Args),
    Check(check::Args),
    Deal(deal::Args),
    Figures(figures::Args),
    Fuzz(fuzz::Args),
    Locality(locality::Args),
    Play(play::Args),
    Protocols(protocols::Args),
    Sim(sim::Args),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
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
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if error.use_stderr() && error.kind() != NO_COMMAND {
                say(one_line(&error));
                return ExitCode::from(USAGE);
            }
            // Help or version. Nobody is left to tell if it cannot be printed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Hold(args) => hold::run(&args),
        Command::Renew(args) => hold::renew(&args),
        Command::Release(args) => hold::release(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Explore(args) => explore::run(&args),
        Command::Pool(args) => pool::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Check(args) => check::run(&args),
        Command::Deal(args) => deal::run(args),
        Command::Figures(args) => figures::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Locality(args) => locality::run(&args),
        Command::Play(args) => play::run(&args),
        Command::Protocols(args) => protocols::run(&args),
        Command::Sim(args) => sim::run(&args),
    };
    done.unwrap_or_else(|error| {
        say(format!("{error:#}"));
        ExitCode::from(if error.is::<Usage>() { USAGE } else { failure::code(&error) })
    })
}

/// What clap found wrong, and its advice, without the usage below.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let told: Vec<_> = lines.filter(|l| !l.is_empty() && !l.starts_with("For more")).collect();
    format!(
        "{} (--help tells more)",
        told.join("; ").replace(":; ", ": ").trim_start_matches("error: ")
    )
}

/// Says something to a person, on standard error. Nobody may be there to hear it: that is no error,
/// where `eprintln!` would panic.
fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "holdall: {text}");
}

/// Prints a text and a line end. Whoever reads may stop reading: that is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(usage(format!("cannot write the result: {error}"))),
        Ok(()) => Ok(()),
    }
}
