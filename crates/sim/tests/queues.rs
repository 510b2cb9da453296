//! Known answers: arrivals at random, uses of random length (Poisson, exponential), and `c` units of one pool.
//! Whatever serves in the order of asking must agree with the formulas for M/M/1 and M/M/c (Erlang C).

use holdall_core::{Need, Needs, Options, PoolId};
use holdall_protocols::coordinator::Coordinator;
use holdall_protocols::house::House;
use holdall_sim::{
    Asked, Contender, Settings, Trace, TracePool, draws, half_width, mean, play, trace_settings,
};

/// Mean time of a use, in ticks.
const SERVICE: f64 = 1000.0;
const REQUESTS: usize = 25_000;
/// Before these the queue has not settled.
const FIRST: usize = 1000;

fn exponential(mean: f64, draw: &mut impl FnMut(u64) -> u64) -> f64 {
    let fraction = (draw(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
    -mean * fraction.ln()
}

fn trace(units: u32, load: f64, seed: u64) -> Trace {
    let (mut between, mut uses) = (draws(seed, 0), draws(seed, 1));
    let pause = SERVICE / (load * f64::from(units));
    let needs = Needs::new(vec![Need::any(PoolId(0), 1)]).expect("sensible");
    let mut now = 0.0;
    let mut request = |_| {
        now += exponential(pause, &mut between);
        let service = exponential(SERVICE, &mut uses).round() as u64;
        Asked { at: now as u64, needs: needs.clone(), service, patience: None, user: 0 }
    };
    let requests = (0..REQUESTS).map(&mut request).collect();
    Trace { pools: vec![TracePool { capacity: units, listed: false }], requests, watched: None }
}

/// The mean wait of a run, and the share of requests that waited at all.
fn waits(contender: &Contender, trace: &Trace) -> (f64, f64) {
    let agent = Settings { nodes: Some(1), colocated: true, ..Settings::default() };
    let played = play(&trace_settings(trace, &agent), contender, trace).expect("played");
    assert_eq!(played.violations, 0);
    let wait = |(fate, asked): (&holdall_sim::Fate, &Asked)| {
        (fate.granted.expect("all are granted") - asked.at) as f64
    };
    let all: Vec<f64> = played.fates.iter().zip(&trace.requests).map(wait).skip(FIRST).collect();
    let waited = all.iter().filter(|wait| **wait > 0.0).count() as f64;
    (mean(&all).expect("some"), waited / all.len() as f64)
}

/// Erlang's C formula: the share of requests that have to wait.
fn erlang_c(units: u32, load: f64) -> f64 {
    let offered = load * f64::from(units);
    // By the recursion of Erlang's B formula.
    let blocked = (1..=units).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    blocked / (1.0 - load * (1.0 - blocked))
}

fn agrees(contender: &Contender, units: u32, load: f64) {
    let runs: Vec<(f64, f64)> =
        (1..=8).map(|seed| waits(contender, &trace(units, load, seed))).collect();
    let expected = erlang_c(units, load);
    let expected_wait = expected * SERVICE / (f64::from(units) * (1.0 - load));
    for (what, seen, expected) in [
        ("wait", runs.iter().map(|run| run.0).collect::<Vec<_>>(), expected_wait),
        ("share that waits", runs.iter().map(|run| run.1).collect(), expected),
    ] {
        let (mean, half) = (mean(&seen).expect("runs"), half_width(&seen).expect("runs"));
        let name = contender.name();
        assert!(half < 0.12 * expected, "{name}, {units}: {what} {mean} is only sure to {half}");
        assert!(
            (mean - expected).abs() < 1.5 * half,
            "{name}, {units} units at {load}: {what} {mean} +- {half}, by the formula {expected}"
        );
    }
}

fn house() -> Contender {
    Contender::of::<House>("house", Options::default()).expect("a protocol")
}

fn first_come_first_served() -> Contender {
    let options = Options { variant: Some("fifo".into()), ..Options::default() };
    Contender::of::<Coordinator>("coordinator:fifo", options).expect("a protocol")
}

#[test]
fn one_server_agrees_with_the_formula() {
    assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
    agrees(&house(), 1, 0.7);
    agrees(&first_come_first_served(), 1, 0.7);
}

#[test]
fn several_servers_agree_with_the_formula() {
    agrees(&house(), 3, 0.7);
    agrees(&house(), 8, 0.7);
    agrees(&first_come_first_served(), 3, 0.7);
}
