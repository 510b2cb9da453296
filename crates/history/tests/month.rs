//! A month of a lab of 20 boards that does not exist, served by the very protocol that agents run: estimates made from
//! what was known at the time hold as often as they say.

use holdall_core::Options;
use holdall_history::forecast::{Backtest, Effort, backtest};
use holdall_history::whatif::{nearness, played};
use holdall_history::{
    Changes, History, Period, Recorded, Replay, lines, read, read_trace, served,
};
use holdall_protocols::coordinator::Coordinator;
use holdall_sim::Contender;

const DAY: u64 = 24 * 3_600_000;

fn written(text: &str) -> History {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("lab.jsonl");
    std::fs::write(&file, text).expect("written");
    read(&file).expect("a history")
}

/// What comes of a workload if the protocol serves it.
fn month(seed: u64, contender: &Contender) -> History {
    let workload = written(&lab_month::workload(seed, 30).join("\n"));
    let replay = Replay::of(&workload, workload.period(None, None), &Changes::default());
    let replay = replay.expect("a replay");
    let fates = played(&replay, contender).expect("played").fates;
    let text: String =
        lines(&replay, &fates).iter().map(|line| line.to_text().expect("JSON")).collect();
    written(&text)
}

#[test]
fn nine_of_ten_estimates_hold() {
    let house = served();
    let mut done = Backtest::default();
    for seed in 1..=2 {
        let history = month(seed, &house);
        assert_eq!(history.notes, []);
        let all = history.period(None, None);
        // A week to learn from.
        let period = Period { from: all.from + 7 * DAY, ..all };
        let effort = Effort { requests: 80, runs: 100, played: usize::MAX, seed };
        let one = backtest(&history, period, &house, effort, &|_, _| {}).expect("played");
        done.checked.extend(one.checked);
    }
    let (half, nine) = (done.half().expect("some"), done.nine().expect("some"));
    let said = format!("{}: half {half:.3}, nine of ten {nine:.3}", done.checked.len());
    assert!(done.checked.len() >= 150, "{said}");
    assert!((0.85..=0.95).contains(&nine), "{said}, outside {:?}", done.outside());
    assert!((0.42..=0.62).contains(&half), "{said}");
}

#[test]
fn a_replay_comes_to_the_waits_that_were_recorded() {
    let house = served();
    let history = month(2, &house);
    let replay = Replay::of(&history, history.period(None, None), &Changes::default());
    let replay = replay.expect("a replay");
    let near = nearness(&replay, &played(&replay, &house).expect("played").fates).expect("waits");
    assert_eq!((near.difference, near.close), (0.0, 1.0), "{near:?}");
}

/// The waits in that file are those of a queue that is served in order.
#[test]
fn a_published_format_is_played_to_the_waits_that_it_tells() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster.swf");
    let Recorded::Replay(replay) = read_trace(file.as_ref(), &|_| {}).expect("jobs") else {
        panic!("it is a log of another site");
    };
    assert_eq!((replay.trace.requests.len(), &replay.notes[..]), (120, &[][..]));
    let options = Options { variant: Some("fifo".into()), ..Options::default() };
    let fifo = Contender::of::<Coordinator>("coordinator:fifo", options).expect("a protocol");
    let near = nearness(&replay, &played(&replay, &fifo).expect("played").fates).expect("waits");
    assert_eq!((near.requests, near.difference), (116, 0.0), "{near:?}");
    assert!(near.recorded > 60_000.0);
}
