//! The search: every reachable state, level by level, so that the first way found to a state is
//! a shortest one.
//!
//! A state is known by its 64-bit fingerprint and numbered in the order of discovery; the states
//! themselves are kept only while they wait to be expanded. The successors of a level are made by
//! all cores, chunk by chunk, and entered into the table by one thread in the order of the
//! chunks: numbering, counts and traces do not depend on the number of threads.
//!
//! A step that breaks a safety property leads to a state like any other. Such states wait until
//! all others have been expanded; then the search goes on behind them, so that a violation does
//! not hide what else may happen. Since a broken protocol may go on without end, it goes on there
//! for as many states as it found before, and some ([`BEHIND_MIN`]) in any case.
//!
//! Since nothing but the order of expansion decides what is found, a search that was saved anywhere and is
//! resumed ends as one that was not.

pub(crate) mod graph;
mod known;
pub(crate) mod limits;
pub(crate) mod model;
mod saved;
pub(crate) mod shift;
pub(crate) mod walk;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use serde::Serialize;

use self::graph::Graph;
use self::known::Known;
use self::limits::Limits;
use self::model::{AtRest, Breach, Expander, Label, Model, Successors};
use super::Settings;
use super::checkpoint::{BadCheckpoint, Checkpoint};

/// States expanded between two visits to the table.
const CHUNK: usize = 512;

/// How many steps are looked up in the table together.
const FETCHED_AHEAD: usize = 256;

/// In how many states of a level it is seen how far stamps are apart.
const GAPS_LOOKED_AT: usize = 256;

/// How many states behind a violation are explored at least.
const BEHIND_MIN: usize = 100_000;

/// What the search found.
#[derive(Default)]
pub(crate) struct Explored {
    pub(crate) graph: Graph,
    /// The fingerprint of each state.
    pub(crate) fingerprints: Vec<u64>,
    pub(crate) cut_off: Option<CutOff>,
    /// How far stamps are apart in some states of each level, at most.
    gaps: Vec<u64>,
    /// How many steps the farthest state is away, of those that are not behind a violation.
    pub(crate) depth: usize,
    /// The first state in which each kind of rest was seen.
    pub(crate) deadlock: Option<u32>,
    pub(crate) residue: Option<u32>,
    /// By user: the first state in which only strangers could move.
    pub(crate) stuck: BTreeMap<usize, u32>,
    /// The first breach of each property, with the state it was committed in.
    pub(crate) breaches: Vec<(u32, Breach)>,
    /// The first state that answers each question, by the question's number.
    pub(crate) answers: BTreeMap<usize, u32>,
}

impl Explored {
    pub(crate) fn is_complete(&self) -> bool {
        self.cut_off.is_none()
    }

    /// The fingerprints of states, in their order.
    pub(crate) fn way(&self, states: &[u32]) -> Vec<u64> {
        states.iter().map(|state| self.fingerprints[*state as usize]).collect()
    }

    /// How far stamps are apart at the end of a search that was cut off, if they went apart all the
    /// way: then there may be no end of states.
    pub(crate) fn growing_gap(&self) -> Option<u64> {
        let levels = self.gaps.len();
        let at = |quarter: usize| self.gaps.get((levels * quarter / 4).saturating_sub(1)).copied();
        let grows = at(1) < at(2) && at(2) < at(3) && at(3) < at(4);
        let behind = self.cut_off == Some(CutOff::BehindViolation);
        at(4).filter(|_| grows && !behind && !self.is_complete())
    }
}

/// Why not everything was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutOff {
    /// There is more behind a violation than was worth exploring.
    BehindViolation,
    /// It was interrupted.
    Interrupted,
    /// There are more states than `--max-states`.
    MaxStates,
    /// It took more memory than `--memory`.
    Memory,
    /// Only random walks were taken.
    RandomWalk,
    /// It took longer than `--time`.
    Time,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many states were found.
    pub states: usize,
    /// How many of them are still to be expanded.
    pub frontier: usize,
}

/// Is told now and then how far a search has come.
pub type Watch<'a> = &'a (dyn Fn(Progress) + Sync);

