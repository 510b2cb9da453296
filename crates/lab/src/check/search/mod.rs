//! The search: every reachable state, level by level, so that the first way found to a state is
//! a shortest one.
//!
//! A state is known by its 64-bit fingerprint and numbered in the order of discovery; the states
//! themselves are kept only while they wait to be expanded. The successors of a level are made by
//! all cores, chunk by chunk, and entered into the table by one thread in the order of the
//! chunks: numbering, counts and traces do not depend on the number of threads.

pub(crate) mod graph;
pub(crate) mod model;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use hashbrown::HashTable;

use self::graph::Graph;
use self::model::{AtRest, Breach, Expander, Label, Model, Successors};

/// States expanded between two visits to the table.
const CHUNK: usize = 512;

/// What the search found.
pub(crate) struct Explored {
    pub(crate) graph: Graph,
    /// The fingerprint of each state.
    pub(crate) fingerprints: Vec<u64>,
    pub(crate) complete: bool,
    pub(crate) depth: usize,
    /// The first state in which each kind of rest was seen.
    pub(crate) deadlock: Option<u32>,
    pub(crate) residue: Option<u32>,
    /// By user: the first state in which only strangers could move.
    pub(crate) stuck: BTreeMap<usize, u32>,
    /// The first breach of each property, with the state it was committed in.
    pub(crate) breaches: Vec<(u32, Breach)>,
}

/// Searches until everything is seen, or `max_states` are.
pub(crate) fn search(
    model: &dyn Model,
    max_states: usize,
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Explored {
    let mut expanders: Vec<_> = (0..threads.max(1)).map(|_| model.expander()).collect();
    let mut search = Search::new(model, &mut *expanders[0]);
    while !search.frontier.ends.is_empty() && search.found.complete {
        progress(search.found.graph.states());
        search.found.depth += 1;
        let level = std::mem::take(&mut search.frontier);
        if level.ends.len() <= CHUNK {
            let mut out = Successors::default();
            expand_chunk(&mut *expanders[0], &level, 0, &mut out);
            search.enter(&out, max_states);
        } else {
            search.level(&level, &mut expanders, max_states);
        }
    }
    search.found.depth = search.found.depth.saturating_sub(1);
    search.found
}

/// States that wait to be expanded.
#[derive(Default)]
struct Level {
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl Level {
    fn push(&mut self, state: &[u32]) {
        self.words.extend_from_slice(state);
        self.ends.push(self.words.len());
    }

    fn state(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.words[start..self.ends[i]]
    }
}

fn expand_chunk(expander: &mut dyn Expander, level: &Level, chunk: usize, out: &mut Successors) {
    out.clear();
    for i in chunk * CHUNK..level.ends.len().min((chunk + 1) * CHUNK) {
        expander.expand(level.state(i), out);
    }
}

struct Search {
    found: Explored,
    /// State numbers, by fingerprint.
    known: HashTable<u32>,
    frontier: Level,
    /// The next state whose successors will be entered.
    cursor: u32,
}

impl Search {
    fn new(model: &dyn Model, expander: &mut dyn Expander) -> Self {
        let start = model.start();
        let mut search = Self {
            found: Explored {
                graph: Graph::default(),
                fingerprints: Vec::new(),
                complete: true,
                depth: 0,
                deadlock: None,
                residue: None,
                stuck: BTreeMap::new(),
                breaches: Vec::new(),
            },
            known: HashTable::new(),
            frontier: Level::default(),
            cursor: 0,
        };
        let (fingerprint, label) = (expander.fingerprint(&start), expander.label(&start));
        search.number(fingerprint, label, 0);
        search.frontier.push(&start);
        search
    }

    /// Expands a level with all threads and enters the results in order.
    fn level(
        &mut self,
        level: &Level,
        expanders: &mut [Box<dyn Expander + Send + '_>],
        max_states: usize,
    ) {
        let chunks = level.ends.len().div_ceil(CHUNK);
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
                    self.enter(&out, max_states);
                    expected += 1;
                }
                if !self.found.complete {
                    break;
                }
            }
        });
    }

    /// Enters the successors of the next states.
    fn enter(&mut self, out: &Successors, max_states: usize) {
        let mut at = 0;
        for (end, rest) in &out.states {
            if self.found.graph.states() >= max_states {
                self.found.complete = false;
                return;
            }
            self.note_at_rest(*rest);
            while at < *end {
                let step = &out.steps[at];
                if let Some(breach) = &step.breach {
                    self.note_breach(breach);
                } else {
                    let id = match self.find(step.fingerprint) {
                        Some(id) => id,
                        None => {
                            self.frontier.push(out.state(at));
                            self.number(step.fingerprint, step.label, self.cursor)
                        }
                    };
                    self.found.graph.edge(id, step.class);
                }
                at += 1;
            }
            self.found.graph.end_of_edges();
            self.cursor += 1;
        }
    }

    fn find(&self, fingerprint: u64) -> Option<u32> {
        self.known
            .find(fingerprint, |id| self.found.fingerprints[*id as usize] == fingerprint)
            .copied()
    }

    fn number(&mut self, fingerprint: u64, label: Label, parent: u32) -> u32 {
        let id = self.found.graph.state(label, parent);
        self.found.fingerprints.push(fingerprint);
        let fingerprints = &self.found.fingerprints;
        self.known.insert_unique(fingerprint, id, |id| fingerprints[*id as usize]);
        id
    }

    fn note_at_rest(&mut self, rest: AtRest) {
        let at = self.cursor;
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

    fn note_breach(&mut self, breach: &Breach) {
        if self.found.breaches.iter().all(|(_, known)| known.property != breach.property) {
            self.found.breaches.push((self.cursor, breach.clone()));
        }
    }
}
