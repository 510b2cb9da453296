//! The `holdall` command.

mod agent;
mod bench;
mod cell;
mod cells;
mod cluster;
mod deal;
mod explain;
mod failure;
mod figures;
mod hold;
mod job;
mod manual;
mod messages;
mod pool;
mod reach;
mod run;
mod show;
mod status;
mod token;
mod top;
mod torture;
mod unreached;
mod until;
mod usage;
mod whatif;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdall_commands::{Protocols, USAGE, Usage, cannot_write, parse, print, usage};

use self::messages::say;

/// Hands out sets of exclusive resources, all or nothing.
#[derive(Parser)]
#[command(name = "holdall", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// `holdall run` by itself: to build all other commands takes longer than all it does. The same goes for
/// `holdall job`, which starts itself twice for each task.
#[derive(Parser)]
#[command(name = "holdall", version, propagate_version = true)]
struct RunAlone {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Subcommand)]
enum RunCommand {
    Run(run::Args),
}

#[derive(Parser)]
#[command(name = "holdall", version, propagate_version = true)]
struct JobAlone {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Subcommand)]
enum JobCommand {
    Job(job::Args),
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Hold(hold::Args),
    Renew(hold::RenewArgs),
    Release(hold::ReleaseArgs),
    Status(status::Args),
    Explain(explain::Args),
    Top(top::Args),
    Usage(usage::Args),
    Whatif(whatif::Args),
    Pool(pool::Args),
    Token(token::Args),
    Job(job::Args),
    Agent(agent::Args),
    Bench(bench::Args),
    Cells(cells::Args),
    Torture(torture::Args),
    Cluster(cluster::Args),
    Cell(cell::Args),
    #[command(flatten)]
    Study(holdall_commands::Command),
    Deal(deal::Args),
    Figures(figures::Args),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// What was typed. If something is wrong with it, whoever tells what knows all commands.
fn typed() -> Result<Command, ExitCode> {
    let is_first = |word: &str| std::env::args_os().nth(1).is_some_and(|first| first == word);
    if is_first("run") || is_first("hold") {
        messages::begin();
    }
    if is_first("run") {
        if let Some(args) = run::Args::plain(std::env::args_os().skip(2)) {
            return Ok(Command::Run(args));
        }
        match RunAlone::try_parse() {
            Ok(RunAlone { command: RunCommand::Run(args) }) => return Ok(Command::Run(args)),
            Err(error) => run::explain_misuse(&error)?,
        }
    }
    if is_first("job")
        && let Ok(JobAlone { command: JobCommand::Job(args) }) = JobAlone::try_parse()
    {
        return Ok(Command::Job(args));
    }
    if is_first("--help") || is_first("-h") || std::env::args_os().len() == 1 {
        let told = manual::help(std::env::args_os().len() == 1);
        return Err(told);
    }
    parse().map(|Cli { command }| command)
}

fn main() -> ExitCode {
    let command = match typed() {
        Ok(command) => command,
        Err(told) => return told,
    };
    let done = match command {
        Command::Run(args) => run::run(&args),
        other => others(other),
    };
    let status = done.unwrap_or_else(|error| {
        // It may have words of others in it.
        say(show::clean(&format!("{error:#}")));
        ExitCode::from(if error.is::<Usage>() { USAGE } else { failure::code(&error) })
    });
    messages::finish();
    status
}

/// All but `run`, for which a stack as large as the largest of them needs would be touched.
#[inline(never)]
fn others(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args), // `main` does that itself.
        Command::Hold(args) => hold::run(&args),
        Command::Renew(args) => hold::renew(&args),
        Command::Release(args) => hold::release(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Whatif(args) => whatif::run(&args, &Protocols::known()),
        Command::Pool(args) => pool::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Job(args) => job::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Cells(args) => cells::run(&args),
        Command::Torture(args) => torture::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Cell(args) => cell::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Study(command) => command.run(&Protocols::known()),
        Command::Deal(args) => deal::run(args),
        Command::Figures(args) => figures::run(&args),
    }
}
