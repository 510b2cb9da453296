//! Who is blocked for ever after a crash, decided on the finished graph.
//!
//! Everything after a crash is closed under steps, since nobody comes back to life. There, for a
//! user that waits:
//! - **no path** is left in a state from which no step that satisfies it can be reached at all;
//! - **a fair run** never satisfies it if there is a state in which nothing will happen by itself,
//!   or a fair component ([`super::fair`]), and it waits throughout.
//!
//! The first implies the second: a run that cannot satisfy it may as well be fair. Where the search
//! was cut off, a state without its steps is given the benefit of the doubt, so that whoever is
//! found blocked is.

use super::fair::{Assumption, FairComponent, fair_components};
use crate::check::search::graph::Graph;

/// What became of a user's waiting, by the stages in which the other may have crashed.
#[derive(Default)]
pub(crate) struct CrashEffect {
    /// After a crash in which of the stages it can be left without a path, as a mask.
    pub(crate) no_path: u64,
    /// And after which, a fair run may never satisfy it.
    pub(crate) fair_run: u64,
    /// A fair run may never satisfy it even if nobody crashes; `fair_run` then says nothing.
    pub(crate) anyway: bool,
    /// The first way to be blocked, in the stronger sense if there is one.
    pub(crate) first: Option<Blocking>,
}

/// A state in which a user is blocked.
pub(crate) struct Blocking {
    pub(crate) state: u32,
    /// The fair cycle it begins, unless nothing moves or no path is left.
    pub(crate) cycle: Vec<u32>,
}

/// A graph in which a user may crash, and what can be said of all states at once.
pub(crate) struct AfterCrash<'g> {
    graph: &'g Graph,
    /// For each state, the stages in which the crash before it may have happened.
    after: Vec<u64>,
    /// For each state after a crash, the users that a path leads on to a grant of.
    reaches_grant: Vec<u32>,
}

impl<'g> AfterCrash<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        Self { graph, after: after(graph), reaches_grant: reaches_grant(graph) }
    }

    /// All stages in which there was a crash.
    pub(crate) fn crash_stages(&self) -> u64 {
        self.after.iter().fold(0, |all, stages| all | stages)
    }

    pub(crate) fn effect(&self, lane: usize) -> CrashEffect {
        let (graph, assumption) = (self.graph, Assumption::ALL_END);
        let waits = |state: &u32| graph.label(*state).waiting >> lane & 1 == 1;
        let crashed = |state: &u32| graph.label(*state).stage.is_crashed();
        let waiting = || (0..graph.states() as u32).filter(waits);
        let without_path = |state: &u32| self.reaches_grant[*state as usize] >> lane & 1 == 0;
        let lost = || waiting().filter(crashed).filter(without_path);
        let resting = || waiting().filter(|state| self.is_at_rest(*state));
        let components = fair_components(graph, &assumption, &|state| waits(&state));
        let for_ever = || resting().chain(components.iter().map(FairComponent::first));
        let after = |stages, state: u32| stages | self.after[state as usize];

        let still = |state| Blocking { state, cycle: Vec::new() };
        let turning = || {
            let component = components
                .iter()
                .filter(|component| crashed(&component.first()))
                .min_by_key(|t| t.first())?;
            Some(Blocking { state: component.first(), cycle: component.cycle(graph, &assumption) })
        };
        CrashEffect {
            no_path: lost().fold(0, after),
            fair_run: for_ever().fold(0, after),
            anyway: for_ever().any(|state| !crashed(&state)),
            first: lost().next().or_else(|| resting().find(crashed)).map(still).or_else(turning),
        }
    }

    /// Whether nothing will happen by itself any more.
    fn is_at_rest(&self, state: u32) -> bool {
        let owed = |(_, class): &(u32, _)| Assumption::ALL_END.owes(*class);
        self.graph.is_expanded(state) && !self.graph.edges(state).iter().any(owed)
    }
}

/// Spreads the stages of crashes along the steps that follow. States are numbered as they were
/// found, so that most steps lead on to greater numbers and few sweeps are needed.
fn after(graph: &Graph) -> Vec<u64> {
    let mut after = vec![0; graph.states()];
    let mut changed = true;
    while changed {
        changed = false;
        for state in 0..graph.states() as u32 {
            let stage = graph.label(state).stage;
            let crash = if stage.is_crashed() { 0 } else { stage.mask() };
            let mask = after[state as usize] | crash;
            for (to, _) in graph.edges(state) {
                let known = after[*to as usize];
                if graph.label(*to).stage.is_crashed() && known | mask != known {
                    after[*to as usize] |= mask;
                    changed = true;
                }
            }
        }
    }
    after
}

/// Spreads grants back along the steps that lead to them.
fn reaches_grant(graph: &Graph) -> Vec<u32> {
    let unexpanded = |state| if graph.is_expanded(state) { 0 } else { u32::MAX };
    let mut reaches_grant: Vec<u32> = (0..graph.states() as u32).map(unexpanded).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for state in (0..graph.states() as u32).rev() {
            let label = graph.label(state);
            if !label.stage.is_crashed() || !graph.is_expanded(state) {
                continue;
            }
            let step = |(to, _): &(u32, _)| {
                reaches_grant[*to as usize] | label.waiting & !graph.label(*to).waiting
            };
            let mask = graph.edges(state).iter().map(step).fold(0, |all, mask| all | mask);
            changed |= mask != reaches_grant[state as usize];
            reaches_grant[state as usize] = mask;
        }
    }
    reaches_grant
}
