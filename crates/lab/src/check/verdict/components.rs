//! Strongly connected components of parts of a graph: Tarjan's algorithm without recursion.
//!
//! The arrays, one place for each state of the whole graph, are made once and then serve for any
//! number of parts, each at a cost that depends only on the size of the part.

use crate::check::search::graph::Graph;

pub(crate) struct Components<'g> {
    graph: &'g Graph,
    /// The part that each state was marked as belonging to last.
    part: Vec<u32>,
    parts: u32,
    /// 0 for a state not seen yet, else one more than its place in the order of visits.
    index: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<u32>,
}

/// Some states that were marked together.
#[derive(Clone, Copy)]
pub(crate) struct Part(u32);

impl<'g> Components<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        let n = graph.states();
        Self {
            graph,
            part: vec![0; n],
            parts: 0,
            index: vec![0; n],
            low: vec![0; n],
            on_stack: vec![false; n],
            stack: Vec::new(),
        }
    }

    /// Marks states as a part. A state belongs to the part it was marked for last.
    pub(crate) fn mark(&mut self, states: &[u32]) -> Part {
        self.parts += 1;
        for state in states {
            self.part[*state as usize] = self.parts;
        }
        Part(self.parts)
    }

    pub(crate) fn has(&self, part: Part, state: u32) -> bool {
        self.part[state as usize] == part.0
    }

    /// The components of the graph restricted to these states. A state by itself is one only if
    /// a step leads from it to itself.
    pub(crate) fn of(&mut self, states: &[u32]) -> Vec<Vec<u32>> {
        let part = self.mark(states);
        for state in states {
            self.index[*state as usize] = 0;
        }
        let mut found = Vec::new();
        let mut visits = 0;
        for root in states {
            if self.index[*root as usize] == 0 {
                self.visit(part, *root, &mut visits, &mut found);
            }
        }
        found
    }

    fn visit(&mut self, part: Part, root: u32, visits: &mut u32, found: &mut Vec<Vec<u32>>) {
        let graph = self.graph;
        let mut path: Vec<(u32, usize)> = Vec::new();
        self.open(root, visits, &mut path);
        while let Some((state, edge)) = path.last_mut() {
            let at = *state;
            let Some(&(to, _)) = graph.edges(at).get(*edge) else {
                path.pop();
                if let Some((parent, _)) = path.last() {
                    let low = self.low[at as usize];
                    self.lower(*parent, low);
                }
                self.close(at, found);
                continue;
            };
            *edge += 1;
            if !self.has(part, to) {
                continue;
            }
            if self.index[to as usize] == 0 {
                self.open(to, visits, &mut path);
            } else if self.on_stack[to as usize] {
                let index = self.index[to as usize];
                self.lower(at, index);
            }
        }
    }

    fn open(&mut self, state: u32, visits: &mut u32, path: &mut Vec<(u32, usize)>) {
        *visits += 1;
        self.index[state as usize] = *visits;
        self.low[state as usize] = *visits;
        self.stack.push(state);
        self.on_stack[state as usize] = true;
        path.push((state, 0));
    }

    fn lower(&mut self, state: u32, to: u32) {
        let low = &mut self.low[state as usize];
        *low = to.min(*low);
    }

    /// If the state is the first visited of its component, the component is on top of the stack.
    fn close(&mut self, state: u32, found: &mut Vec<Vec<u32>>) {
        if self.low[state as usize] != self.index[state as usize] {
            return;
        }
        if self.stack.last() == Some(&state) {
            self.stack.pop();
            self.on_stack[state as usize] = false;
            if self.graph.edges(state).iter().any(|(to, _)| *to == state) {
                found.push(vec![state]);
            }
            return;
        }
        let mut component = Vec::new();
        while let Some(top) = self.stack.pop() {
            self.on_stack[top as usize] = false;
            component.push(top);
            if top == state {
                break;
            }
        }
        found.push(component);
    }
}
