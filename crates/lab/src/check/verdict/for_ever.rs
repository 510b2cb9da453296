//! What may go on for ever: a request that is never satisfied, or work without any request.
//!
//! Where the search was cut off, a state without its edges is in no cycle, so that what is found
//! is a way to go on for ever; there may be others.

use holdall_core::Property;
use rayon::prelude::*;

use super::fair::{Assumption, FairComponent, fair_components, first_fair_component};
use crate::check::search::graph::Graph;
use crate::check::search::model::Model;

/// A violation that takes for ever: of which property, to whom, and by which states, the last of which
/// repeat; or none do, and nothing happens.
pub(super) struct Endless {
    pub(super) property: Property,
    pub(super) user: Option<usize>,
    pub(super) path: Vec<u32>,
    pub(super) cycle: Vec<u32>,
    pub(super) what: String,
}

/// Fair cycles, for each user, and for all together. A patient timer relies on uses that end, so
/// that then only those who never do count as strangers.
/// Whether a user may wait for ever because of strangers in the narrower senses is looked at only where
/// it is promised that it does not.
pub(super) fn for_ever(
    model: &dyn Model,
    graph: &Graph,
    patient: bool,
    promises: &[Property],
) -> Vec<Endless> {
    let narrower =
        [&ALONE, &INDEPENDENT].into_iter().filter(|sense| promises.contains(&sense.property));
    let narrower: Vec<&Sense> = narrower.collect();
    let lanes = model.sharing().par_iter().enumerate();
    let owed = |sharing: u32| if patient { u32::MAX } else { sharing };
    let found = lanes.map(|(lane, sharing)| {
        let waiting = never_satisfied(graph, lane, owed(*sharing)).into_iter();
        let strangers = narrower.iter().filter_map(|sense| never_satisfied_in(sense, graph, lane));
        waiting.chain(strangers).chain(never_released(graph, lane)).collect::<Vec<_>>()
    });
    let found: Vec<_> = found.collect();
    found.into_iter().flatten().chain(never_at_rest(graph)).collect()
}

/// A fair cycle in which a user waits. If it can starve although every use ends, that is no fault
/// of strangers: it then counts against `concurrency` only if the user is stuck at rest.
fn never_satisfied(graph: &Graph, lane: usize, sharing: u32) -> Option<Endless> {
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

/// A sense in which strangers do not keep a user waiting.
struct Sense {
    property: Property,
    assumption: Assumption,
    /// What is said of a user that waits without excuse.
    unexcused: &'static str,
}

/// Others need not end what they use, but then they may not use or wait for what the user waits for.
const ALONE: Sense = Sense {
    property: Property::CurrentConflicts,
    assumption: Assumption { ending: 0, excused: |label, lane| label.conflicted >> lane & 1 == 1 },
    unexcused: "conflicts with nobody",
};

/// Those who never end their use are not among those it depends on.
const INDEPENDENT: Sense = Sense {
    property: Property::Independence,
    assumption: Assumption {
        ending: u32::MAX,
        excused: |label, lane| label.dependent >> lane & 1 == 1,
    },
    unexcused: "depends on nobody who never ends its use",
};

/// A way to wait for ever without the excuse: a state in which nothing that is owed happens, or a fair
/// cycle.
fn never_satisfied_in(sense: &Sense, graph: &Graph, lane: usize) -> Option<Endless> {
    let Sense { property, assumption, unexcused } = sense;
    let waits = |state: &u32| {
        let label = graph.label(*state);
        label.waiting >> lane & 1 == 1 && !(assumption.excused)(label, lane)
    };
    let owed = |state: &u32| graph.edges(*state).iter().any(|(_, class)| assumption.owes(*class));
    // Where nobody uses anything, it is a deadlock, and reported as that.
    let others_use = |state: &u32| {
        graph.label(*state).endless
            || graph.edges(*state).iter().any(|(_, c)| c.done_by().is_some())
    };
    let mut states = (0..graph.states() as u32).filter(|state| graph.is_expanded(*state));
    let stands = |state: &u32| waits(state) && !owed(state) && others_use(state);
    if let Some(state) = states.find(stands) {
        let what = format!("u{lane} {unexcused}, and waits until others end their use");
        let (path, cycle) = (graph.way_to(state), Vec::new());
        return Some(Endless { property: *property, user: Some(lane), path, cycle, what });
    }
    let component = first_fair_component(graph, lane, assumption)?;
    let what = format!("this repeats for ever, fairly, and u{lane} waits, which {unexcused}");
    Some(violation(graph, &component, assumption, *property, Some(lane), what))
}

/// A fair cycle in which a user has ended its use and is never told that it may ask again.
fn never_released(graph: &Graph, lane: usize) -> Option<Endless> {
    let releases = |state| graph.label(state).releasing >> lane & 1 == 1;
    let component = earliest(fair_components(graph, &Assumption::ALL_END, &releases))?;
    let what = format!("this repeats for ever, fairly, and u{lane} may never ask again");
    let user = Some(lane);
    Some(violation(graph, &component, &Assumption::ALL_END, Property::NoLivelock, user, what))
}

/// A fair cycle in which no request is under way, and yet something happens by itself.
fn never_at_rest(graph: &Graph) -> Option<Endless> {
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
) -> Endless {
    let cycle = component.cycle(graph, assumption);
    Endless { property, user, path: graph.way_to(cycle[0]), cycle, what }
}
