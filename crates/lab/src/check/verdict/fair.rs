//! Fair cycles in which a request stays unsatisfied.
//!
//! For a user, the graph is restricted to the states in which it waits; a step that satisfies the
//! request leads out of it. A strongly connected component of what is left is a way to wait for
//! ever. It is *fair* if every class of actions is taken inside it or impossible somewhere in it.
//! If a component is not fair, then some class is possible in all of its states and taken by none
//! of its steps, and the same is true of every part of it: so looking at whole components is
//! enough. A timer that may ring only when nothing else moves is often impossible in between, and
//! must ring all the same if it may again and again: where it never does, only the part of the
//! component is looked at in which it may not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::check::search::graph::Graph;
use crate::check::search::model::{Class, Label};

/// Whose ends of use a fair run must not leave out, and where waiting is excused.
pub(crate) struct Assumption {
    /// The users whose uses end, as a mask.
    pub(crate) ending: u32,
    pub(crate) excused: fn(Label, lane: usize) -> bool,
}

impl Assumption {
    /// Every use ends; waiting is excused only where somebody began one that does not.
    pub(crate) const ALL_END: Self = Self { ending: u32::MAX, excused: |label, _| label.endless };

    /// Whether a fair run owes this class anything.
    pub(crate) fn owes(&self, class: Class) -> bool {
        class != Class::UNFAIR && class.done_by().is_none_or(|lane| self.ending >> lane & 1 == 1)
    }
}

/// A way to wait for ever: a fair component, by its states.
pub(crate) struct FairComponent {
    states: Vec<u32>,
}

/// The first fair component in which `lane` waits without excuse.
pub(crate) fn first_fair_component(
    graph: &Graph,
    lane: usize,
    assumption: &Assumption,
) -> Option<FairComponent> {
    let waits = |state: u32| {
        let label = graph.label(state);
        label.waiting >> lane & 1 == 1 && !(assumption.excused)(label, lane)
    };
    let components = fair_components(graph, assumption, &waits);
    components.into_iter().min_by_key(FairComponent::first)
}

/// All fair components of the graph restricted to some states.
pub(crate) fn fair_components(
    graph: &Graph,
    assumption: &Assumption,
    member: &dyn Fn(u32) -> bool,
) -> Vec<FairComponent> {
    let mut components = Tarjan::new(graph, member).run(0..graph.states() as u32);
    let mut fair = Vec::new();
    while let Some(states) = components.pop() {
        match judge(graph, &states, assumption) {
            Verdict::Fair => fair.push(FairComponent { states }),
            Verdict::Unfair => {}
            Verdict::FairWithout(timers) => {
                let silent = |state: &u32| {
                    graph.edges(*state).iter().all(|(_, class)| !timers.contains(class))
                };
                let rest: FxHashSet<u32> = states.iter().copied().filter(silent).collect();
                let inside = |state: u32| rest.contains(&state);
                components.extend(
                    Tarjan::new(graph, &inside)
                        .run(states.into_iter().filter(|s| rest.contains(s))),
                );
            }
        }
    }
    fair
}

enum Verdict {
    Fair,
    /// Nor is any part of it.
    Unfair,
    /// These timers may ring somewhere in it and never do.
    FairWithout(FxHashSet<Class>),
}

fn judge(graph: &Graph, states: &[u32], assumption: &Assumption) -> Verdict {
    let inside: FxHashSet<u32> = states.iter().copied().collect();
    let mut enabled: FxHashMap<Class, usize> = FxHashMap::default();
    let mut taken: FxHashSet<Class> = FxHashSet::default();
    let mut here: Vec<Class> = Vec::new();
    for &state in states {
        here.clear();
        for &(to, class) in graph.edges(state) {
            here.push(class);
            if inside.contains(&to) {
                taken.insert(class);
            }
        }
        here.sort_unstable();
        here.dedup();
        for class in &here {
            *enabled.entry(*class).or_default() += 1;
        }
    }
    enabled.retain(|class, _| assumption.owes(*class) && !taken.contains(class));
    if enabled.values().any(|times| *times == states.len()) {
        return Verdict::Unfair;
    }
    let silent: FxHashSet<Class> = enabled.into_keys().filter(|class| class.is_timer()).collect();
    if silent.is_empty() { Verdict::Fair } else { Verdict::FairWithout(silent) }
}

