//! The results of a simulation: as a table for people, and as others read them: JSON, CSV, samples, a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use comfy_table::Table;
use holdall_lab::figures::comparison;
use holdall_sim::{Outcome, Report, Settings, Tally};
use serde::Serialize;
use serde_json::Value;

use super::Args;
use super::table::{self, Figure, decimal, whole};
use crate::{cannot_write, files, say};

/// Prints them as is wanted.
pub(super) fn print(args: &Args, settings: &Settings, outcomes: &[Outcome]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        table::json_lines(&mut out, lines(settings, outcomes, args.timing))?;
    } else if args.csv {
        csv(&mut out, settings, outcomes, args.timing)?;
    } else {
        writeln!(out, "{}\n{}", headline(settings), table_of(outcomes).trim_fmt())?;
        for outcome in outcomes.iter().filter(|_| args.timing) {
            let millions = rate(outcome) / 1e6;
            say(format!("{}: {millions:.2} million events a second", outcome.report.protocol));
        }
    }
    out.flush()
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.report.events as f64 / outcome.seconds.max(f64::MIN_POSITIVE)
}

fn headline(settings: &Settings) -> String {
    let Settings { users, resources, ticks, graphs, seed, .. } = settings;
    format!("users {users}, pools {resources}; graphs {graphs}, ticks {ticks}, seed {seed}")
}

const FIGURES: [Figure<Outcome>; 15] = [
    ("grants", |o| o.report.grants.to_string()),
    ("response: mean, ticks", |o| decimal(o.report.response.mean, 1)),
    ("  95 % confidence, +-", |o| decimal(o.report.response.ci95, 1)),
    ("  by Little's law, ticks", |o| decimal(o.report.response.little, 1)),
    ("  median, ticks", |o| whole(o.report.response.p50)),
    ("  99th percentile, ticks", |o| whole(o.report.response.p99)),
    ("  longest, ticks", |o| whole(o.report.response.max)),
    ("waiting at the end", |o| o.report.unfinished.to_string()),
    ("  longest so far, ticks", |o| whole(o.report.unfinished_longest)),
    ("messages a grant", |o| decimal(o.report.messages_per_grant, 2)),
    ("units in use, %", |o| decimal(Some(o.report.utilisation * 100.0), 1)),
    ("rivals of a user, mean", |o| decimal(Some(o.report.degree), 1)),
    ("overtaken at most, times", |o| o.report.overtaken_max.to_string()),
    ("fairness, Jain's index", |o| decimal(o.report.jain, 4)),
    ("exclusion violated, times", |o| o.report.violations.to_string()),
];

fn table_of(outcomes: &[Outcome]) -> Table {
    let mut table = table::table(outcomes, |outcome| outcome.report.protocol.clone(), &FIGURES);
    let counted: BTreeSet<_> =
        outcomes.iter().flat_map(|outcome| outcome.report.tallies.keys()).collect();
    for what in counted {
        let called = format!("{what} a grant (mean size, most)");
        let values = outcomes.iter().map(|outcome| tally(&outcome.report, what));
        table::add_line(&mut table, called, values);
    }
    table
}

fn tally(report: &Report, what: &str) -> String {
    let Some(Tally { number, sum, max }) = report.tallies.get(what) else { return "-".into() };
    let a_grant = *number as f64 / report.grants as f64;
    format!("{a_grant:.3} ({:.1}, {max})", *sum as f64 / *number as f64)
}

/// What is told of one protocol.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    report: &'a Report,
    settings: &'a Settings,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_per_second: Option<f64>,
}

fn lines<'a>(
    settings: &'a Settings,
    outcomes: &'a [Outcome],
    timing: bool,
) -> impl Iterator<Item = Line<'a>> {
    outcomes.iter().map(move |outcome| Line {
        report: &outcome.report,
        settings,
        events_per_second: timing.then(|| rate(outcome)),
    })
}

/// A table in CSV: the protocol first, nested figures under names with dots.
fn csv(
    out: &mut impl Write,
    settings: &Settings,
    outcomes: &[Outcome],
    timing: bool,
) -> io::Result<()> {
    let mut rows = Vec::new();
    for line in lines(settings, outcomes, timing) {
        let mut row = BTreeMap::new();
        flatten(&mut row, String::new(), serde_json::to_value(&line)?);
        rows.push(row);
    }
    let mut columns: Vec<String> = rows.iter().flat_map(|row| row.keys().cloned()).collect();
    columns.sort_by_key(|column| (column != "protocol", column.contains('.'), column.clone()));
    columns.dedup();
    // Into memory first: an error of the table would hide that nobody reads on.
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(&columns)?;
    for row in &rows {
        table.write_record(
            columns.iter().map(|column| row.get(column).map_or("", String::as_str)),
        )?;
    }
    out.write_all(&table.into_inner().map_err(csv::IntoInnerError::into_error)?)
}

/// What there is nothing of is an empty field.
fn flatten(row: &mut BTreeMap<String, String>, name: String, value: Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(row, format!("{name}{dot}{field}"), value);
            }
        }
        Value::Null => drop(row.insert(name, String::new())),
        Value::String(text) => drop(row.insert(name, text)),
        other => drop(row.insert(name, other.to_string())),
    }
}

/// Every request that the response times are of, one a line.
pub(super) fn samples(path: &Path, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let write = || -> Result<(), csv::Error> {
        let mut table = csv::Writer::from_path(path)?;
        table.write_record(["protocol", "graph", "asked", "response"])?;
        for Outcome { report, samples, .. } in outcomes {
            for sample in samples {
                table.serialize((&report.protocol, sample.graph, sample.asked, sample.response))?;
            }
        }
        Ok(table.flush()?)
    };
    write().map_err(|error| cannot_write(path.display(), error))
}

/// The response times of all protocols in one picture.
pub(super) fn svg(path: &Path, settings: &Settings, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let times = |outcome: &Outcome| outcome.samples.iter().map(|sample| sample.response).collect();
    let protocols: Vec<(&str, Vec<u64>)> =
        outcomes.iter().map(|outcome| (outcome.report.protocol.as_str(), times(outcome))).collect();
    files::write(path, comparison(&headline(settings), &protocols))
}
