//! The answer as pictures, and as a page that needs nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdall_history::whatif::{Figures, Goal};
use holdall_lab::figures::{self, BarChart, BarRow};

use super::Answer;
use super::told::{by_user, found, header, headline, mean, rows, trust};
use crate::show;

const STYLE: &str = "\
body { font-family: Helvetica, Arial, 'DejaVu Sans', sans-serif; color: #222; max-width: 1040px; margin: 2em auto } \
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .25em .8em; text-align: right } \
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #444 } \
svg { max-width: 100%; height: auto }";

/// How long the quickest so many percent waited at most: recorded, played, and played with the change.
pub(super) fn waits(answer: &Answer) -> String {
    let mut lines: Vec<(&str, Vec<u64>)> = Vec::new();
    if !answer.recorded.is_empty() {
        lines.push(("as recorded", answer.recorded.clone()));
    }
    lines.push(("played unchanged", answer.unchanged.waits.clone()));
    lines.push((answer.change.as_str(), answer.changed.waits.clone()));
    let note = headline(answer);
    let said = figures::Said { title: "Waits", note: &note, unit: "minutes" };
    figures::waits(said, &lines, 60_000.0)
}

/// The most rows of a picture: those who are concerned most.
const ROWS: usize = 40;

fn bars(before: &BTreeMap<String, Figures>, after: &BTreeMap<String, Figures>) -> String {
    let minutes = |figures: Option<&Figures>| {
        let wait = figures.and_then(|figures| figures.waits.mean);
        (wait.unwrap_or(0.0) / 60_000.0, mean(wait))
    };
    let row = |name: &String| BarRow {
        name: show::shorten(name, 40),
        values: vec![minutes(before.get(name)), minutes(after.get(name))],
    };
    let mut rows: Vec<BarRow> = before.keys().map(row).collect();
    let notes =
        (rows.len() > ROWS).then(|| format!("the {ROWS} of {} for which most changes", rows.len()));
    if notes.is_some() {
        let change = |row: &BarRow| (row.values[0].0 - row.values[1].0).abs();
        rows.sort_by(|one, other| change(other).total_cmp(&change(one)));
        rows.truncate(ROWS);
    }
    let chart = BarChart {
        title: "Mean waits".into(),
        notes: notes.into_iter().collect(),
        bars: vec!["unchanged".into(), "then".into()],
        label: "minutes".into(),
        rows,
    };
    chart.draw()
}

/// One page with everything.
pub(super) fn page(answer: &Answer, goal: Option<&Goal>) -> String {
    let Answer { unchanged, changed, .. } = answer;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>What if: {}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>What if: {}</h1>\n",
        escaped(&answer.change),
        escaped(&answer.change)
    );
    let lines =
        [Some(headline(answer)), Some(trust(answer.nearness.as_ref())), found(answer, goal)];
    for line in lines.into_iter().flatten() {
        let _ = writeln!(page, "<p>{}</p>", escaped(&line)); // A text takes everything.
    }
    page.push_str(&waits(answer));
    let pools = table(&header("pool", true), &rows(&unchanged.pools, &changed.pools, true));
    let users = table(&header("user", false), &by_user(answer));
    for (title, table, picture) in [
        ("Waits by pool", pools, bars(&unchanged.pools, &changed.pools)),
        ("Waits by user", users, bars(&unchanged.users, &changed.users)),
    ] {
        let _ = writeln!(page, "<h2>{title}</h2>\n{table}{picture}");
    }
    page + "</body></html>\n"
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cell = |cell: &str| format!("<{tag}>{}</{tag}>", escaped(cell));
        format!("<tr>{}</tr>\n", cells.map(cell).collect::<String>())
    };
    let mut text = format!("<table>\n{}", cells("th", &mut header.iter().copied()));
    for row in rows {
        text.push_str(&cells("td", &mut row.iter().map(String::as_str)));
    }
    text + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
