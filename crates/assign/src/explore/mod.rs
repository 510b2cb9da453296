//! Every order of accesses of a small scope: the step machines that run, one access a step.
//!
//! A [`Model`] says which processes there are, what must hold in every state, and how a process
//! starts again after a crash. [`explore`] walks all states depth first. A state is known by its
//! 64-bit fingerprint; of each the largest number of steps that every process can still take is
//! remembered, so a complete search without a cycle proves wait-freedom within the scope and says
//! the bound.
//!
//! # Memory
//! It is sequentially consistent, or each process has a buffer of writes in front of it:
//! [`Buffers::Stores`] is what the processors of a machine do (a fence waits until the buffer is
//! empty, a crash empties it), [`Buffers::Files`] what a store does whose puts are collected
//! until a fence or a publication (a crash loses them), and whose gets of one owner between two
//! fences are answered from one reading.
//!
//! # Reduction
//! With [`Settings::reduce`] not every order is walked, but of all that differ only in the order
//! of accesses that do not notice each other at least one (Godefroid's persistent sets). If a
//! model says that a process's next access is [*settled*](Model::settled), it is made at once and
//! nothing else is tried in that state: since no execution goes on for ever, each contains that
//! access, and it can be moved to the front. So every way for everybody to end is still seen, and
//! with it every state of a single process; but not every state of the whole. What must hold in
//! states in between is therefore made to hold at ends: a process may *stop* for good after any of
//! its writes (one of them at most: what that delays is then counted when all others have ended),
//! or *rest*, that is make no more operations, whenever it is between two.

mod lemmas;
mod local;
mod settled;
mod single;
mod walk;
mod windows;

use std::hash::Hash;

use crate::machine::{Access, Machine};

use self::local::Locals;
pub use self::local::Slotted;
pub use self::single::{AssignmentModel, AssignmentScope};
pub use self::walk::explore;
pub use self::windows::{WindowsModel, WindowsScope};

/// What stands between a process and the memory.
///
/// ```
/// use holdall_assign::explore::{Buffers, Settings, WindowsModel, WindowsScope, explore};
/// use holdall_assign::windows::rules::Unfenced;
///
/// // Without buffers a fence changes nothing; with them, one that lacks is missed.
/// let model = WindowsModel::<Unfenced>::new(&WindowsScope { ops: vec![1, 3], ring: 4 });
/// let found = |buffers| explore(&model, &Settings { buffers, ..Settings::default() });
/// assert!(found(Buffers::None).violation.is_none());
/// assert!(found(Buffers::Stores).violation.is_some());
/// ```
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
///
/// ```
/// use holdall_assign::explore::{Settings, WindowsModel, WindowsScope, explore};
/// use holdall_assign::windows::rules::Sound;
///
/// let model = WindowsModel::<Sound>::new(&WindowsScope { ops: vec![2, 2], ring: 2 });
/// let short = explore(&model, &Settings { max_states: 100, ..Settings::default() });
/// assert!(!short.complete);
/// let crashes = explore(&model, &Settings { crashes: 1, ..Settings::default() });
/// assert!(crashes.complete && crashes.violation.is_none());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What stands between a process and the memory.
    pub buffers: Buffers,
    /// How many crashes there may be; after each the process starts again.
    pub crashes: u32,
    /// Give up after this many states.
    pub max_states: usize,
    /// Leave out orders that nobody can tell apart. Only without buffers and crashes; otherwise
    /// nothing is left out.
    pub reduce: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { buffers: Buffers::None, crashes: 0, max_states: 100_000_000, reduce: false }
    }
}

impl Settings {
    /// Whether orders are left out.
    fn reduces(&self) -> bool {
        self.reduce && self.buffers == Buffers::None && self.crashes == 0
    }
}

