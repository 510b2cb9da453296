//! Starts: other configurations, lost memory, and what agents without a log have left.

use super::*;
use crate::engine::Reservation;
use crate::input::{Former, Import};
use holdall_wire::Taken;

/// A name more, or a pool instead of a lock: nobody who waits is thrown out, nothing held is lost.
#[test]
fn a_pool_that_becomes_another_keeps_who_waits() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[]);
        let named = |units: &[&str]| {
            vec![(name("board"), Kind::Named(units.iter().map(|unit| name(unit)).collect()))]
        };
        story.pools = named(&["red", "blue"]);
        story.restart("boot", false);
        for session in 1..=3 {
            story.comes(session);
            story.asks(session, 1, "board", Lasting::Connection);
        }
        assert_eq!(story.cell.engine.load(), (2, 1));
        story.pools = named(&["red", "green", "blue"]);
        story.restart("boot", upgrade);
        assert_eq!(story.cell.engine.load(), (3, 0), "the third is there: upgrade {upgrade}");
        assert_eq!(story.cell.books.pool(&name("board")).map(|p| &p.kind), Some(&story.pools[0].1));
    }
}

/// What is held comes before what is new, where the two cannot be.
#[test]
fn a_pool_that_collides_with_what_is_held_is_not_made() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[]);
        let request = story.runs(1, "a/0", Leftovers::Wait);
        story.pools = vec![(name("a"), Kind::Numbered(2))];
        let effects = story.restart("boot", upgrade);
        let unfit =
            |effect: &Effect| matches!(effect, Effect::Unfit(pool, _) if *pool == name("a"));
        assert!(effects.iter().any(unfit), "upgrade {upgrade}: {effects:?}");
        assert_eq!(story.units(request), ["a/0"], "and it is still held");
        assert_eq!(story.cell.engine.load(), (1, 0));
    }
}

/// Should the engine not take something back, its processes are killed before it counts as free.
#[test]
fn what_cannot_be_restored_ends_with_its_processes() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let effects = vec![engine::Effect::Unrestored(request)];
    story.cell.take_effects(effects).expect("unbroken");
    let kill = Effect::Kill(request, child(9));
    assert_eq!(std::mem::take(&mut story.cell.out).effects, [kill]);
    assert_eq!(story.units(request), ["gpu/0"]);
    story.cell.step(story.at, Input::HolderEnded(request)).expect("unbroken");
    assert!(story.cell.books.get(request).is_none());
}

#[test]
fn a_pool_is_the_configurations_once_that_says_so() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("a", 2)]);
        story.comes(1);
        let resize = Change::Resize { name: name("a"), units: 4 };
        assert_eq!(story.calls(1, 1, changes(1, resize)), [reply(1, 1, Reply::Done)]);
        let add = Change::Add { name: name("b"), kind: Kind::Numbered(1) };
        assert_eq!(story.calls(1, 2, changes(1, add)), [reply(1, 2, Reply::Done)]);
        story.pools = vec![(name("b"), Kind::Numbered(1))];
        story.restart("boot", upgrade);
        assert!(
            story.cell.books.pool(&name("a")).is_none(),
            "it was the configuration's all along"
        );
        story.pools = Vec::new();
        story.restart("boot", upgrade);
        assert!(story.cell.books.pool(&name("b")).is_none(), "and so is this");
    }
}

/// Nobody knows what else was told: all sessions are over, and with them what they held.
#[test]
fn lost_memory_ends_all_sessions() {
    let mut story = Story::new(&[("gpu", 2)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    story.comes(2);
    story.asks(2, 1, "gpu", Lasting::Reservation(9000));
    let start = Start { epoch: 9, life: 5, lost: true, boot: "boot".into(), ..Start::default() };
    let pools = story.pools.iter().cloned();
    let pools = pools.map(|(name, kind)| Declared { name, kind, limit: None }).collect();
    let effects = story.input(Input::Started(Box::new(Start { pools, ..start })));
    assert_eq!(effects, [Effect::Kill(request, child(9))]);
    assert_eq!(story.cell.books.sessions.count(), 0);
    assert_eq!(story.cell.books.life(), 5);
    assert_eq!(story.cell.books.grants().count(), 2, "what is reserved stays");
}

/// What it would be given may have been another's since, under a higher fence.
#[test]
fn nobody_is_given_by_a_restart_of_the_machine_what_it_waited_for() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        story.comes(1);
        assert!(is_grant(&story.asks(1, 1, "gpu", Lasting::Connection)));
        let lease = hello(2, Means::Lease(50), false);
        story.input(Input::Attach { conn: conn(2), hello: lease });
        assert!(!is_grant(&story.asks(2, 1, "gpu", Lasting::Connection)));
        story.replay(upgrade);
        let pools = story.pools.iter().cloned();
        let pools = pools.map(|(name, kind)| Declared { name, kind, limit: None }).collect();
        let (boot, wall, lost) = ("another".into(), story.at, true);
        let start = Start { epoch: 9, life: 5, lost, boot, wall, pools, ..Start::default() };
        story.input(Input::Started(Box::new(Start { rebuilt: upgrade, ..start })));
        assert_eq!(story.cell.engine.load(), (0, 0), "upgrade {upgrade}");
        let back = hello(2, Means::Lease(50), true);
        let told = story.input(Input::Attach { conn: conn(2), hello: back });
        let [Effect::Welcome { answers, .. }] = &told[..] else { panic!("{told:?}") };
        let told = &answers[..];
        let is_told = matches!(told, [(_, Some(Reply::Refused(Refusal::Closed(_))))]);
        assert!(is_told, "upgrade {upgrade}: {told:?}");
    }
}

