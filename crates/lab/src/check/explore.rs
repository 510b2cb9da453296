//! A scope, step by step by hand: the same states and steps that the search finds.

use super::search::model::{Expander, Model, Successors};
use super::verdict::trace::{Describe, Trace, TraceStep};
use super::world::World;
use super::{BadScope, Scope, Settings, prepare};
use crate::registry::Chosen;

/// Where somebody stands who goes through a scope by hand.
pub struct Explorer<'a> {
    world: &'a World<'a>,
    expander: Box<dyn Expander + Send + 'a>,
    /// The states on the way here; the last is the present one.
    way: Vec<Vec<u32>>,
    steps: Vec<TraceStep>,
    next: Successors,
}

/// Lets somebody go through a scope by hand.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn explore<T>(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    go: impl FnOnce(&mut Explorer<'_>) -> T,
) -> Result<T, BadScope> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let world = World::of(chosen, roles, scope, &settings);
    let mut explorer = Explorer {
        world: &world,
        expander: world.expander(),
        way: vec![world.start()],
        steps: Vec::new(),
        next: Successors::default(),
    };
    explorer.expand();
    Ok(go(&mut explorer))
}

impl Explorer<'_> {
    /// What may happen next, and what it would break.
    pub fn actions(&self) -> Vec<String> {
        let action = |(i, step): (usize, &super::search::model::Step)| {
            let mut text = self.world.trace_step(self.here(), step.action, self.next.state(i)).what;
            if let Some(sent) = step.cut {
                text.push_str(&format!(", but stops without a word after message {sent}"));
            }
            if let Some(breach) = &step.breach {
                text.push_str(&format!("  (breaks {}: {})", breach.property.name(), breach.what));
            }
            text
        };
        self.next.steps.iter().enumerate().map(action).collect()
    }

    /// Lets one of the [`actions`](Self::actions) happen, by its place in the list; false if there
    /// is none such.
    pub fn take(&mut self, action: usize) -> bool {
        let Some(step) = self.next.steps.get(action) else { return false };
        let state = self.next.state(action).to_vec();
        self.steps.push(self.world.trace_step(self.here(), step.action, &state));
        self.way.push(state);
        self.expand();
        true
    }

    /// Takes the last step back; false at the start.
    pub fn back(&mut self) -> bool {
        if self.steps.pop().is_none() {
            return false;
        }
        self.way.pop();
        self.expand();
        true
    }

    /// The last step.
    pub fn last_step(&self) -> Option<&TraceStep> {
        self.steps.last()
    }

    /// The way here.
    pub fn trace(&self) -> Trace {
        let end = format!("after {} steps", self.steps.len());
        Trace { steps: self.steps.clone(), cycle: Vec::new(), end }
    }

    /// Everything in the present state, one thing a line.
    pub fn state(&self) -> String {
        self.world.show_state(self.here())
    }

    fn here(&self) -> &[u32] {
        self.way.last().map_or(&[], Vec::as_slice)
    }

    fn expand(&mut self) {
        self.next.clear();
        if let Some(state) = self.way.last() {
            self.expander.expand(state, &mut self.next);
        }
    }
}
