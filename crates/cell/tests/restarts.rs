//! Clients that come and go, and a host that is killed at any moment: nobody notices.

mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use holdall_cell::books::{Books, Held};
use holdall_cell::facts::{Fact, How};
use holdall_cell::replay::{LOGIC, Parts, Recorded, Replay};
use holdall_cell::{Cell, Input, Start};
use holdall_log::disk::simulated::{Fault, FaultKind, SimulatedDisk};
use holdall_log::file::{Durability, FileStore, Options, Syncing};
use holdall_log::memory::MemoryStore;
use holdall_log::{Identity, Life, Opened, Store};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use world::disk::Synced;
use world::host::{self, replay};
use world::{BOOT, Move, World, moves};

fn memory() -> MemoryStore {
    MemoryStore::new(Identity(1), Life(2))
}

fn recorded(opened: &Opened) -> Vec<Recorded> {
    let mut parts = Parts::default();
    let records = opened.records.iter();
    records.filter_map(|record| parts.take(&record.payload).expect("readable")).collect()
}

/// A call asks once.
fn check_asked_once(opened: &Opened) {
    let mut seen = BTreeSet::new();
    for fact in recorded(opened).iter().flat_map(|recorded| &recorded.facts) {
        match fact {
            Fact::Asked { session, call, .. } => {
                assert!(seen.insert((*session, *call)), "{session:?} {call:?} asked twice");
            }
            // Another may come under its id.
            Fact::SessionOver(over) => seen.retain(|(session, _)| session != over),
            _ => {}
        }
    }
}

/// What is so after a start, whoever was connected before.
fn started(mut cell: Cell, epoch: u32, rebuilt: bool) -> Cell {
    let boot = cell.clock().boot.clone();
    let start = Start { epoch, rebuilt, ..host::start(cell.now(), &boot, 0) };
    cell.step(0, Input::Started(Box::new(start))).expect("unbroken");
    cell.books().check().expect("sound");
    let (held, waiting) = cell.engine().load();
    assert_eq!(held, cell.books().grants().count(), "the engine has what the books have");
    assert_eq!(waiting, cell.books().waiting().count());
    cell
}

