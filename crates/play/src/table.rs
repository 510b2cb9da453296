//! What came of plays, for people.

use std::fmt::Write;

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

/// A line of text, then a table: for each protocol what was measured and what the simulator says.
pub fn table(settings: &Settings, outcomes: &[Outcome]) -> String {
    let workload = &settings.workload;
    let mut text = format!(
        "clients {}, pools {}, seed {}; exclusion was never broken\n",
        workload.users, workload.resources, workload.seed,
    );
    for outcome in outcomes {
        let _ = writeln!(text, "{}", headline(outcome));
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    let names = outcomes.iter().flat_map(|o| [o.protocol.clone(), "simulated".into()]);
    table.set_header(std::iter::once(String::new()).chain(names));
    for (name, figure) in FIGURES {
        let values = outcomes.iter().flat_map(|outcome| {
            let predicted = outcome.predicted.as_ref();
            [figure(&outcome.measured), predicted.map_or_else(|| "-".into(), figure)]
        });
        table.add_row(std::iter::once(name.to_owned()).chain(values));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
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

fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}
