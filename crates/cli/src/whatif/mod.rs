//! `holdall whatif`: the recorded requests, played again with something changed.

mod page;
mod told;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use holdall_commands::{Protocols, RequestsBar, files, say};
use holdall_history::whatif::{
    Failed, Found, Goal, MOST_WAITING, Nearness, Stage, Summary, find, nearness,
};
use holdall_history::{BadChange, Changes, Note, Replay, served};
use holdall_sim::{Contender, Error};
use holdall_wire::{Name, UNITS_MAX};
use serde::Serialize;

use crate::failure::{CONFLICT, DENIED, Failure};
use crate::usage::{Recorded, Source};
use crate::{print, show, usage as misuse};

/// The protocol that agents run.
const SERVED: &str = "house";

/// Play the recorded requests again with more or fewer units, another load or another protocol
///
/// The unchanged history is played first, to see how near that comes to what was recorded; what is changed is compared with it.
/// `docs/history.md` says how it is played.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Let a pool have another number of units
    #[arg(long, value_name = "POOL=N", value_parser = size)]
    units: Vec<(Name, u32)>,
    /// Leave out a unit, a pool or a lock
    #[arg(long, value_name = "NAME")]
    remove: Vec<Name>,
    /// Let so many requests come for each that was recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, allow_negative_numbers = true)]
    load: f64,
    /// Serve them by this protocol
    #[arg(long, value_name = "PROTOCOL", default_value = SERVED)]
    protocol: String,
    /// Search for the smallest number of units with which this is so: 'p99(gpu) < 10m' (mean, p50, p90, p99, max)
    #[arg(long, value_name = "GOAL")]
    find: Option<Goal>,
    /// Where the chance of --load comes from
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Break off when more than so many requests wait at once: that cannot be served, and takes ever longer to play
    #[arg(long, value_name = "N", default_value_t = MOST_WAITING, allow_negative_numbers = true)]
    most_waiting: usize,
    /// Print one JSON object; spans are in milliseconds
    #[arg(long)]
    json: bool,
    /// Draw the waits into FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page with all tables and pictures to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn size(text: &str) -> Result<(Name, u32), String> {
    let wrong = || format!("'{text}' is not of the form POOL=N, such as gpu=6");
    let (name, units) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.parse().map_err(|error| format!("'{text}': {error}"))?;
    match units.parse() {
        Ok(units @ 1..=UNITS_MAX) => Ok((name, units)),
        Ok(0) => Err(format!("'{text}': a pool without units is left out with --remove {name}")),
        _ if units.bytes().all(|byte| byte.is_ascii_digit()) && !units.is_empty() => {
            Err(format!("'{text}': a pool has at most {UNITS_MAX} units"))
        }
        _ => Err(wrong()),
    }
}

impl Args {
    /// What is to be different.
    fn changes(&self) -> Result<Changes, String> {
        let mut units = BTreeMap::new();
        for (pool, number) in &self.units {
            if units.insert(pool.clone(), *number).is_some() {
                return Err(format!("--units says twice how many '{pool}' has: once is enough"));
            }
        }
        if let Some(goal) = self.find.as_ref().filter(|goal| units.contains_key(&goal.pool)) {
            let pool = &goal.pool;
            return Err(format!(
                "--find searches for the units of '{pool}', and --units says them: give one"
            ));
        }
        let remove = self.remove.iter().cloned().collect();
        Ok(Changes { units, remove, load: self.load, seed: self.seed })
    }
}

/// All that is told.
#[derive(Serialize)]
struct Answer {
    /// From when on, in milliseconds since 1970.
    from: u64,
    /// Until when.
    to: u64,
    /// How near the unchanged replay comes to what was recorded.
    nearness: Option<Nearness>,
    /// What is changed, in words.
    change: String,
    /// The history, played unchanged.
    unchanged: Summary,
    /// The same with the change.
    changed: Summary,
    /// What --find has found.
    found: Option<Found>,
    /// The waits as they were recorded.
    #[serde(skip)]
    recorded: Vec<u64>,
}

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let mut changes = args.changes().map_err(misuse)?;
    let paths = [args.svg.as_deref(), args.html.as_deref()];
    args.source.try_all(&paths.into_iter().flatten().collect::<Vec<_>>())?;
    let contender = |name: &str| protocols.contender(name, &[]).map_err(misuse);
    let (served, other) = (served(), contender(&args.protocol)?);
    let Recorded { history, period, everybodys } = args.source.read()?;
    if !everybodys {
        let text = "what if needs everybody's requests, and you may see only your own; `holdall agent status` shows \
                    who may see all";
        return Err(Failure(DENIED, text.into()).into());
    }
    let before = Replay::of(&history, period, &Changes::default()).map_err(bad)?;
    Note::tell(&before.notes).iter().for_each(say);
    let bar = RequestsBar::default();
    let stage = Stage { watch: &bar, most_waiting: args.most_waiting, ..Stage::default() };
    let (near, unchanged) = summed(&stage, &before, &served, "unchanged")?;
    let found = |goal| find(&history, period, &changes, &other, goal, &stage);
    let found = args.find.as_ref().map(found);
    let found = found.transpose().map_err(failed)?;
    if let (Some(goal), Some(found)) = (&args.find, &found) {
        changes.units.insert(goal.pool.clone(), found.units);
    }
    let after = Replay::of(&history, period, &changes).map_err(bad)?;
    let new = after.notes.iter().filter(|note| !before.notes.contains(note));
    Note::tell(new).iter().for_each(say);
    let change = told::change(&changes, &args.protocol);
    let (_, changed) = summed(&stage, &after, &other, &change)?;
    drop(bar);
    let waits = |(at, fate): (usize, &Option<holdall_sim::Fate>)| before.wait(at, fate.as_ref()?);
    let answer = Answer {
        from: history.wall(period.from),
        to: history.wall(period.to),
        nearness: near,
        change,
        recorded: before.recorded.iter().enumerate().filter_map(waits).collect(),
        unchanged,
        changed,
        found,
    };
    if let Some(path) = &args.svg {
        files::write(path, page::waits(&answer))?;
    }
    if let Some(path) = &args.html {
        files::write(path, page::page(&answer, args.find.as_ref()))?;
    }
    print(&if args.json { show::json(&answer)? } else { told::told(&answer, args.find.as_ref()) })?;
    Ok(ExitCode::SUCCESS)
}

fn summed(
    stage: &Stage<'_>,
    replay: &Replay,
    by: &Contender,
    how: &str,
) -> anyhow::Result<(Option<Nearness>, Summary)> {
    let played = stage.play(replay, by, how).map_err(failed)?;
    if played.left_out > 0 {
        let name = by.name();
        let what = "requests that were given up are left out: nobody may leave under";
        say(format!("{} {what} {name}", played.left_out));
    }
    Ok((nearness(replay, &played.fates), Summary::of(replay, &played.fates)))
}

/// What a person asked for, or what went wrong.
fn failed(error: Failed) -> anyhow::Error {
    match error {
        Failed::Sim(Error::Failure { .. }) | Failed::Broken(..) => error.into(),
        Failed::Never { .. } | Failed::Overloaded { .. } => {
            Failure(CONFLICT, error.to_string()).into()
        }
        Failed::Change(error) => bad(error),
        Failed::Sim(_) => misuse(error),
    }
}

/// A change that makes no sense, or a history without anything to play.
fn bad(error: BadChange) -> anyhow::Error {
    match error {
        BadChange::Empty | BadChange::AllRemoved => Failure(CONFLICT, error.to_string()).into(),
        _ => misuse(error),
    }
}
