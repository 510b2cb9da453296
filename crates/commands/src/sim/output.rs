//! The results of a simulation as others read them: JSON, CSV, samples, a picture.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use holdall_lab::figures::comparison;
use holdall_sim::{Outcome, Report, Settings};
use serde::Serialize;
use serde_json::Value;

use crate::{cannot_write, files};

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
        events_per_second: timing.then(|| super::rate(outcome)),
    })
}

/// One object for each protocol, one a line.
pub(super) fn json(
    out: &mut impl Write,
    settings: &Settings,
    outcomes: &[Outcome],
    timing: bool,
) -> io::Result<()> {
    for line in lines(settings, outcomes, timing) {
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The same as a table: the protocol first, nested figures under names with dots.
pub(super) fn csv(
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
pub(super) fn svg(path: &Path, note: &str, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let times = |outcome: &Outcome| outcome.samples.iter().map(|sample| sample.response).collect();
    let protocols: Vec<(&str, Vec<u64>)> =
        outcomes.iter().map(|outcome| (outcome.report.protocol.as_str(), times(outcome))).collect();
    files::write(path, comparison(note, &protocols))
}