/// Searches until everything is seen, or a limit is reached.
pub(crate) fn search(model: &dyn Model, settings: &Settings, watch: Watch<'_>) -> Explored {
    let mut expanders = expanders(model, settings);
    let search = Search::new(model, &mut *expanders[0], settings);
    search.run(&mut expanders, &mut Outside { model, watch, checkpoint: None })
}

/// The same, saved now and then, and at the end if it was cut off; or resumed from where it was saved.
///
/// # Errors
/// If nothing can be saved at the beginning, or what was saved cannot be read.
pub(crate) fn search_saving(
    model: &dyn Model,
    settings: &Settings,
    mut checkpoint: Checkpoint<'_>,
    watch: Watch<'_>,
) -> Result<Explored, BadCheckpoint> {
    let mut expanders = expanders(model, settings);
    let first = &mut *expanders[0];
    let resumed = checkpoint.resume(|from| Search::read(from, model, first, settings))?;
    let search = match resumed {
        Some(search) => search,
        None => {
            let search = Search::new(model, first, settings);
            if let Err(why) = checkpoint.save(|to| search.write(to, model)) {
                checkpoint.discard();
                return Err(why);
            }
            search
        }
    };
    let mut outside = Outside { model, watch, checkpoint: Some(checkpoint) };
    Ok(search.run(&mut expanders, &mut outside))
}

fn expanders<'m>(model: &'m dyn Model, settings: &Settings) -> Vec<Box<dyn Expander + Send + 'm>> {
    (0..settings.threads().max(1)).map(|_| model.expander()).collect()
}

/// What a search has to do with besides its states.
struct Outside<'a> {
    model: &'a dyn Model,
    watch: Watch<'a>,
    checkpoint: Option<Checkpoint<'a>>,
}

