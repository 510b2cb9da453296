//! A violation told step by step: who does what, who sends what to whom, and how the role stands
//! after it.

use std::fmt;

use holdall_core::{Addr, Property, Protocol};
use serde::Serialize;

use super::machine::{Action, Machine, Successors};
use super::parts::Item;
use super::seat::Stage;
use super::world::World;
use super::{Scope, Settings};

/// A shortest way to see a property violated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The steps from the start.
    pub steps: Vec<Scene>,
    /// The steps that then repeat for ever, if it takes for ever.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<Scene>,
    /// What is wrong.
    pub end: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scene {
    /// What happened.
    pub what: String,
    /// What was sent, to whom.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sends: Vec<String>,
    /// How the role that made the step stands after it.
    pub then: String,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, scene) in self.steps.iter().enumerate() {
            scene.write(f, i + 1)?;
        }
        if !self.cycle.is_empty() {
            writeln!(f, "  and then, over and over:")?;
        }
        for (i, scene) in self.cycle.iter().enumerate() {
            scene.write(f, self.steps.len() + i + 1)?;
        }
        writeln!(f, "  => {}", self.end)
    }
}

impl Scene {
    fn write(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        writeln!(f, "{number:>4}. {}", self.what)?;
        for send in &self.sends {
            writeln!(f, "        sends {send}")?;
        }
        writeln!(f, "        {}", self.then)
    }
}

/// A world that can put its states into words.
pub(super) trait Teller {
    fn scope(&self) -> &Scope;

    fn settings(&self) -> &Settings;

    fn scene(&self, before: &[u32], action: Action, after: &[u32]) -> Scene;
}

/// The way of a violation through the states, by their fingerprints.
pub(super) struct Way {
    pub(super) steps: Vec<u64>,
    pub(super) cycle: Vec<u64>,
    /// The property that the step after the last one breaks.
    pub(super) breaks: Option<Property>,
}

/// Goes the way again and tells it.
pub(super) fn tell(machine: &dyn Machine, teller: &dyn Teller, way: &Way, end: String) -> Story {
    let mut expander = machine.expander();
    let mut state = machine.start();
    let mut go = |serves: &dyn Fn(&super::machine::Step) -> bool| {
        let mut out = Successors::default();
        expander.expand(&state, &mut out);
        let at = out.steps.iter().position(serves).expect("the search took this step");
        let mut scene = teller.scene(&state, out.steps[at].action, out.state(at));
        if let Some(sent) = out.steps[at].cut {
            scene.what.push_str(&format!(", but stops without a word after message {sent}"));
        }
        state = out.state(at).to_vec();
        scene
    };
    let mut walk = |prints: &[u64]| -> Vec<Scene> {
        prints
            .iter()
            .map(|print| go(&|step| step.print == *print && step.breach.is_none()))
            .collect()
    };
    let mut steps = walk(way.steps.get(1..).unwrap_or_default());
    let cycle = walk(way.cycle.get(1..).unwrap_or_default());
    if let Some(property) = way.breaks {
        let breaks = |step: &super::machine::Step| {
            step.breach.as_ref().is_some_and(|breach| breach.property == property)
        };
        steps.push(go(&breaks));
    }
    Story { steps, cycle, end }
}

impl<P: Protocol> Teller for World<'_, P> {
    fn scope(&self) -> &Scope {
        self.scope
    }

    fn settings(&self) -> &Settings {
        self.settings
    }

    fn scene(&self, before: &[u32], action: Action, after: &[u32]) -> Scene {
        let (who, what) = self.happening(before, action, after);
        let mut old = self.items(before).to_vec();
        let is_new = |id: &&u32| match old.iter().position(|other| other == *id) {
            Some(at) => {
                old.swap_remove(at);
                false
            }
            None => true,
        };
        let sends = self.items(after).iter().filter(is_new);
        let sends = sends.map(|id| show_sent(self.parts.items.value(*id))).collect();
        let granted = self.granted(before, after);
        Scene { what, sends, then: format!("{}{granted}", self.show(after, who)) }
    }
}