/// A set of processes on a memory, and what must hold.
///
/// ```
/// use holdall_assign::explore::{Memory, Model, Settings, World, explore};
/// use holdall_assign::machine::{Access, Machine};
///
/// /// Both add one to a shared count without any care: each reads the other's part, then
/// /// writes what it takes to be the next number.
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Adder(usize, Option<u64>, bool);
///
/// impl Machine for Adder {
///     fn step(&mut self, read: u64) -> Access {
///         let Self(me, number, asked) = self;
///         match (*asked, *number) {
///             (false, _) => {
///                 *asked = true;
///                 Access::Get { owner: 1 - *me, slot: 0 }
///             }
///             (true, None) => {
///                 *number = Some(read + 1);
///                 Access::Put { slot: 0, value: read + 1 }
///             }
///             _ => Access::Done,
///         }
///     }
/// }
///
/// struct Careless;
/// impl Model for Careless {
///     type Process = Adder;
///     fn slots(&self) -> usize {
///         1
///     }
///     fn start(&self) -> Vec<Adder> {
///         vec![Adder(0, None, false), Adder(1, None, false)]
///     }
///     fn check(&self, world: &World<'_, Adder>) -> Result<u32, String> {
///         let mut numbers = world.processes().filter_map(|p| p.process.1);
///         match (numbers.next(), numbers.next()) {
///             (Some(a), Some(b)) if a == b => Err(format!("both have number {a}")),
///             _ => Ok(0),
///         }
///     }
///     fn restart(&self, _: usize, process: &Adder, _: &Memory) -> Adder {
///         process.clone()
///     }
/// }
///
/// let violation = explore(&Careless, &Settings::default()).violation.expect("it is careless");
/// assert_eq!(violation.what, "both have number 1");
/// ```
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
    fn check(&self, world: &World<'_, Self::Process>) -> Result<u32, String>;

    /// The process that starts again in place of `process`, which stopped.
    fn restart(&self, who: usize, process: &Self::Process, memory: &Memory) -> Self::Process;

    /// Whether the next access of a process is settled: whatever the others do first, and however
    /// often, it would lead the process to the same state, and nobody else will ever notice
    /// whether it has been made.
    fn settled(&self, _world: &World<'_, Self::Process>, _who: usize) -> bool {
        false
    }

    /// The same process without further operations, if it is between two.
    fn rest(&self, _process: &Self::Process) -> Option<Self::Process> {
        None
    }
}

/// The registers of all processes.
///
/// ```
/// use holdall_assign::explore::Memory;
///
/// assert_eq!(Memory::new(2, 3).get(1, 2), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    words: Vec<u64>,
    slots: usize,
}

impl Memory {
    /// `slots` registers for each owner, all 0.
    /// [`Memory`] has an example.
    pub fn new(owners: usize, slots: usize) -> Self {
        Self { words: vec![0; owners * slots], slots }
    }

    /// The value of a register.
    /// [`Memory`] has an example.
    pub fn get(&self, owner: usize, slot: usize) -> u64 {
        self.words[owner * self.slots + slot]
    }

    /// All registers of an owner.
    fn of(&self, owner: usize) -> &[u64] {
        &self.words[owner * self.slots..(owner + 1) * self.slots]
    }

    /// Writes a register.
    fn put(&mut self, owner: usize, slot: usize, value: u64) {
        self.words[owner * self.slots + slot] = value;
    }

    /// Runs a machine of `owner` to its end, undisturbed.
    fn drive(&mut self, owner: usize, machine: &mut impl Machine) {
        let mut read = 0;
        loop {
            match machine.step(read) {
                Access::Done => return,
                Access::Fence | Access::Publish => {}
                Access::Get { owner, slot } => read = self.get(owner, slot),
                Access::Put { slot, value } => self.put(owner, slot, value),
            }
        }
    }
}

/// One state, to look at: [`Model`] has an example.
pub struct World<'a, P> {
    locals: &'a Locals<P>,
    ids: &'a [u32],
    memory: &'a Memory,
    stopped: Option<usize>,
}

impl<'a, P> World<'a, P> {
    /// A process, and the access it makes next.
    /// [`Model`] has an example.
    pub fn process(&self, who: usize) -> &'a Slotted<P> {
        self.locals.get(self.ids[who])
    }

    /// All processes.
    /// [`Model`] has an example.
    pub fn processes(&self) -> impl Iterator<Item = &'a Slotted<P>> + use<'a, P> {
        let locals = self.locals;
        self.ids.iter().map(move |id| locals.get(*id))
    }

    /// The registers.
    /// [`Model`] has an example.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Whether a process has anything left to do, and will.
    /// [`Model`] has an example.
    pub fn acts(&self, who: usize) -> bool {
        self.stopped != Some(who) && !self.process(who).done()
    }

    /// The other processes of which that is so.
    fn other_acts(&self, who: usize) -> impl Iterator<Item = usize> {
        (0..self.ids.len()).filter(move |other| *other != who && self.acts(*other))
    }
}

/// What was found: [`explore`] has an example.
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

/// What went wrong, and how to get there: [`Model`] has an example.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What went wrong.
    pub what: String,
    /// The schedule: `1x3` is three steps of process 1, `w1` a write of it that reaches the
    /// memory, `c1` a crash of it, `s1` that it stops for good, `r1` that it makes no more
    /// operations.
    pub schedule: String,
}
