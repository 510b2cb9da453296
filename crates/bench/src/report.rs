//! The table, or JSON.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::Options;
use crate::case::Case;
use crate::figures::Figures;

/// Prints what was measured: JSON as it comes, a table in the end.
pub(crate) struct Report {
    table: Table,
    json: bool,
    seconds: f64,
    rounds: usize,
    seed: u64,
}

#[derive(Serialize)]
struct Row<'a> {
    case: &'a Case,
    target: &'a str,
    seconds: f64,
    rounds: usize,
    seed: u64,
    #[serde(flatten)]
    figures: &'a Figures,
}

const HEADS: [&str; 12] = [
    "case",
    "target",
    "acq/s",
    "p50 ms",
    "p99",
    "p99.9",
    "max",
    "Jain",
    "wide",
    "server us",
    "client us",
    "MB",
];

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(HEADS);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let Options { json, seconds, rounds, seed, .. } = *options;
        Self { table, json, seconds, rounds, seed }
    }

    /// Says what is being measured, to a person.
    pub(crate) fn progress(&self, case: &Case, target: &str, round: usize) {
        if std::io::stderr().is_terminal() {
            let (name, rounds) = (&case.name, self.rounds);
            let _ =
                writeln!(std::io::stderr(), "{name}: {target}, round {} of {rounds}", round + 1);
        }
    }

    pub(crate) fn row(
        &mut self,
        case: &Case,
        target: &str,
        figures: &Figures,
    ) -> anyhow::Result<()> {
        if self.json {
            let Self { seconds, rounds, seed, .. } = *self;
            let row = Row { case, target, seconds, rounds, seed, figures };
            return print(&serde_json::to_string(&row)?);
        }
        let ms = |value: f64| format!("{value:.*}", if value < 10.0 { 2 } else { 0 });
        let known = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.1}"));
        let wide = if figures.wide > 0 { figures.wide.to_string() } else { "-".into() };
        let name = if figures.violations > 0 {
            format!("{target}: NOT EXCLUSIVE, {} times", figures.violations)
        } else {
            target.to_owned()
        };
        self.table.add_row([
            case.name.clone(),
            name,
            format!("{:.0}", figures.per_second),
            ms(figures.p50),
            ms(figures.p99),
            ms(figures.p999),
            ms(figures.max),
            format!("{:.3}", figures.jain),
            wide,
            known(figures.server_us),
            format!("{:.1}", figures.client_us),
            known(figures.server_mb),
        ]);
        Ok(())
    }

    pub(crate) fn end(&self) -> anyhow::Result<()> {
        if !self.json {
            print(&self.table.to_string())?;
        }
        Ok(())
    }
}

/// Prints a line. Whoever reads may stop reading: then there is nothing left to do.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("cannot write the result"),
    }
}
