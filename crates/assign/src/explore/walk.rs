//! The search: depth first, one state that is stepped and stepped back.

use std::fmt::Write;
use std::hash::BuildHasher;

use foldhash::{fast, quality};
use hashbrown::HashMap;

use super::local::{Locals, Slotted};
use super::{Buffers, Found, Memory, Model, Settings, Violation, World};
use crate::machine::Access;

/// The most processes: their counters share a word.
const PROCESSES_MAX: usize = 5;
/// In the table: this state is on the way to the present one.
const UNDER_WAY: u64 = u64::MAX;

/// What a process may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Step,
    /// The first write of its buffer reaches the memory.
    Drain,
    Crash,
    /// It does nothing more, for ever.
    Stop,
    /// It makes no more operations.
    Rest,
}

const ACTS: [Act; 5] = [Act::Step, Act::Drain, Act::Crash, Act::Stop, Act::Rest];

/// A state on the way, and how to go back from it.
struct Frame {
    print: u64,
    /// The only process that acts here, if that will do.
    only: Option<usize>,
    /// The next act to try.
    next: usize,
    /// The most steps each process takes after this state, as far as seen.
    ahead: u64,
    came_by: Option<Undo>,
}

/// An act, and what it changed.
struct Undo {
    act: Act,
    who: usize,
    id: u32,
    word: Option<(usize, usize, u64)>,
    crashes: u32,
    stopped: Option<usize>,
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
/// // A stopped worker delays one lot at the most.
/// assert_eq!(found.most, 1);
/// ```
///
/// # Panics
/// If the model has more than five processes.
pub fn explore<M: Model>(model: &M, settings: &Settings) -> Found {
    let mut walk = Walk::new(model, settings);
    walk.run();
    walk.found
}

struct Walk<'a, M: Model> {
    model: &'a M,
    settings: &'a Settings,
    locals: Locals<M::Process>,
    /// The present state: each process, the memory, crashes that may still happen, who stopped.
    ids: Vec<u32>,
    memory: Memory,
    crashes: u32,
    stopped: Option<usize>,
    /// The sum over all registers of their fingerprints.
    words: u64,
    table: Table,
    stack: Vec<Frame>,
    found: Found,
    hasher: quality::FixedState,
}

impl<'a, M: Model> Walk<'a, M> {
    fn new(model: &'a M, settings: &'a Settings) -> Self {
        let start = model.start();
        assert!(start.len() <= PROCESSES_MAX, "at most {PROCESSES_MAX} processes");
        let mut locals = Locals::new();
        let memory = Memory::new(start.len(), model.slots());
        let steps = vec![0; start.len()];
        let begin = |process| {
            let mut slotted = Slotted::new(process, Access::Done);
            slotted.advance(0, settings.buffers);
            locals.add(slotted)
        };
        Self {
            ids: start.into_iter().map(begin).collect(),
            locals,
            memory,
            crashes: settings.crashes,
            stopped: None,
            model,
            settings,
            words: 0,
            table: Table::default(),
            stack: Vec::new(),
            found: Found { states: 0, complete: true, steps, most: 0, violation: None },
            hasher: quality::FixedState::with_seed(7),
        }
    }

    fn run(&mut self) {
        self.arrive(None);
        while let Some(frame) = self.stack.last_mut() {
            if self.found.violation.is_some() || !self.found.complete {
                return;
            }
            let (who, act) = (frame.next / ACTS.len(), ACTS[frame.next % ACTS.len()]);
            frame.next += 1;
            if who == self.ids.len() {
                self.leave();
            } else if frame.only.is_none_or(|only| only == who)
                && let Some(undo) = self.perform(who, act)
            {
                self.arrive(Some(undo));
            }
        }
    }

