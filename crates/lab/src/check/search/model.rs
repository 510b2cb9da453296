//! What the search needs to know of a world: states as lists of numbers, and their successors.
//!
//! The search, the fair-cycle analysis and the tables behind them are written against this, and
//! so are compiled once, not once for each protocol.

use std::io;

use holdall_core::{CellId, Property};
use serde::{Deserialize, Serialize};

use crate::check::checkpoint::{RecordReader, RecordWriter, Unread};

/// A world to be searched.
pub(crate) trait Model: Sync {
    fn start(&self) -> Vec<u32>;

    /// One thread's way of making successors.
    fn expander(&self) -> Box<dyn Expander + Send + '_>;

    /// For each user, the mask of those it shares a pool with (itself among them).
    fn sharing(&self) -> &[u32];

    /// Writes down what the numbers in states stand for. Numbers given later may be among them.
    fn write_parts(&self, to: &mut RecordWriter) -> io::Result<()>;

    /// Reads it back, before any number was given.
    fn read_parts(&self, from: &mut RecordReader) -> Result<(), Unread>;

    /// Whether these are the numbers of a state.
    fn is_state(&self, state: &[u32]) -> bool;
}

pub(crate) trait Expander {
    /// Appends all successors of a state.
    fn expand(&mut self, state: &[u32], out: &mut Successors) {
        let fingerprint = self.fingerprint(state);
        self.expand_known(state, fingerprint, out);
    }

    /// The same of a state whose fingerprint is known.
    fn expand_known(&mut self, state: &[u32], fingerprint: u64, out: &mut Successors);

    fn fingerprint(&mut self, state: &[u32]) -> u64;

    /// The same for all states that differ only by a shift of their stamps.
    fn fingerprint_up_to_shift(&mut self, state: &[u32]) -> u64;

    fn label(&self, state: &[u32]) -> Label;

    /// How far the stamps of one family are apart, at most.
    fn gap(&self, state: &[u32]) -> u64;
}

/// One thing that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ask(usize),
    Crash(usize),
    CrashManager(usize),
    Deliver(u32),
    Done(usize),
    Duplicate(u32),
    Leave(usize),
    Lose(u32),
    Reboot(CellId),
    Return(usize),
    Suspect(usize),
}

/// Actions that are the same for fairness: the delivery of one message to one role (up to a shift
/// of its stamps), one timer, one user's end of use. A fair run does not leave a class out for
/// ever while it is always possible; a timer, not even if it is possible again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Class(u32);

impl Class {
    /// New calls, departures, crashes, duplicates: nothing says they ever happen.
    pub(crate) const UNFAIR: Self = Self(0);
    const ITEMS_FROM: u32 = 32;
    const TIMER: u32 = 1 << 31;

    pub(crate) fn done(lane: usize) -> Self {
        Self(1 + lane as u32)
    }

    /// The user whose end of use this is.
    pub(crate) fn done_by(self) -> Option<usize> {
        (1..Self::ITEMS_FROM).contains(&self.0).then(|| self.0 as usize - 1)
    }

    /// By fingerprint. Should two classes ever collide, less is asked of fair runs, so that a
    /// starvation may be reported that is none, but none is missed.
    pub(crate) fn message(fingerprint: u64) -> Self {
        Self((fingerprint as u32 & !Self::TIMER).max(Self::ITEMS_FROM))
    }

    /// The same for a timer.
    pub(crate) fn timer(fingerprint: u64) -> Self {
        Self(fingerprint as u32 | Self::TIMER)
    }

    pub(crate) fn is_timer(self) -> bool {
        self.0 & Self::TIMER != 0
    }
}

/// What the liveness properties ask of a state, by user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Label {
    /// Who waits for a grant.
    pub(crate) waiting: u32,
    /// Who has ended its use and not been told yet that it may ask again.
    pub(crate) releasing: u32,
    /// Whose request does not fit beside those who never end their use.
    pub(crate) blocked: u32,
    /// Who waits for something that another waits for or uses.
    pub(crate) conflicted: u32,
    /// Who waits and depends on somebody who never ends its use, directly or over others who wait or use.
    pub(crate) dependent: u32,
    /// Whether somebody who never ends its use has begun it.
    pub(crate) endless: bool,
    /// Whether any request is under way.
    pub(crate) busy: bool,
    /// Where the user that may crash stands, if the world is asked to keep that.
    pub(crate) stage: StageNumber,
}

