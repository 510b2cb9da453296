//! `holdall sim --trace`: requests that were recorded somewhere, played through protocols.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::Table;
use holdall_history::whatif::{Failed, MOST_WAITING, Stage, Summary};
use holdall_history::{Changes, History, Note, Recorded, Replay, Waits, lines, read_trace};
use holdall_lab::figures;
use holdall_sim::{Contender, Fate, Played, Settings};
use serde::Serialize;

use super::table::{self, Figure, decimal, whole};
use crate::{BytesBar, Failure, RequestsBar, cannot_write, files, say, usage};

/// It cannot be served.
const CONFLICT: u8 = 65;

/// A trace in place of a workload.
#[derive(clap::Args)]
pub(super) struct TraceArgs {
    /// Play the requests of FILE in place of users: a history or an audit log (or the data directory of an agent), or a log in
    /// the Standard Workload Format. A tick is a millisecond
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job", "csv", "samples"])]
    trace: Option<PathBuf>,
    /// Write what came of it under the first protocol to FILE, as a history
    #[arg(long, value_name = "FILE", requires = "trace")]
    record: Option<PathBuf>,
    /// Break off when more than so many requests of the trace wait at once: that cannot be served, and takes ever longer to play
    #[arg(long, value_name = "N", default_value_t = MOST_WAITING, requires = "trace")]
    most_waiting: usize,
}

/// What is made of the results.
#[derive(Clone, Copy)]
pub(super) struct Output<'a> {
    pub(super) json: bool,
    pub(super) svg: Option<&'a Path>,
}

/// What one protocol made of the requests, or what was recorded.
#[derive(Serialize)]
struct Column {
    protocol: String,
    requests: usize,
    granted: usize,
    given_up: usize,
    unfinished: usize,
    left_out: usize,
    /// In ticks.
    waits: Waits,
    messages_per_grant: Option<f64>,
    /// The share of each pool's units that was in use.
    pools: BTreeMap<String, f64>,
    violations: u64,
    #[serde(skip)]
    all_waits: Vec<u64>,
}

impl TraceArgs {
    /// The requests that are to be played, if any. What is odd about them is said. What is written in the end is tried before.
    pub(super) fn replay(&self, output: Output<'_>) -> anyhow::Result<Option<Replay>> {
        let Some(path) = &self.trace else { return Ok(None) };
        let written: Vec<&Path> = self.record.as_deref().into_iter().chain(output.svg).collect();
        files::try_all(Some(path), &written)?;
        let file = path.display().to_string();
        files::tell_if_endless(path);
        let bar = BytesBar::new(&file);
        let recorded = read_trace(path, &|bytes| bar.sees(bytes)).map_err(usage)?;
        drop(bar);
        let replay = match recorded {
            Recorded::Replay(replay) => replay,
            Recorded::History(history) => of_history(&file, &history)?,
        };
        Note::tell(&replay.notes).iter().for_each(say);
        Ok(Some(replay))
    }
}

/// All requests of a history. What is odd about it is said.
fn of_history(file: &str, history: &History) -> anyhow::Result<Replay> {
    Note::tell(&history.notes).iter().for_each(say);
    let replay = Replay::of(history, history.period(None, None), &Changes::default());
    replay.map_err(|error| Failure(CONFLICT, format!("{file}: {error}")).into())
}

/// Plays them through all protocols, and prints what came of it.
pub(super) fn run(
    replay: &Replay,
    settings: &Settings,
    contenders: &[Contender],
    args: &TraceArgs,
    output: Output<'_>,
) -> anyhow::Result<()> {
    let mut columns = Vec::from_iter(recorded(replay));
    let bar = RequestsBar::default();
    let stage = Stage { watch: &bar, most_waiting: args.most_waiting, settings: settings.clone() };
    for (number, contender) in contenders.iter().enumerate() {
        let name = contender.name();
        let played = stage.play_out(replay, contender, name).map_err(failed)?;
        if let Some(path) = args.record.as_deref().filter(|_| number == 0) {
            write_history(path, replay, &played.fates)?;
        }
        columns.push(Column::played(name, replay, &played));
    }
    drop(bar);
    let headline = headline(replay, settings);
    table::print(&headline, &columns, table_of, output.json)?;
    if let Some(path) = output.svg {
        let lines: Vec<(&str, Vec<u64>)> =
            columns.iter().map(|c| (c.protocol.as_str(), c.all_waits.clone())).collect();
        let said = figures::Said { title: "Waits", note: &headline, unit: "seconds" };
        files::write(path, figures::waits(said, &lines, 1000.0))?;
    }
    match columns.iter().find(|column| column.violations > 0) {
        Some(Column { protocol, violations, .. }) => {
            Err(Failure(1, format!("{protocol} broke exclusion {violations} times")).into())
        }
        None => Ok(()),
    }
}

