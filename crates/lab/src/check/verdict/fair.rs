//! Fair cycles: how a system may go on for ever without something that is owed.
//!
//! The graph is restricted to the states in which it is still owed (a user waits, say); a step that
//! delivers it leads out of them. A strongly connected component of what is left is a way to go on
//! for ever. It is *fair* if every class of actions is taken inside it or impossible somewhere in
//! it. If a component is not fair, then some class is possible in all of its states and taken by
//! none of its steps, and the same is true of every part of it: so looking at whole components is
//! enough.
//!
//! Timers that may ring only when nothing else can move are often impossible in between, and must
//! ring all the same if they may again and again. Where one never does, only the parts of the
//! component are looked at in which it may not; and of these, those in which it is armed all the
//! time are not fair, since sooner or later the others pause. Where the search was cut off, it is not
//! known which timers may ring in such a pause, so that each is taken for one that may.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use super::components::Components;
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

/// A way to go on for ever: a fair component, by its states.
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

/// All fair components of the graph restricted to some states. A component of a part of the graph is
/// inside one of the whole, so that states on no cycle, which are all of them if nobody asks for ever,
/// need no further look.
pub(crate) fn fair_components(
    graph: &Graph,
    assumption: &Assumption,
    member: &dyn Fn(u32) -> bool,
) -> Vec<FairComponent> {
    let on_cycles = graph.on_cycles(|| {
        let all: Vec<u32> = (0..graph.states() as u32).collect();
        let mut on_cycles = Components::new(graph).of(&all).concat();
        on_cycles.sort_unstable();
        on_cycles
    });
    let members: Vec<u32> = on_cycles.iter().copied().filter(|state| member(*state)).collect();
    if members.is_empty() {
        return Vec::new();
    }
    let mut components = Components::new(graph);
    let unheard = FxHashSet::default();
    let mut open: Vec<_> =
        components.of(&members).into_iter().map(|part| (part, unheard.clone())).collect();
    let mut fair = Vec::new();
    while let Some((states, mut unheard)) = open.pop() {
        let inside = components.mark(&states);
        match judge(graph, &states, assumption, &unheard, |state| components.has(inside, state)) {
            Verdict::Fair => fair.push(FairComponent { states }),
            Verdict::Unfair => {}
            Verdict::FairWithout(timers) => {
                let silent = |state: &u32| {
                    graph.edges(*state).iter().all(|(_, class)| !timers.contains(class))
                };
                let rest: Vec<u32> = states.into_iter().filter(silent).collect();
                unheard.extend(timers);
                let parts = components.of(&rest).into_iter();
                open.extend(parts.map(|part| (part, unheard.clone())));
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

/// Judges a component. `unheard` are timers that could ring if the others paused outside of it.
fn judge(
    graph: &Graph,
    states: &[u32],
    assumption: &Assumption,
    unheard: &FxHashSet<Class>,
    inside: impl Fn(u32) -> bool,
) -> Verdict {
    // In how many states each class is possible, and each timer at least armed.
    let mut possible: FxHashMap<Class, usize> = FxHashMap::default();
    let mut armed: FxHashMap<Class, usize> = FxHashMap::default();
    let mut taken: FxHashSet<Class> = FxHashSet::default();
    let mut here: Vec<Class> = Vec::new();
    let rings_in_the_end = |timer: &Class| !graph.is_complete() || unheard.contains(timer);
    for &state in states {
        here.clear();
        here.extend(graph.edges(state).iter().map(|(_, class)| *class));
        here.sort_unstable();
        here.dedup();
        here.iter().for_each(|class| *possible.entry(*class).or_default() += 1);
        here.retain(|class| class.is_timer());
        here.extend(graph.held_timers(state).filter(rings_in_the_end));
        here.iter().for_each(|timer| *armed.entry(*timer).or_default() += 1);
        taken.extend(graph.taken(state).filter(|(to, _)| inside(*to)).map(|(_, class)| class));
    }
    let left_out = |class: &Class| assumption.owes(*class) && !taken.contains(class);
    let mut counts = possible.iter().chain(&armed);
    if counts.any(|(class, times)| *times == states.len() && left_out(class)) {
        return Verdict::Unfair;
    }
    let silent = |class: &Class| class.is_timer() && left_out(class);
    let silent: FxHashSet<Class> = possible.into_keys().filter(silent).collect();
    if silent.is_empty() { Verdict::Fair } else { Verdict::FairWithout(silent) }
}

impl FairComponent {
    /// The state of it that was found first.
    pub(crate) fn first(&self) -> u32 {
        self.states.iter().copied().min().unwrap_or_default()
    }

    /// Whether anything happens in it by itself.
    pub(crate) fn moves_by_itself(&self, graph: &Graph) -> bool {
        let inside: FxHashSet<u32> = self.states.iter().copied().collect();
        let mut edges = self.states.iter().flat_map(|state| graph.edges(*state));
        edges.any(|(to, class)| *class != Class::UNFAIR && inside.contains(to))
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

/// The shortest way inside from a state to the first step that serves, that step included.
fn shortest(
    graph: &Graph,
    inside: &FxHashSet<u32>,
    from: u32,
    serves: impl Fn(&(u32, Class)) -> bool,
) -> Option<Vec<(u32, Class)>> {
    let mut came: BTreeMap<u32, (u32, Class)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for step in graph.taken(at).filter(|(to, _)| inside.contains(to)) {
            if serves(&step) {
                let mut way = vec![step];
                let mut back = at;
                while back != from {
                    let (previous, class) = came[&back];
                    way.push((back, class));
                    back = previous;
                }
                way.reverse();
                return Some(way);
            }
            if step.0 != from && !came.contains_key(&step.0) {
                came.insert(step.0, (at, step.1));
                queue.push_back(step.0);
            }
        }
    }
    None
}
