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

use super::fair::{Premise, Trap, find_traps};
use super::graph::Graph;

/// What became of a user's waiting, by the stages in which the other may have crashed.
#[derive(Default)]
pub(super) struct Fate {
    /// After a crash in which of the stages it can be left without a path, as a mask.
    pub(super) no_path: u64,
    /// And after which, a fair run may never satisfy it.
    pub(super) fair_run: u64,
    /// A fair run may never satisfy it even if nobody crashes; `fair_run` then says nothing.
    pub(super) anyway: bool,
    /// The first way to be blocked, in the stronger sense if there is one.
    pub(super) first: Option<Blocking>,
}

/// A state in which a user is blocked.
pub(super) struct Blocking {
    pub(super) state: u32,
    /// The fair cycle it begins, unless nothing moves or no path is left.
    pub(super) cycle: Vec<u32>,
}

/// A graph in which a user may crash, and what can be said of all states at once.
pub(super) struct Wreck<'g> {
    graph: &'g Graph,
    /// For each state, the stages in which the crash before it may have happened.
    after: Vec<u64>,
    /// For each state after a crash, the users that a path leads on to a grant of.
    hope: Vec<u32>,
}

impl<'g> Wreck<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        Self { graph, after: after(graph), hope: hope(graph) }
    }

    /// All stages in which there was a crash.
    pub(super) fn crash_stages(&self) -> u64 {
        self.after.iter().fold(0, |all, stages| all | stages)
    }

    pub(super) fn fate(&self, lane: usize) -> Fate {
        let (graph, premise) = (self.graph, Premise::ALL_END);
        let waits = |state: &u32| graph.label(*state).waiting >> lane & 1 == 1;
        let crashed = |state: &u32| graph.label(*state).stage.is_crashed();
        let waiting = || (0..graph.states() as u32).filter(waits);
        let hopeless = |state: &u32| self.hope[*state as usize] >> lane & 1 == 0;
        let lost = || waiting().filter(crashed).filter(hopeless);
        let resting = || waiting().filter(|state| self.is_at_rest(*state));
        let traps = find_traps(graph, &premise, &|state| waits(&state));
        let for_ever = || resting().chain(traps.iter().map(Trap::first));
        let after = |stages, state: u32| stages | self.after[state as usize];

        let still = |state| Blocking { state, cycle: Vec::new() };
        let turning = || {
            let trap =
                traps.iter().filter(|trap| crashed(&trap.first())).min_by_key(|t| t.first())?;
            Some(Blocking { state: trap.first(), cycle: trap.cycle(graph, &premise) })
        };
        Fate {
            no_path: lost().fold(0, after),
            fair_run: for_ever().fold(0, after),
            anyway: for_ever().any(|state| !crashed(&state)),
            first: lost().next().or_else(|| resting().find(crashed)).map(still).or_else(turning),
        }
    }

    /// Whether nothing will happen by itself any more.
    fn is_at_rest(&self, state: u32) -> bool {
        let owed = |(_, class): &(u32, _)| Premise::ALL_END.owes(*class);
        (state as usize) < self.graph.expanded() && !self.graph.edges(state).iter().any(owed)
    }
}

/// Spreads the stages of crashes along the steps that follow. States are numbered as they were
/// found, so that most steps lead on to greater numbers and few sweeps are needed.
fn after(graph: &Graph) -> Vec<u64> {
    let mut after = vec![0; graph.states()];
    let mut changed = true;
    while changed {
        changed = false;
        for state in 0..graph.expanded() as u32 {
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
fn hope(graph: &Graph) -> Vec<u32> {
    let mut hope = vec![0; graph.states()];
    hope[graph.expanded()..].fill(u32::MAX);
    let mut changed = true;
    while changed {
        changed = false;
        for state in (0..graph.expanded() as u32).rev() {
            let label = graph.label(state);
            if !label.stage.is_crashed() {
                continue;
            }
            let step =
                |(to, _): &(u32, _)| hope[*to as usize] | label.waiting & !graph.label(*to).waiting;
            let mask = graph.edges(state).iter().map(step).fold(0, |all, mask| all | mask);
            changed |= mask != hope[state as usize];
            hope[state as usize] = mask;
        }
    }
    hope
}