impl FairComponent {
    /// The state of it that was found first.
    pub(crate) fn first(&self) -> u32 {
        self.states.iter().copied().min().unwrap_or_default()
    }

    /// A fair cycle through the component, as short as a greedy walk makes it: it starts and ends
    /// at the state found first, takes each class that is always possible, and visits for every
    /// other class a state where it is not.
    pub(crate) fn cycle(&self, graph: &Graph, assumption: &Assumption) -> Vec<u32> {
        let inside: FxHashSet<u32> = self.states.iter().copied().collect();
        let start = self.first();
        let mut owed: BTreeSet<Class> = self
            .states
            .iter()
            .flat_map(|s| graph.edges(*s))
            .map(|(_, class)| *class)
            .filter(|class| assumption.owes(*class))
            .collect();
        let settle = |owed: &mut BTreeSet<Class>, state: u32| {
            let possible: BTreeSet<Class> = graph.edges(state).iter().map(|(_, c)| *c).collect();
            owed.retain(|class| possible.contains(class));
        };
        let mut walk = vec![start];
        settle(&mut owed, start);
        while !owed.is_empty() {
            let from = walk.last().copied().unwrap_or(start);
            let helps = |edge: &(u32, Class)| {
                let possible = graph.edges(edge.0);
                owed.contains(&edge.1) || owed.iter().any(|c| possible.iter().all(|(_, p)| p != c))
            };
            let Some(way) = shortest(graph, &inside, from, helps) else { break };
            for (state, class) in way {
                owed.remove(&class);
                settle(&mut owed, state);
                walk.push(state);
            }
        }
        let from = walk.last().copied().unwrap_or(start);
        if from != start || walk.len() == 1 {
            let back = shortest(graph, &inside, from, |edge| edge.0 == start);
            walk.extend(back.into_iter().flatten().map(|(state, _)| state));
        }
        walk
    }
}

/// The shortest way inside from a state to the first edge that serves, that edge included.
fn shortest(
    graph: &Graph,
    inside: &FxHashSet<u32>,
    from: u32,
    serves: impl Fn(&(u32, Class)) -> bool,
) -> Option<Vec<(u32, Class)>> {
    let mut came: BTreeMap<u32, (u32, Class)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for edge in graph.edges(at).iter().filter(|(to, _)| inside.contains(to)) {
            if serves(edge) {
                let mut way = vec![*edge];
                let mut back = at;
                while back != from {
                    let (previous, class) = came[&back];
                    way.push((back, class));
                    back = previous;
                }
                way.reverse();
                return Some(way);
            }
            if edge.0 != from && !came.contains_key(&edge.0) {
                came.insert(edge.0, (at, edge.1));
                queue.push_back(edge.0);
            }
        }
    }
    None
}

/// Tarjan's algorithm without recursion, on some of the states.
struct Tarjan<'g> {
    graph: &'g Graph,
    member: &'g dyn Fn(u32) -> bool,
    /// 0 for a state not seen yet, else one more than its place in the order of visits.
    index: Vec<u32>,
    low: Vec<u32>,
    stack: Vec<u32>,
    on_stack: Vec<bool>,
    components: Vec<Vec<u32>>,
}

impl<'g> Tarjan<'g> {
    fn new(graph: &'g Graph, member: &'g dyn Fn(u32) -> bool) -> Self {
        let n = graph.states();
        Self {
            graph,
            member,
            index: vec![0; n],
            low: vec![0; n],
            stack: Vec::new(),
            on_stack: vec![false; n],
            components: Vec::new(),
        }
    }

    fn run(mut self, from: impl Iterator<Item = u32>) -> Vec<Vec<u32>> {
        let mut visits = 0;
        for root in from {
            if (self.member)(root) && self.index[root as usize] == 0 {
                self.visit(root, &mut visits);
            }
        }
        self.components
    }

    fn visit(&mut self, root: u32, visits: &mut u32) {
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
                self.close(at);
                continue;
            };
            *edge += 1;
            if !(self.member)(to) {
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
    /// A state by itself counts only with a step to itself.
    fn close(&mut self, state: u32) {
        if self.low[state as usize] != self.index[state as usize] {
            return;
        }
        if self.stack.last() == Some(&state) {
            self.stack.pop();
            self.on_stack[state as usize] = false;
            if self.graph.edges(state).iter().any(|(to, _)| *to == state) {
                self.components.push(vec![state]);
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
        self.components.push(component);
    }
}