impl<P: Protocol> World<'_, P> {
    /// Who makes the step, and why.
    fn happening(&self, before: &[u32], action: Action, after: &[u32]) -> (Addr, String) {
        let seat = |state, lane: usize| self.seats(state).nth(lane).expect("a lane of the scope");
        let of = |lane| Addr::User(seat(after, lane).user());
        match action {
            Action::Ask(lane) => {
                let seat = seat(after, lane);
                let needs = &self.scope.users[lane].requests[usize::from(seat.at)];
                (of(lane), format!("{:?} asks for {needs:?} ({:?})", of(lane), seat.request))
            }
            Action::Crash(lane) => (of(lane), format!("{:?} stops without a word", of(lane))),
            Action::Deliver(id) => self.delivery(id, ""),
            Action::Done(lane) => {
                (of(lane), format!("{:?} is done with {:?}", of(lane), seat(before, lane).request))
            }
            Action::Duplicate(id) => self.delivery(id, " (and will again)"),
            Action::Suspect(lane) => (of(lane), format!("{:?} is taken for dead", of(lane))),
            Action::Lose(id) => {
                let (to, what) = self.delivery(id, "");
                (to, format!("lost: {what}"))
            }
            Action::Leave(lane) => (of(lane), format!("{:?} departs", of(lane))),
            Action::Return(lane) => (of(lane), format!("a fresh client comes as {:?}", of(lane))),
        }
    }

    fn delivery(&self, id: u32, again: &str) -> (Addr, String) {
        let item = self.parts.items.value(id);
        let to = item.to();
        let what = match item {
            Item::Call { call, .. } => format!("{to:?} is called: {call:?}"),
            Item::Gone { who, how, .. } => format!("{to:?} is told of {who:?}: {how:?}"),
            Item::Ill => "nothing".into(),
            Item::Lapse { .. } => format!("the lease of {to:?} runs out"),
            Item::ManagerTimer { timer, .. } => format!("{to:?}: timer {timer:?} rings"),
            Item::ToManager { from, msg, .. } => {
                format!("{to:?} receives {msg:?} from {from:?}{again}")
            }
            Item::ToUser { from, msg, .. } => {
                format!("{to:?} receives {msg:?} from {from:?}{again}")
            }
            Item::UserTimer { timer, .. } => format!("{to:?}: timer {timer:?} rings"),
        };
        (to, what)
    }

    fn show(&self, state: &[u32], who: Addr) -> String {
        match who {
            Addr::Manager(m) => format!("{who:?} = {:?}", self.manager(state, m.index())),
            Addr::User(user) => match self.user(state, user.lane() as usize) {
                Some(role) => format!("{who:?} = {role:?}"),
                None => format!("{who:?} is no more"),
            },
        }
    }

    fn granted(&self, before: &[u32], after: &[u32]) -> String {
        let changed = self.seats(before).zip(self.seats(after));
        let granted = changed.filter(|(b, a)| b.stage != Stage::Using && a.stage == Stage::Using);
        granted.map(|(_, seat)| format!("\n        {:?} is granted", seat.request)).collect()
    }
}

fn show_sent<A, B, C, D>(item: &Item<A, B, C, D>) -> String
where
    A: fmt::Debug + Clone,
    B: fmt::Debug + Clone,
    C: fmt::Debug + Clone,
    D: fmt::Debug + Clone,
{
    let to = item.to();
    match item {
        Item::Call { call, .. } => format!("{to:?} {call:?}"),
        Item::Gone { who, how, .. } => format!("{to:?} a report on {who:?}: {how:?}"),
        Item::Ill => "nothing".into(),
        Item::Lapse { .. } => format!("{to:?} the end of its lease"),
        Item::ManagerTimer { timer, .. } => format!("itself a timer {timer:?}"),
        Item::ToManager { msg, .. } => format!("{to:?} {msg:?}"),
        Item::ToUser { msg, .. } => format!("{to:?} {msg:?}"),
        Item::UserTimer { timer, .. } => format!("itself a timer {timer:?}"),
    }
}