/// The number of a stage. Which stage has which number depends on who came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StageNumber(pub(crate) u8);

impl StageNumber {
    pub(crate) const CRASHED: Self = Self(u8::MAX);

    pub(crate) fn is_crashed(self) -> bool {
        self == Self::CRASHED
    }

    /// The set of just this stage.
    pub(crate) fn mask(self) -> u64 {
        1 << self.0
    }
}

/// What is wrong with a state that has come to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AtRest {
    /// Somebody waits, and nothing will happen by itself.
    pub(crate) deadlock: bool,
    /// Nobody has a request under way, but some role is not idle.
    pub(crate) residue: bool,
    /// Who waits, while nothing will happen by itself but ends of use by strangers.
    pub(crate) stuck: u32,
}

/// A safety property is broken by a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Breach {
    #[serde(with = "WrittenProperty")]
    pub(crate) property: Property,
    pub(crate) lane: Option<usize>,
    pub(crate) what: String,
}

/// How a [`Property`] is written down: unlike its name, so that it can be read back.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Property")]
enum WrittenProperty {
    Exclusion,
    AllOrNothing,
    Local,
    NoDeadlock,
    NoResidue,
    NoLivelock,
    NoStarvation,
    Concurrency,
    CurrentConflicts,
    Independence,
    BoundedOvertaking(u32),
}

/// The successors of some states, one after another.
#[derive(Default)]
pub(crate) struct Successors {
    words: Vec<u32>,
    /// Where the state that each step leads to ends, and where what it has dropped.
    ends: Vec<(usize, usize)>,
    pub(crate) steps: Vec<Step>,
    /// Messages under way before a step that it made worthless, so that they were taken out; of one step after another.
    dropped: Vec<Class>,
    /// Timers that are armed but may not ring yet, of one state after another.
    pub(crate) held: Vec<Class>,
    /// Questions that are answered, by number, of one state after another.
    pub(crate) answered: Vec<usize>,
    pub(crate) states: Vec<Expanded>,
}

/// What was found out about a state by expanding it.
pub(crate) struct Expanded {
    /// Where its steps end.
    pub(crate) steps_end: usize,
    /// Where its timers that may not ring yet end.
    pub(crate) held_end: usize,
    /// Where the questions that it answers end.
    pub(crate) answered_end: usize,
    pub(crate) rest: AtRest,
}

pub(crate) struct Step {
    pub(crate) fingerprint: u64,
    pub(crate) action: Action,
    /// If the user that takes the step stops in the middle of it: how many messages have left.
    pub(crate) cut: Option<u32>,
    pub(crate) class: Class,
    pub(crate) label: Label,
    pub(crate) breach: Option<Box<Breach>>,
}

impl Successors {
    /// A step leads to a state, and makes some messages worthless.
    pub(crate) fn push(&mut self, step: Step, state: &[u32], dropped: &[Class]) {
        self.dropped.extend_from_slice(dropped);
        self.words.extend_from_slice(state);
        self.ends.push((self.words.len(), self.dropped.len()));
        self.steps.push(step);
    }

    /// All successors of one state have been pushed.
    pub(crate) fn finish(&mut self, rest: AtRest) {
        self.states.push(Expanded {
            steps_end: self.steps.len(),
            held_end: self.held.len(),
            answered_end: self.answered.len(),
            rest,
        });
    }

    pub(crate) fn state(&self, step: usize) -> &[u32] {
        &self.words[self.begin(step).0..self.ends[step].0]
    }

    /// The messages that a step made worthless.
    pub(crate) fn dropped(&self, step: usize) -> &[Class] {
        &self.dropped[self.begin(step).1..self.ends[step].1]
    }

    fn begin(&self, step: usize) -> (usize, usize) {
        if step == 0 { (0, 0) } else { self.ends[step - 1] }
    }

    pub(crate) fn clear(&mut self) {
        self.dropped.clear();
        self.words.clear();
        self.ends.clear();
        self.steps.clear();
        self.held.clear();
        self.answered.clear();
        self.states.clear();
    }
}
