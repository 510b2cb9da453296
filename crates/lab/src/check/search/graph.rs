//! The states found and the steps between them, as numbers only.

use super::model::{Class, Label};

/// Grows during the search. States up to some number have their edges; the rest have none yet.
#[derive(Default)]
pub(crate) struct Graph {
    labels: Vec<Label>,
    parents: Vec<u32>,
    /// Where the edges of each expanded state end.
    ends: Vec<usize>,
    edges: Vec<(u32, Class)>,
}

impl Graph {
    pub(crate) fn states(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn transitions(&self) -> usize {
        self.edges.len()
    }

    /// How many states have their edges: those numbered below.
    pub(crate) fn expanded(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn label(&self, state: u32) -> Label {
        self.labels[state as usize]
    }

    /// The steps out of a state.
    pub(crate) fn edges(&self, state: u32) -> &[(u32, Class)] {
        let i = state as usize;
        let start =
            if i == 0 { 0 } else { self.ends.get(i - 1).copied().unwrap_or(self.edges.len()) };
        &self.edges[start..self.ends.get(i).copied().unwrap_or(self.edges.len())]
    }

    /// The states on a shortest way to a state, from the start to it.
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

    pub(crate) fn state(&mut self, label: Label, parent: u32) -> u32 {
        let id = u32::try_from(self.labels.len()).expect("--max-states is below 2^32");
        self.labels.push(label);
        self.parents.push(parent);
        id
    }

    pub(crate) fn edge(&mut self, to: u32, class: Class) {
        self.edges.push((to, class));
    }

    pub(crate) fn end_of_edges(&mut self) {
        self.ends.push(self.edges.len());
    }
}
