//! What may go on for ever: a request that is never satisfied, or work without any request.
//!
//! Where the search was cut off, a state without its edges is in no cycle, so that what is found
//! is a way to go on for ever; there may be others.

use holdall_core::Property;
use rayon::prelude::*;

use super::fair::{Assumption, FairComponent, fair_components, first_fair_component};
use super::report::Violation;
use crate::check::search::graph::Graph;
use crate::check::search::model::Model;

/// Fair cycles, for each user, and for all together. A patient timer relies on uses that end, so
/// that then only those who never do count as strangers.
/// Whether a user may wait for ever without a conflict is looked at only if asked for (`alone`).
pub(super) fn for_ever(
    model: &dyn Model,
    graph: &Graph,
    patient: bool,
    alone: bool,
) -> Vec<Violation> {
    let lanes = model.sharing().par_iter().enumerate();
    let owed = |sharing: u32| if patient { u32::MAX } else { sharing };
    let found = lanes.map(|(lane, sharing)| {
        let waiting = never_satisfied(graph, lane, owed(*sharing)).into_iter();
        let alone = alone.then(|| never_satisfied_alone(graph, lane)).flatten();
        waiting.chain(alone).chain(never_released(graph, lane)).collect::<Vec<_>>()
    });
    let found: Vec<_> = found.collect();
    found.into_iter().flatten().chain(never_at_rest(graph)).collect()
}

/// A fair cycle in which a user waits. If it can starve although every use ends, that is no fault
/// of strangers: it then counts against `concurrency` only if the user is stuck at rest.
fn never_satisfied(graph: &Graph, lane: usize, sharing: u32) -> Option<Violation> {
    let all_end = Assumption::ALL_END;
    let sharers_end =
        Assumption { ending: sharing, excused: |label, lane| label.blocked >> lane & 1 == 1 };
    let starving = first_fair_component(graph, lane, &all_end);
    let (component, assumption, property) = match starving {
        Some(component) => (component, all_end, Property::NoStarvation),
        None => {
            (first_fair_component(graph, lane, &sharers_end)?, sharers_end, Property::Concurrency)
        }
    };
    let what = format!("this repeats for ever, fairly, and u{lane} is never satisfied");
    Some(violation(graph, &component, &assumption, property, Some(lane), what))
}

/// A way to wait for ever without a conflict, though others need not end what they use: a state in
/// which nothing else happens by itself, or a fair cycle.
fn never_satisfied_alone(graph: &Graph, lane: usize) -> Option<Violation> {
    let assumption =
        Assumption { ending: 0, excused: |label, lane| label.conflicted >> lane & 1 == 1 };
    let waits = |state: &u32| {
        let label = graph.label(*state);
        label.waiting >> lane & 1 == 1 && !(assumption.excused)(label, lane)
    };
    let owed = |state: &u32| graph.edges(*state).iter().any(|(_, class)| assumption.owes(*class));
    let property = Property::CurrentConflicts;
    let mut states = (0..graph.states() as u32).filter(|state| graph.is_expanded(*state));
    if let Some(state) = states.find(|state| waits(state) && !owed(state)) {
        let what = format!("u{lane} conflicts with nobody, and waits until others end their use");
        let (path, cycle) = (graph.way_to(state), Vec::new());
        return Some(Violation { property, user: Some(lane), path, cycle, what });
    }
    let component = first_fair_component(graph, lane, &assumption)?;
    let what =
        format!("this repeats for ever, fairly, and u{lane}, in conflict with nobody, waits");
    Some(violation(graph, &component, &assumption, property, Some(lane), what))
}

/// A fair cycle in which a user has ended its use and is never told that it may ask again.
fn never_released(graph: &Graph, lane: usize) -> Option<Violation> {
    let releases = |state| graph.label(state).releasing >> lane & 1 == 1;
    let component = earliest(fair_components(graph, &Assumption::ALL_END, &releases))?;
    let what = format!("this repeats for ever, fairly, and u{lane} may never ask again");
    let user = Some(lane);
    Some(violation(graph, &component, &Assumption::ALL_END, Property::NoLivelock, user, what))
}

/// A fair cycle in which no request is under way, and yet something happens by itself.
fn never_at_rest(graph: &Graph) -> Option<Violation> {
    let over = |state| !graph.label(state).busy;
    let components = fair_components(graph, &Assumption::ALL_END, &over);
    let moving = components.into_iter().filter(|component| component.moves_by_itself(graph));
    let component = earliest(moving)?;
    let what = "no request is under way, and this repeats for ever".into();
    Some(violation(graph, &component, &Assumption::ALL_END, Property::NoLivelock, None, what))
}

fn earliest(components: impl IntoIterator<Item = FairComponent>) -> Option<FairComponent> {
    components.into_iter().min_by_key(FairComponent::first)
}

fn violation(
    graph: &Graph,
    component: &FairComponent,
    assumption: &Assumption,
    property: Property,
    user: Option<usize>,
    what: String,
) -> Violation {
    let cycle = component.cycle(graph, assumption);
    Violation { property, user, path: graph.way_to(cycle[0]), cycle, what }
}
