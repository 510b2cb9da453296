//! Copies of a cell: taken, put back, adopted; and fences that go on under a name.

use std::sync::Arc;

use super::super::copy::CellCopy;
use super::super::lead::{EPOCHS_AHEAD, Place};
use super::super::log::open;
use super::super::options::Rules;
use super::store::Faults;
use super::tests::{append, faults, led, well};
use super::world::World;
use crate::{Lost, Memory, OpenError};

/// A cell with a snapshot in several pieces, and records after it; the host has let go of it.
async fn copied(world: &World) -> CellCopy {
    let mut feed = led(world).await;
    for round in 0..30u8 {
        append(&mut feed, &vec![round; 100_000]);
        if round == 9 {
            let (upto, _token) = feed.begin_snapshot().expect("none is being made");
            feed.core.keeper.keep(upto, 1, vec![7; 3 << 20].into()).await.expect("kept");
        }
    }
    let last = feed.next.before();
    feed.core.watch().reached(last).await.expect("it may leave");
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    place.copy().await.expect("copied")
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_put_where_nothing_is_and_adopted() {
    let copy = copied(&well()).await;
    assert_eq!((copy.snapshot.as_ref().map(|it| it.upto.0), copy.records.len()), (Some(10), 20));
    let file = copy.write();
    assert_eq!(CellCopy::read(file.clone()).as_ref(), Some(&copy));
    let mut whole = 0;
    for seed in 0..200 {
        let world = World::new(seed, faults(seed), Rules::default());
        let kv = Arc::new(world.store.client());
        let mut options = world.options("h");
        options.create = false;
        let place = Place::new(Arc::clone(&kv), options.clone(), "here".into());
        let put = place.put_copy(&copy).await;
        world.store.set_faults(Faults::default());
        if put.is_ok() {
            assert!(place.put_copy(&copy).await.is_err(), "something is there");
            let refused = open(Arc::clone(&kv), options.clone(), "here".into(), None).await;
            assert!(matches!(refused, Err(OpenError::Restored(_))), "{:?}", refused.err());
        }
        options.adopt = true;
        let opened = match open(kv, options, "here".into(), None).await {
            // Half a copy is no cell.
            Err(OpenError::NoCell(_)) if put.is_err() => continue,
            opened => opened.expect("adopted").1,
        };
        whole += 1;
        assert_eq!((opened.identity, opened.memory), (copy.identity, Memory::Lost(Lost::Adopted)));
        assert_eq!((&opened.snapshot, &opened.records), (&copy.snapshot, &copy.records));
        assert!(opened.life != copy.life && opened.epoch >= copy.epoch + (1 << 16));
    }
    assert!(whole > 100, "{whole}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_copy_is_none() {
    let mut copy = copied(&well()).await;
    copy.records.truncate(2);
    copy.snapshot.as_mut().expect("one").payload.truncate(100);
    let file = copy.write();
    for length in 0..file.len() {
        assert_eq!(CellCopy::read(file.slice(..length)), None, "cut off at {length}");
    }
    for at in (0..file.len()).step_by(97) {
        let mut damaged = file.to_vec();
        damaged[at] ^= 1;
        assert_eq!(CellCopy::read(damaged.into()), None, "damaged at {at}");
    }
}

/// What was removed has a name, and whoever remembers fences knows them by that.
#[tokio::test(start_paused = true)]
async fn a_cell_under_a_name_that_others_had_begins_above_their_fences() {
    let (world, copy) = (World::new(1, Faults::default(), Rules::default()), copied(&well()).await);
    let opened = async |above, create, adopt| {
        let mut options = world.options("h");
        (options.above, options.create, options.adopt) = (above, create, adopt);
        let opened = open(Arc::new(world.store.client()), options, "here".into(), None).await;
        world.store.end_lease_of(b"holdall/cell/meta/leader");
        opened.expect("nobody leads it").1
    };
    let place = Place::new(Arc::new(world.store.client()), world.options("h"), "here".into());
    let made = opened(500, true, false).await;
    assert_eq!((made.epoch, made.memory), (501, Memory::New));
    assert_eq!(opened(40, false, false).await.epoch, 502, "it is above that already");
    assert_eq!(opened(900, false, false).await.epoch, 901);
    place.remove(made.identity, None).await.expect("deleted");

    let another = copy.another(3, vec![1; 100].into()).expect("random");
    assert!(another.identity != copy.identity && another.epoch == copy.epoch);
    let file = another.write();
    assert_eq!(CellCopy::read(file).as_ref(), Some(&another));
    place.put_copy(&another).await.expect("nothing is there");
    let adopted = opened(2000, false, true).await;
    assert_eq!((adopted.identity, adopted.epoch), (another.identity, 2000 + EPOCHS_AHEAD));
    assert_eq!((&adopted.snapshot, adopted.records.len()), (&another.snapshot, 0));
}
