//! Known answers: requests at random, for uses of random length (Poisson, exponential). What their waits are, and what they would be
//! with another number of units, agrees with the formulas for M/M/1 and M/M/c (Erlang C).

use std::fmt::Write;

use holdall_history::whatif::{Summary, played};
use holdall_history::{Changes, History, Replay, parse, served};
use holdall_sim::{draws, half_width, mean};

/// Mean time of a use, in milliseconds.
const SERVICE: f64 = 600_000.0;
const REQUESTS: usize = 25_000;
const RUNS: u64 = 8;

/// Requests that one unit would be busy with for so much of its time.
fn history(load: f64, units: u32, seed: u64) -> History {
    let (mut between, mut uses) = (draws(seed, 0), draws(seed, 1));
    let exponential = |mean: f64, draw: &mut dyn FnMut(u64) -> u64| {
        -mean * ((draw(1 << 53) + 1) as f64 / (1u64 << 53) as f64).ln()
    };
    let mut text = format!("{{\"t\":0,\"k\":\"pool\",\"pool\":\"gpu\",\"units\":{units}}}\n");
    let mut now = 0.0;
    for number in 1..=REQUESTS {
        now += exponential(SERVICE / load, &mut between);
        let (at, length) = (now as u64, exponential(SERVICE, &mut uses) as u64);
        let ask =
            format!(r#"{{"t":{at},"k":"ask","r":"1-{number}","needs":["gpu"],"for":{length}}}"#);
        writeln!(text, "{ask}").expect("a text takes everything");
    }
    parse("made up", &text).expect("a history")
}

/// The mean wait by the formula.
fn erlang(load: f64, units: u32) -> f64 {
    // By the recursion of Erlang's B formula.
    let blocked = (1..=units).fold(1.0, |b, n| load * b / (f64::from(n) + load * b));
    let share = load / f64::from(units);
    let waits = blocked / (1.0 - share * (1.0 - blocked));
    waits * SERVICE / (f64::from(units) * (1.0 - share))
}

/// The mean waits of some runs, and the share of the time for which units were in use: with the units that the history tells, or others.
fn seen(load: f64, units: u32, then: u32) -> (Vec<f64>, f64) {
    let one = |seed| {
        let history = history(load, units, seed);
        let gpu = "gpu".parse().expect("a name");
        let changes = Changes { units: [(gpu, then)].into(), ..Changes::default() };
        let changes = if then == units { Changes::default() } else { changes };
        let replay = Replay::of(&history, history.period(None, None), &changes).expect("a replay");
        let summary = Summary::of(&replay, &played(&replay, &served()).expect("played").fates);
        let figures = &summary.pools["gpu"];
        (figures.waits.mean.expect("some waited"), figures.utilisation.expect("of a pool"))
    };
    let (waits, used): (Vec<f64>, Vec<f64>) = (1..=RUNS).map(one).unzip();
    (waits, mean(&used).expect("runs"))
}

#[test]
fn waits_agree_with_the_formula_and_so_do_those_with_more_or_fewer_units() {
    for (load, units, then) in [(0.7, 1, 1), (0.7, 1, 2), (2.1, 3, 3), (2.1, 4, 3)] {
        let ((waits, used), expected) = (seen(load, units, then), erlang(load, then));
        let (mean, half) = (mean(&waits).expect("runs"), half_width(&waits).expect("runs"));
        let said = format!(
            "{load} for {units}, then {then}: {mean} +- {half}, by the formula {expected}; in use {used}"
        );
        assert!(half < 0.12 * expected, "not sure enough: {said}");
        assert!((mean - expected).abs() < 1.5 * half, "{said}");
        assert!((used - load / f64::from(then)).abs() < 0.02, "{said}");
    }
    assert!((erlang(0.7, 1) - SERVICE * 0.7 / 0.3).abs() < 1.0, "M/M/1");
}
