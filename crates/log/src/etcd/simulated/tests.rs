//! Thousands of seeds; and for each rule that is taken away, a seed that misses it.
//!
//! `HOLDALL_SEEDS=100000 cargo test -p holdall-log --lib simulated` plays more of them.

use std::sync::Arc;
use std::time::Duration;

use holdall_etcd::messages::{Put, Range, Transaction};

use super::super::kv::Kv;
use super::super::lead::Place;
use super::super::log::{Feed, open};
use super::super::options::{Options, Rules, Seen, WhenLed};
use super::store::Faults;
use super::world::{Report, World};
use crate::{Class, Entry, Error, Identity, Index, Lost, Memory, OpenError};

/// How many seeds are played, unless it is said.
const SEEDS: u64 = 1000;

pub(super) fn faults(seed: u64) -> Faults {
    match seed % 4 {
        0 => Faults::default(),
        1 => Faults { lost: 30, unanswered: 60, slow: 100, last: 200, ..Faults::default() },
        2 => Faults { unanswered: 40, late: 60, twice: 100, slow: 50, ..Faults::default() },
        _ => {
            let lost =
                Faults { lost: 40, unanswered: 40, late: 40, twice: 40, ..Faults::default() };
            Faults { slow: 200, elections: 20, last: 500, ..lost }
        }
    }
}

fn play(seed: u64, rules: Rules) -> Result<Report, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        World::new(seed, faults(seed), rules).play(seed, Duration::from_secs(60)).await
    })
}

