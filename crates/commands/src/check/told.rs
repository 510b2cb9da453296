//! What a search found, for people.

use std::fmt::Write;

use comfy_table::{Table, presets};
use holdall_lab::check::{Asked, CutOff, Outcome, Report, Trace};

/// In one line.
pub(super) fn line(report: &Report) -> String {
    let violated = report.properties.iter().filter(|v| v.verdict == Outcome::Violated);
    let mut text = String::new();
    for verdict in violated {
        let promised = if verdict.promised { " (promised!)" } else { "" };
        let _ = write!(text, " {}{promised}", verdict.name);
    }
    let always = report.questions.iter().filter(|answer| answer.kind == Asked::Always);
    for answer in always.filter(|answer| answer.verdict == Outcome::Violated) {
        let _ = write!(text, " {}", answer.name);
    }
    let verdict = match (text.is_empty(), report.complete) {
        (false, _) => format!("violates{text}"),
        (true, true) => "ok".into(),
        (true, false) => "cut off, nothing found".into(),
    };
    format!("{:>9} states  {} {}: {verdict}", report.states, report.protocol, report.scope)
}

/// With every property, and every violation told.
pub(super) fn in_full(report: &Report, chart: bool) -> String {
    let mut text = format!("{} {}\n{}\n", report.protocol, report.scope, extent(report));
    if let Some(gap) = report.growing_gap {
        let _ = writeln!(
            text,
            "clocks or counters run apart without bound, by all appearances: {gap} at the end"
        );
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for verdict in &report.properties {
        let promised = if verdict.promised { "promised" } else { "not promised" };
        let note = match verdict.user {
            Some(user) => format!("for user {user}"),
            None if report.complete && verdict.verdict == Outcome::Undecided => {
                "requests stand still in the deadlock".into()
            }
            None => String::new(),
        };
        table.add_row([verdict.name, promised, &verdict.verdict.to_string(), &note]);
    }
    for answer in &report.questions {
        let asked = match answer.kind {
            Asked::Always => "asked: always",
            Asked::Sometime => "asked: sometime",
        };
        let verdict = match (answer.kind, answer.verdict) {
            (_, Outcome::Undecided) => "undecided",
            (_, Outcome::Holds) => "yes",
            (Asked::Always, Outcome::Violated) => "no",
            (Asked::Sometime, Outcome::Violated) => "never",
        };
        table.add_row([answer.name, asked, verdict, ""]);
    }
    let _ = writeln!(text, "{table}");
    let told = |trace: &Trace| if chart { trace.chart() } else { trace.to_string() };
    for verdict in &report.properties {
        if let Some(trace) = &verdict.trace {
            let _ = write!(text, "\n{} is violated:\n{}", verdict.name, told(trace));
        }
    }
    for answer in &report.questions {
        if let Some(trace) = &answer.trace {
            let _ = write!(text, "\n{}:\n{}", answer.name, told(trace));
        }
    }
    text.pop();
    text
}

/// How much was seen.
fn extent(report: &Report) -> String {
    let Report { states, transitions, depth, .. } = report;
    let how = match report.cut_off {
        None => "complete",
        Some(CutOff::BehindViolation) => "cut off behind a violation",
        Some(CutOff::Interrupted) => "cut off (interrupted)",
        Some(CutOff::MaxStates) => "cut off (--max-states)",
        Some(CutOff::Memory) => "cut off (--memory)",
        Some(CutOff::Time) => "cut off (--time)",
        Some(CutOff::RandomWalk) => {
            let walks = match report.walks {
                Some(1) => "1 random walk".into(),
                walks => format!("{} random walks", walks.unwrap_or_default()),
            };
            return format!("{states} states on {walks} of {transitions} steps, {depth} the most");
        }
    };
    format!("{states} states, {transitions} transitions, depth {depth}, {how}")
}
