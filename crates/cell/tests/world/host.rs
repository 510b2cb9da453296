//! A host: a cell with its log. What it decides is logged, and leaves when the log says so.

use std::collections::VecDeque;

use holdall_cell::facts::{Fact, How};
use holdall_cell::replay::{Recorded, Replay, Replayed};
use holdall_cell::{Cell, Declared, Effect, Input, Limits, Start};
use holdall_log::{Class, Entry, Index, Log, Memory, Opened, Store, Watch};
use holdall_wire::{Kind, RequestNo};

/// What is to be done, and when it may be.
struct Held {
    effect: Effect,
    index: Index,
    synced: bool,
    epoch: u32,
}

pub(crate) struct Host {
    pub(crate) cell: Cell,
    log: Box<dyn Log>,
    watch: Watch,
    last: Index,
    held: VecDeque<Held>,
    pub(crate) logic: u32,
    /// Whether something could not be logged: it is at its end.
    pub(crate) failed: bool,
}

/// What a log has led to.
pub(crate) fn replay(logic: u32, opened: &Opened) -> Replayed {
    let snapshot = opened.snapshot.as_ref().map(|snapshot| (snapshot.logic, &*snapshot.payload));
    let mut replay = Replay::new(logic, snapshot).expect("readable");
    for record in &opened.records {
        replay.take(record.logic, &record.payload).expect("readable");
    }
    replay.finish().expect("an engine")
}

/// How a host starts, with one of some configurations. The epoch is that of its log.
pub(crate) fn start(at: u64, boot: &str, config: u8) -> Start {
    let name = |text: &str| text.parse().expect("a name");
    let pool = |text: &str, kind, limit| Declared { name: name(text), kind, limit };
    let named = |units: &[&str]| Kind::Named(units.iter().map(|unit| name(unit)).collect());
    let pools = match config {
        0 => {
            vec![pool("cpu", Kind::Numbered(3), None), pool("board", named(&["red", "blue"]), None)]
        }
        1 => vec![
            pool("cpu", Kind::Numbered(2), Some(6000)),
            pool("board", named(&["red", "blue", "green"]), None),
        ],
        2 => vec![pool("cpu", named(&["one", "two"]), None)],
        3 => vec![pool("lock0", Kind::Numbered(2), None), pool("board", Kind::Lock, Some(4000))],
        _ => vec![],
    };
    let limits = Limits { overtime: 2000, waiting: 6, ..Limits::default() };
    let (boot, boottime, wall, ephemeral) = (boot.into(), at, at, true);
    Start { boot, boottime, wall, ephemeral, pools, limits, ..Start::default() }
}

impl Host {
    /// Starts with whatever is in a store.
    pub(crate) fn start(store: &dyn Store, logic: u32, start: Start) -> Option<Self> {
        let (log, opened) = store.open().ok()?;
        // Killed at its very first start, it has an epoch and nothing else.
        let has_begun = opened.snapshot.is_some() || !opened.records.is_empty();
        assert!(!has_begun || opened.memory == Memory::Kept, "nothing is lost by a kill");
        let replayed = replay(logic, &opened);
        assert!(replayed.diverged.is_none(), "{:?}", replayed.diverged);
        let started = replayed.started(Start { epoch: opened.epoch, ..start });
        let cell = replayed.cell;
        let (watch, held) = (log.watch(), VecDeque::new());
        let last = watch.may_leave();
        let mut host = Self { cell, log, watch, last, held, logic, failed: false };
        host.input(0, started);
        Some(host)
    }

    /// Takes an input, and logs what came of it. Tells what was taken away from whoever had it.
    pub(crate) fn input(&mut self, at: u64, input: Input) -> Vec<RequestNo> {
        let recorded = Recorded::begin(at, &input).expect("written");
        let out = self.cell.step(at, input).expect("unbroken");
        self.cell.books().check().expect("the books are sound");
        if out.is_new {
            let (class, logic, sync) = (Class::Must, self.logic, out.sync);
            let log = &mut self.log;
            let append = |payload: &[u8]| log.append(Entry { class, logic, payload, sync });
            match recorded.end(&out.facts).expect("written").append(append) {
                Ok(index) => self.last = index,
                Err(_) => {
                    self.failed = true; // What follows from it must not leave.
                    return Vec::new();
                }
            }
        }
        let lost = out.facts.iter().filter_map(|fact| match fact {
            Fact::Ended { request, how: How::Lost | How::Overrun | How::WithItsGrant } => {
                Some(*request)
            }
            _ => None,
        });
        let lost = lost.collect();
        let (index, synced, epoch) = (self.last, out.sync, self.cell.epoch());
        let all = out.effects.into_iter();
        self.held.extend(all.map(|effect| Held { effect, index, synced, epoch }));
        lost
    }

    /// Hands over what was appended. Fails if the disk has.
    pub(crate) fn flush(&mut self) -> Result<(), holdall_log::Error> {
        self.log.flush()
    }

    pub(crate) fn raise_epoch(&mut self) {
        self.log.raise_epoch(self.cell.epoch()).expect("it can be");
    }

    /// The next that may leave by now.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        let progress = self.watch.progress();
        let next = self.held.front()?;
        let upto = if next.synced { progress.synced } else { progress.may_leave };
        if next.index > upto || next.epoch > progress.epoch {
            return None;
        }
        self.held.pop_front().map(|held| held.effect)
    }

    /// Makes a snapshot, as somebody beside the cell would: from the log alone.
    pub(crate) fn snapshot(&mut self) {
        let Ok(job) = self.log.begin_snapshot() else { return };
        let Ok((before, records)) = job.history() else { return };
        let before = before.as_ref().map(|snapshot| (snapshot.logic, &*snapshot.payload));
        let mut replay = Replay::new(self.logic, before).expect("readable");
        for record in &records {
            replay.take(record.logic, &record.payload).expect("readable");
        }
        let made = replay.finish().expect("an engine");
        assert!(made.diverged.is_none());
        if made.from_facts {
            return; // It has begun with another logic.
        }
        let bytes = made.cell.snapshot().expect("written");
        assert_eq!(bytes, self.cell.snapshot().expect("written"), "it is the state of the cell");
        drop(job.keep(self.logic, &bytes));
    }

    /// Whether nothing waits to leave.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }
}