fn former(request: u64, pool: &str, unit: &str, fence: u64, until: Option<u64>) -> Reservation {
    Reservation {
        request: RequestNo(request),
        who: Who::clone(&who(1)),
        needs: vec![pool.parse().expect("a need")],
        taken: vec![Taken { name: name(pool), units: vec![(name(unit), fence)] }],
        since: 10,
        until,
        part_of: None,
    }
}

#[test]
fn what_an_agent_without_a_log_has_left_is_in_force() {
    let mut story = Story::new(&[("cpu", 2)]);
    story.cell = Cell::new().expect("an engine");
    story.log.clear();
    let mut part = former(20, "gpu", "gpu/2", 21, None);
    part.part_of = Some(RequestNo(8));
    let drained = Drained { reason: "hot".into(), by: "me".into(), until: None };
    let import = Import {
        pools: vec![(name("gpu"), Kind::Numbered(2))],
        drained: vec![(name("cpu/1"), drained.clone())],
        reservations: vec![former(8, "gpu", "gpu/2", 9, Some(50_000))],
        held: vec![
            Former { grant: part, holder: *child(7), abandoned: false },
            // Its fence is above the numbers of later requests.
            Former {
                grant: former(5, "cpu", "cpu/0", 30, None),
                holder: *child(8),
                abandoned: true,
            },
        ],
    };
    assert_eq!(story.input(Input::Import(import)), []);
    let effects = story.start("boot", true);
    let (five, eight, twenty) = (RequestNo(5), RequestNo(8), RequestNo(20));
    assert_eq!(effects, [Effect::Kill(five, child(8)), Effect::Watch(twenty, child(7))]);
    for again in [false, true] {
        assert_eq!(story.units(eight), ["gpu/2"], "as it was");
        assert_eq!(story.units(five), ["cpu/0"]);
        assert_eq!(story.cell.books.drained(), [(name("cpu/1"), drained.clone())]);
        assert_eq!(story.cell.engine.load(), (3, 0));
        assert!(story.cell.engine.next_number().0 > 1 << 32);
        story.restart("boot", again);
    }
    story.input(Input::HolderEnded(five));
    story.input(Input::HolderEnded(twenty));
    story.at = 50_000;
    story.input(Input::Due);
    assert_eq!(story.cell.engine.load(), (0, 0));
    assert_eq!(story.cell.engine.kind(&name("gpu")), Some(Kind::Numbered(2)));
}

/// Agents without a log could grant a unit twice. Then one of both is taken over, and the other said.
#[test]
fn what_cannot_be_of_what_was_left_is_left_out() {
    let mut story = Story::new(&[("cpu", 2)]);
    story.cell = Cell::new().expect("an engine");
    story.log.clear();
    let sharer = |request, fence| {
        let mut grant = former(request, "lock", "lock", fence, None);
        grant.needs = vec!["lock:shared".parse().expect("a need")];
        Former { grant, holder: *child(request as u32), abandoned: false }
    };
    let sharers = [sharer(30, 31), sharer(32, 33)];
    let twice =
        Former { grant: former(12, "cpu", "cpu/0", 13, None), holder: *child(7), abandoned: true };
    let mut lost_part = former(40, "cpu", "cpu/1", 41, None);
    lost_part.part_of = Some(RequestNo(8));
    let lost_part = Former { grant: lost_part, holder: *child(6), abandoned: false };
    let again =
        Former { grant: former(8, "cpu", "cpu/1", 9, None), holder: *child(5), abandoned: false };
    let import = Import {
        reservations: vec![
            former(8, "cpu", "cpu/0", 9, Some(50_000)),
            former(10, "cpu", "cpu/0", 11, Some(50_000)),
        ],
        held: sharers.into_iter().chain([twice, lost_part, again]).collect(),
        ..Import::default()
    };
    let effects = story.input(Input::Import(import));
    let left_out = effects.iter().map(|effect| match effect {
        Effect::LeftOut(request, why) => (request.0, why.as_str()),
        other => panic!("{other:?}"),
    });
    let left_out: Vec<_> = left_out.collect();
    let numbers: Vec<_> = left_out.iter().map(|(request, _)| *request).collect();
    assert_eq!(numbers, [8, 10, 12, 32, 40]);
    assert!(left_out[2].1.contains("cpu/0") && left_out[2].1.contains('7'), "{left_out:?}");
    story.start("boot", true);
    assert_eq!(story.units(RequestNo(8)), ["cpu/0"]);
    assert_eq!(story.cell.engine.load(), (2, 0));
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (2, 0), "and so it is from now on");
}

