//! The answer in words and tables.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use holdall_history::Changes;
use holdall_history::whatif::{Figures, Found, Goal, Nearness};

use super::{Answer, SERVED};
use crate::show;
use crate::usage::{moment, percent, short};

/// What is changed.
pub(super) fn change(changes: &Changes, protocol: &str) -> String {
    let mut parts: Vec<String> = changes
        .units
        .iter()
        .map(|(pool, units)| format!("{pool} with {}", counted(*units)))
        .collect();
    parts.extend(changes.remove.iter().map(|name| format!("without {name}")));
    if changes.load != 1.0 {
        parts.push(format!("{} times as many requests", changes.load));
    }
    if protocol != SERVED {
        parts.push(format!("served by {protocol}"));
    }
    if parts.is_empty() { "nothing is changed".into() } else { parts.join(", ") }
}

/// So many units.
fn counted(units: u32) -> String {
    if units == 1 { "1 unit".into() } else { format!("{units} units") }
}

/// A mean in milliseconds.
pub(super) fn mean(value: Option<f64>) -> String {
    short(value.map(|value| value.round() as u64))
}

/// From when to when, and how many requests.
pub(super) fn headline(answer: &Answer) -> String {
    let requests = answer.unchanged.all.waits.requests + answer.unchanged.all.given_up;
    format!("{} to {}: {requests} requests", moment(answer.from), moment(answer.to))
}

/// How far to trust it.
pub(super) fn trust(near: Option<&Nearness>) -> String {
    let Some(near) = near else {
        return "no waits are recorded: how near this comes to them cannot be said".into();
    };
    format!(
        "played unchanged, {} requests wait {} on average where {} was recorded; {} % of the waits differ by at most \
         a tenth or a second, and by {} on average",
        near.requests,
        mean(Some(near.played)),
        mean(Some(near.recorded)),
        percent(Some(near.close)),
        mean(Some(near.difference)),
    )
}

/// What was searched for.
pub(super) fn found(answer: &Answer, goal: Option<&Goal>) -> Option<String> {
    let (found, goal) = (answer.found.as_ref()?, goal?);
    let before = found.tried.get(&(found.units - 1));
    let before = before.map(|value| {
        let less = found.units - 1;
        match value.is_finite() {
            true => format!(", and {} with {less}", mean(Some(*value))),
            false => format!(", and with {less} too many wait at once"),
        }
    });
    let enough = if found.units == 1 { "is enough" } else { "are enough" };
    Some(format!(
        "{goal}: {} of '{}' {enough}; it is {} then{} ({})",
        counted(found.units),
        goal.pool,
        mean(Some(found.value)),
        before.unwrap_or_default(),
        why_smallest(found),
    ))
}

/// Why no smaller number was found.
fn why_smallest(found: &Found) -> String {
    match (found.least, found.units) {
        (least, units) if least < units => format!("all from {least} to {units} were tried"),
        _ => "the largest request wants as many".into(),
    }
}

/// The lines of a table: a name, then figures before and after.
pub(super) fn rows(
    before: &BTreeMap<String, Figures>,
    after: &BTreeMap<String, Figures>,
    pools: bool,
) -> Vec<Vec<String>> {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let none = Figures::default();
    let row = |name: &String| {
        let (was, is) = (before.get(name).unwrap_or(&none), after.get(name).unwrap_or(&none));
        let mut row = vec![show::shorten(name, 40)];
        row.extend([was, is].map(|figures| figures.waits.requests.to_string()));
        row.extend([mean(was.waits.mean), mean(is.waits.mean)]);
        row.extend([short(was.waits.p99), short(is.waits.p99)]);
        if pools {
            row.extend([percent(was.utilisation), percent(is.utilisation)]);
        }
        row.push(gain(was.waits.mean, is.waits.mean));
        row
    };
    names.into_iter().map(row).collect()
}

/// The same by user, and of all of them.
pub(super) fn by_user(answer: &Answer) -> Vec<Vec<String>> {
    let Answer { unchanged, changed, .. } = answer;
    let all = |figures: &Figures| BTreeMap::from([("all".to_owned(), figures.clone())]);
    let mut users = rows(&unchanged.users, &changed.users, false);
    users.extend(rows(&all(&unchanged.all), &all(&changed.all), false));
    users
}

fn gain(was: Option<f64>, is: Option<f64>) -> String {
    let (Some(was), Some(is)) = (was, is) else { return "-".into() };
    let by = mean(Some((is - was).abs()));
    match is - was {
        change if change.abs() < 1.0 => "same".into(),
        change if change < 0.0 => format!("gains {by}"),
        _ => format!("loses {by}"),
    }
}

/// The heads of the columns.
pub(super) fn header(what: &'static str, pools: bool) -> Vec<&'static str> {
    let mut header = vec![what, "requests", "then", "mean wait", "then", "99 %", "then"];
    if pools {
        header.extend(["in use, %", "then"]);
    }
    header.push("");
    header
}

fn table(header: Vec<&str>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// Everything.
pub(super) fn told(answer: &Answer, goal: Option<&Goal>) -> String {
    let Answer { unchanged, changed, .. } = answer;
    let mut parts = vec![headline(answer), trust(answer.nearness.as_ref())];
    parts.extend(found(answer, goal));
    parts.push(format!("then: {}", answer.change));
    let pools = rows(&unchanged.pools, &changed.pools, true);
    format!(
        "{}\n\n{}\n\n{}",
        parts.join("\n"),
        table(header("pool", true), pools),
        table(header("user", false), by_user(answer))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_told_and_no_more() {
        // Halving has left out most numbers above what was found.
        let tried = [400, 436, 499, 500, 750, 1000].map(|units| (units, 1.0)).into();
        let found = Found { units: 500, value: 1.0, least: 436, tried };
        assert_eq!(why_smallest(&found), "all from 436 to 500 were tried");
        let found = Found { least: 500, ..found };
        assert_eq!(why_smallest(&found), "the largest request wants as many");
    }
}
