//! Handing over to another host: to one that is ready, or is no more; where there is no room, where it is not known, and once more at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::super::heir::Ahead;
use super::super::kv::Kv;
use super::super::lead::Place;
use super::super::log::{Core, Feed, open};
use super::super::queue::Heir;
use super::store::{Faults, SimulatedStore};
use super::tests::{append, led, well};
use super::world::World;
use crate::{Error, Index, Memory, Opened, Record};

/// Waits until it goes on.
async fn withdrawn(core: &Core<SimulatedStore>) {
    let withdrawn = async {
        while core.is_ending() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), withdrawn).await.expect("it goes on");
}

/// Waits until it has handed over, which it may have done before; there is room after a while.
async fn never_goes_on(world: &World, core: &Core<SimulatedStore>) {
    for step in 0..3000 {
        if step == 1000 {
            world.store.set_full(false);
        }
        if core.progress().has_ended() {
            return;
        }
        assert!(core.is_ending() && core.progress().leads_until == Some(0), "{step}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is not handed over");
}

/// Whoever would hand over where nothing can be written goes on leading; what was sent for it is never carried out later.
#[tokio::test(start_paused = true)]
async fn who_cannot_hand_over_for_want_of_room_goes_on() {
    let world = well();
    let mut feed = led(&world).await;
    world.store.set_full(true);
    let owed = append(&mut feed, b"what is owed");
    let core = Arc::clone(&feed.core);
    core.seal(Heir::Named("h1".into()));
    withdrawn(&core).await;
    let progress = core.progress();
    assert!(!progress.has_ended() && matches!(progress.trouble, Some(Error::Full(_))));
    // For longer than a lease it is known that nobody else leads.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let until = core.progress().leads_until.expect("for a time");
    assert!(until > core.place.kv.now(), "it is not known whether it leads");
    world.store.set_full(false);
    core.watch().reached(owed).await.expect("it passes");
    let later = append(&mut feed, b"later");
    core.watch().reached(later).await.expect("it goes on");
    core.seal(Heir::Named("h1".into()));
    while !core.progress().has_ended() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    assert_eq!(place.meta().await.expect("an answer").heir.as_deref(), Some("h1"));
}

/// So does who has more to write before than one transaction takes: it has not come to handing over.
#[tokio::test(start_paused = true)]
async fn who_does_not_come_to_hand_over_for_want_of_room_goes_on() {
    let world = well();
    let mut feed = led(&world).await;
    world.store.set_full(true);
    for _ in 0..5 {
        append(&mut feed, &vec![7; 600_000]);
    }
    let core = Arc::clone(&feed.core);
    core.seal(Heir::Named("h1".into()));
    withdrawn(&core).await;
    let until = core.progress().leads_until.expect("for a time");
    assert!(until > core.place.kv.now(), "it has led all the time");
    world.store.set_full(false);
    core.watch().reached(feed.next.before()).await.expect("it passes");
}

/// Handing over may take the last of the room, and be refused for that: it is carried out all the same.
#[tokio::test(start_paused = true)]
async fn who_hands_over_with_the_last_of_the_room_has() {
    let world = well();
    let core = Arc::clone(&led(&world).await.core);
    world.store.set_faults(Faults { last: 1000, ..Faults::default() });
    world.store.set_full(true);
    core.seal(Heir::Named("h1".into()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(core.progress().trouble, Some(Error::Closed(_))), "{:?}", core.progress());
}

/// What was sent to hand over and is not answered may be carried out yet: whoever has sent it does not go on because there is no room by now.
#[tokio::test(start_paused = true)]
async fn who_may_have_handed_over_does_not_go_on() {
    let world = well();
    let core = Arc::clone(&led(&world).await.core);
    world.store.set_faults(Faults { late: 1000, ..Faults::default() });
    core.seal(Heir::Named("h1".into()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.store.set_faults(Faults::default());
    world.store.set_full(true);
    never_goes_on(&world, &core).await;
}

/// Nor if it was sent while something before it was under way, of which it turns out that it was carried out: it follows just that.
#[tokio::test(start_paused = true)]
async fn who_may_have_handed_over_after_something_else_does_not_go_on() {
    let world = well();
    let mut feed = led(&world).await;
    let core = Arc::clone(&feed.core);
    world.store.set_faults(Faults { unanswered: 1000, ..Faults::default() });
    append(&mut feed, b"carried out");
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.store.set_faults(Faults { late: 1000, ..Faults::default() });
    core.seal(Heir::Named("h1".into()));
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.store.set_faults(Faults::default());
    world.store.set_full(true);
    never_goes_on(&world, &core).await;
}

/// It is handed over, and at once once more: whoever was passed over at first has seen that there is another leader since.
#[tokio::test(start_paused = true)]
async fn who_is_passed_over_leads_when_its_turn_comes() {
    let world = well();
    let stand = |host: &'static str| {
        let (kv, options) = (Arc::new(world.store.client()), world.options(host));
        tokio::spawn(async move {
            let (core, _) = open(kv, options, host.into(), None).await.expect("elected");
            let running = Arc::clone(&core);
            tokio::spawn(async move { running.run().await });
            core
        })
    };
    let first = stand("h1").await.expect("it leads");
    let (second, third) = (stand("h2"), stand("h3"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = tokio::time::Instant::now();
    first.seal(Heir::Named("h2".into()));
    second.await.expect("it leads").seal(Heir::Named("h3".into()));
    third.await.expect("it leads");
    assert!(begun.elapsed() < world.options("h3").lease / 4, "{:?}", begun.elapsed());
}

/// A host that stands by, and what it reads before it leads.
fn stands_by(
    world: &World,
    host: &'static str,
) -> (JoinHandle<Opened>, mpsc::UnboundedReceiver<Ahead>) {
    let (kv, options) = (Arc::new(world.store.client()), world.options(host));
    let (tell, ahead) = mpsc::unbounded_channel();
    let opening = tokio::spawn(async move {
        let (core, opened) = open(kv, options, host.into(), Some(&tell)).await.expect("elected");
        tokio::spawn(async move { core.run().await });
        opened
    });
    (opening, ahead)
}

/// Calls a host, and waits until it is ready.
async fn called(core: &Core<SimulatedStore>, host: &str) -> Heir {
    core.call(Some(host.into()));
    let ready = async {
        loop {
            if let Ok(heir) = core.heir(host) {
                return heir;
            }
            core.watch().changed().await.expect("it leads");
        }
    };
    tokio::time::timeout(Duration::from_secs(4), ready).await.expect("it gets ready")
}

/// A leader that has called a host to lead next, and that one, which has read what there is.
struct Called {
    world: World,
    feed: Feed<SimulatedStore>,
    opening: JoinHandle<Opened>,
    ahead: mpsc::UnboundedReceiver<Ahead>,
    /// By this it says that it is ready.
    ready: oneshot::Sender<()>,
}

/// The log has one record by then.
async fn called_first() -> Called {
    let world = well();
    let mut feed = led(&world).await;
    let before = append(&mut feed, b"before");
    feed.core.watch().reached(before).await.expect("it may leave");
    let (opening, mut ahead) = stands_by(&world, "h2");
    feed.core.call(Some("h2".into()));
    let Some(Ahead::Begun { ready, .. }) = soon(ahead.recv()).await else { panic!("nothing") };
    Called { world, feed, opening, ahead, ready }
}

/// What comes within a time.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it comes")
}

fn numbers(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.index.0).collect()
}

/// It has read all there is before, and goes on with what comes; the transaction that seals makes it leader.
#[tokio::test(start_paused = true)]
async fn who_is_called_and_ready_leads_at_once() {
    let world = well();
    let mut feed = led(&world).await;
    for _ in 0..3 {
        append(&mut feed, b"before");
    }
    feed.core.watch().reached(Index(3)).await.expect("it may leave");
    let (opening, mut ahead) = stands_by(&world, "h2");
    let core = Arc::clone(&feed.core);
    core.call(Some("h2".into()));
    let Some(Ahead::Begun { records, ready, .. }) = soon(ahead.recv()).await else {
        panic!("nothing")
    };
    assert_eq!(numbers(&records), [1, 2, 3]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(core.heir("h2").is_err(), "it has not said that it is ready");
    ready.send(()).expect("it waits for that");
    let heir = called(&core, "h2").await;
    append(&mut feed, b"meanwhile");
    let Some(Ahead::More(records)) = soon(ahead.recv()).await else { panic!("nothing") };
    assert_eq!(numbers(&records), [4]);
    append(&mut feed, b"the last");
    let (begun, before) = (tokio::time::Instant::now(), world.store.counted());
    core.seal(heir);
    let opened = soon(opening).await.expect("it leads");
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    assert_eq!(numbers(&opened.records), [1, 2, 3, 4, 5], "{before:?}");
    assert_eq!((opened.epoch, opened.memory), (core.progress().epoch + 1, Memory::Kept));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(core.progress().may_leave, Index(5), "what was written with it may be told");
    assert!(matches!(core.progress().trouble, Some(Error::Closed(_))));
}

/// The host that was called has gone just before: nothing is carried out, and whoever leads goes on, at once.
#[tokio::test(start_paused = true)]
async fn who_is_ready_no_more_is_not_made_leader() {
    let Called { world, mut feed, opening, ready, .. } = called_first().await;
    let core = Arc::clone(&feed.core);
    ready.send(()).expect("it waits for that");
    let heir = called(&core, "h2").await;
    opening.abort();
    world.store.end_lease_of(b"holdall/cell/meta/leader/ready");
    let last = append(&mut feed, b"the last");
    core.seal(heir);
    withdrawn(&core).await;
    soon(core.watch().reached(last)).await.expect("it goes on");
    let progress = core.progress();
    assert!(progress.leads_until.expect("for a time") > core.place.kv.now(), "{progress:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(core.heir("h2"), Err(Error::NotReady { .. })));
}

/// Whoever goes on from what is read may not be able to.
#[tokio::test(start_paused = true)]
async fn who_cannot_get_ready_is_not_and_stands_by() {
    let Called { feed, opening, mut ahead, ready, .. } = called_first().await;
    let core = Arc::clone(&feed.core);
    drop(ready);
    assert!(matches!(soon(ahead.recv()).await, Some(Ahead::Over)));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(core.heir("h2").is_err() && !opening.is_finished());
    // Called off, and once more.
    core.call(None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    core.call(Some("h2".into()));
    let Some(Ahead::Begun { ready, .. }) = soon(ahead.recv()).await else { panic!("nothing") };
    ready.send(()).expect("it waits for that");
    core.seal(called(&core, "h2").await);
    assert_eq!(numbers(&soon(opening).await.expect("it leads").records), [1]);
}

/// What was sent to hand over was never answered, and the host that was to lead is gone: nothing is wrong any more, though nothing is
/// written.
#[tokio::test(start_paused = true)]
async fn who_goes_on_with_nothing_to_write_is_not_troubled() {
    let Called { world, feed, opening, ready, .. } = called_first().await;
    let core = Arc::clone(&feed.core);
    ready.send(()).expect("it waits for that");
    let heir = called(&core, "h2").await;
    opening.abort();
    world.store.set_faults(Faults { lost: 1000, ..Faults::default() });
    core.seal(heir);
    soon(async {
        while core.progress().trouble.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    world.store.end_lease_of(b"holdall/cell/meta/leader/ready");
    world.store.set_faults(Faults::default());
    withdrawn(&core).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let progress = core.progress();
    assert!(progress.trouble.is_none() && !progress.has_ended(), "{progress:?}");
    feed.admit(1).expect("something new is let in");
}

/// Nor if it was refused for want of room, and there is room.
#[tokio::test(start_paused = true)]
async fn who_goes_on_where_there_is_room_again_is_not_troubled() {
    let world = well();
    let feed = led(&world).await;
    world.store.set_full(true);
    let core = Arc::clone(&feed.core);
    core.seal(Heir::Named("h1".into()));
    withdrawn(&core).await;
    assert!(matches!(core.progress().trouble, Some(Error::Full(_))));
    world.store.set_full(false);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(core.progress().trouble.is_none(), "{:?}", core.progress());
}

/// Getting ready takes as long as it takes, while it is called: its lease counts from when it is.
#[tokio::test(start_paused = true)]
async fn who_takes_long_to_get_ready_leads_when_it_is() {
    let Called { world, mut feed, opening, ready, .. } = called_first().await;
    let core = Arc::clone(&feed.core);
    tokio::time::sleep(4 * world.options("h2").lease).await;
    append(&mut feed, b"meanwhile");
    ready.send(()).expect("it waits for that");
    core.seal(called(&core, "h2").await);
    assert_eq!(numbers(&soon(opening).await.expect("it leads").records), [1, 2]);
}

/// Whoever leads does not hear any more of the host that is ready, and calls it again: that one has said so, and does not again.
#[tokio::test(start_paused = true)]
async fn who_has_said_that_it_is_ready_is_heard_later() {
    let Called { feed, mut ahead, ready, opening: _opening, .. } = called_first().await;
    let core = Arc::clone(&feed.core);
    ready.send(()).expect("it waits for that");
    called(&core, "h2").await;
    // Called off and called once more before anybody has heard of it.
    core.call(None);
    assert!(core.heir("h2").is_err(), "it is not known");
    core.call(Some("h2".into()));
    called(&core, "h2").await;
    assert!(ahead.try_recv().is_err(), "it has gone on");
}
