//! A violation told step by step: who does what, who sends what to whom, and how the role stands
//! after it.

use std::fmt;

use holdall_core::{Addr, Property};
use holdall_registry::questions::Kind;
use serde::Serialize;
use serde_json::Value;

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
    /// What kind of step.
    pub kind: StepKind,
    /// Who takes it.
    pub at: Who,
    /// Who sent the message that arrives, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Who>,
    /// What the message or the timer says, as the protocol writes it down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// What is under way since.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<Sent>,
    /// The users whose requests are granted by it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<usize>,
    /// What happened, for people.
    pub what: String,
    /// What was sent, to whom.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sends: Vec<String>,
    /// How the role that made the step stands after it.
    pub then: String,
}

/// What kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// A client asks.
    Ask,
    /// A user or a manager stops without a word.
    Crash,
    /// A message arrives.
    Deliver,
    /// A use ends.
    Done,
    /// A message arrives, and will again.
    Duplicate,
    /// A lease runs out.
    Lapse,
    /// A client departs.
    Leave,
    /// A message is lost.
    Lose,
    /// A cell restarts without its memory.
    Reboot,
    /// The next user of a lane begins.
    Return,
    /// A timer rings.
    Ring,
    /// A user is taken for dead.
    Suspect,
    /// A manager is told of somebody by the detector.
    Tell,
}

/// A party, by its number in the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// The user that asks for what is at this place of `--users`.
    User(usize),
    /// A manager.
    Manager(u64),
}

impl From<Addr> for Who {
    fn from(addr: Addr) -> Self {
        match addr {
            Addr::Manager(manager) => Self::Manager(manager.0),
            Addr::User(user) => Self::User(user.lane().index()),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "u{user}"),
            Self::Manager(manager) => write!(f, "m{manager}"),
        }
    }
}

/// Something that is under way since a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// To whom.
    pub to: Who,
    /// What it is.
    pub kind: SentKind,
    /// What it says, as the protocol writes it down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

/// What may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SentKind {
    /// The end of a lease.
    Lease,
    /// A message.
    Message,
    /// What the detector will tell.
    Report,
    /// A timer.
    Timer,
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

    /// What is asked besides what is promised.
    fn questions(&self) -> &[(&'static str, Kind)];

    fn trace_step(&self, before: &[u32], action: Action, after: &[u32]) -> TraceStep;
}

/// The path of a violation through the states, by their fingerprints.
#[derive(Default)]
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
