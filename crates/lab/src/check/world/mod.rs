//! The world of the checker: what may happen in a state, and what it leads to.
//!
//! A state is a list of part numbers: the clients of all users, their roles, the roles of all
//! managers, and then whatever is under way (messages, armed timers, reports of departures). Every
//! action is one step of one role; `moves` lists the actions, `executor` carries them out.

pub(crate) mod client;
mod describe;
mod executor;
mod known;
mod lately;
mod lives;
mod moves;
mod overtaking;
mod prints;
mod prompt;
mod saved;
mod stages;
mod steps;

use std::io;

use holdall_core::{Addr, Broken, Home, Life, ManagerId, Needs, Order, Property, UserId};
use holdall_registry::questions::Kind;
use holdall_registry::roles::{
    Fingerprint, Interner, Item, NOBODY, Numbers, Parts, RoleFacts, Roles,
};

use self::client::{Client, Stage};
use self::executor::Executor;
use self::stages::Stages;
use super::checkpoint::{RecordReader, RecordWriter, Unread};
use super::scope::UnitMask;
use super::search::graph::Graph;
use super::search::model::{Expander, Label, Model, StageNumber};
use super::{Scope, Settings};
use crate::registry::Chosen;

/// A protocol at work in a scope.
pub(crate) struct World<'a> {
    pub(crate) roles: Box<dyn Roles>,
    pub(crate) scope: &'a Scope,
    pub(crate) settings: &'a Settings,
    pub(crate) parts: Parts,
    pub(crate) client_table: Interner<Client>,
    /// Where states are the same up to a shift of their stamps.
    pub(crate) canonical: bool,
    /// For each user, those it shares a pool with.
    pub(crate) sharing: Vec<u32>,
    pub(crate) bound: Option<u32>,
    /// Whether labels are to tell who waits in conflict with others.
    conflicts: bool,
    /// The stages in which the user stands that may crash, if labels are to tell.
    stages: Option<Stages>,
    pub(crate) questions: Vec<(&'static str, Kind)>,
    /// The number of [`Item::LossToken`].
    pub(crate) loss_token: u32,
    pub(crate) managers: usize,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        roles: Box<dyn Roles>,
        scope: &'a Scope,
        settings: &'a Settings,
        bound: Option<u32>,
    ) -> Self {
        let parts = Parts::default();
        Self {
            managers: roles.managers(),
            questions: roles.questions(),
            scope,
            settings,
            loss_token: parts.items.number(Item::LossToken),
            parts,
            client_table: Interner::default(),
            canonical: settings
                .canonical
                .unwrap_or_else(|| roles.starts_again() || scope.goes_on_for_ever()),
            sharing: scope.sharing(),
            bound,
            conflicts: false,
            stages: None,
            roles,
        }
    }

    /// A world in which is seen what is to be decided of the protocol: overtaking if there is a bound
    /// to it, conflicts if it promises something where there are none.
    pub(crate) fn of(
        chosen: &Chosen,
        roles: Box<dyn Roles>,
        scope: &'a Scope,
        settings: &'a Settings,
    ) -> Self {
        let bound = settings.overtaking.or_else(|| chosen.about.overtaking_bound());
        let about = &chosen.about;
        let mut promises = about.promises.iter().chain(&about.with_patience);
        let conflicts = promises.any(|promise| *promise == Property::CurrentConflicts);
        Self { conflicts, ..Self::new(roles, scope, settings, bound) }
    }

    /// The same world, with labels that tell where the user stands that may crash.
    pub(crate) fn with_stages(self) -> Self {
        Self { stages: Some(Stages::default()), ..self }
    }

    pub(crate) fn stage_names(&self, graph: &Graph) -> Vec<(StageNumber, String)> {
        self.stages.as_ref().map(|stages| stages.names(graph)).unwrap_or_default()
    }

    pub(crate) fn clients<'s>(
        &self,
        state: &'s [u32],
    ) -> impl Iterator<Item = &Client> + use<'_, 's> {
        state[..self.scope.users.len()].iter().map(|id| self.client_table.value(*id))
    }

    pub(crate) fn user_at(&self, lane: usize) -> usize {
        self.scope.users.len() + lane
    }

    /// The place of the role before, where lives overlap.
    pub(crate) fn predecessor_at(&self, lane: usize) -> Option<usize> {
        self.settings.overlap.then(|| 2 * self.scope.users.len() + lane)
    }

    pub(crate) fn manager_at(&self, manager: usize) -> usize {
        let lives = if self.settings.overlap { 2 } else { 1 };
        (1 + lives) * self.scope.users.len() + manager
    }

    pub(crate) fn items_at(&self) -> usize {
        self.manager_at(self.managers)
    }

    pub(crate) fn items<'s>(&self, state: &'s [u32]) -> &'s [u32] {
        &state[self.items_at()..]
    }

    /// What is known of the user role in a lane, unless it crashed.
    pub(crate) fn user(&self, state: &[u32], lane: usize) -> Option<&RoleFacts> {
        let id = state[self.user_at(lane)];
        (id != NOBODY).then(|| &self.parts.users[id as usize])
    }

    /// All user roles that take part.
    pub(crate) fn all_users<'s>(&self, state: &'s [u32]) -> impl Iterator<Item = u32> + use<'s> {
        let roles = &state[self.user_at(0)..self.manager_at(0)];
        roles.iter().copied().filter(|id| *id != NOBODY)
    }

    pub(crate) fn all_managers<'s>(&self, state: &'s [u32]) -> &'s [u32] {
        &state[self.manager_at(0)..self.items_at()]
    }

    /// The place of a role that takes part.
    pub(crate) fn place_of(&self, state: &[u32], who: Addr) -> Option<usize> {
        let place = match who {
            Addr::Manager(m) => (m.index() < self.managers).then(|| self.manager_at(m.index())),
            Addr::User(user) => {
                let lane = user.lane().index();
                let clients = &state[..self.scope.users.len()];
                let client = self.client_table.value(*clients.get(lane)?);
                match user {
                    _ if client.user() == user => Some(self.user_at(lane)),
                    _ if client.predecessor == Some(user) => self.predecessor_at(lane),
                    _ => None,
                }
            }
        };
        place.filter(|place| state[*place] != NOBODY)
    }

    /// The invariants that no role can see alone.
    pub(crate) fn check_system(&self, state: &[u32]) -> Result<(), Broken> {
        if self.all_managers(state).contains(&NOBODY) {
            return Ok(()); // They are about systems whose managers are all there.
        }
        self.roles.check_system(&self.numbers(state))
    }

    /// A state as the roles see it.
    pub(crate) fn numbers<'s>(&'s self, state: &'s [u32]) -> Numbers<'s> {
        Numbers {
            parts: &self.parts,
            users: &state[self.user_at(0)..self.manager_at(0)],
            managers: self.all_managers(state),
            items: self.items(state),
        }
    }

    /// The units each user in possession of its grant has in use, by pool.
    pub(crate) fn in_use(&self, state: &[u32], only_endless: bool) -> Vec<u64> {
        let mut used = vec![0; self.scope.pools.len()];
        for (client, script) in self.clients(state).zip(&self.scope.users) {
            if client.stage == Stage::Using && (script.endless || !only_endless) {
                for need in script.requests[usize::from(client.at)].needs.iter() {
                    used[need.pool.index()] += u64::from(need.units);
                }
            }
        }
        used
    }

    /// The units of listed pools that are in use.
    pub(crate) fn units_in_use(&self, state: &[u32], only_endless: bool) -> UnitMask {
        let using = self.clients(state).zip(&self.scope.users).filter(|(client, script)| {
            client.stage == Stage::Using && (script.endless || !only_endless)
        });
        using.fold(0, |mask, (client, _)| mask | client.units)
    }

    /// Whether labels say nothing that does not follow from the clients.
    fn is_label_of_clients(&self) -> bool {
        self.stages.is_none() && self.settings.crash_manager.is_none()
    }

    pub(crate) fn label(&self, state: &[u32]) -> Label {
        self.label_with(state, |client| self.client_table.value(client).stage)
    }

    /// The label of a state, for whoever knows the stages of clients already.
    fn label_with(&self, state: &[u32], mut stage_of: impl FnMut(u32) -> Stage) -> Label {
        let mut label = Label { stage: self.stage(state), ..Label::default() };
        for (lane, script) in self.scope.users.iter().enumerate() {
            let stage = stage_of(state[lane]);
            label.waiting |= u32::from(stage == Stage::Waiting) << lane;
            label.releasing |= u32::from(stage == Stage::Releasing) << lane;
            label.busy |= stage.is_busy();
            label.endless |= script.endless && stage == Stage::Using;
        }
        if self.conflicts {
            label.conflicted = self.conflicted(state, label.waiting);
        }
        if label.endless {
            label.dependent = self.dependent(state) & label.waiting;
            let used = self.in_use(state, true);
            let units = self.units_in_use(state, true);
            for (lane, client) in
                self.clients(state).enumerate().filter(|(_, client)| client.is_waiting())
            {
                let needs = &self.scope.users[lane].requests[usize::from(client.at)].needs;
                let fits = needs.iter().all(|need| {
                    let pool = need.pool.index();
                    used[pool] + u64::from(need.units) <= u64::from(self.scope.pools[pool].capacity)
                }) && self.scope.units(needs) & units == 0;
                label.blocked |= u32::from(!fits) << lane;
            }
        }
        label
    }

    /// Of those who wait, those whose request names a pool that another waits for or uses.
    fn conflicted(&self, state: &[u32], waiting: u32) -> u32 {
        let needs = self.current_needs(state);
        let conflicts = |lane: usize| {
            let own = needs[lane];
            let others = needs.iter().enumerate().filter(|(other, _)| *other != lane);
            let mut others = others.filter_map(|(_, needs)| *needs);
            others.any(|other| own.is_some_and(|own| own.share_a_pool_with(other)))
        };
        let lanes = (0..needs.len()).filter(|lane| waiting >> lane & 1 == 1);
        lanes.filter(|lane| conflicts(*lane)).fold(0, |mask, lane| mask | 1 << lane)
    }

    /// Those who wait or use and reach somebody who never ends its use, over pools that two of them name.
    fn dependent(&self, state: &[u32]) -> u32 {
        let needs = self.current_needs(state);
        let endless = |(lane, client): (usize, &Client)| {
            let endless = self.scope.users[lane].endless && client.stage == Stage::Using;
            u32::from(endless) << lane
        };
        let mut reached =
            self.clients(state).enumerate().map(endless).fold(0, |all, one| all | one);
        loop {
            let before = reached;
            for (lane, own) in needs.iter().enumerate() {
                let near = needs.iter().enumerate().filter(|(other, _)| before >> other & 1 == 1);
                let mut near = near.filter_map(|(_, needs)| *needs);
                let joins = own.is_some_and(|own| near.any(|other| own.share_a_pool_with(other)));
                reached |= u32::from(joins) << lane;
            }
            if reached == before {
                return reached;
            }
        }
    }

    /// What each user waits for or uses.
    fn current_needs(&self, state: &[u32]) -> Vec<Option<&Needs>> {
        let current = |(lane, client): (usize, &Client)| {
            let wants = client.is_waiting() || client.stage == Stage::Using;
            wants.then(|| &self.scope.users[lane].requests[usize::from(client.at)].needs)
        };
        self.clients(state).enumerate().map(current).collect()
    }

    fn stage(&self, state: &[u32]) -> StageNumber {
        if let Some(manager) = self.settings.crash_manager {
            let stopped = state[self.manager_at(manager)] == NOBODY;
            return if stopped { StageNumber::CRASHED } else { StageNumber::default() };
        }
        let Some((stages, lane)) = self.stages.as_ref().zip(self.settings.crash) else {
            return StageNumber::default();
        };
        let role = self.user(state, lane);
        stages
            .number(self.client_table.value(state[lane]).stage, role.map_or("", |role| role.stage))
    }

    /// The fingerprints of a state's parts, each with its place: for roles which role it is, for
    /// items nothing, or the place in their channel where order counts.
    pub(crate) fn fingerprints<'s>(
        &'s self,
        state: &'s [u32],
    ) -> impl Iterator<Item = (u64, &'s Fingerprint)> + Clone {
        let (users, managers) = (self.user_at(0), self.manager_at(0));
        let placed = |from: usize, to: usize| state[from..to].iter().zip(from as u64..);
        let there = |(id, _): &(&u32, u64)| **id != NOBODY;
        let clients = placed(0, users).map(|(id, at)| (at, self.client_table.fingerprint(*id)));
        let users = placed(users, managers)
            .filter(there)
            .map(|(id, at)| (at, &self.parts.users[*id as usize].fingerprint));
        let managers = placed(managers, self.items_at())
            .filter(there)
            .map(|(id, at)| (at, &self.parts.managers[*id as usize].fingerprint));
        let items = (self.items_at()..state.len()).map(move |at| {
            (self.place_of_item(state, at), self.parts.items.fingerprint(state[at]))
        });
        clients.chain(users).chain(managers).chain(items)
    }

    /// Whether the fingerprint of a state is the sum of what its parts add, wherever an item stands.
    fn is_plain(&self) -> bool {
        !self.canonical && self.settings.order != Some(Order::Fifo)
    }

    fn place_of_item(&self, state: &[u32], at: usize) -> u64 {
        let from = self.items_at();
        if self.settings.order != Some(Order::Fifo) {
            return from as u64;
        }
        let item = self.parts.items.value(state[at]);
        let in_channel = |id: &&u32| {
            let other = self.parts.items.value(**id);
            other.from() == item.from() && other.to() == item.to()
        };
        (from + state[from..at].iter().filter(in_channel).count()) as u64
    }
}

