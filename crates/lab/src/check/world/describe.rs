//! States and steps put into words, for the trace of a violation.

use holdall_core::{Addr, ManagerId};

use super::client::{Client, Stage};
use super::{NOBODY, World};
use crate::check::search::model::Action;
use crate::check::verdict::trace::{Describe, Sent, SentKind, StepKind, TraceStep};
use crate::check::{Scope, Settings};
use holdall_registry::questions::Kind;
use holdall_registry::roles::Item;

impl Describe for World<'_> {
    fn scope(&self) -> &Scope {
        self.scope
    }

    fn settings(&self) -> &Settings {
        self.settings
    }

    fn questions(&self) -> &[(&'static str, Kind)] {
        &self.questions
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
        let new = self.items(after).iter().filter(is_new);
        let new: Vec<&Item> = new.map(|id| self.parts.items.value(*id)).collect();
        let arriving = match action {
            Action::Deliver(id) | Action::Duplicate(id) | Action::Lose(id) => {
                Some(self.parts.items.value(id))
            }
            _ => None,
        };
        let granted = self.granted(before, after);
        let told = |lane: &usize| {
            let client = self.clients(after).nth(*lane).expect("a lane of the scope");
            format!("\n        {:?} is granted", client.request)
        };
        TraceStep {
            kind: kind(action, arriving),
            at: who.into(),
            from: arriving.and_then(Item::from).map(Into::into),
            content: arriving.and_then(|item| self.roles.content(item)),
            sent: new.iter().filter_map(|item| self.sent(item)).collect(),
            what,
            sends: new.iter().map(|item| self.show_sent(item)).collect(),
            then: self.show(after, who)
                + &granted.iter().map(told).collect::<String>()
                + &self.show_others(before, after, who),
            granted,
        }
    }
}

impl World<'_> {
    /// Who makes the step, and why.
    fn happening(&self, before: &[u32], action: Action, after: &[u32]) -> (Addr, String) {
        let client =
            |state, lane: usize| self.clients(state).nth(lane).expect("a lane of the scope");
        let of = |lane| Addr::User(client(after, lane).user());
        match action {
            Action::Ask(lane) => {
                let client = client(after, lane);
                let needs = &self.scope.users[lane].requests[usize::from(client.at)].needs;
                (of(lane), format!("{:?} asks for {needs:?} ({:?})", of(lane), client.request))
            }
            Action::Crash(lane) => (of(lane), format!("{:?} stops without a word", of(lane))),
            Action::CrashManager(manager) => {
                let stopped = Addr::Manager(ManagerId(manager as u64));
                (stopped, format!("{stopped:?} stops without a word"))
            }
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
        let content = self.roles.show_content(item);
        let what = match item {
            Item::Call { call, .. } => format!("{to:?} is called: {call:?}"),
            Item::Gone { gone, .. } => format!("{to:?} is told: {gone:?}"),
            Item::LossToken => "nothing".into(),
            Item::Lapse { .. } => format!("the lease of {to:?} runs out"),
            Item::ManagerTimer { .. } | Item::UserTimer { .. } => {
                format!("{to:?}: timer {content} rings")
            }
            Item::ToManager { from, .. } | Item::ToUser { from, .. } => {
                format!("{to:?} receives {content} from {from:?}{again}")
            }
        };
        (to, what)
    }

    fn show(&self, state: &[u32], who: Addr) -> String {
        match who {
            Addr::Manager(_) => match self.place_of(state, who) {
                Some(place) => format!("{who:?} = {}", self.roles.show_manager(state[place])),
                None => format!("{who:?} is no more"),
            },
            Addr::User(_) => match self.place_of(state, who) {
                Some(place) => format!("{who:?} = {}", self.roles.show_user(state[place])),
                None => format!("{who:?} is no more"),
            },
        }
    }

    /// Those who have changed in the step of another, since they received at once what it sent.
    fn show_others(&self, before: &[u32], after: &[u32], who: Addr) -> String {
        if !self.receives_at_once() {
            return String::new();
        }
        let users = self.clients(after).map(|client| Addr::User(client.user()));
        let managers = (0..self.managers as u64).map(|manager| Addr::Manager(ManagerId(manager)));
        let at = |state: &[u32], other| self.place_of(state, other).map(|place| state[place]);
        let changed = |other: &Addr| *other != who && at(before, *other) != at(after, *other);
        let others = users.chain(managers).filter(changed);
        others.map(|other| format!("\n        at once: {}", self.show(after, other))).collect()
    }

    /// Everything in a state, one thing a line.
    pub(crate) fn show_state(&self, state: &[u32]) -> String {
        let clients = self.clients(state).map(|client| format!("{client:?}"));
        let users = self.all_users(state).map(|role| self.roles.show_user(role));
        let managers = self.all_managers(state).iter().filter(|role| **role != NOBODY);
        let managers = managers.map(|role| self.roles.show_manager(*role));
        let items = self.items(state).iter().map(|id| self.delivery(*id, "").1);
        clients.chain(users).chain(managers).chain(items).collect::<Vec<_>>().join("\n")
    }

    /// The users that begin a use.
    fn granted(&self, before: &[u32], after: &[u32]) -> Vec<usize> {
        let changed = self.clients(before).zip(self.clients(after)).enumerate();
        let granted =
            changed.filter(|(_, (b, a))| b.stage != Stage::Using && a.stage == Stage::Using);
        granted.map(|(lane, _)| lane).collect()
    }

    fn sent(&self, item: &Item) -> Option<Sent> {
        let kind = match item {
            Item::Call { .. } | Item::LossToken => return None,
            Item::Gone { .. } => SentKind::Report,
            Item::Lapse { .. } => SentKind::Lease,
            Item::ManagerTimer { .. } | Item::UserTimer { .. } => SentKind::Timer,
            Item::ToManager { .. } | Item::ToUser { .. } => SentKind::Message,
        };
        Some(Sent { to: item.to().into(), kind, content: self.roles.content(item) })
    }

    fn show_sent(&self, item: &Item) -> String {
        let (to, content) = (item.to(), self.roles.show_content(item));
        match item {
            Item::Call { call, .. } => format!("{to:?} {call:?}"),
            Item::Gone { gone, .. } => format!("{to:?} a report: {gone:?}"),
            Item::LossToken => "nothing".into(),
            Item::Lapse { .. } => format!("{to:?} the end of its lease"),
            Item::ManagerTimer { .. } | Item::UserTimer { .. } => {
                format!("itself a timer {content}")
            }
            Item::ToManager { .. } | Item::ToUser { .. } => format!("{to:?} {content}"),
        }
    }
}

fn kind(action: Action, arriving: Option<&Item>) -> StepKind {
    match action {
        Action::Ask(_) => StepKind::Ask,
        Action::Crash(_) | Action::CrashManager(_) => StepKind::Crash,
        Action::Deliver(_) => match arriving {
            Some(Item::Gone { .. }) => StepKind::Tell,
            Some(Item::Lapse { .. }) => StepKind::Lapse,
            Some(item) if item.is_timer() => StepKind::Ring,
            _ => StepKind::Deliver,
        },
        Action::Done(_) => StepKind::Done,
        Action::Duplicate(_) => StepKind::Duplicate,
        Action::Leave(_) => StepKind::Leave,
        Action::Lose(_) => StepKind::Lose,
        Action::Reboot(_) => StepKind::Reboot,
        Action::Return(_) => StepKind::Return,
        Action::Suspect(_) => StepKind::Suspect,
    }
}
