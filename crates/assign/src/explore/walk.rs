//! The search: depth first, one world that is stepped and stepped back.

use std::fmt::Write;
use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use super::{Buffers, Found, Memory, Model, Settings, Slotted, Violation, World};
use crate::machine::{Do, Machine};

/// Processes whose steps are counted: eight counters of 16 bits in a word.
const COUNTED: usize = 8;
/// In the table: this state is on the way to the present one.
const UNDER_WAY: u128 = u128::MAX;

/// What a process may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Step(usize),
    Drain(usize),
    Crash(usize),
}

/// A state on the way, and how to go back from it.
struct Frame<P> {
    print: u64,
    /// The next act to try: three for each process.
    next: usize,
    /// The most steps each process takes after this state, as far as seen.
    ahead: u128,
    came_by: Option<(Act, Undo<P>)>,
}

/// What an act changed.
struct Undo<P> {
    who: usize,
    slotted: Slotted<P>,
    word: Option<(usize, usize, u64)>,
    crashes: u32,
}

/// Walks all states.
///
/// ```
/// use holdall_assign::explore::{Settings, WindowsModel, WindowsScope, explore};
/// use holdall_assign::windows::rules::Sound;
///
/// let scope = WindowsScope { ops: vec![2, 2], ring: 2 };
/// let found = explore(&WindowsModel::<Sound>::new(&scope), &Settings::default());
/// assert!(found.complete && found.violation.is_none());
/// ```
pub fn explore<M: Model>(model: &M, settings: &Settings) -> Found {
    let mut walk = Walk::new(model, settings);
    walk.run();
    walk.found
}

struct Walk<'a, M: Model> {
    model: &'a M,
    settings: &'a Settings,
    world: World<M::Process>,
    /// The fingerprint of each process, and the sum over memory.
    prints: Vec<u64>,
    words: u64,
    table: HashMap<u64, u128, FixedState>,
    stack: Vec<Frame<M::Process>>,
    found: Found,
    hasher: FixedState,
}

impl<'a, M: Model> Walk<'a, M> {
    fn new(model: &'a M, settings: &'a Settings) -> Self {
        let start = model.start();
        assert!(start.len() <= COUNTED, "at most {COUNTED} processes");
        let memory = Memory::new(start.len(), model.slots());
        let processes = start.into_iter().map(|mut process| {
            let next = advance(&mut process, 0, settings.buffers);
            Slotted::new(process, next)
        });
        let processes: Vec<_> = processes.collect();
        let hasher = FixedState::with_seed(7);
        let found = Found {
            states: 0,
            complete: true,
            steps: vec![0; processes.len()],
            most: 0,
            violation: None,
        };
        Self {
            prints: (0..processes.len()).map(|i| hasher.hash_one((i, &processes[i]))).collect(),
            world: World { processes, memory, crashes: settings.crashes },
            model,
            settings,
            words: 0,
            table: HashMap::with_hasher(FixedState::with_seed(3)),
            stack: Vec::new(),
            found,
            hasher,
        }
    }

    fn run(&mut self) {
        self.arrive(None);
        while let Some(frame) = self.stack.last_mut() {
            if self.found.violation.is_some() || !self.found.complete {
                return;
            }
            let choice = frame.next;
            frame.next += 1;
            let who = choice / 3;
            if who == self.world.processes.len() {
                self.leave();
                continue;
            }
            let act = [Act::Step(who), Act::Drain(who), Act::Crash(who)][choice % 3];
            if self.allowed(act) {
                let undo = self.perform(act);
                self.arrive(Some((act, undo)));
            }
        }
    }

    /// Enters the present state: new, known, or on the way to itself.
    fn arrive(&mut self, came_by: Option<(Act, Undo<M::Process>)>) {
        let print = self.print();
        let frame = Frame { print, next: 0, ahead: 0, came_by };
        match self.table.get(&print).copied() {
            Some(UNDER_WAY) => {
                self.stack.push(frame);
                self.violation("a cycle: not wait-free".into());
            }
            Some(ahead) => {
                self.stack.push(Frame { ahead, ..frame });
                self.go_back();
            }
            None => {
                self.table.insert(print, UNDER_WAY);
                self.found.states += 1;
                self.found.complete = self.found.states < self.settings.max_states;
                self.stack.push(frame);
                match self.model.check(&self.world) {
                    Ok(number) => self.found.most = self.found.most.max(number),
                    Err(what) => self.violation(what),
                }
            }
        }
    }

    /// All acts of the present state are done.
    fn leave(&mut self) {
        let frame = self.stack.last().expect("there is a state to leave");
        self.table.insert(frame.print, frame.ahead);
        self.go_back();
    }

    /// Steps back to the state before, and adds up the steps ahead of it.
    fn go_back(&mut self) {
        let frame = self.stack.pop().expect("there is a state to go back from");
        let Some((act, undo)) = frame.came_by else {
            for (i, steps) in self.found.steps.iter_mut().enumerate() {
                *steps = u32::from((frame.ahead >> (16 * i)) as u16);
            }
            return;
        };
        let mut ahead = frame.ahead;
        if let Act::Step(who) = act {
            ahead += 1 << (16 * who);
        }
        let before = self.stack.last_mut().expect("an act starts from a state");
        before.ahead = max_each(before.ahead, ahead);
        if let Some((owner, slot, old)) = undo.word {
            self.write(owner, slot, old);
        }
        self.world.processes[undo.who] = undo.slotted;
        self.world.crashes = undo.crashes;
        self.refresh(undo.who);
    }

