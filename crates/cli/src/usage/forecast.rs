//! `holdall usage --forecast`: how often estimates of waits would have held.

use std::path::Path;
use std::process::ExitCode;

use holdall_commands::{EstimatesBar, files};
use holdall_history::forecast::{Backtest, Checked, Effort, Failed, backtest, given};
use holdall_history::{History, Period, served};
use holdall_lab::figures::{Said, curves};
use serde::Serialize;

use super::percent;
use crate::failure::{CONFLICT, Failure};
use crate::{print, show, usage as misuse};

/// So many estimates tell enough, and so much is played in less than a minute.
const EFFORT: Effort = Effort { requests: 400, runs: 100, played: 2_000_000, seed: 1 };

#[derive(Serialize)]
struct Answer<'a> {
    /// How many estimates were checked.
    checked: usize,
    /// Requests that waited when there was nothing to go by.
    unknown: usize,
    /// How many requests waited, of which those that were looked at are evenly chosen.
    waited: usize,
    /// How often the range for half of the cases held, and that for nine of ten.
    half: Option<f64>,
    nine: Option<f64>,
    /// How often it came before the range for nine of ten, and after it.
    outside: Option<(f64, f64)>,
    /// Shares of the cases, and how often the range for each held.
    curve: Vec<(f64, f64)>,
    estimates: &'a [Checked],
    /// The estimates that were given while they waited, if some were recorded.
    given: Option<Given>,
}

/// How often estimates held that were given.
#[derive(Serialize)]
struct Given {
    checked: usize,
    half: Option<f64>,
    nine: Option<f64>,
    outside: Option<(f64, f64)>,
}

impl Given {
    fn of(done: &Backtest) -> Option<Self> {
        let (half, nine, outside) = (done.half(), done.nine(), done.outside());
        let checked = done.checked.len();
        (checked > 0).then_some(Self { checked, half, nine, outside })
    }
}

pub(super) fn run(
    history: &History,
    period: Period,
    everybodys: bool,
    json: bool,
    svg: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    // Whoever does not see the others cannot play what came.
    let done = if everybodys { checked_again(history, period)? } else { Backtest::default() };
    let curve = curve(&done);
    let answer = Answer {
        checked: done.checked.len(),
        unknown: done.unknown,
        waited: done.waited,
        half: done.half(),
        nine: done.nine(),
        outside: done.outside(),
        curve,
        estimates: &done.checked,
        given: Given::of(&given(history, period)),
    };
    if let Some(path) = svg {
        files::write(path, draw(&looked_at(&answer), &answer.curve))?;
    }
    print(&if json { show::json(&answer)? } else { told(&answer) })?;
    Ok(ExitCode::SUCCESS)
}

fn checked_again(history: &History, period: Period) -> anyhow::Result<Backtest> {
    let bar = EstimatesBar::default();
    let watch = |number, of| bar.sees(number, of);
    backtest(history, period, &served(), EFFORT, &watch).map_err(|error| match error {
        Failed::Sim(holdall_sim::Error::Failure { .. }) => error.into(),
        Failed::Sim(_) => misuse(error),
        Failed::History(_) => Failure(CONFLICT, error.to_string()).into(),
    })
}

fn curve(done: &Backtest) -> Vec<(f64, f64)> {
    let tenths = (1..=9).map(|tenths| f64::from(tenths) / 10.0);
    tenths.filter_map(|share| Some((share, done.holds(share)?))).collect()
}

fn told(answer: &Answer<'_>) -> String {
    let mut lines = Vec::new();
    lines.extend(answer.given.as_ref().and_then(|given| {
        let held = held(given.half, given.nine, given.outside?);
        Some(format!("{} estimates that were given: {held}", given.checked))
    }));
    let unknown = format!("of {} requests that waited there was nothing to go by", answer.unknown);
    let Some(outside) = answer.outside else {
        lines.push(format!("no estimate can be made again and checked: {unknown}"));
        return lines.join("\n");
    };
    let held = held(answer.half, answer.nine, outside);
    lines.push(format!("{}, looked at again: {held}", looked_at(answer)));
    if answer.unknown > 0 {
        lines.push(unknown);
    }
    let column = |text: fn(&(f64, f64)) -> String| {
        answer.curve.iter().map(text).collect::<Vec<_>>().join("  ")
    };
    lines
        .push(format!("range for, %   {}", column(|(share, _)| format!("{:>5.0}", share * 100.0))));
    lines.push(format!("held in, %     {}", column(|(_, held)| format!("{:>5.1}", held * 100.0))));
    lines.join("\n")
}

/// How many, and whether these are all.
fn looked_at(answer: &Answer<'_>) -> String {
    let Answer { checked, unknown, waited, .. } = *answer;
    if checked + unknown < waited {
        return format!("{checked} of {waited} requests that waited, evenly chosen");
    }
    format!("{checked} requests that waited")
}

fn held(half: Option<f64>, nine: Option<f64>, (early, late): (f64, f64)) -> String {
    format!(
        "the range for half of the cases held in {} %, that for nine of ten in {} % ({} % came earlier, {} % later)",
        percent(half),
        percent(nine),
        percent(Some(early)),
        percent(Some(late)),
    )
}

fn draw(note: &str, curve: &[(f64, f64)]) -> String {
    let percent = |(x, y): &(f64, f64)| (x * 100.0, y * 100.0);
    let held = curve.iter().map(percent).collect();
    let ideal = curve.iter().map(|(x, _)| percent(&(*x, *x))).collect();
    let said = Said { title: "How often estimates held", note, unit: "held in, %" };
    curves(
        said,
        "range for so many percent of the cases",
        &[("held", held), ("as promised", ideal)],
    )
}
