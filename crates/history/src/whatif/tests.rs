use super::find::smaller;
use super::*;
use crate::Changes;
use crate::history::History;
use crate::join::{Joiner, joined};

const MINUTE: u64 = 60_000;

/// Every minute somebody wants one of two for two minutes and a half.
fn busy() -> History {
    let mut joiner = Joiner::default();
    let mut add = |line: String| joiner.add(serde_json::from_str(&line).expect("a line"));
    add(r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#.into());
    for n in 0..60 {
        let (at, user) = (n * MINUTE, if n % 3 == 0 { "anna" } else { "ben" });
        add(format!(
            r#"{{"t":{at},"k":"ask","r":"1-{}","u":"{user}","needs":["gpu"],"for":150000}}"#,
            n + 1
        ));
    }
    joiner.finish()
}

fn house() -> Contender {
    crate::served()
}

fn summary(history: &History, changes: &Changes) -> Summary {
    let replay = Replay::of(history, history.period(None, None), changes).expect("a replay");
    Summary::of(&replay, &played(&replay, &house()).expect("played").fates)
}

fn units(units: u32) -> Changes {
    Changes { units: [("gpu".parse().expect("a name"), units)].into(), ..Changes::default() }
}

#[test]
fn one_more_ends_the_queue() {
    let history = busy();
    let now = summary(&history, &Changes::default());
    let then = summary(&history, &units(3));
    assert!(now.all.waits.max > Some(10 * MINUTE), "{now:?}");
    assert_eq!(then.all.waits.max, Some(0));
    assert_eq!(now.users["anna"].waits.requests + now.users["ben"].waits.requests, 60);
    assert!(now.pools["gpu"].utilisation > Some(0.95) && then.pools["gpu"].utilisation < Some(0.9));
}

#[test]
fn what_cannot_be_served_is_broken_off() {
    let history = busy();
    let period = history.period(None, None);
    let stage = Stage { most_waiting: 200, ..Stage::default() };
    let load = Changes { load: 8.0, ..Changes::default() };
    let replay = Replay::of(&history, period, &load).expect("a replay");
    let failed = stage.play(&replay, &house(), "now").expect_err("too many wait");
    assert!(failed.to_string().contains("more than 200 requests wait at once"), "{failed}");
    // However long they wait: with one unit less too many do so at once.
    let goal: Goal = "max(gpu) < 100h".parse().expect("a goal");
    let found = find(&history, period, &load, &house(), &goal, &stage).expect("found");
    assert!(found.tried[&(found.units - 1)].is_infinite(), "{found:?}");
}

#[test]
fn less_load_and_more_load() {
    let history = busy();
    let load = |load| summary(&history, &Changes { load, ..units(3) }).all;
    assert!((20..40).contains(&load(0.5).waits.requests));
    let changes = Changes { load: 2.0, ..units(3) };
    let twice = Replay::of(&history, history.period(None, None), &changes).expect("a replay");
    let recorded = twice.recorded.iter().flatten().count();
    assert_eq!((recorded, twice.recorded.len()), (60, 120), "of the others nothing was");
    let double = load(2.0);
    assert_eq!(double.waits.requests, 120);
    assert!(double.waits.mean > Some(10_000.0), "{double:?}");
}

#[test]
fn the_smallest_number_is_found() {
    let history = busy();
    let period = history.period(None, None);
    let goal: Goal = "p99(gpu) < 1m".parse().expect("a goal");
    let found = find(&history, period, &Changes::default(), &house(), &goal, &Stage::default())
        .expect("found");
    assert_eq!((found.units, found.value), (3, 0.0));
    assert!(found.tried[&2] > 60_000.0);
    let goal: Goal = "max(gpu) <= 0s".parse().expect("a goal");
    assert_eq!(
        find(&history, period, &Changes::default(), &house(), &goal, &Stage::default())
            .expect("found")
            .units,
        3
    );
    for bad in [
        "",
        "p99(gpu)",
        "p98(gpu) < 1m",
        "p99 gpu < 1m",
        "p99(gpu) < soon",
        "p99(a b)<1m",
        "max(gpu) < 0",
    ] {
        assert!(bad.parse::<Goal>().is_err(), "{bad}");
    }
}

/// Requests of one to four units at any time of an hour, for up to twelve minutes.
fn mixed(seed: u64) -> History {
    let mut draw = holdall_sim::draws(seed, 0);
    let mut asked: Vec<u64> = (0..40).map(|_| draw(60 * MINUTE)).collect();
    asked.sort_unstable();
    let mut joiner = Joiner::default();
    let mut add = |line: String| joiner.add(serde_json::from_str(&line).expect("a line"));
    add(r#"{"t":0,"k":"pool","pool":"gpu","units":4}"#.into());
    for (n, at) in asked.into_iter().enumerate() {
        let (units, held) = (1 + draw(4), 1 + draw(12 * MINUTE));
        add(format!(
            r#"{{"t":{at},"k":"ask","r":"1-{}","needs":["gpu:{units}"],"for":{held}}}"#,
            n + 1
        ));
    }
    joiner.finish()
}

#[test]
fn more_units_may_make_waits_longer_and_the_smallest_number_is_found_all_the_same() {
    let (mut longer, goal) = (0, "p50(gpu) < 1m".parse::<Goal>().expect("a goal"));
    for seed in [1, 2, 3, 44, 48, 65, 214, 443, 456, 690] {
        let history = mixed(seed);
        let found = find(
            &history,
            history.period(None, None),
            &Changes::default(),
            &house(),
            &goal,
            &Stage::default(),
        )
        .expect("found");
        let median = |number| summary(&history, &units(number)).pools["gpu"].waits.p50;
        let medians: Vec<_> = (4..20).map(|number| (number, median(number))).collect();
        let enough = |(_, median): &&(u32, Option<u64>)| *median < Some(MINUTE);
        let smallest = medians.iter().find(enough).expect("many are enough").0;
        assert_eq!(found.units, smallest, "seed {seed}: {medians:?}");
        assert_eq!(found.least, 4);
        longer += usize::from(medians.iter().any(|one| one.0 > smallest && !enough(&one)));
    }
    assert!(longer >= 5, "too few histories show that halving is not enough: {longer}");
}

#[test]
fn units_are_not_searched_for_and_removed() {
    let mut history = busy();
    history.pools.granted(&"gpu".parse().expect("a name"), &["red".parse().expect("a name")]);
    let goal: Goal = "p99(gpu) < 1m".parse().expect("a goal");
    for removed in ["gpu", "gpu/1", "red"] {
        let remove = [removed.parse().expect("a name")].into();
        let changes = Changes { remove, ..Changes::default() };
        let period = history.period(None, None);
        let found = find(&history, period, &changes, &house(), &goal, &Stage::default());
        let error = found.expect_err("with fewer than are found?").to_string();
        assert!(error.contains(&format!("takes '{removed}' away")), "{error}");
        let both = Changes { units: units(3).units, ..changes };
        Replay::of(&history, period, &both).expect_err("three, or fewer?");
    }
}

#[test]
fn the_largest_request_is_one_that_is_played() {
    let history = joined(&[
        r#"{"t":0,"k":"pool","pool":"gpu","units":4}"#,
        r#"{"t":1,"k":"ask","r":"1-1","needs":["gpu:2","gpu"],"for":10}"#,
        r#"{"t":2,"k":"ask","r":"1-2","needs":["gpu:all"],"for":10}"#,
        r#"{"t":3,"k":"ask","r":"1-3","needs":["gpu:9"]}"#,
        r#"{"t":3,"k":"end","r":"1-3","how":"refused"}"#,
    ]);
    let goal: Goal = "max(gpu) < 1m".parse().expect("a goal");
    let (period, changes) = (history.period(None, None), Changes::default());
    let found = find(&history, period, &changes, &house(), &goal, &Stage::default());
    assert_eq!(found.expect("found").units, 3);
}

#[test]
fn numbers_are_tried_until_many_in_a_row_are_not_enough() {
    // Enough are 40, and 100 or more: the halving finds 100.
    let (mut tried, enough) = (Vec::new(), |units| units == 40 || units >= 100);
    let mut is_enough = |units| {
        tried.push(units);
        Ok(enough(units))
    };
    assert_eq!(smaller(1, 100, &mut is_enough).expect("tried"), (40, 1));
    assert_eq!(smaller(70, 100, &mut is_enough).expect("tried"), (100, 70));
    tried.clear();
    let mut all = |units| {
        tried.push(units);
        Ok(true)
    };
    assert_eq!(smaller(1, 500, &mut all).expect("tried"), (1, 1));
    assert_eq!(tried.len(), 499);
    assert_eq!(smaller(1, 500, &mut |_| Ok(false)).expect("tried"), (500, 436));
}

#[test]
fn no_number_is_enough_where_something_else_is_short() {
    let mut joiner = Joiner::default();
    joiner
        .add(serde_json::from_str(r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#).expect("a line"));
    for n in 1..=3 {
        let line = format!(r#"{{"t":{n},"k":"ask","r":"1-{n}","needs":["gpu","db"],"for":60000}}"#);
        joiner.add(serde_json::from_str(&line).expect("a line"));
    }
    let history = joiner.finish();
    let (period, changes) = (history.period(None, None), Changes::default());
    let goal: Goal = "max(gpu) < 1m".parse().expect("a goal");
    let never = find(&history, period, &changes, &house(), &goal, &Stage::default());
    let never = never.expect_err("all need the lock");
    assert!(never.to_string().contains("cannot be had"), "{never}");
    let short = ["max(gpu) < 1ms", "p50(gpu) <= 0", "mean(gpu) < 1.5s"];
    assert_eq!(short.map(|text| text.parse::<Goal>().expect("a goal").to_string()), short);
}

#[test]
fn a_replay_of_what_was_played_comes_to_the_same() {
    let history = busy();
    let period = history.period(None, None);
    let replay = Replay::of(&history, period, &Changes::default()).expect("a replay");
    assert_eq!(nearness(&replay, &played(&replay, &house()).expect("played").fates), None);
    let fates = played(&replay, &house()).expect("played").fates;
    let mut joiner = Joiner::default();
    crate::lines(&replay, &fates).into_iter().for_each(|line| joiner.add(line));
    let recorded = joiner.finish();
    assert_eq!(recorded.notes, []);
    let replay = Replay::of(&recorded, recorded.period(None, None), &Changes::default());
    let replay = replay.expect("a replay");
    let near = nearness(&replay, &played(&replay, &house()).expect("played").fates);
    let near = near.expect("recorded");
    assert_eq!((near.requests, near.difference, near.close), (60, 0.0, 1.0));
}

#[test]
fn near_is_within_a_tenth_or_a_second() {
    let waits = [(10_000, 11_000), (100_000, 110_000), (100_000, 110_001), (100_000, 89_999)];
    let mut lines = Vec::new();
    for (n, (recorded, _)) in waits.iter().enumerate() {
        lines.push((n as u64, format!(r#""k":"ask","r":"1-{n}","needs":["x{n}"]"#)));
        let at = n as u64 + recorded;
        lines.push((at, format!(r#""k":"grant","r":"1-{n}","got":{{"x{n}":["x{n}"]}}"#)));
    }
    lines.sort();
    let lines: Vec<_> = lines.iter().map(|(at, rest)| format!("{{\"t\":{at},{rest}}}")).collect();
    let history = joined(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let replay = Replay::of(&history, history.period(None, None), &Changes::default());
    let replay = replay.expect("a replay");
    let fate = |(n, (_, played)): (usize, &(u64, u64))| Fate {
        granted: Some(n as u64 + played),
        ended: None,
    };
    let fates: Vec<Fate> = waits.iter().enumerate().map(fate).collect();
    let near = nearness(&replay, &fates).expect("recorded");
    assert_eq!((near.requests, near.close), (4, 0.5));
    assert_eq!((near.recorded, near.played), (77_500.0, 80_250.0));
    assert_eq!(near.difference, (1000.0 + 10_000.0 + 10_001.0 + 10_001.0) / 4.0);
}

#[test]
fn units_and_pools_are_removed_and_what_does_not_fit_is_told() {
    let mut joiner = Joiner::default();
    for line in [
        r#"{"t":0,"k":"pool","pool":"gpu","units":4}"#,
        r#"{"t":1,"k":"ask","r":"1-1","needs":["gpu/3"],"for":10}"#,
        r#"{"t":1,"k":"ask","r":"1-2","needs":["gpu:4","db"],"for":10}"#,
        r#"{"t":1,"k":"ask","r":"1-3","needs":["db"],"for":10}"#,
    ] {
        joiner.add(serde_json::from_str(line).expect("a line"));
    }
    let history = joiner.finish();
    let period = history.period(None, None);
    let remove = |names: &[&str]| Changes {
        remove: names.iter().map(|name| name.parse().expect("a name")).collect(),
        ..Changes::default()
    };
    let replay = Replay::of(&history, period, &remove(&["gpu/3"])).expect("a replay");
    let gpu = replay.pools.iter().position(|pool| pool.as_str() == "gpu").expect("it is there");
    assert_eq!(replay.trace.pools[gpu].capacity, 3);
    assert!(!replay.trace.pools[gpu].listed, "nobody can name it any more");
    assert!(matches!(&replay.notes[..], [crate::Note::Clamped { units: 3, requests: 1, .. }]));
    let replay = Replay::of(&history, period, &remove(&["db"])).expect("a replay");
    assert_eq!(replay.trace.requests.len(), 2);
    assert!(matches!(&replay.notes[..], [crate::Note::LeftOut { requests: 1, .. }]));
    for (changes, said) in [
        (remove(&["nothing"]), "knows no pool, lock or unit 'nothing'"),
        (
            Changes { units: [("db".parse().expect("a name"), 2)].into(), ..Changes::default() },
            "a lock",
        ),
        (units(0), "--remove"),
        (Changes { load: f64::NAN, ..Changes::default() }, "a load of NaN"),
    ] {
        let bad = Replay::of(&history, period, &changes).expect_err("it cannot be");
        assert!(bad.to_string().contains(said), "{bad}");
    }
}

/// Plays a history as it is, and says what is odd about it and how many were granted.
fn told(lines: &[&str]) -> (Vec<String>, usize) {
    let history = joined(lines);
    let replay = Replay::of(&history, history.period(None, None), &Changes::default());
    let replay = replay.expect("a replay");
    let fates = played(&replay, &house()).expect("played").fates;
    let granted = fates.iter().filter(|fate| fate.granted.is_some()).count();
    (crate::Note::tell(history.notes.iter().chain(&replay.notes)), granted)
}

#[test]
fn pools_that_are_no_more_are_played_as_they_were() {
    let (notes, granted) = told(&[
        r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#,
        r#"{"t":1,"k":"ask","r":"1-1","needs":["gpu:2"]}"#,
        r#"{"t":1,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1"]}}"#,
        r#"{"t":1,"k":"ask","r":"1-2","needs":["gpu/1","gone"]}"#,
        r#"{"t":9,"k":"end","r":"1-1","how":"released"}"#,
        r#"{"t":9,"k":"grant","r":"1-2","got":{"gone":["gone"],"gpu":["gpu/1"]}}"#,
        r#"{"t":12,"k":"end","r":"1-2","how":"released"}"#,
        r#"{"t":20,"k":"pool","pool":"gpu","units":0}"#,
    ]);
    assert_eq!((&notes[..], granted), (&["'gpu' is no more".to_owned()][..], 2));
}

#[test]
fn a_need_of_a_pool_that_was_resized_is_for_all_there_is() {
    let (notes, granted) = told(&[
        r#"{"t":0,"k":"pool","pool":"gpu","units":4}"#,
        r#"{"t":1,"k":"ask","r":"1-1","needs":["gpu:4"]}"#,
        r#"{"t":1,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1","gpu/2","gpu/3"]}}"#,
        r#"{"t":9,"k":"end","r":"1-1","how":"released"}"#,
        r#"{"t":10,"k":"pool","pool":"gpu","units":2}"#,
        r#"{"t":11,"k":"ask","r":"1-2","needs":["gpu/3"],"for":5}"#,
        r#"{"t":12,"k":"ask","r":"1-3","needs":["gpu:2"],"for":5}"#,
    ]);
    let expected = [
        "'gpu' had 4 units before it had 2",
        "1 request for more of 'gpu' than its 2 units: for all of it when played",
    ];
    assert_eq!((notes, granted), (expected.map(str::to_owned).to_vec(), 3));
}

#[test]
fn what_was_asked_for_before_the_period_is_played_and_not_counted() {
    let history = joined(&[
        r#"{"t":0,"k":"pool","pool":"gpu","units":1}"#,
        r#"{"t":0,"k":"ask","r":"1-1","needs":["gpu"]}"#,
        r#"{"t":0,"k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}"#,
        r#"{"t":1000,"k":"ask","r":"1-2","needs":["gpu"]}"#,
        r#"{"t":3000,"k":"ask","r":"1-3","needs":["gpu"]}"#,
        r#"{"t":5000,"k":"end","r":"1-2","how":"withdrawn"}"#,
        r#"{"t":9000,"k":"end","r":"1-1","how":"released"}"#,
        r#"{"t":9000,"k":"grant","r":"1-3","got":{"gpu":["gpu/0"]}}"#,
        r#"{"t":9500,"k":"end","r":"1-3","how":"released"}"#,
    ]);
    for (from, given_up, waited) in [(0, 1, 2), (2000, 0, 1)] {
        let period = crate::Period { from, ..history.period(None, None) };
        let replay = Replay::of(&history, period, &Changes::default()).expect("a replay");
        let all = Summary::of(&replay, &played(&replay, &house()).expect("played").fates).all;
        assert_eq!((all.given_up, all.waits.requests), (given_up, waited), "from {from}");
        assert_eq!(all.waits.max.map(|wait| wait.abs_diff(6000) < 500), Some(true), "{all:?}");
    }
}

#[test]
fn no_more_units_are_removed_than_there_are() {
    let history = joined(&[
        r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#,
        r#"{"t":1,"k":"ask","r":"1-1","needs":["gpu"],"for":10}"#,
        r#"{"t":1,"k":"ask","r":"1-2","needs":["db"],"for":10}"#,
        r#"{"t":2,"k":"pool","pool":"gpu","units":1}"#,
    ]);
    let replay = |removed: &[&str]| {
        let remove = removed.iter().map(|name| name.parse().expect("a name")).collect();
        let changes = Changes { remove, ..Changes::default() };
        Replay::of(&history, history.period(None, None), &changes)
    };
    let none = replay(&["gpu/0", "gpu/1"]).expect_err("there is only one");
    assert_eq!(none.to_string(), "the history knows no pool, lock or unit 'gpu/1'");
    let one = replay(&["gpu/0"]).expect("it is there, though nobody got it");
    assert_eq!(one.trace.requests.len(), 1, "without the last unit there is no pool");
}
