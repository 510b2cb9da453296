//! `holdall sim --trace`: requests that were recorded somewhere, played through protocols.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use holdall_history::whatif::{Failed, MOST_WAITING, Watch as _};
use holdall_history::{Changes, History, Note, Recorded, Replay, Waits, lines, read_trace};
use holdall_lab::figures;
use holdall_sim::{Contender, Error, Fate, Progress, Settings, play_told};
use serde::Serialize;

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
    let mut columns = Vec::new();
    columns.extend(recorded(replay));
    let bar = RequestsBar::default();
    for (number, contender) in contenders.iter().enumerate() {
        bar.begins(contender.name(), replay.trace.requests.len());
        let stopped = Cell::new(None);
        let progress = |progress: Progress| {
            bar.sees(progress);
            match progress.waiting > args.most_waiting {
                true => {
                    stopped.set(Some(progress.now));
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            }
        };
        let played = play_told(settings, contender, &replay.trace, &progress);
        let played = played.map_err(|error| match error {
            Error::Failure { .. } => error.into(),
            _ => usage(error),
        })?;
        if let Some(after) = stopped.get() {
            let (how, most) = (contender.name().to_owned(), args.most_waiting);
            return Err(
                Failure(CONFLICT, Failed::Overloaded { how, most, after }.to_string()).into()
            );
        }
        if let Some(path) = args.record.as_deref().filter(|_| number == 0) {
            write_history(path, replay, &played.fates)?;
        }
        let column = column(contender.name(), replay, |request| Some(played.fates[request]));
        columns.push(Column {
            left_out: played.left_out,
            unfinished: column.unfinished - played.left_out.min(column.unfinished),
            messages_per_grant: played.report.messages_per_grant,
            violations: played.violations,
            ..column
        });
    }
    drop(bar);
    let headline = format!(
        "{} requests for {} pools in {} ticks; a message takes {} ticks; seed {}",
        replay.trace.requests.len(),
        replay.pools.len(),
        replay.length,
        settings.delay,
        settings.seed
    );
    match print(&headline, &columns, output.json) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(cannot_write("the result", error));
        }
        _ => {} // Written, or whoever reads has read enough.
    }
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

/// What was recorded, if waits were.
fn recorded(replay: &Replay) -> Option<Column> {
    let known = replay.recorded.iter().flatten().any(|fate| fate.granted.is_some());
    known.then(|| column("as recorded", replay, |request| replay.recorded[request]))
}

fn column(name: &str, replay: &Replay, fate: impl Fn(usize) -> Option<Fate>) -> Column {
    let fates: Vec<Fate> =
        (0..replay.trace.requests.len()).map(|request| fate(request).unwrap_or_default()).collect();
    let all_waits: Vec<u64> =
        fates.iter().enumerate().filter_map(|(at, fate)| replay.wait(at, fate)).collect();
    let granted = fates.iter().filter(|fate| fate.granted.is_some()).count();
    let given_up = fates.iter().filter(|f| f.granted.is_none() && f.ended.is_some()).count();
    let mut busy = vec![0u128; replay.pools.len()];
    for (asked, fate) in replay.trace.requests.iter().zip(&fates) {
        let Some(granted) = fate.granted else { continue };
        let held = fate.ended.unwrap_or(u64::MAX).min(replay.length).saturating_sub(granted);
        for need in asked.needs.iter() {
            busy[need.pool.index()] += u128::from(held) * u128::from(need.units);
        }
    }
    let share = |(at, name): (usize, &holdall_wire::Name)| {
        let all = u128::from(replay.trace.pools[at].capacity) * u128::from(replay.length);
        (name.to_string(), busy[at] as f64 / all.max(1) as f64)
    };
    Column {
        protocol: name.into(),
        requests: fates.len(),
        granted,
        given_up,
        unfinished: fates.iter().filter(|fate| fate.ended.is_none()).count(),
        left_out: 0,
        waits: Waits::of(all_waits.clone()),
        messages_per_grant: None,
        pools: replay.pools.iter().enumerate().map(share).collect(),
        violations: 0,
        all_waits,
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

fn print(headline: &str, columns: &[Column], json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !json {
        writeln!(out, "{headline}\n{}", table(columns).trim_fmt())?;
        return out.flush();
    }
    for column in columns {
        serde_json::to_writer(&mut out, column)?;
        writeln!(out)?;
    }
    out.flush()
}

/// How to write one figure.
type Figure = fn(&Column) -> String;

fn table(columns: &[Column]) -> Table {
    let figures: [(&str, Figure); 11] = [
        ("granted", |c| c.granted.to_string()),
        ("given up", |c| c.given_up.to_string()),
        ("not ended", |c| c.unfinished.to_string()),
        ("left out: nobody may leave", |c| c.left_out.to_string()),
        ("a request waited: mean, ticks", |c| super::decimal(c.waits.mean, 1)),
        ("  median, ticks", |c| super::whole(c.waits.p50)),
        ("  90th percentile, ticks", |c| super::whole(c.waits.p90)),
        ("  99th percentile, ticks", |c| super::whole(c.waits.p99)),
        ("  longest, ticks", |c| super::whole(c.waits.max)),
        ("messages a grant", |c| super::decimal(c.messages_per_grant, 2)),
        ("exclusion violated, times", |c| c.violations.to_string()),
    ];
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    let names = columns.iter().map(|column| column.protocol.clone());
    table.set_header(std::iter::once(String::new()).chain(names));
    for (name, figure) in figures {
        table.add_row(std::iter::once(name.to_owned()).chain(columns.iter().map(figure)));
    }
    // Of many pools the busiest are shown.
    let mut pools: Vec<(&String, f64)> = columns
        .first()
        .into_iter()
        .flat_map(|c| c.pools.iter().map(|(n, share)| (n, *share)))
        .collect();
    pools.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, _) in pools.into_iter().take(POOLS) {
        let values = columns.iter().map(|c| format!("{:.1}", c.pools[name] * 100.0));
        table.add_row(std::iter::once(format!("{name} in use, %")).chain(values));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The most pools in a table.
const POOLS: usize = 12;
