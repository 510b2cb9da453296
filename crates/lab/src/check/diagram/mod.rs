//! The state graph of a small scope, to be drawn: as text for Graphviz, or as a picture.

mod dot;
mod picture;

use rustc_hash::FxHashMap;

use super::chart::label;
use super::search::model::{AtRest, Model, Step, Successors};
use super::verdict::trace::Describe;
use super::world::World;
use super::{BadScope, Scope, Settings, prepare};
use crate::registry::Chosen;

/// All states of a scope and the steps between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateGraph {
    title: String,
    /// In the order in which a search finds them; the first is the start.
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    /// How many steps it is away from the start.
    depth: usize,
    /// Everything in it.
    state: String,
    mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Plain,
    /// Nothing can happen any more, and nothing is wrong with that.
    End,
    /// A request hangs, or a role remembers one that is over.
    Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    from: usize,
    to: usize,
    what: String,
    /// Whether the step breaks something.
    breaks: bool,
}

/// The state graph of a scope, or `None` if it has more than `most` states.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn state_graph(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    most: usize,
) -> Result<Option<StateGraph>, BadScope> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let world = World::of(chosen, roles, scope, &settings);
    let mut expander = world.expander();
    let start = world.start();
    let title = format!("{} {scope}", chosen.as_typed());
    let mut graph = StateGraph { title, nodes: Vec::new(), edges: Vec::new() };
    let mut known = FxHashMap::from_iter([(expander.fingerprint(&start), 0)]);
    let mut states = vec![(start, 0)];
    let mut next = Successors::default();
    while let Some((state, depth)) = states.get(graph.nodes.len()).cloned() {
        next.clear();
        expander.expand(&state, &mut next);
        let from = graph.nodes.len();
        graph.nodes.push(Node { depth, state: world.show_state(&state), mark: mark(&next) });
        for (i, step) in next.steps.iter().enumerate() {
            let to = *known.entry(step.fingerprint).or_insert_with(|| {
                states.push((next.state(i).to_vec(), depth + 1));
                states.len() - 1
            });
            let what = what(&world, &state, step, next.state(i));
            graph.edges.push(Edge { from, to, what, breaks: step.breach.is_some() });
        }
        if states.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(graph))
}

fn mark(next: &Successors) -> Mark {
    let rest = next.states.first().map(|expanded| expanded.rest).unwrap_or_default();
    match rest {
        AtRest { deadlock: true, .. } | AtRest { residue: true, .. } => Mark::Wrong,
        _ if next.steps.is_empty() => Mark::End,
        _ => Mark::Plain,
    }
}

/// A step in few words: `u0 asks`, `u0 > m1 Acquire`.
fn what(world: &World<'_>, before: &[u32], step: &Step, after: &[u32]) -> String {
    let step = world.trace_step(before, step.action, after);
    match step.from {
        Some(from) => format!("{from} > {} {}", step.at, label(&step)),
        None => format!("{} {}", step.at, label(&step)),
    }
}
