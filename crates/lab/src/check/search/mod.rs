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

pub(crate) mod graph;
pub(crate) mod limits;
pub(crate) mod model;
pub(crate) mod shift;
pub(crate) mod walk;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use hashbrown::HashTable;
use serde::Serialize;

use self::graph::Graph;
use self::limits::Limits;
use self::model::{AtRest, Breach, Expander, Label, Model, Step, Successors};
use super::Settings;

/// States expanded between two visits to the table.
const CHUNK: usize = 512;

/// In how many states of a level it is seen how far stamps are apart.
const GAPS_LOOKED_AT: usize = 256;

/// How many states behind a violation are explored at least.
const BEHIND_MIN: usize = 100_000;

/// What the search found.
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
    let mut expanders: Vec<_> = (0..settings.threads().max(1)).map(|_| model.expander()).collect();
    let mut search = Search::new(model, &mut *expanders[0], settings);
    search.found.depth = search.run(&mut expanders, watch).saturating_sub(1);
    search.limit_behind_violations();
    while search.found.is_complete() && !search.behind.is_empty() {
        for (id, state) in std::mem::take(&mut search.behind) {
            search.frontier.push(id, &state);
        }
        search.run(&mut expanders, watch);
    }
    search.found.graph.finish(search.found.is_complete());
    search.found
}

/// States that wait to be expanded.
#[derive(Default)]
struct Level {
    ids: Vec<u32>,
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl Level {
    fn push(&mut self, id: u32, state: &[u32]) {
        self.ids.push(id);
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

fn expand_chunk(expander: &mut dyn Expander, level: &Level, chunk: usize, out: &mut Successors) {
    out.clear();
    for i in chunk * CHUNK..level.len().min((chunk + 1) * CHUNK) {
        expander.expand(level.state(i), out);
    }
}

struct Search {
    found: Explored,
    /// State numbers, by fingerprint.
    known: HashTable<u32>,
    frontier: Level,
    /// States behind a violation that are not known to be reached otherwise.
    behind: BTreeMap<u32, Vec<u32>>,
    /// How many states were expanded.
    expanded: usize,
    /// The search ends when there are more states than this, for this reason.
    limit: (usize, CutOff),
    /// Or when one of these is reached.
    limits: Limits,
}

impl Search {
    fn new(model: &dyn Model, expander: &mut dyn Expander, settings: &Settings) -> Self {
        let start = model.start();
        let mut search = Self {
            found: Explored {
                graph: Graph::default(),
                fingerprints: Vec::new(),
                cut_off: None,
                gaps: Vec::new(),
                depth: 0,
                deadlock: None,
                residue: None,
                stuck: BTreeMap::new(),
                breaches: Vec::new(),
                answers: BTreeMap::new(),
            },
            known: HashTable::new(),
            frontier: Level::default(),
            behind: BTreeMap::new(),
            expanded: 0,
            limit: (settings.max_states, CutOff::MaxStates),
            limits: Limits::new(settings),
        };
        let (fingerprint, label) = (expander.fingerprint(&start), expander.label(&start));
        let id = search.number(fingerprint, label, 0);
        search.frontier.push(id, &start);
        search
    }

    /// Expands level after level, and returns how many there were.
    fn run(&mut self, expanders: &mut [Box<dyn Expander + Send + '_>], watch: Watch<'_>) -> usize {
        let mut levels = 0;
        while self.frontier.len() > 0 && self.found.is_complete() {
            levels += 1;
            let level = std::mem::take(&mut self.frontier);
            self.found.gaps.push(level.gap(&*expanders[0]));
            if level.len() <= CHUNK {
                let mut out = Successors::default();
                expand_chunk(&mut *expanders[0], &level, 0, &mut out);
                self.enter(&level.ids, &out);
                self.pause(watch);
            } else {
                self.level(&level, expanders, watch);
            }
        }
        levels
    }

    /// Tells how far it has come, and looks whether that is far enough.
    fn pause(&mut self, watch: Watch<'_>) {
        let states = self.found.graph.states();
        watch(Progress { states, frontier: states - self.expanded });
        if self.found.is_complete() && self.expanded < states {
            self.found.cut_off = self.limits.reached();
        }
    }

    /// Everything that can be reached without a violation has been seen.
    fn limit_behind_violations(&mut self) {
        let before = self.found.graph.states();
        let most = before + before.max(BEHIND_MIN);
        if most < self.limit.0 {
            self.limit = (most, CutOff::BehindViolation);
        }
    }

    /// Expands a level with all threads and enters the results in order.
    fn level(
        &mut self,
        level: &Level,
        expanders: &mut [Box<dyn Expander + Send + '_>],
        watch: Watch<'_>,
    ) {
        let chunks = level.len().div_ceil(CHUNK);
        let next = AtomicUsize::new(0);
        // Bounded, so that the successors of a whole level never pile up.
        let (sender, results) = mpsc::sync_channel::<(usize, Successors)>(2 * expanders.len());
        std::thread::scope(|scope| {
            for expander in expanders {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let chunk = next.fetch_add(1, Ordering::Relaxed);
                        if chunk >= chunks {
                            return;
                        }
                        let mut out = Successors::default();
                        expand_chunk(&mut **expander, level, chunk, &mut out);
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
                    let from = expected * CHUNK;
                    let ids = &level.ids[from..level.len().min(from + CHUNK)];
                    if self.found.is_complete() {
                        self.enter(ids, &out);
                        self.pause(watch);
                    }
                    expected += 1;
                }
                if !self.found.is_complete() {
                    break;
                }
            }
        });
    }

    /// Enters the successors of some states.
    fn enter(&mut self, states: &[u32], out: &Successors) {
        let (mut step, mut held, mut answered) = (0, 0, 0);
        for (&from, expanded) in states.iter().zip(&out.states) {
            if self.found.graph.states() >= self.limit.0 {
                self.found.cut_off = Some(self.limit.1);
                return;
            }
            self.note_at_rest(from, expanded.rest);
            self.expanded += 1;
            self.found.graph.expand(from);
            for at in step..expanded.steps_end {
                self.enter_step(from, &out.steps[at], out.state(at));
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

    fn enter_step(&mut self, from: u32, step: &Step, state: &[u32]) {
        if let Some(breach) = &step.breach {
            self.note_breach(from, breach);
        }
        let known = self.find(step.fingerprint);
        let id = known.unwrap_or_else(|| self.number(step.fingerprint, step.label, from));
        match (known, &step.breach) {
            (None, None) => self.frontier.push(id, state),
            (None, Some(_)) => {
                self.behind.insert(id, state.to_vec());
            }
            (Some(_), None) if self.behind.remove(&id).is_some() => {
                self.found.graph.set_parent(id, from);
                self.frontier.push(id, state);
            }
            (Some(_), _) => {}
        }
        self.found.graph.add_edge(from, id, step.class);
        for class in &step.dropped {
            self.found.graph.add_drop(from, id, *class);
        }
    }

    fn find(&self, fingerprint: u64) -> Option<u32> {
        self.known
            .find(fingerprint, |id| self.found.fingerprints[*id as usize] == fingerprint)
            .copied()
    }

    fn number(&mut self, fingerprint: u64, label: Label, parent: u32) -> u32 {
        let id = self.found.graph.add_state(label, parent);
        self.found.fingerprints.push(fingerprint);
        let fingerprints = &self.found.fingerprints;
        self.known.insert_unique(fingerprint, id, |id| fingerprints[*id as usize]);
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
