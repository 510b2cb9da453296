//! What came of plays, for people.

use std::fmt::Write;

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use crate::report::{Figures, Outcome};

/// How to write one figure.
type Figure = fn(&Figures) -> String;

const FIGURES: [(&str, Figure); 10] = [
    ("grants", |f| f.grants.to_string()),
    ("grants a second", |f| decimal(Some(f.grants_per_second), 1)),
    ("wait: mean, ms", |f| decimal(f.wait_mean, 2)),
    ("  median, ms", |f| decimal(f.wait_p50, 2)),
    ("  99th percentile, ms", |f| decimal(f.wait_p99, 2)),
    ("  longest, ms", |f| decimal(f.wait_max, 2)),
    ("waiting at the end", |f| f.unfinished.to_string()),
    ("  longest so far, ms", |f| decimal(f.unfinished_longest, 2)),
    ("messages a grant", |f| decimal(f.messages_per_grant, 2)),
    ("fairness, Jain's index", |f| decimal(f.jain, 4)),
];

/// The figures by which several protocols are compared.
const MAIN_FIGURES: [(&str, Figure); 4] = [
    ("grants/s", |f| decimal(Some(f.grants_per_second), 0)),
    ("wait, ms", |f| decimal(f.wait_mean, 1)),
    ("p99, ms", |f| decimal(f.wait_p99, 1)),
    ("messages/grant", |f| decimal(f.messages_per_grant, 2)),
];

/// All figures of a protocol, what was measured beside what the simulator says.
pub(crate) fn details(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table.set_header(["", &outcome.protocol, "simulated"]);
    for (name, figure) in FIGURES {
        let [measured, predicted] = both(outcome, figure);
        table.add_row([name, &measured, &predicted]);
    }
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n{}\n", headline(outcome), table.trim_fmt())
}

/// The main figures of several protocols, a line for each. It is printed line by line, so that each is
/// seen as soon as it is known.
#[derive(Debug)]
pub(crate) struct Overview {
    /// Of the names.
    width: usize,
}

impl Overview {
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self { width: names.map(str::len).max().unwrap_or(0) }
    }

    pub(crate) fn head(&self) -> String {
        let mut text = format!("{:width$}  message, ms", "", width = self.width);
        for (name, _) in MAIN_FIGURES {
            let _ = write!(text, "  {name:>COLUMN$}  simulated");
        }
        let line = "─".repeat(text.chars().count());
        format!("{text}\n{line}\n")
    }

    pub(crate) fn row(&self, outcome: &Outcome) -> String {
        let (name, delay) = (&outcome.protocol, decimal(outcome.delay, 3));
        let mut text = format!("{name:width$}  {delay:>11}", width = self.width);
        for (_, figure) in MAIN_FIGURES {
            let [measured, predicted] = both(outcome, figure);
            let _ = write!(text, "  {measured:>COLUMN$}  {predicted:>9}");
        }
        text.push('\n');
        text
    }
}

/// As wide as the widest name of a figure.
const COLUMN: usize = 14;

/// What was measured that the simulator was told.
fn headline(outcome: &Outcome) -> String {
    let Outcome { protocol, seconds, processes, delay, think, service, left, stopped, .. } =
        outcome;
    let delay = decimal(*delay, 3);
    let mut text = format!(
        "{protocol}: {processes} processes, {seconds:.1} s{}; means in ms: message {delay}, \
         think {think:.2}, use of a pool {service:.2}",
        if outcome.early { " (ended early)" } else { "" },
    );
    if left + stopped > 0 {
        let _ = write!(text, "; {left} clients left, {stopped} were killed");
    }
    text
}

/// What was measured and what the simulator says.
fn both(outcome: &Outcome, figure: Figure) -> [String; 2] {
    let predicted = outcome.predicted.as_ref().map_or_else(|| "-".into(), figure);
    [figure(&outcome.measured), predicted]
}

fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}
