//! The states found and the steps between them, as numbers only.

use std::io;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::model::{Class, Label};
use crate::check::checkpoint::{RecordReader, RecordWriter, Unread};

/// Grows during the search. A state that has not been expanded yet has no edges.
#[derive(Default)]
pub(crate) struct Graph {
    /// The label of each state, by its place among all labels.
    labels: Vec<u32>,
    /// There are few that differ.
    all_labels: Vec<Label>,
    label_places: FxHashMap<Label, u32>,
    parents: Vec<u32>,
    /// Where the edges of each state begin and how many there are, unless it is [`UNEXPANDED`].
    spans: Vec<(usize, u32)>,
    edges: Vec<(u32, Class)>,
    /// Messages that a step took out because their receiver would ignore them: the state before
    /// the step, the state after it, and the class of the message. By the state before.
    drops: Vec<(u32, u32, Class)>,
    /// Timers that are armed in a state but may not ring yet, by state.
    held: Vec<(u32, Class)>,
    complete: bool,
    /// Whether some step leads to a state that was found before the one it is from, or to the same: every cycle has one.
    leads_back: bool,
    /// The states that are on a cycle, once somebody asks.
    on_cycles: OnceLock<Vec<u32>>,
}

const UNEXPANDED: (usize, u32) = (usize::MAX, 0);

impl Graph {
    pub(crate) fn states(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn transitions(&self) -> usize {
        self.edges.len()
    }

    /// Whether every state has its edges.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn is_expanded(&self, state: u32) -> bool {
        self.spans[state as usize] != UNEXPANDED
    }

    pub(crate) fn label(&self, state: u32) -> Label {
        self.all_labels[self.labels[state as usize] as usize]
    }

    /// The steps out of a state.
    pub(crate) fn edges(&self, state: u32) -> &[(u32, Class)] {
        match self.spans[state as usize] {
            UNEXPANDED => &[],
            (start, count) => &self.edges[start..start + count as usize],
        }
    }

    /// What the steps out of a state take, with the state each leads to: the class of the step
    /// itself, and the messages that it disposes of on the way.
    pub(crate) fn taken(&self, state: u32) -> impl Iterator<Item = (u32, Class)> + '_ {
        let drops = run_of(&self.drops, state, |drop| drop.0);
        self.edges(state).iter().copied().chain(drops.iter().map(|(_, to, class)| (*to, *class)))
    }

    /// The timers that are armed in a state but may not ring yet.
    pub(crate) fn held_timers(&self, state: u32) -> impl Iterator<Item = Class> + '_ {
        run_of(&self.held, state, |held| held.0).iter().map(|(_, class)| *class)
    }

    /// The states on the way by which a state was found, from the start to it.
    pub(crate) fn way_to(&self, state: u32) -> Vec<u32> {
        let mut way = vec![state];
        let mut at = state;
        while at != 0 {
            at = self.parents[at as usize];
            way.push(at);
        }
        way.reverse();
        way
    }

    /// The states that are on a cycle, in order, found by `find` the first time if there may be some.
    pub(crate) fn on_cycles(&self, find: impl FnOnce() -> Vec<u32>) -> &[u32] {
        if self.leads_back { self.on_cycles.get_or_init(find) } else { &[] }
    }

    pub(crate) fn add_state(&mut self, label: Label, parent: u32) -> u32 {
        let id = u32::try_from(self.labels.len()).expect("--max-states is below 2^32");
        let place = *self.label_places.entry(label).or_insert_with(|| {
            self.all_labels.push(label);
            self.all_labels.len() as u32 - 1
        });
        self.labels.push(place);
        self.parents.push(parent);
        self.spans.push(UNEXPANDED);
        id
    }

    /// A better way to a state was found.
    pub(crate) fn set_parent(&mut self, state: u32, parent: u32) {
        self.parents[state as usize] = parent;
    }

    /// Begins to expand a state: the edges that are added from now on are its.
    pub(crate) fn expand(&mut self, state: u32) {
        self.spans[state as usize] = (self.edges.len(), 0);
    }

    pub(crate) fn add_edge(&mut self, from: u32, to: u32, class: Class) {
        self.leads_back |= to <= from;
        self.edges.push((to, class));
        self.spans[from as usize].1 += 1;
    }

    pub(crate) fn add_drop(&mut self, from: u32, to: u32, class: Class) {
        self.drops.push((from, to, class));
    }

    pub(crate) fn add_held_timer(&mut self, state: u32, class: Class) {
        self.held.push((state, class));
    }

    /// All has been added. States behind a violation are expanded after later ones, so that what
    /// is kept by state must be put in order.
    pub(crate) fn finish(&mut self, complete: bool) {
        self.complete = complete;
        self.drops.sort_unstable_by_key(|drop| drop.0);
        self.held.sort_unstable_by_key(|held| held.0);
    }

    /// Writes down what there is so far.
    pub(crate) fn write(&self, to: &mut RecordWriter) -> io::Result<()> {
        to.put_list(self.all_labels.iter())?;
        to.put_list(self.labels.iter())?;
        to.put_list(self.parents.iter())?;
        to.put_list(self.spans.iter().map(|span| (*span != UNEXPANDED).then_some(*span)))?;
        to.put_list(self.edges.iter())?;
        to.put_list(self.drops.iter())?;
        to.put_list(self.held.iter())
    }

    /// Reads it back, if it is a graph.
    pub(crate) fn read(from: &mut RecordReader) -> Result<Self, Unread> {
        let all_labels: Vec<Label> = from.get_list()?;
        let label_places = all_labels.iter().copied().zip(0..).collect();
        let labels = from.get_list()?;
        let parents = from.get_list()?;
        let spans: Vec<Option<(usize, u32)>> = from.get_list()?;
        let spans = spans.into_iter().map(|span| span.unwrap_or(UNEXPANDED)).collect();
        let edges = from.get_list()?;
        let (drops, held) = (from.get_list()?, from.get_list()?);
        let mut graph = Self {
            labels,
            all_labels,
            label_places,
            parents,
            spans,
            edges,
            drops,
            held,
            ..Self::default()
        };
        if !graph.is_whole() {
            return Err(Unread::Damaged);
        }
        let leads_back = |from: u32| graph.edges(from).iter().any(|(to, _)| *to <= from);
        graph.leads_back = (0..graph.states() as u32).any(leads_back);
        Ok(graph)
    }

    /// Whether all that is named is there.
    fn is_whole(&self) -> bool {
        let states = self.states();
        let there = |state: u32| (state as usize) < states;
        let inside = |(start, count): (usize, u32)| {
            start.checked_add(count as usize).is_some_and(|end| end <= self.edges.len())
        };
        (self.parents.len(), self.spans.len()) == (states, states)
            && self.labels.iter().all(|place| (*place as usize) < self.all_labels.len())
            && self.parents.iter().all(|parent| there(*parent))
            && self.spans.iter().all(|span| *span == UNEXPANDED || inside(*span))
            && self.edges.iter().all(|(to, _)| there(*to))
            && self.drops.iter().all(|(from, to, _)| there(*from) && there(*to))
            && self.held.iter().all(|(state, _)| there(*state))
    }
}

/// The entries of one state in a list that is sorted by state.
fn run_of<T>(list: &[T], state: u32, of: impl Fn(&T) -> u32) -> &[T] {
    let start = list.partition_point(|entry| of(entry) < state);
    let end = start + list[start..].partition_point(|entry| of(entry) == state);
    &list[start..end]
}