    fn world(&self) -> World<'_, M::Process> {
        World { locals: &self.locals, ids: &self.ids, memory: &self.memory, stopped: self.stopped }
    }

    /// Enters the present state: new, known, or on the way to itself.
    fn arrive(&mut self, came_by: Option<Undo>) {
        let print = self.print();
        let mut frame = Frame { print, only: None, next: 0, ahead: 0, came_by };
        match self.table.get(print) {
            Some(UNDER_WAY) => {
                self.stack.push(frame);
                self.violation("a cycle: not wait-free".into());
            }
            Some(ahead) => {
                frame.ahead = ahead;
                self.stack.push(frame);
                self.go_back();
            }
            None => {
                self.table.set(print, UNDER_WAY);
                self.found.states += 1;
                self.found.complete = self.found.states < self.settings.max_states;
                frame.only = self.settled();
                self.stack.push(frame);
                match self.model.check(&self.world()) {
                    Ok(number) => self.found.most = self.found.most.max(number),
                    Err(what) => self.violation(what),
                }
            }
        }
    }

    /// A process whose next access may as well be made at once.
    fn settled(&self) -> Option<usize> {
        if !self.settings.reduces() {
            return None;
        }
        let world = self.world();
        let settled = |who: &usize| world.acts(*who) && self.model.settled(&world, *who);
        (0..self.ids.len()).find(settled)
    }

    /// All acts of the present state are done.
    fn leave(&mut self) {
        let frame = self.stack.last().expect("there is a state to leave");
        self.table.set(frame.print, frame.ahead);
        self.go_back();
    }

    /// Steps back to the state before, and adds up the steps ahead of it.
    fn go_back(&mut self) {
        let Frame { mut ahead, came_by, .. } = self.stack.pop().expect("a state to go back from");
        let (lanes, width) = (self.ids.len(), 64 / self.ids.len() as u32);
        let lane = |word: u64, i: usize| (word >> (width * i as u32)) & (u64::MAX >> (64 - width));
        let Some(undo) = came_by else {
            self.found.steps = (0..lanes).map(|i| lane(ahead, i) as u32).collect();
            return;
        };
        if undo.act == Act::Step {
            ahead += 1 << (width * undo.who as u32);
        }
        let before = self.stack.last_mut().expect("an act starts from a state");
        let most = |i| lane(before.ahead, i).max(lane(ahead, i)) << (width * i as u32);
        before.ahead = (0..lanes).map(most).sum();
        if let Some((owner, slot, old)) = undo.word {
            self.write(owner, slot, old);
        }
        self.ids[undo.who] = undo.id;
        (self.crashes, self.stopped) = (undo.crashes, undo.stopped);
    }

    fn violation(&mut self, what: String) {
        let mut schedule = String::new();
        let acts = self.stack.iter().filter_map(|frame| frame.came_by.as_ref());
        let acts: Vec<_> = acts.map(|undo| (undo.act, undo.who)).collect();
        for same in acts.chunk_by(|a, b| a == b) {
            let (act, who) = same[0];
            let _ = match act {
                Act::Step => write!(schedule, " {who}x{}", same.len()),
                Act::Drain => write!(schedule, " w{who}x{}", same.len()),
                Act::Crash => write!(schedule, " c{who}"),
                Act::Stop => write!(schedule, " s{who}"),
                Act::Rest => write!(schedule, " r{who}"),
            };
        }
        self.found.violation = Some(Violation { what, schedule: schedule.trim().into() });
    }

    /// Makes an act, if it is possible; says how to take it back.
    fn perform(&mut self, who: usize, act: Act) -> Option<Undo> {
        let id = self.ids[who];
        let (crashes, stopped) = (self.crashes, self.stopped);
        if stopped == Some(who) {
            return None;
        }
        let mut undo = Undo { act, who, id, word: None, crashes, stopped };
        match act {
            Act::Step => self.step(who, &mut undo)?,
            Act::Drain => {
                let mut slotted = self.locals.get(id).clone();
                let (slot, value) =
                    (!slotted.buffer.is_empty()).then(|| slotted.buffer.remove(0))?;
                undo.word = Some((who, slot, self.write(who, slot, value)));
                self.ids[who] = self.locals.add(slotted);
            }
            Act::Crash => self.crash(who)?,
            Act::Stop => {
                let may = stopped.is_none() && self.locals.get(id).may_stop;
                self.stopped = Some(may.then_some(who)?);
            }
            Act::Rest => {
                let reduces = self.settings.reduces();
                self.ids[who] = reduces.then(|| self.locals.rest(id, self.model)).flatten()?;
            }
        }
        Some(undo)
    }

    fn step(&mut self, who: usize, undo: &mut Undo) -> Option<()> {
        let (buffers, may_stop) = (self.settings.buffers, self.settings.reduces());
        let slotted = self.locals.get(undo.id);
        let mut read = 0;
        match slotted.next {
            Access::Get { owner, slot } if buffers == Buffers::Files && owner != who => {
                self.ids[who] = self.read_file(undo.id, owner, slot);
                return Some(());
            }
            Access::Get { owner, slot } => {
                let own = slotted.buffer.iter().rev().find(|(s, _)| owner == who && *s == slot);
                read = own.map_or_else(|| self.memory.get(owner, slot), |(_, value)| *value);
            }
            Access::Put { slot, value } if buffers == Buffers::None => {
                undo.word = Some((who, slot, self.write(who, slot, value)));
            }
            Access::Put { .. } => {}
            Access::Done => return None,
            Access::Publish if buffers != Buffers::Files => {}
            Access::Fence | Access::Publish if !slotted.buffer.is_empty() => return None,
            Access::Fence | Access::Publish => {}
        }
        self.ids[who] = self.locals.step(undo.id, read, |slotted| {
            slotted.may_stop = false;
            match slotted.next {
                Access::Put { slot, value } if buffers != Buffers::None => {
                    slotted.buffer.push((slot, value));
                }
                Access::Put { .. } => slotted.may_stop = may_stop,
                Access::Fence => slotted.read.clear(),
                _ => {}
            }
            slotted.advance(read, buffers);
        });
        Some(())
    }

    /// A get of a whole file, which is then remembered until the next fence.
    fn read_file(&mut self, id: u32, owner: usize, slot: usize) -> u32 {
        let mut slotted = self.locals.get(id).clone();
        let file = slotted.read.iter().position(|(of, _)| *of == owner).unwrap_or_else(|| {
            slotted.read.push((owner, self.memory.of(owner).to_vec()));
            slotted.read.len() - 1
        });
        let read = slotted.read[file].1[slot];
        slotted.advance(read, Buffers::Files);
        self.locals.add(slotted)
    }

    fn crash(&mut self, who: usize) -> Option<()> {
        let slotted = self.locals.get(self.ids[who]);
        // What a processor has stored reaches memory although the process is gone.
        let stored = self.settings.buffers != Buffers::Stores || slotted.buffer.is_empty();
        if self.crashes == 0 || slotted.next == Access::Done || !stored {
            return None;
        }
        self.crashes -= 1;
        let process = self.model.restart(who, &slotted.process, &self.memory);
        let mut slotted = Slotted::new(process, Access::Done);
        slotted.advance(0, self.settings.buffers);
        self.ids[who] = self.locals.add(slotted);
        Some(())
    }

    fn write(&mut self, owner: usize, slot: usize, value: u64) -> u64 {
        let old = self.memory.get(owner, slot);
        let hash = |value: u64| {
            if value == 0 { 0 } else { self.hasher.hash_one((owner, slot, value)) }
        };
        self.words = self.words.wrapping_sub(hash(old)).wrapping_add(hash(value));
        self.memory.put(owner, slot, value);
        old
    }

    fn print(&self) -> u64 {
        self.hasher.hash_one((&self.ids, self.words, self.crashes, self.stopped))
    }
}

/// The states seen, by fingerprint: the most steps of each process from there on.
///
/// In shards: one that grows needs twice its room for a moment, and all of them never do at once.
struct Table(Vec<HashMap<u64, u64, fast::FixedState>>);

impl Default for Table {
    fn default() -> Self {
        Self(vec![HashMap::with_hasher(fast::FixedState::with_seed(3)); 256])
    }
}

impl Table {
    fn get(&self, print: u64) -> Option<u64> {
        self.0[(print >> 56) as usize].get(&print).copied()
    }

    fn set(&mut self, print: u64, ahead: u64) {
        self.0[(print >> 56) as usize].insert(print, ahead);
    }
}
