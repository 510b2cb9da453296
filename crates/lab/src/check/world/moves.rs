//! What may happen in a state, and what is to be said of a state in which nothing will.

use holdall_core::{Addr, CellId, Gone, Life, Order};

use super::client::{Client, Stage};
use super::known::KnownParts;
use super::{NOBODY, World};
use crate::check::Timers;
use crate::check::scope::Then;
use crate::check::search::model::{Action, AtRest, Class};
use holdall_registry::roles::Item;

impl World<'_> {
    /// Everything that may happen next.
    pub(super) fn list_moves(
        &self,
        state: &[u32],
        known: &mut KnownParts,
        moves: &mut Vec<(Action, Class)>,
    ) {
        moves.clear();
        let items = self.items(state);
        let mut timers = false;
        for (i, &id) in items.iter().enumerate() {
            let item = known.item(self, id);
            timers |= item.is_timer;
            let may_happen = match item.is_free {
                true => !items[..i].contains(&id),
                false => !item.is_timer && self.may_happen(&items[..i], id, items),
            };
            if !may_happen {
                continue;
            }
            moves.push((Action::Deliver(id), item.class));
            if self.settings.loss > 0 && item.is_message && items.contains(&self.loss_token) {
                moves.push((Action::Lose(id), Class::UNFAIR));
            }
            if self.settings.duplicates && self.parts.items.value(id).can_be_duplicated() {
                moves.push((Action::Duplicate(id), Class::UNFAIR));
            }
        }
        for lane in 0..self.scope.users.len() {
            self.list_calls(state, lane, known.client(self, state[lane]), moves);
        }
        if let Some(cell) = self.settings.reboot.filter(|cell| self.may_reboot(state, *cell)) {
            moves.push((Action::Reboot(cell), Class::UNFAIR));
        }
        if let Some(manager) = self.settings.crash_manager
            && state[self.manager_at(manager)] != NOBODY
        {
            moves.push((Action::CrashManager(manager), Class::UNFAIR));
        }
        let calm = || moves.iter().all(|(_, class)| *class == Class::UNFAIR);
        if timers && (self.settings.timers == Timers::Any || calm()) {
            for &id in items {
                let item = known.item(self, id);
                moves.extend(item.is_timer.then_some((Action::Deliver(id), item.class)));
            }
        }
    }

    /// Of what something is to happen, for fairness: a delivery, or a timer that rings.
    pub(crate) fn class_of(&self, item: u32) -> Class {
        let fingerprint = self.parts.items.fingerprint(item).relative;
        match self.parts.items.value(item).is_timer() {
            true => Class::timer(fingerprint),
            false => Class::message(fingerprint),
        }
    }

    /// The timers that are armed in a state and may not ring yet, because something else can move.
    pub(crate) fn list_held_timers(
        &self,
        state: &[u32],
        moves: &[(Action, Class)],
        held: &mut Vec<Class>,
    ) {
        if self.settings.timers == Timers::Quiet && !moves.iter().any(|(_, c)| c.is_timer()) {
            let timers =
                self.items(state).iter().filter(|id| self.parts.items.value(**id).is_timer());
            held.extend(timers.map(|id| self.class_of(*id)));
        }
    }

    /// Whether an item may be delivered now; `before` is what stands before it among the items.
    fn may_happen(&self, before: &[u32], id: u32, items: &[u32]) -> bool {
        let table = &self.parts.items;
        let item = table.value(id);
        let some = |is: &dyn Fn(&Item) -> bool| items.iter().any(|id| is(table.value(*id)));
        let channel = |other: &Item| other.from() == item.from() && other.to() == item.to();
        match item {
            Item::LossToken => false,
            Item::Gone { to, gone: Gone::Departed(who) } => !some(&|other| {
                let theirs = |from| matches!(from, Addr::User(user) if who.includes(user));
                other.from().is_some_and(theirs) && other.to() == Addr::Manager(*to)
            }),
            Item::Lapse { who } => !some(
                &|other| matches!(other, Item::Gone { gone, .. } if gone.who().includes(*who)),
            ),
            Item::ToManager { .. } | Item::ToUser { .. }
                if self.settings.order == Some(Order::Fifo) =>
            {
                !before.iter().any(|other| channel(table.value(*other)))
            }
            _ => !before.contains(&id),
        }
    }

    fn list_calls(
        &self,
        state: &[u32],
        lane: usize,
        client: &Client,
        moves: &mut Vec<(Action, Class)>,
    ) {
        let script = &self.scope.users[lane];
        match client.stage {
            Stage::Idle
                if usize::from(client.at) < script.requests.len()
                    && self.may_ask(state, lane, client) =>
            {
                moves.push((Action::Ask(lane), Class::UNFAIR));
            }
            Stage::Idle if script.then == Then::Respawn => {
                moves.push((Action::Leave(lane), Class::UNFAIR));
            }
            Stage::Using if !script.endless => moves.push((Action::Done(lane), Class::done(lane))),
            Stage::Left | Stage::Lost | Stage::Crashed if self.may_return(state, lane, client) => {
                moves.push((Action::Return(lane), Class::UNFAIR));
            }
            _ => {}
        }
        if client.is_busy() && self.settings.departures {
            moves.push((Action::Leave(lane), Class::UNFAIR));
        }
        let there = client.is_busy() || client.stage == Stage::Idle;
        if there && self.settings.suspect == Some(lane) && !client.suspected {
            moves.push((Action::Suspect(lane), Class::UNFAIR));
        }
        if self.may_crash(lane, client) {
            moves.push((Action::Crash(lane), Class::UNFAIR));
        }
    }

    fn may_crash(&self, lane: usize, client: &Client) -> bool {
        let idle = client.stage == Stage::Idle && self.settings.crash_idle;
        self.settings.crash == Some(lane) && (client.is_busy() || idle)
    }

    /// The user that takes a step, if it may stop in the middle of it.
    pub(crate) fn may_stop_amid(&self, state: &[u32], action: Action) -> Option<usize> {
        let lane = self.settings.crash.filter(|_| self.settings.crash_amid)?;
        let client = self.client_table.value(state[lane]);
        let takes_part = match action {
            Action::Ask(by) => return (by == lane).then_some(lane),
            Action::Deliver(id) => self.parts.items.value(id).to() == Addr::User(client.user()),
            Action::Done(by) => by == lane,
            _ => false,
        };
        (takes_part && self.may_crash(lane, client)).then_some(lane)
    }

    /// A list that repeats is begun only when everything its user sent has arrived: otherwise a
    /// message could be overtaken by ever later rounds, and there would be no end of states. Requests
    /// of one list do overtake each other.
    fn may_ask(&self, state: &[u32], lane: usize, client: &Client) -> bool {
        let own = |id: &u32| self.parts.items.value(*id).from() == Some(Addr::User(client.user()));
        let repeats = self.scope.users[lane].then == Then::Repeat;
        client.at > 0 || !repeats || !self.items(state).iter().any(own)
    }

    /// The next user of a lane begins when nothing of its predecessor is left; or, where lives
    /// overlap, when its predecessor has left or stopped, and nothing is left of the one before.
    /// Otherwise users could come and go without bound while a message travels.
    fn may_return(&self, state: &[u32], lane: usize, client: &Client) -> bool {
        let respawns = self.scope.users[lane].then == Then::Respawn;
        if self.settings.overlap {
            return client.predecessor.is_none() && (respawns || client.stage == Stage::Lost);
        }
        let items = &self.parts.items;
        (respawns && client.stage == Stage::Left || client.stage == Stage::Lost)
            && self.user(state, lane).is_none_or(|role| role.idle)
            && !self.items(state).iter().any(|id| items.value(*id).involves(client.user()))
    }

    /// The cell may begin another life while it is in its first, and somebody in it is busy.
    fn may_reboot(&self, state: &[u32], cell: CellId) -> bool {
        let mut there = self.clients(state).filter(|client| client.user().home().cell == cell);
        there.any(|client| client.is_busy() && client.user().home().life == Life(0))
    }

    /// What is to be said of a state by itself: whether it has come to rest, and in what shape.
    pub(crate) fn rest(&self, state: &[u32], moves: &[(Action, Class)]) -> AtRest {
        let mut ends = 0;
        for (action, class) in moves {
            match action {
                Action::Done(lane) => ends |= 1 << lane,
                _ if *class == Class::UNFAIR => {}
                _ => return AtRest::default(),
            }
        }
        let label = self.label(state);
        let waiting = (0..self.scope.users.len()).filter(|lane| label.waiting >> lane & 1 == 1);
        let held_elsewhere = ends != 0 || label.endless;
        // A timer that waits until nothing else can move relies on uses that end.
        let owed = |lane: usize| match self.settings.timers {
            Timers::Any => self.sharing[lane],
            Timers::Quiet => u32::MAX,
        };
        let stuck = |lane: &usize| {
            held_elsewhere && ends & owed(*lane) == 0 && label.blocked >> lane & 1 == 0
        };
        let busy = self.clients(state).any(Client::is_busy);
        let hanging =
            self.clients(state).any(|s| matches!(s.stage, Stage::Waiting | Stage::Releasing));
        AtRest {
            deadlock: ends == 0 && !label.endless && hanging,
            stuck: waiting.filter(stuck).fold(0, |mask, lane| mask | 1 << lane),
            residue: !busy && !self.all_idle(state),
        }
    }

    fn all_idle(&self, state: &[u32]) -> bool {
        let managers = self.all_managers(state).iter().filter(|id| **id != NOBODY);
        self.all_users(state).all(|id| self.parts.users[id as usize].idle)
            && managers.copied().all(|id| self.parts.managers[id as usize].idle)
    }
}