impl Model for World<'_> {
    fn start(&self) -> Vec<u32> {
        let lanes = 0..self.scope.users.len();
        let home = |lane: usize| Home { cell: self.scope.users[lane].cell, life: Life(0) };
        let first = |lane| UserId::first_at(home(lane), lane as u32);
        let clients =
            lanes.clone().map(|lane| self.client_table.number(Client::fresh(first(lane))));
        let users = lanes.clone().map(|lane| self.roles.user(&self.parts, first(lane)));
        let predecessors = lanes.filter_map(|lane| self.predecessor_at(lane)).map(|_| NOBODY);
        let managers =
            (0..self.managers as u64).map(|m| self.roles.manager(&self.parts, ManagerId(m)));
        let loss_tokens = std::iter::repeat_n(self.loss_token, self.settings.loss as usize);
        clients.chain(users).chain(predecessors).chain(managers).chain(loss_tokens).collect()
    }

    fn expander(&self) -> Box<dyn Expander + Send + '_> {
        Box::new(Executor::new(self))
    }

    fn sharing(&self) -> &[u32] {
        &self.sharing
    }

    fn write_parts(&self, to: &mut RecordWriter) -> io::Result<()> {
        self.write(to)
    }

    fn read_parts(&self, from: &mut RecordReader) -> Result<(), Unread> {
        self.read(from)
    }

    fn is_state(&self, state: &[u32]) -> bool {
        self.is_of_parts(state)
    }
}
