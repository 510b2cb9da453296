//! What the search needs to know of a world: states as lists of numbers, and their successors.
//!
//! The search, the fair-cycle analysis and the tables behind them are written against this, and
//! so are compiled once, not once for each protocol.

use holdall_core::Property;

use super::parts::Row;
use super::stages::StageNumber;

/// A world to be searched.
pub(super) trait Machine: Sync {
    fn start(&self) -> Vec<u32>;

    /// One thread's way of making successors.
    fn expander(&self) -> Box<dyn Expander + Send + '_>;

    /// For each user, the mask of those it shares a pool with (itself among them).
    fn sharing(&self) -> &[u32];
}

pub(super) trait Expander {
    /// Appends all successors of a state.
    fn expand(&mut self, state: &[u32], out: &mut Successors);

    fn fingerprint(&mut self, state: &[u32]) -> u64;

    fn label(&self, state: &[u32]) -> Label;
}

/// One thing that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Ask(usize),
    Crash(usize),
    Deliver(u32),
    Done(usize),
    Duplicate(u32),
    Leave(usize),
    Lose(u32),
    Return(usize),
    Suspect(usize),
}

/// Actions that are the same for fairness: the delivery of one message to one role (up to a shift
/// of its stamps), one timer, one user's end of use. A fair run does not leave a class out for
/// ever while it is always possible; a timer, not even if it is possible again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Class(u32);

impl Class {
    /// New calls, departures, crashes, duplicates: nothing says they ever happen.
    pub(super) const UNFAIR: Self = Self(0);
    const ITEMS_FROM: u32 = 32;
    const TIMER: u32 = 1 << 31;

    pub(super) fn done(lane: usize) -> Self {
        Self(1 + lane as u32)
    }

    /// The user whose end of use this is.
    pub(super) fn done_by(self) -> Option<usize> {
        (1..Self::ITEMS_FROM).contains(&self.0).then(|| self.0 as usize - 1)
    }

    /// By fingerprint. Should two classes ever collide, less is asked of fair runs, so that a
    /// starvation may be reported that is none, but none is missed.
    pub(super) fn item<T>(row: &Row<T>) -> Self {
        Self((row.print.relative as u32 & !Self::TIMER).max(Self::ITEMS_FROM))
    }

    /// The same for a timer.
    pub(super) fn timer<T>(row: &Row<T>) -> Self {
        Self(row.print.relative as u32 | Self::TIMER)
    }

    pub(super) fn is_timer(self) -> bool {
        self.0 & Self::TIMER != 0
    }
}

/// What the liveness properties ask of a state, by user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// Who waits for a grant.
    pub(super) waiting: u32,
    /// Whose request does not fit beside those who never end their use.
    pub(super) blocked: u32,
    /// Whether somebody who never ends its use has begun it.
    pub(super) endless: bool,
    /// Where the user that may crash stands, if the world is asked to keep that.
    pub(super) stage: StageNumber,
}

/// What is wrong with a state that has come to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// Somebody waits, and nothing will happen by itself.
    pub(super) deadlock: bool,
    /// Nobody has a request under way, but some role is not idle.
    pub(super) residue: bool,
    /// Who waits, while nothing will happen by itself but ends of use by strangers.
    pub(super) stuck: u32,
}

/// A safety property is broken by a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) property: Property,
    pub(super) lane: Option<usize>,
    pub(super) what: String,
}

/// The successors of some states, one after another.
#[derive(Default)]
pub(super) struct Successors {
    words: Vec<u32>,
    /// Where the state that each step leads to ends.
    ends: Vec<usize>,
    pub(super) steps: Vec<Step>,
    /// For each expanded state: where its steps end, and what is to be said of it.
    pub(super) states: Vec<(usize, Rest)>,
}

pub(super) struct Step {
    pub(super) print: u64,
    pub(super) action: Action,
    /// If the user that takes the step stops in the middle of it: how many messages have left.
    pub(super) cut: Option<usize>,
    pub(super) class: Class,
    pub(super) label: Label,
    pub(super) breach: Option<Box<Breach>>,
}

impl Successors {
    /// A step leads to a state.
    pub(super) fn push(&mut self, step: Step, state: &[u32]) {
        self.words.extend_from_slice(state);
        self.ends.push(self.words.len());
        self.steps.push(step);
    }

    /// All successors of one state have been pushed.
    pub(super) fn finish(&mut self, rest: Rest) {
        self.states.push((self.steps.len(), rest));
    }

    pub(super) fn state(&self, step: usize) -> &[u32] {
        let start = if step == 0 { 0 } else { self.ends[step - 1] };
        &self.words[start..self.ends[step]]
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
        self.steps.clear();
        self.states.clear();
    }
}
