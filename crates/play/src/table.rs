//! What came of plays, for people.

use std::fmt::Write;
use std::iter::once;

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use crate::report::{Figures, Outcome};
use crate::settings::Settings;

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

/// A line about what was played, then what was measured beside what the simulator says: all figures of a
/// single protocol, or a line with the main ones for each of several.
pub fn table(settings: &Settings, outcomes: &[Outcome]) -> String {
    let workload = &settings.workload;
    let mut text = format!(
        "clients {}, pools {}, seed {}; exclusion was never broken\n",
        workload.users, workload.resources, workload.seed,
    );
    let table = match outcomes {
        [one] => {
            let _ = writeln!(text, "{}", headline(one));
            details(one)
        }
        several => overview(several),
    };
    let _ = writeln!(text, "{}", table.trim_fmt());
    text
}

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

fn details(outcome: &Outcome) -> Table {
    let mut table = Table::new();
    table.set_header(["", &outcome.protocol, "simulated"]);
    for (name, figure) in FIGURES {
        let [measured, predicted] = both(outcome, figure);
        table.add_row([name, &measured, &predicted]);
    }
    styled(table)
}

fn overview(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    let figures = MAIN_FIGURES.iter().flat_map(|(name, _)| [*name, "simulated"]);
    table.set_header(["", "message, ms"].into_iter().chain(figures));
    for outcome in outcomes {
        let figures = MAIN_FIGURES.iter().flat_map(|(_, figure)| both(outcome, *figure));
        let delay = decimal(outcome.delay, 3);
        table.add_row(once(outcome.protocol.clone()).chain(once(delay)).chain(figures));
    }
    styled(table)
}

/// What was measured and what the simulator says.
fn both(outcome: &Outcome, figure: Figure) -> [String; 2] {
    let predicted = outcome.predicted.as_ref().map_or_else(|| "-".into(), figure);
    [figure(&outcome.measured), predicted]
}

fn styled(mut table: Table) -> Table {
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}