    fn violation(&mut self, what: String) {
        let mut schedule = String::new();
        let acts = self.stack.iter().filter_map(|frame| Some(frame.came_by.as_ref()?.0));
        let acts: Vec<_> = acts.collect();
        for same in acts.chunk_by(|a, b| a == b) {
            let _ = match same[0] {
                Act::Step(who) => write!(schedule, " {who}x{}", same.len()),
                Act::Drain(who) => write!(schedule, " w{who}x{}", same.len()),
                Act::Crash(who) => write!(schedule, " c{who}"),
            };
        }
        self.found.violation = Some(Violation { what, schedule: schedule.trim().into() });
    }

    fn allowed(&self, act: Act) -> bool {
        match act {
            Act::Step(who) => match self.world.processes[who].next {
                Do::Done => false,
                Do::Fence => self.world.processes[who].buffer.is_empty(),
                Do::Publish => {
                    self.settings.buffers != Buffers::Files
                        || self.world.processes[who].buffer.is_empty()
                }
                Do::Get { .. } | Do::Put { .. } => true,
            },
            Act::Drain(who) => !self.world.processes[who].buffer.is_empty(),
            Act::Crash(who) => {
                let slotted = &self.world.processes[who];
                // What a processor has stored reaches memory although the process is gone.
                let stored = self.settings.buffers != Buffers::Stores || slotted.buffer.is_empty();
                self.world.crashes > 0 && slotted.next != Do::Done && stored
            }
        }
    }

    fn perform(&mut self, act: Act) -> Undo<M::Process> {
        let (Act::Step(who) | Act::Drain(who) | Act::Crash(who)) = act;
        let (slotted, crashes) = (self.world.processes[who].clone(), self.world.crashes);
        let mut undo = Undo { who, slotted, word: None, crashes };
        match act {
            Act::Step(_) => self.step(who, &mut undo),
            Act::Drain(_) => {
                let (slot, value) = self.world.processes[who].buffer.remove(0);
                undo.word = Some((who, slot, self.write(who, slot, value)));
            }
            Act::Crash(_) => self.crash(who),
        }
        self.refresh(who);
        undo
    }

    fn step(&mut self, who: usize, undo: &mut Undo<M::Process>) {
        let mut read = 0;
        match self.world.processes[who].next {
            Do::Get { owner, slot } => read = self.get(who, owner, slot),
            Do::Put { slot, value } if self.settings.buffers == Buffers::None => {
                undo.word = Some((who, slot, self.write(who, slot, value)));
            }
            Do::Put { slot, value } => self.world.processes[who].buffer.push((slot, value)),
            Do::Fence => self.world.processes[who].read.clear(),
            Do::Done | Do::Publish => {}
        }
        let slotted = &mut self.world.processes[who];
        slotted.next = advance(&mut slotted.process, read, self.settings.buffers);
    }

    fn get(&mut self, who: usize, owner: usize, slot: usize) -> u64 {
        let slotted = &mut self.world.processes[who];
        if owner == who {
            let own = slotted.buffer.iter().rev().find(|(s, _)| *s == slot);
            return own.map_or_else(|| self.world.memory.get(owner, slot), |(_, value)| *value);
        }
        if self.settings.buffers != Buffers::Files {
            return self.world.memory.get(owner, slot);
        }
        if let Some((_, file)) = slotted.read.iter().find(|(of, _)| *of == owner) {
            return file[slot];
        }
        slotted.read.push((owner, self.world.memory.of(owner)));
        self.world.memory.get(owner, slot)
    }

    fn crash(&mut self, who: usize) {
        self.world.crashes -= 1;
        let process = &self.world.processes[who].process;
        let mut process = self.model.restart(who, process, &self.world.memory);
        let next = advance(&mut process, 0, self.settings.buffers);
        self.world.processes[who] = Slotted::new(process, next);
    }

    fn write(&mut self, owner: usize, slot: usize, value: u64) -> u64 {
        let old = self.world.memory.get(owner, slot);
        let hash = |value: u64| {
            if value == 0 { 0 } else { self.hasher.hash_one((owner, slot, value)) }
        };
        self.words = self.words.wrapping_sub(hash(old)).wrapping_add(hash(value));
        self.world.memory.put(owner, slot, value);
        old
    }

    fn refresh(&mut self, who: usize) {
        self.prints[who] = self.hasher.hash_one((who, &self.world.processes[who]));
    }

    fn print(&self) -> u64 {
        let sum = self.prints.iter().fold(self.words, |sum, print| sum.wrapping_add(*print));
        self.hasher.hash_one((sum, self.world.crashes))
    }
}

/// Runs a process up to its next access. Without buffers, fences and publications change nothing
/// that anybody can see, so they are no steps.
fn advance<P: Machine + Hash>(process: &mut P, read: u64, buffers: Buffers) -> Do {
    loop {
        match process.step(read) {
            Do::Fence | Do::Publish if buffers == Buffers::None => {}
            access => return access,
        }
    }
}

fn max_each(a: u128, b: u128) -> u128 {
    let lane = |word: u128, i: usize| (word >> (16 * i)) & 0xffff;
    (0..COUNTED).fold(0, |word, i| word | lane(a, i).max(lane(b, i)) << (16 * i))
}
