//! A host whose log fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use holdall_cell::session::{CallNo, Hello, Means, Secret, SessionId};
use holdall_cell::{Start, Wish};
use holdall_core::CellId;
use holdall_log::memory::{Commits, MemoryStore};
use holdall_log::{Identity, Life, Store};
use holdall_wire::{Ask, From, Lasting, Who};

use super::*;
use crate::cluster::frame::Frame;

/// What a log does not do.
#[derive(Clone, Default)]
pub(in crate::service) struct Trouble {
    appends: Arc<AtomicBool>,
    flushes: Arc<AtomicBool>,
    room: Arc<AtomicBool>,
}

impl Trouble {
    /// Nothing can be appended.
    pub(in crate::service) fn stop_appends(&self, stop: bool) {
        self.appends.store(stop, Relaxed);
    }

    /// Nothing that was appended is written.
    pub(in crate::service) fn stop_flushes(&self, stop: bool) {
        self.flushes.store(stop, Relaxed);
    }

    /// There is no room for anything new.
    pub(in crate::service) fn fill(&self, full: bool) {
        self.room.store(full, Relaxed);
    }
}

pub(in crate::service) struct Troubled {
    pub(super) log: Box<dyn Log>,
    pub(super) trouble: Trouble,
}

impl Log for Troubled {
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
        let full = self.trouble.room.load(Relaxed);
        if full { Err(Error::Full("a test".into())) } else { self.log.admit(bytes) }
    }

    fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error> {
        let fails = self.trouble.appends.load(Relaxed);
        if fails { Err(Error::Full("a test".into())) } else { self.log.append(entry) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let fails = self.trouble.flushes.load(Relaxed);
        if fails { Err(Error::Full("a test".into())) } else { self.log.flush() }
    }

    fn watch(&self) -> Watch {
        self.log.watch()
    }

    fn keep_room(&mut self, bytes: u64) {
        self.log.keep_room(bytes);
    }

    fn raise_epoch(&mut self, to: u32) -> Result<(), Error> {
        self.log.raise_epoch(to)
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error> {
        self.log.begin_snapshot()
    }

    fn seal(self: Box<Self>) -> Result<(), Error> {
        self.log.seal()
    }

    fn hand_over(&mut self, _heir: &str) -> Result<(), Error> {
        let full = self.trouble.room.load(Relaxed);
        if full { Err(Error::Full("a test".into())) } else { Ok(()) }
    }
}

/// How far a log has come that has no room.
pub(in crate::service) fn no_room() -> Watch {
    let store = MemoryStore::new(Identity(1), Life(1));
    let (log, _) = store.open().expect("new");
    store.set_commits(Commits::Full);
    log.watch()
}

fn attach(number: u64) -> Input {
    let (conn, session) = (ConnNo(number), SessionId(number.into()));
    let (secret, means, heard) = (Secret(7), Means::Lease(1000), CallNo(0));
    let hello = Hello { session, secret, uid: 1, means, returns: false, heard };
    Input::Attach { conn, hello }
}

fn ask(number: u64) -> Input {
    let (now, from, within) = (false, From::default(), None);
    let (needs, lasting) = (vec!["x".parse().expect("a need")], Lasting::Connection);
    let ask = Ask { needs, now, lasting, from, within, limit: None, part: None };
    let wish = Wish::Ask { who: Arc::new(Who::default()), ask: Arc::new(ask), length: None };
    Input::Call { conn: ConnNo(number), call: CallNo(1), heard: CallNo(0), wish }
}

fn due(host: &mut Host) -> Vec<Leaving> {
    let mut due = Vec::new();
    host.due(&mut due);
    due
}

#[test]
fn nothing_follows_a_step_that_is_in_no_record() {
    let store = MemoryStore::new(Identity(1), Life(1));
    let (log, opened) = store.open().expect("new");
    let mut host = Host::new(Cell::new().expect("a cell"), log, &opened, SnapshotEvery::default());
    let trouble = host.trouble_log();
    let start = Start { epoch: opened.epoch, life: 1, ephemeral: true, ..Start::default() };
    host.step(0, Input::Started(Box::new(start))).expect("begun");
    for number in 1..=3 {
        host.step(0, attach(number)).expect("there");
        host.step(0, ask(number)).expect("asked");
    }
    host.flush().expect("room");
    let before = host.last();
    host.hold(Leaving::Events(Index(0), 0), false);
    trouble.stop_appends(true);
    // The first one's end grants it to the second one.
    assert!(matches!(host.step(0, Input::Over(SessionId(1))), Err(Broken::Log(Error::Full(_)))));
    trouble.stop_appends(false);
    // The next would grant it to the third one, though the first has it in the log.
    let next = host.step(0, Input::Over(SessionId(2)));
    assert!(matches!(next, Err(Broken::Log(Error::Closed(_)))), "{next:?}");
    assert!(host.admit(&ask(3)).is_err() && host.begin_snapshot().is_err());
    host.hold(Leaving::Events(Index(0), 0), false);
    assert!(due(&mut host).is_empty(), "what leaves may rest on what is in no record");
    assert!(host.seal().is_err());
    drop(host);
    let (_, opened) = store.open().expect("kept");
    assert_eq!(opened.records.last().map(|record| record.index), Some(before));
}

/// Also what is synced first, as that something was taken back is; and nobody else waits for that.
#[test]
fn what_is_said_to_a_cell_leaves_in_the_order_in_which_it_came_up() {
    let store = MemoryStore::new(Identity(1), Life(1));
    let (log, opened) = store.open().expect("new");
    let mut host = Host::new(Cell::new().expect("a cell"), log, &opened, SnapshotEvery::default());
    let start = Start { epoch: opened.epoch, life: 1, ephemeral: true, ..Start::default() };
    host.step(0, Input::Started(Box::new(start))).expect("begun");
    let said = |cell, sent| Leaving::Said(CellId(cell), 1, Box::new(Frame::Beaten { sent }));
    host.hold(said(7, 1), true);
    host.hold(said(7, 2), false);
    host.hold(said(8, 3), false);
    host.flush().expect("room");
    let left = due(&mut host).into_iter().filter_map(|leaving| match leaving {
        Leaving::Said(cell, _, frame) => Some((cell.0, *frame)),
        _ => None,
    });
    let beaten = |cell, sent| (cell, Frame::Beaten { sent });
    assert_eq!(left.collect::<Vec<_>>(), [beaten(8, 3), beaten(7, 1), beaten(7, 2)]);
    assert!(host.is_idle());
}

#[test]
fn without_room_to_hand_over_it_goes_on() {
    let store = MemoryStore::new(Identity(1), Life(1));
    let (log, opened) = store.open().expect("new");
    let mut host = Host::new(Cell::new().expect("a cell"), log, &opened, SnapshotEvery::default());
    let trouble = host.trouble_log();
    let start = Start { epoch: opened.epoch, life: 1, ephemeral: true, ..Start::default() };
    host.step(0, Input::Started(Box::new(start))).expect("begun");
    trouble.fill(true);
    assert!(matches!(host.hand_over("another"), Err(Error::Full(_))));
    host.step(0, attach(1)).expect("it goes on");
    trouble.fill(false);
    host.hand_over("another").expect("there is room");
    let next = host.step(0, attach(2));
    assert!(matches!(next, Err(Broken::Log(Error::Closed(_)))), "{next:?}");
}
