//! Every order of accesses of a small scope: the step machines that run, one access a step.
//!
//! A [`Model`] says which processes there are, what must hold in every state, and how a process
//! starts again after a crash. [`explore`] walks all states depth first. A state is known by its
//! 64-bit fingerprint; of each the largest number of steps that every process can still take is
//! remembered, so a complete search without a cycle proves wait-freedom within the scope and says
//! the bound.
//!
//! Memory is sequentially consistent, or each process has a buffer of writes in front of it:
//! [`Buffers::Stores`] is what the processors of a machine do (a fence waits until the buffer is
//! empty, a crash empties it), [`Buffers::Files`] what a store does whose puts are collected
//! until a fence or a publication (a crash loses them), and whose gets of one owner between two
//! fences are answered from one reading.

mod single;
mod walk;
mod windows;

use std::hash::Hash;

use crate::machine::{Do, Machine};

pub use self::single::{AssignmentModel, AssignmentScope};
pub use self::walk::explore;
pub use self::windows::{WindowsModel, WindowsScope};

/// What stands between a process and the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// Nothing: every write is seen at once.
    #[default]
    None,
    /// A store buffer.
    Stores,
    /// Writes are collected, and lost in a crash; reads are of whole files, once a fence.
    Files,
}

/// What may happen, and how far to search.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What stands between a process and the memory.
    pub buffers: Buffers,
    /// How many crashes there may be; after each the process starts again.
    pub crashes: u32,
    /// Give up after this many states.
    pub max_states: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { buffers: Buffers::None, crashes: 0, max_states: 100_000_000 }
    }
}

/// A set of processes on a memory, and what must hold.
pub trait Model {
    /// A process: all its operations, one after another, and what it obtained.
    type Process: Machine + Clone + Eq + Hash;

    /// How many registers each process has.
    fn slots(&self) -> usize;

    /// The processes at the beginning.
    fn start(&self) -> Vec<Self::Process>;

    /// What is wrong in a state, if anything; or a number whose maximum is of interest.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, world: &World<Self::Process>) -> Result<u32, String>;

    /// The process that starts again in place of `process`, which stopped.
    fn restart(&self, who: usize, process: &Self::Process, memory: &Memory) -> Self::Process;
}

/// The registers of all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    words: Vec<u64>,
    slots: usize,
}

impl Memory {
    pub(crate) fn new(owners: usize, slots: usize) -> Self {
        Self { words: vec![0; owners * slots], slots }
    }

    /// The value of a register.
    pub fn get(&self, owner: usize, slot: usize) -> u64 {
        self.words[owner * self.slots + slot]
    }

    /// All registers of an owner.
    fn of(&self, owner: usize) -> Vec<u64> {
        self.words[owner * self.slots..(owner + 1) * self.slots].to_vec()
    }

    /// Writes a register.
    pub(crate) fn put(&mut self, owner: usize, slot: usize, value: u64) {
        self.words[owner * self.slots + slot] = value;
    }

    /// Runs a machine of `owner` to its end, undisturbed.
    pub(crate) fn drive(&mut self, owner: usize, machine: &mut impl Machine) {
        let mut read = 0;
        loop {
            match machine.step(read) {
                Do::Done => return,
                Do::Fence | Do::Publish => {}
                Do::Get { owner, slot } => read = self.get(owner, slot),
                Do::Put { slot, value } => self.put(owner, slot, value),
            }
        }
    }
}

/// A process and the access it makes next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slotted<P> {
    /// The process.
    pub process: P,
    /// Its next access.
    pub next: Do,
    /// Writes that are not in memory yet.
    pub buffer: Vec<(usize, u64)>,
    /// What it read of others since its last fence, whole files: owner and registers.
    pub read: Vec<(usize, Vec<u64>)>,
}

impl<P> Slotted<P> {
    fn new(process: P, next: Do) -> Self {
        Self { process, next, buffer: Vec::new(), read: Vec::new() }
    }

    /// Whether it has finished all its operations.
    pub fn done(&self) -> bool {
        self.next == Do::Done && self.buffer.is_empty()
    }
}

/// One state.
#[derive(Clone, Debug)]
pub struct World<P> {
    /// The processes.
    pub processes: Vec<Slotted<P>>,
    /// The registers.
    pub memory: Memory,
    /// Crashes that may still happen.
    pub crashes: u32,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many states there are.
    pub states: usize,
    /// Whether all were seen.
    pub complete: bool,
    /// The most steps each process can take.
    pub steps: Vec<u32>,
    /// The largest number a check returned.
    pub most: u32,
    /// The first thing that went wrong.
    pub violation: Option<Violation>,
}

/// What went wrong, and how to get there.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What went wrong.
    pub what: String,
    /// The schedule: `1x3` is three steps of process 1, `w1` a write of it that reaches the
    /// memory, `c1` a crash of it.
    pub schedule: String,
}