/// States that wait to be expanded.
#[derive(Default)]
struct Level {
    ids: Vec<u32>,
    fingerprints: Vec<u64>,
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl Level {
    fn push(&mut self, id: u32, fingerprint: u64, state: &[u32]) {
        self.ids.push(id);
        self.fingerprints.push(fingerprint);
        self.words.extend_from_slice(state);
        self.ends.push(self.words.len());
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn state(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.words[start..self.ends[i]]
    }

    /// How far stamps are apart in some of these states, at most.
    fn gap(&self, expander: &dyn Expander) -> u64 {
        let some = (0..self.len()).step_by(self.len().div_ceil(GAPS_LOOKED_AT).max(1));
        some.map(|i| expander.gap(self.state(i))).max().unwrap_or(0)
    }
}

/// Puts the successors of some states of a level in the place of what was there.
fn expand_some(
    expander: &mut dyn Expander,
    level: &Level,
    some: Range<usize>,
    out: &mut Successors,
) {
    out.clear();
    for i in some {
        expander.expand_known(level.state(i), level.fingerprints[i], out);
    }
}

struct Search {
    found: Explored,
    known: Known,
    /// The level whose states are being expanded.
    level: Arc<Level>,
    /// How many of them were.
    entered: usize,
    /// The next level.
    frontier: Level,
    /// States behind a violation that are not known to be reached otherwise.
    behind: BTreeMap<u32, Vec<u32>>,
    /// How many states were expanded.
    expanded: usize,
    /// Once everything that can be reached without a violation has been seen: how many states there may
    /// be in all.
    most_behind: Option<usize>,
    /// The search ends when there are more states than this.
    max_states: usize,
    /// Or when one of these is reached.
    limits: Limits,
}

impl Search {
    fn new(model: &dyn Model, expander: &mut dyn Expander, settings: &Settings) -> Self {
        let start = model.start();
        let mut search = Self::empty(settings);
        let (fingerprint, label) = (expander.fingerprint(&start), expander.label(&start));
        let id = search.number(fingerprint, label, 0);
        search.frontier.push(id, fingerprint, &start);
        search
    }

    fn empty(settings: &Settings) -> Self {
        Self {
            found: Explored::default(),
            known: Known::with_room(0),
            level: Arc::default(),
            entered: 0,
            frontier: Level::default(),
            behind: BTreeMap::new(),
            expanded: 0,
            most_behind: None,
            max_states: settings.max_states,
            limits: Limits::new(settings),
        }
    }

    fn run(
        mut self,
        expanders: &mut [Box<dyn Expander + Send + '_>],
        outside: &mut Outside<'_>,
    ) -> Explored {
        self.expand_all(expanders, outside);
        while self.found.is_complete() && !self.behind.is_empty() {
            self.most_behind.get_or_insert_with(|| {
                let before = self.found.graph.states();
                before + before.max(BEHIND_MIN)
            });
            for (id, state) in std::mem::take(&mut self.behind) {
                self.frontier.push(id, self.found.fingerprints[id as usize], &state);
            }
            self.expand_all(expanders, outside);
        }
        let can_go_on = !matches!(self.found.cut_off, None | Some(CutOff::BehindViolation));
        if can_go_on && let Some(checkpoint) = &mut outside.checkpoint {
            // Whoever wants to know is told there.
            let _ = checkpoint.save(|to| self.write(to, outside.model));
        }
        self.found.graph.finish(self.found.is_complete());
        self.found
    }

    /// Expands level after level.
    fn expand_all(
        &mut self,
        expanders: &mut [Box<dyn Expander + Send + '_>],
        outside: &mut Outside<'_>,
    ) {
        let mut out = Successors::default();
        while self.found.is_complete() {
            if self.entered == self.level.len() {
                if self.frontier.len() == 0 {
                    return;
                }
                self.begin_level(&*expanders[0]);
            }
            let rest = self.level.len() - self.entered;
            if rest > CHUNK && expanders.len() > 1 {
                self.expand_level(expanders, outside);
                continue;
            }
            let some = self.entered..self.entered + rest.min(CHUNK);
            expand_some(&mut *expanders[0], &self.level, some, &mut out);
            self.enter(&out);
            self.pause(outside);
        }
    }

    fn begin_level(&mut self, expander: &dyn Expander) {
        (self.level, self.entered) = (Arc::new(std::mem::take(&mut self.frontier)), 0);
        if self.most_behind.is_none() {
            self.found.depth = self.found.gaps.len();
        }
        self.found.gaps.push(self.level.gap(expander));
    }

    /// Tells how far it has come, saves it if that is due, and looks whether that is far enough.
    fn pause(&mut self, outside: &mut Outside<'_>) {
        let states = self.found.graph.states();
        (outside.watch)(Progress { states, frontier: states - self.expanded });
        if !self.found.is_complete() || self.expanded == states {
            return;
        }
        self.found.cut_off = self.limits.reached();
        if self.found.is_complete()
            && let Some(checkpoint) = outside.checkpoint.as_mut().filter(|it| it.is_due())
        {
            // It may be written the next time. Whoever wants to know is told there.
            let _ = checkpoint.save(|to| self.write(to, outside.model));
        }
    }

    /// Expands the rest of the level with all threads and enters the results in order.
    fn expand_level(
        &mut self,
        expanders: &mut [Box<dyn Expander + Send + '_>],
        outside: &mut Outside<'_>,
    ) {
        let (level, from) = (&*Arc::clone(&self.level), self.entered);
        let chunks = (level.len() - from).div_ceil(CHUNK);
        let next = AtomicUsize::new(0);
        // Bounded, so that the successors of a whole level never pile up.
        let (sender, results) = mpsc::sync_channel::<(usize, Successors)>(2 * expanders.len());
        // What was entered leaves room for others.
        let spare = Mutex::new(Vec::new());
        let take_spare = || spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        std::thread::scope(|scope| {
            for expander in expanders {
                let (sender, next, take_spare) = (sender.clone(), &next, &take_spare);
                scope.spawn(move || {
                    loop {
                        let chunk = next.fetch_add(1, Ordering::Relaxed);
                        if chunk >= chunks {
                            return;
                        }
                        let start = from + chunk * CHUNK;
                        let some = start..level.len().min(start + CHUNK);
                        let mut out = take_spare().unwrap_or_default();
                        expand_some(&mut **expander, level, some, &mut out);
                        if sender.send((chunk, out)).is_err() {
                            return; // The search has been cut off.
                        }
                    }
                });
            }
            drop(sender);
            let mut early = BTreeMap::new();
            let mut expected = 0;
            for (chunk, out) in results {
                early.insert(chunk, out);
                while let Some(out) = early.remove(&expected) {
                    if self.found.is_complete() {
                        self.enter(&out);
                        self.pause(outside);
                        spare.lock().unwrap_or_else(PoisonError::into_inner).push(out);
                    }
                    expected += 1;
                }
                if !self.found.is_complete() {
                    break;
                }
            }
        });
    }

    /// How many states there may be, and why not more.
    fn limit(&self) -> (usize, CutOff) {
        match self.most_behind {
            Some(most) if most < self.max_states => (most, CutOff::BehindViolation),
            _ => (self.max_states, CutOff::MaxStates),
        }
    }

    /// Enters the successors of the states that come next in the level.
    fn enter(&mut self, out: &Successors) {
        let (most, reason) = self.limit();
        let mut fetched = 0;
        let (mut step, mut held, mut answered) = (0, 0, 0);
        for expanded in &out.states {
            if self.found.graph.states() >= most {
                self.found.cut_off = Some(reason);
                return;
            }
            let from = self.level.ids[self.entered];
            self.note_at_rest(from, expanded.rest);
            self.expanded += 1;
            self.entered += 1;
            self.found.graph.expand(from);
            if expanded.steps_end > fetched {
                let ahead = out.steps[fetched..].iter().take(FETCHED_AHEAD);
                self.known.fetch(ahead.map(|step| step.fingerprint));
                fetched = (fetched + FETCHED_AHEAD).max(expanded.steps_end);
            }
            for at in step..expanded.steps_end {
                self.enter_step(from, out, at);
            }
            for class in &out.held[held..expanded.held_end] {
                self.found.graph.add_held_timer(from, *class);
            }
            for question in &out.answered[answered..expanded.answered_end] {
                self.found.answers.entry(*question).or_insert(from);
            }
            (step, held, answered) = (expanded.steps_end, expanded.held_end, expanded.answered_end);
        }
    }

    fn enter_step(&mut self, from: u32, out: &Successors, at: usize) {
        let step = &out.steps[at];
        if let Some(breach) = &step.breach {
            self.note_breach(from, breach);
        }
        let known = self.known.find(step.fingerprint);
        let id = known.unwrap_or_else(|| self.number(step.fingerprint, step.label, from));
        match (known, &step.breach) {
            (None, None) => self.frontier.push(id, step.fingerprint, out.state(at)),
            (None, Some(_)) => {
                self.behind.insert(id, out.state(at).to_vec());
            }
            (Some(_), None) if !self.behind.is_empty() && self.behind.remove(&id).is_some() => {
                self.found.graph.set_parent(id, from);
                self.frontier.push(id, step.fingerprint, out.state(at));
            }
            (Some(_), _) => {}
        }
        self.found.graph.add_edge(from, id, step.class);
        for class in out.dropped(at) {
            self.found.graph.add_drop(from, id, *class);
        }
    }

    fn number(&mut self, fingerprint: u64, label: Label, parent: u32) -> u32 {
        let id = self.found.graph.add_state(label, parent);
        self.found.fingerprints.push(fingerprint);
        self.known.insert(fingerprint, id);
        id
    }

    fn note_at_rest(&mut self, at: u32, rest: AtRest) {
        if rest.deadlock {
            self.found.deadlock.get_or_insert(at);
        }
        if rest.residue {
            self.found.residue.get_or_insert(at);
        }
        for lane in (0..32).filter(|lane| rest.stuck >> lane & 1 == 1) {
            self.found.stuck.entry(lane).or_insert(at);
        }
    }

    fn note_breach(&mut self, at: u32, breach: &Breach) {
        if self.found.breaches.iter().all(|(_, known)| known.property != breach.property) {
            self.found.breaches.push((at, breach.clone()));
        }
    }
}