/// What is inside what is known after an upgrade, too: nobody waits for itself.
#[test]
fn a_grant_inside_another_stays_inside() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[]);
        story.comes(1);
        let asks = |story: &mut Story, call, needs: &str, within| {
            let needs = vec![needs.parse().expect("a need")];
            let (now, lasting, from) = (false, Lasting::Connection, From::default());
            let ask = Ask { needs, now, lasting, from, within, limit: None, part: None };
            story.calls(1, call, Wish::Ask { who: who(1), ask: ask.into(), length: None })
        };
        let request_of = |effects: &[Effect]| match effects {
            [Effect::Reply { reply: Reply::Granted { request, .. }, .. }] => *request,
            other => panic!("{other:?}"),
        };
        let outer = request_of(&asks(&mut story, 1, "a", None));
        let inner = request_of(&asks(&mut story, 2, "b", Some(outer)));
        story.restart("boot", upgrade);
        story.comes_back(1);
        let told = asks(&mut story, 3, "a", Some(inner));
        assert!(
            matches!(&told[..], [Effect::Reply { reply: Reply::Refused(Refusal::Never(_)), .. }]),
            "upgrade {upgrade}: {told:?}"
        );
    }
}

/// Timers that were to ring still do.
#[test]
fn timers_are_armed_again() {
    let mut story = Story::new(&[("gpu", 1)]);
    for session in 1..=3 {
        story.comes(session);
        story.asks(session, 1, "gpu", Lasting::Connection);
    }
    let armed = story.cell.engine.armed().count();
    assert!(armed > 0, "who waits has a timer");
    let pools = story.pools.iter().cloned();
    let pools = pools.map(|(name, kind)| Declared { name, kind, limit: None }).collect();
    let (epoch, boot, at) = (2, "boot".into(), story.at);
    let start = Start { epoch, boot, boottime: at, wall: at, pools, ..Start::default() };
    let out = story.cell.step(at, Input::Started(Box::new(start))).expect("unbroken");
    let is_timer = |effect: &&Effect| matches!(effect, Effect::Arm(..));
    assert_eq!(out.effects.iter().filter(is_timer).count(), armed);
}

fn odd(payload: &[u8]) -> Recorded {
    let recorded = crate::replay::Parts::default().take(payload).expect("readable");
    let input = postcard::to_allocvec(&Input::Dismiss).expect("written");
    Recorded { input, ..recorded.expect("whole") }
}

/// Once the engine was built again from the facts, snapshots can be made.
#[test]
fn a_divergence_is_over_when_the_engine_is_built_again() {
    let mut story = Story::new(&[("gpu", 2)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let other = story.log.len() - 1;
    story.start("boot", true);
    story.comes(2);
    let mut replay = Replay::new(LOGIC, None).expect("an engine");
    for (at, record) in story.log.iter().enumerate() {
        if at == other {
            assert_eq!(replay.take_whole(LOGIC, &odd(record)), Ok(None));
        } else {
            replay.take(LOGIC, record).expect("readable");
        }
    }
    let replayed = replay.finish().expect("an engine");
    assert!(!replayed.from_facts);
    assert_eq!(replayed.diverged, None, "it was said when it was");
    assert!(replayed.cell.books.get(request).is_some());
    assert_eq!(replayed.cell.books, story.cell.books);
}

/// A record that leads elsewhere now is gone on from, after a snapshot and after an upgrade, too.
#[test]
fn the_facts_count_whatever_came_before_them() {
    let mut story = Story::new(&[("gpu", 2)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let state = story.cell.snapshot().expect("written");
    story.comes(2);
    story.at += 400;
    story.asks(2, 1, "gpu", Lasting::Connection);
    let last = story.log.last().expect("it was logged").clone();
    let mut replay = Replay::new(LOGIC, Some((LOGIC, &state))).expect("readable");
    replay.take(LOGIC, &story.log[story.log.len() - 2]).expect("readable");
    assert_eq!(replay.take_whole(LOGIC, &odd(&last)), Ok(None));
    let after_snapshot = replay.finish().expect("an engine");

    let mut replay = Replay::new(LOGIC + 1, None).expect("an engine");
    for record in &story.log {
        replay.take(LOGIC, record).expect("readable");
    }
    story.restart("boot", true);
    replay.take(LOGIC + 1, story.log.last().expect("a start")).expect("readable");
    story.comes(3);
    let comes = odd(story.log.last().expect("it was logged"));
    assert_eq!(replay.take_whole(LOGIC + 1, &comes), Ok(None));
    let after_upgrade = replay.finish().expect("an engine");

    for replayed in [after_snapshot, after_upgrade] {
        assert!(replayed.from_facts && replayed.diverged.is_some());
        assert_eq!(replayed.cell.books.grants().count(), 2);
        assert!(replayed.cell.books.get(request).is_some());
        assert_eq!(replayed.cell.now(), 500, "and time has gone on");
    }
}