/// Both have the same requests, and what was held before is held in both as it was.
fn check_same(before: &Books, one: &Books, other: &Books) {
    let requests = |books: &Books| {
        let held = books.grants().map(|(request, ..)| request);
        held.chain(books.waiting().map(|(request, _)| request)).collect::<BTreeSet<_>>()
    };
    assert_eq!(requests(one), requests(other));
    for (request, _, held) in before.grants() {
        let (Some(entry), Some(again)) = (one.get(request), other.get(request)) else { continue };
        // With the start a part may have come to outlast its grant.
        let as_it_was =
            |now: Option<&Held>| now.map(|now| Held { overtime: held.overtime, ..now.clone() });
        let (now, again_now) = (as_it_was(entry.held.as_ref()), as_it_was(again.held.as_ref()));
        assert_eq!((now.as_ref(), again_now.as_ref()), (Some(held), Some(held)));
        assert_eq!((&again.holder, &again.left), (&entry.holder, &entry.left), "{request}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(300)))]

    /// Whatever happens: no unit is told to two, fences grow, what was told is there after a restart,
    /// nothing is done twice, nothing is left behind; and a replay comes to the same state.
    #[test]
    fn nobody_notices_a_restart(moves in moves(150), upgrades in any::<bool>()) {
        let store = memory();
        let open = || Box::new(store.clone()) as Box<dyn Store>;
        let mut world = World::new(&open, LOGIC);
        world.upgrades = upgrades;
        for one in &moves {
            world.play(one);
        }
        world.end_all();
        world.flush();
        let live = world.host.take().expect("it runs");
        let state = live.cell.snapshot().expect("written");
        let logic = live.logic;
        drop(live);
        let (_, opened) = store.open().expect("it is there");
        check_asked_once(&opened);
        let again = replay(logic, &opened);
        prop_assert!(again.diverged.is_none(), "{:?}", again.diverged);
        prop_assert!(!again.from_facts);
        prop_assert_eq!(again.cell.snapshot().expect("written"), state);
    }

    /// From every record on: the same code goes on with the same state, another with the same grants
    /// from the facts.
    #[test]
    fn from_any_record_on_it_goes_on(moves in moves(100)) {
        let store = memory();
        let open = || Box::new(store.clone()) as Box<dyn Store>;
        let mut world = World::new(&open, LOGIC);
        let is_other = |one: &&Move| !matches!(one, Move::Snapshot | Move::Configure(_));
        for one in moves.iter().filter(is_other) {
            world.play(one);
        }
        world.flush();
        world.host = None;
        let (_, opened) = store.open().expect("it is there");
        let mut so_far = Replay::new(LOGIC, None).expect("an engine");
        // Whoever was passed over because of somebody overdue is so no more after an upgrade.
        let rings = moves.iter().any(|one| matches!(one, Move::Ring(_)));
        let mut books = Books::default();
        for record in &opened.records {
            so_far.take(record.logic, &record.payload).expect("readable");
            let recorded = Parts::default().take(&record.payload).expect("readable");
            let facts = recorded.expect("in one part").facts;
            facts.iter().for_each(|fact| books.enter(fact).expect("it can be"));
            let state = so_far.cell().snapshot().expect("written");
            let same = Replay::new(LOGIC, Some((LOGIC, &state))).expect("readable");
            let same = same.finish().expect("an engine");
            prop_assert!(!same.from_facts);
            prop_assert_eq!(&same.cell.snapshot().expect("written"), &state);
            let other = Replay::new(LOGIC + 1, Some((LOGIC, &state))).expect("readable");
            let other = other.finish().expect("an engine");
            prop_assert!(other.from_facts);
            let (same, other) = (started(same.cell, 99, false), started(other.cell, 99, true));
            check_same(&books, same.books(), other.books());
            check_same(&books, &books, so_far.cell().books());
            if !rings {
                prop_assert_eq!(same.engine().waiting(), other.engine().waiting(), "their order");
            }
        }
    }

    /// A record whose input leads to something else now is no end: its facts count, and so do those
    /// of all that follow.
    #[test]
    fn what_cannot_be_replayed_goes_on_from_the_facts(moves in moves(80), which in any::<prop::sample::Index>()) {
        let store = memory();
        let open = || Box::new(store.clone()) as Box<dyn Store>;
        let mut world = World::new(&open, LOGIC);
        let is_other = |one: &&Move| !matches!(one, Move::Snapshot | Move::Configure(_));
        for one in moves.iter().filter(is_other) {
            world.play(one);
        }
        world.flush();
        world.host = None;
        let (_, opened) = store.open().expect("it is there");
        let at = which.index(opened.records.len());
        let (mut whole, mut odd) =
            (Replay::new(LOGIC, None).expect("new"), Replay::new(LOGIC, None).expect("new"));
        for (number, record) in opened.records.iter().enumerate() {
            whole.take(record.logic, &record.payload).expect("readable");
            let recorded = Parts::default().take(&record.payload).expect("readable");
            let mut recorded = recorded.expect("in one part");
            if number == at {
                recorded.input = postcard::to_allocvec(&Input::Dismiss).expect("written");
            }
            odd.take_whole(LOGIC, &recorded).expect("its facts count");
        }
        let (whole, odd) = (whole.finish().expect("new"), odd.finish().expect("new"));
        let before = whole.cell.books().clone();
        check_same(&before, &before, odd.cell.books());
        let (rebuilt, whole) = (odd.from_facts, started(whole.cell, 99, false));
        check_same(&before, whole.books(), started(odd.cell, 99, rebuilt).books());
    }

    /// On files, with crashes at any operation and in the middle of writes.
    #[test]
    fn nobody_notices_a_crash(
        moves in moves(120),
        synced in any::<bool>(),
        crashes in prop::collection::vec((1..40u64, 0..300usize), 0..6),
    ) {
        let disk = std::cell::RefCell::new(SimulatedDisk::new(3));
        let crashes = std::cell::RefCell::new(crashes);
        let durability = if synced { Durability::Synced } else { Durability::Written };
        let options = Options { durability, syncing: Syncing::Caller, segment: 4000, adopt: false };
        // Whoever opens it finds what a killed process has left.
        let open = || {
            let next = disk.borrow().killed();
            let fault = crashes.borrow_mut().pop().map(|(after, bytes)| {
                Fault { at: next.operations() + after, kind: FaultKind::Crash { bytes } }
            });
            next.set_fault(fault);
            *disk.borrow_mut() = next.clone();
            Box::new(Synced(FileStore::new(Arc::new(next), None, options))) as Box<dyn Store>
        };
        let mut world = World::new(&open, LOGIC);
        for one in &moves {
            world.play(one);
        }
        crashes.borrow_mut().clear();
        world.start();
        world.end_all();
    }
}

/// A record that was cut off in the middle was never told.
#[test]
fn cut_anywhere_it_goes_on() {
    let disk = SimulatedDisk::new(3);
    let options = Options { syncing: Syncing::Caller, segment: 1 << 16, ..Options::default() };
    let open = || {
        Box::new(Synced(FileStore::new(Arc::new(disk.killed()), None, options))) as Box<dyn Store>
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let story = moves(120).new_tree(&mut runner).expect("a story").current();
    let mut world = World::new(&open, LOGIC);
    for one in story.iter().filter(|one| {
        !matches!(one, Move::Snapshot | Move::Kill | Move::Reboot | Move::Configure(_))
    }) {
        world.play(one);
    }
    world.flush();
    world.host = None;
    let name = "segment-0000000000000001";
    let end = disk.content(name).expect("it is there").iter().rposition(|byte| *byte != 0);
    let end = end.expect("something") + 1;
    let mut last = 0;
    for cut in (128..end).rev() {
        let copy = disk.as_it_is();
        copy.tamper(name, |content| content[cut..].fill(0));
        let store = FileStore::new(Arc::new(copy), None, options);
        let (_log, opened) = store.open().unwrap_or_else(|error| panic!("{cut}: {error}"));
        let found = replay(LOGIC, &opened);
        assert!(found.diverged.is_none() && !found.from_facts);
        if opened.records.len() != last {
            last = opened.records.len();
            started(found.cell, 99, false);
        }
    }
}

/// Numbers of an epoch are not told before it is kept: whoever starts next begins above them.
#[test]
fn no_number_is_told_before_its_epoch_is_kept() {
    use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
    use holdall_cell::{Effect, Wish};
    use holdall_log::{Class, Entry};
    use holdall_wire::{Ask, From, Lasting, Reply, RequestNo, Who};
    let (conn, session, secret) = (ConnNo(1), SessionId(1), Secret(1));
    let means = Means::Lease(1000);
    let hello = Hello { session, secret, uid: 1, means, returns: false, heard: CallNo(0) };
    let needs = vec!["a".parse().expect("a need")];
    let (now, lasting, from, within) = (false, Lasting::Connection, From::default(), None);
    let ask = Ask { needs, now, lasting, from, within, limit: None, part: None };
    // An earlier version has used up all numbers of the second epoch but one.
    let request = RequestNo((2 << 32) | 0xffff_fffe);
    let asked = Fact::Asked {
        request,
        session,
        call: CallNo(1),
        who: Arc::default(),
        ask: ask.clone().into(),
        at: 1,
    };
    let facts = vec![asked, Fact::Ended { request, how: How::Withdrawn }];
    let recorded = Recorded::begin(1, &Input::Due).and_then(|begun| begun.end(&facts));
    let store = memory();
    let (mut log, _) = store.open().expect("empty");
    let (class, logic, sync) = (Class::Must, LOGIC - 1, false);
    let append = |payload: &[u8]| log.append(Entry { class, logic, payload, sync });
    recorded.expect("written").append(append).expect("kept");
    log.flush().expect("kept");
    let mut host = host::Host::start(&store, LOGIC, host::start(1, BOOT, 0)).expect("it starts");
    let who = Arc::new(Who::default());
    let wish = Wish::Ask { who, ask: ask.into(), length: None };
    host.input(1, Input::Attach { conn, hello });
    host.input(1, Input::Call { conn, call: CallNo(1), heard: CallNo(0), wish });
    host.flush().expect("handed over");
    let granted = |effects: &[Effect]| {
        let is_grant =
            |effect: &Effect| matches!(effect, Effect::Reply { reply: Reply::Granted { .. }, .. });
        effects.iter().any(is_grant)
    };
    assert_eq!(host.cell.epoch(), 3, "the grant's fence is of the next epoch");
    let mut leave = || std::iter::from_fn(|| host.next_effect()).collect::<Vec<_>>();
    assert!(!granted(&leave()), "nobody has kept that epoch");
    host.raise_epoch();
    let effects: Vec<_> = std::iter::from_fn(|| host.next_effect()).collect();
    assert!(granted(&effects));
}
