//! States and steps put into words, for the trace of a violation.

use std::fmt;

use holdall_core::{Addr, Protocol};

use super::World;
use super::client::{Client, Stage};
use super::parts::Item;
use crate::check::search::model::Action;
use crate::check::verdict::trace::{Describe, TraceStep};
use crate::check::{Scope, Settings};

impl<P: Protocol> Describe for World<'_, P> {
    fn scope(&self) -> &Scope {
        self.scope
    }

    fn settings(&self) -> &Settings {
        self.settings
    }

    fn trace_step(&self, before: &[u32], action: Action, after: &[u32]) -> TraceStep {
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
        TraceStep { what, sends, then: format!("{}{granted}", self.show(after, who)) }
    }
}

impl<P: Protocol> World<'_, P> {
    /// Who makes the step, and why.
    fn happening(&self, before: &[u32], action: Action, after: &[u32]) -> (Addr, String) {
        let client =
            |state, lane: usize| self.clients(state).nth(lane).expect("a lane of the scope");
        let of = |lane| Addr::User(client(after, lane).user());
        match action {
            Action::Ask(lane) => {
                let client = client(after, lane);
                let needs = &self.scope.users[lane].requests[usize::from(client.at)];
                (of(lane), format!("{:?} asks for {needs:?} ({:?})", of(lane), client.request))
            }
            Action::Crash(lane) => (of(lane), format!("{:?} stops without a word", of(lane))),
            Action::Deliver(id) => self.delivery(id, ""),
            Action::Done(lane) => (
                of(lane),
                format!("{:?} is done with {:?}", of(lane), client(before, lane).request),
            ),
            Action::Duplicate(id) => self.delivery(id, " (and will again)"),
            Action::Suspect(lane) => (of(lane), format!("{:?} is taken for dead", of(lane))),
            Action::Lose(id) => {
                let (to, what) = self.delivery(id, "");
                (to, format!("lost: {what}"))
            }
            Action::Reboot(cell) => {
                let there = |client: &&Client| client.user().home().cell == cell;
                let first = self.clients(after).find(there).expect("somebody lives there").user();
                (Addr::User(first), format!("{cell:?} restarts and remembers nothing"))
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
            Item::Gone { gone, .. } => format!("{to:?} is told: {gone:?}"),
            Item::LossToken => "nothing".into(),
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
            Addr::User(_) => match self.place_of(state, who) {
                Some(place) => format!("{who:?} = {:?}", self.parts.users.value(state[place])),
                None => format!("{who:?} is no more"),
            },
        }
    }

    /// Everything in a state, one thing a line.
    pub(crate) fn show_state(&self, state: &[u32]) -> String {
        let clients = self.clients(state).map(|client| format!("{client:?}"));
        let users = self.all_users(state).map(|user| format!("{user:?}"));
        let managers = (0..self.managers).map(|m| format!("{:?}", self.manager(state, m)));
        let items = self.items(state).iter().map(|id| format!("{:?}", self.parts.items.value(*id)));
        clients.chain(users).chain(managers).chain(items).collect::<Vec<_>>().join("\n")
    }

    fn granted(&self, before: &[u32], after: &[u32]) -> String {
        let changed = self.clients(before).zip(self.clients(after));
        let granted = changed.filter(|(b, a)| b.stage != Stage::Using && a.stage == Stage::Using);
        granted.map(|(_, client)| format!("\n        {:?} is granted", client.request)).collect()
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
        Item::Gone { gone, .. } => format!("{to:?} a report: {gone:?}"),
        Item::LossToken => "nothing".into(),
        Item::Lapse { .. } => format!("{to:?} the end of its lease"),
        Item::ManagerTimer { timer, .. } => format!("itself a timer {timer:?}"),
        Item::ToManager { msg, .. } => format!("{to:?} {msg:?}"),
        Item::ToUser { msg, .. } => format!("{to:?} {msg:?}"),
        Item::UserTimer { timer, .. } => format!("itself a timer {timer:?}"),
    }
}
