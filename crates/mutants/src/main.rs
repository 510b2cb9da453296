//! Changes the code on purpose, to see whether a test notices.
//!
//! All changes are compiled into one copy of the workspace, each behind a number, and switched on one by
//! one by an environment variable: one build instead of one for each. A change is *killed* if one of the
//! commands given fails while it is in force, or takes too long; otherwise it *survives*, and a person has
//! to judge it. `docs/mutants.md` says how that is done.

#![forbid(unsafe_code)]

mod copy;
mod rewrite;
mod trial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;

use self::copy::Copy;
use self::rewrite::Mutant;
use self::trial::Trial;

/// Changes the code on purpose, in a copy of the workspace, to see whether commands notice.
///
/// Run it at the root of the workspace. The result is CSV: file, line, function, change, outcome.
#[derive(Parser)]
struct Args {
    /// Where the copy of the workspace is made
    #[arg(long, value_name = "DIR")]
    copy: PathBuf,
    /// What to build, as arguments of cargo: 'build -p holdall-cli', 'test -p holdall-node --lib'
    #[arg(long, value_name = "ARGS", required_unless_present = "list")]
    build: Vec<String>,
    /// Only the changes that this CSV lists in the columns file, function and change, in its order
    #[arg(long, value_name = "FILE")]
    only: Option<PathBuf>,
    /// The longest a command may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// A command that should fail: 'NAME ARGS', where NAME is something that was built, or 'PLACE: NAME ARGS'
    /// for changes to files in whose path PLACE is
    #[arg(long = "try", value_name = "COMMAND", required_unless_present = "list")]
    commands: Vec<String>,
    /// Only list the changes, those that do not compile included
    #[arg(long)]
    list: bool,
    /// Files and folders of one crate
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let copy = Copy::make(&args.copy, &args.paths)?;
    let mut table = csv::Writer::from_writer(std::io::stdout());
    table.write_record(["file", "line", "function", "change", "outcome"])?;
    let mut row = |mutant: &Mutant, outcome: &str| {
        let line = mutant.line.to_string();
        table.write_record([&mutant.file, &line, &mutant.function, &mutant.change, outcome])?;
        table.flush()
    };
    if args.list {
        copy.put_in(&[])?.iter().try_for_each(|mutant| row(mutant, ""))?;
        return Ok(());
    }
    let (mut mutants, built) = copy.build(&args.build)?;
    if let Some(file) = &args.only {
        mutants = only(mutants, file)?;
    }
    let limit = Duration::from_secs(args.limit);
    let trial = Trial::new(&args.copy, &args.commands, &built, limit)?;
    if let Some(command) = trial.failing()? {
        bail!("fails without any change: {command}");
    }
    for mutant in &mutants {
        let killer = trial.killer(mutant)?;
        row(mutant, &killer.map_or_else(|| "survived".into(), |by| format!("killed: {by}")))?;
    }
    Ok(())
}

/// Those that a table lists, in its order. Lines are not compared: they move.
fn only(mutants: Vec<Mutant>, file: &PathBuf) -> Result<Vec<Mutant>> {
    let mut table = csv::Reader::from_path(file).with_context(|| file.display().to_string())?;
    let head = table.headers()?.clone();
    let column = |name| head.iter().position(|head| head == name).context("no such column");
    let columns = [column("file")?, column("function")?, column("change")?];
    let mut listed = BTreeMap::new();
    for (at, row) in table.records().enumerate() {
        let row = row?;
        listed.entry(columns.map(|column| row[column].to_string())).or_insert(at);
    }
    let place = |mutant: &Mutant| {
        let key = [&mutant.file, &mutant.function, &mutant.change].map(Clone::clone);
        listed.get(&key).copied()
    };
    let mut meant: Vec<Mutant> = mutants.into_iter().filter(|m| place(m).is_some()).collect();
    meant.sort_by_key(place);
    anyhow::ensure!(!meant.is_empty(), "{} lists none of these changes", file.display());
    Ok(meant)
}
