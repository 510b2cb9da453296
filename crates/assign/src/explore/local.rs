//! The states of single processes, each kept once, and where each step leads.
//!
//! A step depends on nothing but the process and what it reads. There are far fewer states of
//! single processes than of all together, so almost every step has been made before and is only
//! looked up; and a state of the whole is a few numbers and the memory.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::{Buffers, Model};
use crate::machine::{Access, Machine};

/// A process and the access it makes next.
/// [`Model`] has an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slotted<P> {
    /// The process.
    pub process: P,
    /// Its next access.
    pub next: Access,
    /// Writes that are not in memory yet.
    pub buffer: Vec<(usize, u64)>,
    /// What it read of others since its last fence, whole files: owner and registers.
    pub(super) read: Vec<(usize, Vec<u64>)>,
    /// Whether it may stop for good here: its last access was a write, and stopping is of
    /// interest.
    pub(super) may_stop: bool,
}

impl<P> Slotted<P> {
    pub(super) fn new(process: P, next: Access) -> Self {
        Self { process, next, buffer: Vec::new(), read: Vec::new(), may_stop: false }
    }

    /// Whether it has finished all its operations.
    /// [`Model`] has an example.
    pub fn done(&self) -> bool {
        self.next == Access::Done && self.buffer.is_empty()
    }
}

impl<P: Machine> Slotted<P> {
    /// Runs a process up to its next access. Without buffers, fences and publications change
    /// nothing that anybody can see, so they are no steps.
    pub(super) fn advance(&mut self, read: u64, buffers: Buffers) {
        self.next = loop {
            match self.process.step(read) {
                Access::Fence | Access::Publish if buffers == Buffers::None => {}
                access => break access,
            }
        };
    }
}

/// All states of single processes seen.
pub(super) struct Locals<P> {
    all: Vec<Slotted<P>>,
    known: HashTable<u32>,
    /// Where a step of this state leads that reads this.
    steps: HashMap<(u32, u64), u32, FixedState>,
    /// Which of them is this one without further operations; itself if it is not between two.
    rests: HashMap<u32, u32, FixedState>,
    hasher: FixedState,
}

impl<P: Machine + Clone + Eq + Hash> Locals<P> {
    pub(super) fn new() -> Self {
        let hasher = FixedState::with_seed(5);
        Self {
            all: Vec::new(),
            known: HashTable::new(),
            steps: HashMap::with_hasher(hasher.clone()),
            rests: HashMap::with_hasher(hasher.clone()),
            hasher,
        }
    }

    /// The number of a state.
    pub(super) fn add(&mut self, slotted: Slotted<P>) -> u32 {
        let (all, hasher) = (&self.all, &self.hasher);
        let hash = hasher.hash_one(&slotted);
        if let Some(id) = self.known.find(hash, |id| all[*id as usize] == slotted) {
            return *id;
        }
        let id = u32::try_from(self.all.len()).expect("fewer states of processes than that");
        self.known.insert_unique(hash, id, |id| hasher.hash_one(&all[*id as usize]));
        self.all.push(slotted);
        id
    }

    /// Where the step of a state leads that reads this; `make` finds out, the first time.
    pub(super) fn step(&mut self, id: u32, read: u64, make: impl FnOnce(&mut Slotted<P>)) -> u32 {
        if let Some(next) = self.steps.get(&(id, read)) {
            return *next;
        }
        let mut slotted = self.get(id).clone();
        make(&mut slotted);
        let next = self.add(slotted);
        self.steps.insert((id, read), next);
        next
    }

    /// The same process without further operations, if it is between two.
    pub(super) fn rest<M: Model<Process = P>>(&mut self, id: u32, model: &M) -> Option<u32> {
        if let Some(rest) = self.rests.get(&id) {
            return (*rest != id).then_some(*rest);
        }
        let rest = match model.rest(&self.get(id).process) {
            Some(process) => {
                let mut slotted = Slotted::new(process, Access::Done);
                slotted.advance(0, Buffers::None);
                self.add(slotted)
            }
            None => id,
        };
        self.rests.insert(id, rest);
        (rest != id).then_some(rest)
    }
}

impl<P> Locals<P> {
    pub(super) fn get(&self, id: u32) -> &Slotted<P> {
        &self.all[id as usize]
    }
}