#[test]
fn nothing_is_told_twice_or_lost() {
    let seeds = std::env::var("HOLDALL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let (mut told, mut elections, mut snapshots, mut withdrawn) = (0, 0, 0, 0);
    let (mut called, mut handed_over) = (0, 0);
    for seed in 0..seeds {
        match play(seed, Rules::default()) {
            Ok(report) => {
                told += report.told;
                elections += report.elections;
                snapshots += report.snapshots;
                withdrawn += report.withdrawn;
                called += report.called;
                handed_over += report.handed_over;
            }
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    println!(
        "{seeds} seeds: {told} records told, {elections} elections, {snapshots} snapshots, {withdrawn} not handed over, {called} called, {handed_over} made leader at once"
    );
    let enough = seeds as usize;
    assert!(withdrawn as usize > enough / 20, "{withdrawn}");
    assert!(handed_over as usize > enough && called > handed_over, "{handed_over} of {called}");
    assert!(told > 10 * enough && elections as usize > 3 * enough && snapshots as usize > enough);
}

#[track_caller]
fn is_missed(name: &str, rules: Rules) {
    for seed in 0..3000 {
        if let Err(wrong) = play(seed, rules) {
            println!("without {name}: seed {seed}: {wrong:.200}");
            return;
        }
    }
    panic!("nobody misses {name}");
}

#[test]
fn every_rule_is_missed() {
    let all = Rules::default();
    is_missed("compares_leader", Rules { compares_leader: false, ..all });
    is_missed("compares_head", Rules { compares_head: false, ..all });
    is_missed("tells_after_commit", Rules { tells_after_commit: false, ..all });
    is_missed("reads_back", Rules { reads_back: false, ..all });
    is_missed("deletes_last", Rules { deletes_last: false, ..all });
    is_missed("counts_from_sending", Rules { counts_from_sending: false, ..all });
    is_missed("compares_snapshot", Rules { compares_snapshot: false, ..all });
    is_missed("knows_last_writing", Rules { knows_last_writing: false, ..all });
    is_missed("raises_epoch_of_heir", Rules { raises_epoch_of_heir: false, ..all });
    is_missed("heir_hears_the_end", Rules { heir_hears_the_end: false, ..all });
    is_missed("resigns_first", Rules { resigns_first: false, ..all });
}

/// A log that is led, with a task that writes.
pub(super) async fn led(world: &World) -> Feed<super::store::SimulatedStore> {
    let kv = Arc::new(world.store.client());
    let (core, _) = open(kv, world.options("h"), "here".into(), None).await.expect("elected");
    let running = Arc::clone(&core);
    tokio::spawn(async move { running.run().await });
    Feed::new(core)
}

fn entry(payload: &[u8]) -> Entry<'_> {
    Entry { class: Class::Must, logic: 1, payload, sync: false }
}

pub(super) fn append(feed: &mut Feed<super::store::SimulatedStore>, payload: &[u8]) -> Index {
    let index = feed.append(entry(payload)).expect("it is taken");
    feed.flush().expect("it is handed over");
    index
}

pub(super) fn well() -> World {
    World::new(1, Faults::default(), Rules::default())
}

#[tokio::test(start_paused = true)]
async fn no_room_is_said_and_passes() {
    let world = well();
    let mut feed = led(&world).await;
    world.store.set_full(true);
    let index = append(&mut feed, b"x");
    let mut watch = feed.core.watch();
    watch.changed().await.expect("it is said");
    assert!(matches!(watch.progress().trouble, Some(Error::Full(_))));
    assert!(matches!(feed.admit(1), Err(Error::Full(_))), "nothing new");
    assert!(watch.may_leave() < index, "nothing leaves");
    let owed = append(&mut feed, b"what is owed is taken");
    world.store.set_full(false);
    watch.reached(owed).await.expect("it passes");
    feed.admit(1).expect("and something new is let in");
}

/// A log is read in shorter pages where longer ones do not come.
#[tokio::test(start_paused = true)]
async fn what_comes_in_short_pages_is_read() {
    let world = well();
    let mut feed = led(&world).await;
    for _ in 0..100 {
        let index = append(&mut feed, b"x");
        feed.core.watch().reached(index).await.expect("it may leave");
    }
    world.store.set_longest(16);
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    assert_eq!(place.read().await.expect("it is read").records.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_said_and_passes() {
    let world = well();
    let mut feed = led(&world).await;
    world.store.set_faults(Faults { lost: 1000, ..Faults::default() });
    let index = append(&mut feed, b"x");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let progress = feed.core.progress();
    assert!(matches!(progress.trouble, Some(Error::Failed { .. })), "{:?}", progress.trouble);
    assert!(progress.may_leave < index && !progress.has_ended());
    assert!(feed.admit(1).is_err());
    world.store.set_faults(Faults::default());
    feed.core.watch().reached(index).await.expect("it passes");
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_without_an_answer_is_no_trouble_any_more() {
    let world = well();
    let mut feed = led(&world).await;
    world.store.set_faults(Faults { unanswered: 1000, ..Faults::default() });
    let index = append(&mut feed, b"x");
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.store.set_faults(Faults::default());
    feed.core.watch().reached(index).await.expect("it may leave");
    tokio::time::sleep(Duration::from_millis(10)).await;
    feed.admit(1).expect("something new is let in, though nothing more was appended");
}

/// The store takes its time for some: so when the next one is sent, too, that often comes first.
#[tokio::test(start_paused = true)]
async fn what_overtakes_is_sent_again() {
    let world = well();
    let mut feed = led(&world).await;
    world.store.set_faults(Faults { slow: 200, ..Faults::default() });
    let (mut watch, mut told) = (feed.core.watch(), 0);
    for number in 0..1000u64 {
        append(&mut feed, &number.to_le_bytes());
        tokio::time::sleep(Duration::from_millis(100)).await;
        let may_leave = watch.may_leave().0;
        assert!(may_leave >= told, "it never goes back");
        told = may_leave;
    }
    watch.reached(feed.next.before()).await.expect("all may leave");
    assert!(world.store.missed() > 50, "{} have overtaken another", world.store.missed());
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    let there = place.copy().await.expect("copied").records;
    let numbers = there.iter().map(|record| (record.index.0, record.payload.to_vec()));
    assert!(numbers.eq((0..1000).map(|number: u64| (number + 1, number.to_le_bytes().to_vec()))));
}

/// What the one before has let go on comes back one after the other, and is one transaction again; what comes alone then waits for nobody.
#[tokio::test(start_paused = true)]
async fn what_comes_together_is_written_together() {
    let world = well();
    let mut feed = led(&world).await;
    let mut watch = feed.core.watch();
    let batches = async || {
        let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
        let (key, end) = place.keys.batches();
        let range = Range { key, end, ..Range::default() };
        place.ask(&range).await.expect("an answer").found.len()
    };
    for number in 0..8u8 {
        feed.append(entry(&[number])).expect("it is taken");
    }
    feed.flush().expect("it is handed over");
    watch.reached(feed.next.before()).await.expect("it may leave");
    assert_eq!(batches().await, 1);
    for number in 0..8u8 {
        append(&mut feed, &[number]);
        tokio::task::yield_now().await;
    }
    watch.reached(feed.next.before()).await.expect("it may leave");
    assert_eq!(batches().await, 2, "as many are awaited");
    for number in 2..10 {
        let index = append(&mut feed, b"alone");
        watch.reached(index).await.expect("it may leave");
        assert_eq!(batches().await, number + 1, "and not for ever");
    }
}

/// Raises the epoch some times, without a record in between, where all is carried out once more later: what was told, and what is kept.
async fn raised(seed: u64, rules: Rules) -> (u32, u32) {
    let world = World::new(seed, Faults::default(), rules);
    let feed = led(&world).await;
    world.store.set_faults(Faults { twice: 1000, ..Faults::default() });
    for _ in 0..4 {
        let to = feed.core.progress().epoch + 2;
        feed.raise_epoch(to).expect("it leads");
        while feed.core.progress().epoch < to {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    (feed.core.progress().epoch, place.meta().await.expect("it answers").epoch)
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_comes_twice_is_kept_once() {
    let mut is_missed = false;
    for seed in 0..20 {
        let (told, kept) = raised(seed, Rules::default()).await;
        assert_eq!(told, kept);
        let (told, kept) = raised(seed, Rules { head_says_epoch: false, ..Rules::default() }).await;
        is_missed |= kept < told;
    }
    assert!(is_missed, "nobody misses head_says_epoch");
}

#[tokio::test(start_paused = true)]
async fn a_cell_is_removed_when_nobody_leads_it() {
    let world = well();
    let mut feed = led(&world).await;
    let index = append(&mut feed, b"one");
    feed.core.watch().reached(index).await.expect("it may leave");
    let cell = feed.core.elected.cell.identity;
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    let since = place.last_election().await.expect("it answers");
    let refused = place.remove(cell, Some(since)).await;
    assert!(matches!(refused, Err(OpenError::InUse(_))), "{refused:?}");
    let other = place.remove(Identity(cell.0 + 1), None).await;
    assert!(matches!(other, Err(OpenError::Key { .. })), "{other:?}");
    place.remove(cell, None).await.expect("whoever leads it");
    assert_eq!(world.store.counted().0, 0, "nothing is there any more");
    let late = append(&mut feed, b"late");
    let told = feed.core.watch().reached(late).await;
    assert!(matches!(told, Err(Error::Deposed(_))), "{told:?}");
    assert_eq!(world.store.counted().0, 0, "and nobody puts anything there");
    let mut options = world.options("h");
    (options.create, options.seen) = (false, feed.seen());
    let kv = Arc::new(world.store.client());
    assert!(open(kv, options, "here".into(), None).await.is_err(), "no host makes it anew");
    place.remove(cell, Some(since)).await.expect("it is removed already");
}

/// It tells nothing more, whatever it has sent; nobody else is elected in between, and none but the one that was meant is taken over from.
#[tokio::test(start_paused = true)]
async fn a_new_life_takes_over_from_who_leads() {
    let world = well();
    let mut feed = led(&world).await;
    let index = append(&mut feed, b"one");
    feed.core.watch().reached(index).await.expect("it may leave");
    let (cell, term) = (feed.core.elected.cell, feed.core.elected.term);
    let mut options = world.options("h");
    (options.create, options.adopt) = (false, true);
    options.seen.epoch = feed.core.elected.epoch + 1;
    let take_over = |term| {
        let options = Options { when_led: WhenLed::TakeOver(term), ..options.clone() };
        open(Arc::new(world.store.client()), options, "here".into(), None)
    };
    let refused = take_over(term - 1).await.map(drop);
    assert!(matches!(refused, Err(OpenError::InUse(_))), "{refused:?}");
    let index = append(&mut feed, b"two");
    feed.core.watch().reached(index).await.expect("it leads still");
    let (core, opened) = take_over(term).await.expect("adopted");
    assert_eq!((opened.memory, opened.records.len()), (Memory::Lost(Lost::Adopted), 2));
    assert_ne!(opened.life, cell.life);
    // If it were killed now, nobody else would lead before the one before can tell nothing more.
    let until = core.progress().leads_until.expect("for a time");
    let before = feed.core.progress().leads_until.expect("for a time");
    assert!(until > before + 5_000, "{until} is not long after {before}");
    let late = append(&mut feed, b"late");
    let told = feed.core.watch().reached(late).await;
    assert!(matches!(told, Err(Error::Deposed(_))), "{told:?}");
    let mut feed = Feed::new(core);
    let core = Arc::clone(&feed.core);
    tokio::spawn(async move { core.run().await });
    let index = append(&mut feed, b"new");
    feed.core.watch().reached(index).await.expect("it leads");
}

/// Somebody looks whether it may be removed, and before it is, another host has led it, and may have granted something.
#[tokio::test(start_paused = true)]
async fn a_cell_that_was_led_meanwhile_is_not_removed() {
    let world = well();
    let feed = led(&world).await;
    let cell = feed.core.elected.cell.identity;
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    let since = place.last_election().await.expect("it answers");
    world.store.end_lease_of(b"holdall/cell/meta/leader");
    let mut other = led(&world).await;
    let index = append(&mut other, b"a grant");
    other.core.watch().reached(index).await.expect("it may leave");
    world.store.end_lease_of(b"holdall/cell/meta/leader");
    let refused = place.remove(cell, Some(since)).await;
    assert!(matches!(refused, Err(OpenError::Io { .. })), "{refused:?}");
    assert_eq!(place.copy().await.expect("it is there").records.len(), 1);
    let since = place.last_election().await.expect("it answers");
    place.remove(cell, Some(since)).await.expect("nobody has led it since");
}

/// What has deleted a cell may arrive once more, and late: when its name is another's, who has put half of a copy there.
#[tokio::test(start_paused = true)]
async fn what_removes_a_cell_late_meets_nothing_that_came_since() {
    let mut removed = 0;
    for seed in 0..300 {
        let world = World::new(seed, Faults::default(), Rules::default());
        let cell = led(&world).await.core.elected.cell.identity;
        world.store.end_lease_of(b"holdall/cell/meta/leader");
        let kv = Arc::new(world.store.client());
        let place = Place::new(Arc::clone(&kv), world.options("h"), "here".into());
        let since = place.last_election().await.expect("it answers");
        let faults = Faults { unanswered: 250, late: 250, twice: 250, ..Faults::default() };
        world.store.set_faults(faults);
        let done = place.remove(cell, Some(since)).await;
        world.store.set_faults(Faults::default());
        if done.is_err() {
            continue; // It is not known.
        }
        removed += 1;
        assert_eq!(world.store.counted().0, 0, "seed {seed}: nothing is there any more");
        let key = place.keys.batch(Index(1));
        let piece = Put { key, value: "half a copy".into(), lease: 0 };
        let success = vec![piece.into()];
        let put = Transaction { success, ..Transaction::default() };
        kv.transact(put).await.expect("put");
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert_eq!(world.store.counted().0, 1, "seed {seed}: it was deleted late");
    }
    assert!(removed > 100, "{removed}");
}

#[tokio::test(start_paused = true)]
async fn who_leads_no_longer_tells_nothing() {
    let world = well();
    let mut first = led(&world).await;
    world.store.end_lease_of(b"holdall/cell/meta/leader");
    let index = append(&mut first, b"late");
    let told = first.core.watch().reached(index).await;
    assert!(matches!(told, Err(Error::Deposed(_))), "{told:?}");
    assert_eq!(first.core.progress().leads_until, Some(0));
    let second = led(&world).await;
    assert_eq!(second.core.progress().may_leave.0, 0, "it was not appended");
}

#[tokio::test(start_paused = true)]
async fn etcd_does_not_grow() {
    let world = well();
    let mut feed = led(&world).await;
    let mut counts = Vec::new();
    for round in 0..20u64 {
        for _ in 0..10 {
            let index = append(&mut feed, &round.to_le_bytes());
            feed.core.watch().reached(index).await.expect("it may leave");
        }
        let (upto, _token) = feed.begin_snapshot().expect("none is being made");
        let state = vec![7; 3 << 20].into();
        feed.core.keeper.keep(upto, 1, state).await.expect("kept");
        counts.push(world.store.counted());
    }
    assert_eq!(counts[3], counts[19], "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_from_a_backup_is_refused_until_it_is_adopted() {
    let world = well();
    let mut feed = led(&world).await;
    let index = append(&mut feed, b"one");
    feed.core.watch().reached(index).await.expect("it may leave");
    let (life, epoch) = (feed.core.elected.cell.life, feed.core.elected.epoch);
    let backup = world.store.backup();
    world.store.restore(&backup);
    let mut options = world.options("h");
    let kv = Arc::new(world.store.client());
    // The old leader's key was in the backup; nobody renews its lease.
    world.store.end_lease_of(b"holdall/cell/meta/leader");
    let refused = open(Arc::clone(&kv), options.clone(), "here".into(), None).await;
    assert!(matches!(refused, Err(OpenError::Restored(_))), "{:?}", refused.err());
    options.adopt = true;
    let (core, opened) = open(kv, options, "here".into(), None).await.expect("adopted");
    assert_eq!((opened.memory, opened.records.len()), (Memory::Lost(Lost::Adopted), 1));
    assert!(opened.life != life && opened.epoch > epoch + 1000);
    drop(core);
}

#[tokio::test(start_paused = true)]
async fn less_than_a_host_has_seen_is_a_backup() {
    let world = well();
    let mut feed = led(&world).await;
    let index = append(&mut feed, b"one");
    feed.core.watch().reached(index).await.expect("it may leave");
    let mut options = world.options("h");
    options.seen = feed.seen();
    options.seen.next += 1;
    world.store.end_lease_of(b"holdall/cell/meta/leader");
    let kv = Arc::new(world.store.client());
    let refused = open(kv, options, "here".into(), None).await;
    assert!(matches!(refused, Err(OpenError::Restored(_))), "{:?}", refused.err());
}

#[tokio::test(start_paused = true)]
async fn a_cell_is_made_only_if_that_is_said() {
    let world = well();
    let mut options = world.options("h");
    options.create = false;
    let kv = Arc::new(world.store.client());
    let refused = open(Arc::clone(&kv), options.clone(), "here".into(), None).await;
    assert!(matches!(refused, Err(OpenError::NoCell(_))), "{:?}", refused.err());
    let feed = led(&world).await;
    options.when_led = WhenLed::Refuse;
    let refused = open(kv, options, "here".into(), None).await;
    assert!(matches!(refused, Err(OpenError::InUse(_))), "{:?}", refused.err());
    drop(feed);
}

/// What is no cell any more, or another one, is not taken for the one that is meant, whatever a host has seen of it.
#[tokio::test(start_paused = true)]
async fn only_the_cell_that_is_meant_is_adopted() {
    let world = well();
    let feed = led(&world).await;
    let (cell, mut options) = (feed.core.elected.cell.identity, world.options("h"));
    options.create = false;
    options.seen = Seen { epoch: feed.core.elected.epoch + 1, ..feed.seen() };
    drop(feed);
    world.store.end_lease_of(b"holdall/cell/meta/leader");
    let kv = Arc::new(world.store.client());
    let refused = async |options: &Options| {
        let place = Place::new(Arc::clone(&kv), options.clone(), "here".into());
        let before = place.meta().await.expect("it is read");
        let error = open(Arc::clone(&kv), options.clone(), "here".into(), None).await.err();
        let after = place.meta().await.expect("it is read");
        assert_eq!((before.cell, before.epoch), (after.cell, after.epoch), "something was written");
        assert!(after.leader.is_none());
        error
    };
    options.identity = Some(Identity(cell.0 ^ 1));
    for adopt in [false, true] {
        options.adopt = adopt;
        let error = refused(&options).await;
        assert!(matches!(error, Some(OpenError::Key { .. })), "{error:?}");
    }
    options.identity = Some(cell);
    Place::new(Arc::clone(&kv), options.clone(), "here".into())
        .remove(cell, None)
        .await
        .expect("deleted");
    let error = refused(&options).await;
    assert!(matches!(error, Some(OpenError::NoCell(_))), "{error:?}");
    options.adopt = false;
    let error = refused(&options).await;
    assert!(matches!(error, Some(OpenError::Key { .. })), "{error:?}");
}
