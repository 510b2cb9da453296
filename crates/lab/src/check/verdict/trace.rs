//! A violation told step by step: who does what, who sends what to whom, and how the role stands
//! after it.

use std::fmt;

use holdall_core::Property;
use serde::Serialize;

use crate::check::search::model::{Action, Model, Step, Successors};
use crate::check::{Scope, Settings};

/// A shortest way to see a property violated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// The steps from the start.
    pub steps: Vec<TraceStep>,
    /// The steps that then repeat for ever, if it takes for ever.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<TraceStep>,
    /// What is wrong.
    pub end: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// What happened.
    pub what: String,
    /// What was sent, to whom.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sends: Vec<String>,
    /// How the role that made the step stands after it.
    pub then: String,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, trace_step) in self.steps.iter().enumerate() {
            trace_step.write(f, i + 1)?;
        }
        if !self.cycle.is_empty() {
            writeln!(f, "  and then, over and over:")?;
        }
        for (i, trace_step) in self.cycle.iter().enumerate() {
            trace_step.write(f, self.steps.len() + i + 1)?;
        }
        writeln!(f, "  => {}", self.end)
    }
}

impl TraceStep {
    fn write(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        writeln!(f, "{number:>4}. {}", self.what)?;
        for send in &self.sends {
            writeln!(f, "        sends {send}")?;
        }
        writeln!(f, "        {}", self.then)
    }
}

/// A world that can put its states into words.
pub(crate) trait Describe {
    fn scope(&self) -> &Scope;

    fn settings(&self) -> &Settings;

    fn trace_step(&self, before: &[u32], action: Action, after: &[u32]) -> TraceStep;
}

/// The path of a violation through the states, by their fingerprints.
pub(crate) struct Path {
    pub(crate) steps: Vec<u64>,
    pub(crate) cycle: Vec<u64>,
    /// The property that the step after the last one breaks.
    pub(crate) breaks: Option<Property>,
}

/// Takes the path again and tells it.
pub(crate) fn replay(model: &dyn Model, world: &dyn Describe, path: &Path, end: String) -> Trace {
    let mut expander = model.expander();
    let mut state = model.start();
    let mut go = |serves: &dyn Fn(&Step) -> bool| {
        let mut out = Successors::default();
        expander.expand(&state, &mut out);
        let at = out.steps.iter().position(serves).expect("the search took this step");
        let mut trace_step = world.trace_step(&state, out.steps[at].action, out.state(at));
        if let Some(sent) = out.steps[at].cut {
            trace_step.what.push_str(&format!(", but stops without a word after message {sent}"));
        }
        state = out.state(at).to_vec();
        trace_step
    };
    let mut walk = |fingerprints: &[u64]| -> Vec<TraceStep> {
        fingerprints
            .iter()
            .map(|fingerprint| go(&|step| step.fingerprint == *fingerprint))
            .collect()
    };
    let mut steps = walk(path.steps.get(1..).unwrap_or_default());
    let cycle = walk(path.cycle.get(1..).unwrap_or_default());
    if let Some(property) = path.breaks {
        let breaks =
            |step: &Step| step.breach.as_ref().is_some_and(|breach| breach.property == property);
        steps.push(go(&breaks));
    }
    Trace { steps, cycle, end }
}