/// A person asked for what cannot be, or a protocol went wrong.
fn failed(error: Failed) -> anyhow::Error {
    match error {
        Failed::Sim(error) => super::failed(error),
        error => Failure(CONFLICT, error.to_string()).into(),
    }
}

fn headline(replay: &Replay, settings: &Settings) -> String {
    let (requests, pools) = (replay.trace.requests.len(), replay.pools.len());
    let (Replay { length, .. }, Settings { delay, seed, .. }) = (replay, settings);
    format!(
        "{requests} requests for {pools} pools in {length} ticks; a message takes {delay} ticks; seed {seed}"
    )
}

/// What was recorded, if waits were.
fn recorded(replay: &Replay) -> Option<Column> {
    let known = replay.recorded.iter().flatten().any(|fate| fate.granted.is_some());
    let fates = || replay.recorded.iter().map(|fate| fate.unwrap_or_default()).collect::<Vec<_>>();
    known.then(|| Column::of("as recorded", replay, &fates()))
}

impl Column {
    /// Requests with these fates.
    fn of(name: &str, replay: &Replay, fates: &[Fate]) -> Self {
        let Summary { all, pools, waits, .. } = Summary::of(replay, fates);
        let in_use = |pool: &holdall_wire::Name| {
            let figures = pools.get(pool.as_str());
            (pool.to_string(), figures.and_then(|figures| figures.utilisation).unwrap_or(0.0))
        };
        Self {
            protocol: name.into(),
            requests: fates.len(),
            granted: fates.iter().filter(|fate| fate.granted.is_some()).count(),
            given_up: fates.iter().filter(|f| f.granted.is_none() && f.ended.is_some()).count(),
            unfinished: fates.iter().filter(|fate| fate.ended.is_none()).count(),
            left_out: 0,
            waits: all.waits,
            messages_per_grant: None,
            pools: replay.pools.iter().map(in_use).collect(),
            violations: 0,
            all_waits: waits,
        }
    }

    /// What a protocol made of them.
    fn played(name: &str, replay: &Replay, played: &Played) -> Self {
        let Played { fates, left_out, report, violations, .. } = played;
        let column = Self::of(name, replay, fates);
        Self {
            left_out: *left_out,
            unfinished: column.unfinished.saturating_sub(*left_out),
            messages_per_grant: report.messages_per_grant,
            violations: *violations,
            ..column
        }
    }
}

fn write_history(path: &Path, replay: &Replay, fates: &[Fate]) -> anyhow::Result<()> {
    let mut text = String::new();
    for line in lines(replay, fates) {
        let line = line.to_text().map_err(|error| cannot_write(path.display(), error))?;
        let _ = text.write_str(&line); // A text takes everything.
    }
    files::write(path, text)
}

const FIGURES: [Figure<Column>; 11] = [
    ("granted", |c| c.granted.to_string()),
    ("given up", |c| c.given_up.to_string()),
    ("not ended", |c| c.unfinished.to_string()),
    ("left out: nobody may leave", |c| c.left_out.to_string()),
    ("a request waited: mean, ticks", |c| decimal(c.waits.mean, 1)),
    ("  median, ticks", |c| whole(c.waits.p50)),
    ("  90th percentile, ticks", |c| whole(c.waits.p90)),
    ("  99th percentile, ticks", |c| whole(c.waits.p99)),
    ("  longest, ticks", |c| whole(c.waits.max)),
    ("messages a grant", |c| decimal(c.messages_per_grant, 2)),
    ("exclusion violated, times", |c| c.violations.to_string()),
];

/// The most pools in a table.
const POOLS: usize = 12;

fn table_of(columns: &[Column]) -> Table {
    let mut table = table::table(columns, |column| column.protocol.clone(), &FIGURES);
    // Of many pools the busiest are shown.
    let mut pools = columns.first().map_or_else(Vec::new, |c| Vec::from_iter(&c.pools));
    pools.sort_by(|a, b| b.1.total_cmp(a.1));
    for (name, _) in pools.into_iter().take(POOLS) {
        let values = columns.iter().map(|column| decimal(Some(column.pools[name] * 100.0), 1));
        table::add_line(&mut table, format!("{name} in use, %"), values);
    }
    table
}
