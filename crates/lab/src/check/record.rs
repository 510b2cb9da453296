//! A scope written down: its states and steps, for whoever checks them against something else.
//!
//! Everything is told in the order in which it is needed, as one JSON value after another:
//! - `{"scope": ...}` once: the pools, and how many users, predecessors and managers a state has;
//! - `{"client": [number, ...]}`, and so `user`, `manager`, `item`: what a number stands for. Of roles, it is
//!   what a [`View`](crate::registry::View) shows;
//! - `{"state": [number, parts]}`: the numbers of its clients, users, predecessors, managers, items;
//! - `{"step": [from, action, to]}`, with the numbers of states.

use std::collections::HashMap;

use holdall_registry::roles::{Item, NOBODY, mix};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use super::search::model::{Action, Expander, Model, Successors};
use super::world::World;
use super::world::client::{Client, Stage};
use super::{BadScope, Scope, Settings, prepare};
use crate::registry::Chosen;

/// Which steps of a scope are told.
#[derive(Clone, Copy, Debug)]
pub enum Steps {
    /// All of them.
    All,
    /// Those on so many random walks, each of at most so many steps, from a seed.
    Walks {
        /// How many.
        walks: u64,
        /// How long.
        steps: u64,
        /// Where all chance comes from.
        seed: u64,
    },
}

/// Tells the states and steps of a scope. False if there were more than `settings.max_states`.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn record(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    steps: Steps,
    tell: &mut dyn FnMut(&Value),
) -> Result<bool, BadScope> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let world = World::of(chosen, roles, scope, &settings);
    let mut recorder = Recorder {
        world: &world,
        expander: world.expander(),
        states: HashMap::default(),
        told: FxHashSet::default(),
        next: Successors::default(),
        tell,
    };
    recorder.tell_scope();
    Ok(match steps {
        Steps::All => recorder.search(settings.max_states),
        Steps::Walks { walks, steps, seed } => {
            recorder.walk(walks, steps, seed);
            true
        }
    })
}

struct Recorder<'a> {
    world: &'a World<'a>,
    expander: Box<dyn Expander + Send + 'a>,
    states: FxHashMap<Vec<u32>, usize>,
    /// The parts that were told, by kind.
    told: FxHashSet<(&'static str, u32)>,
    next: Successors,
    tell: &'a mut dyn FnMut(&Value),
}

impl Recorder<'_> {
    fn tell_scope(&mut self) {
        let world = self.world;
        let pools = world.scope.pools.iter().map(
            |pool| json!({ "capacity": pool.capacity, "node": pool.node, "listed": pool.listed }),
        );
        let users = world.scope.users.len();
        (self.tell)(&json!({ "scope": {
            "pools": pools.collect::<Vec<_>>(),
            "users": users,
            "predecessors": world.manager_at(0) - 2 * users,
            "managers": world.managers,
        }}));
    }

    /// Every state, breadth first. States that differ only by a shift of their stamps are one where the search takes
    /// them for one.
    fn search(&mut self, max_states: usize) -> bool {
        let start = self.world.start();
        let mut known = FxHashSet::from_iter([self.expander.fingerprint(&start)]);
        let mut open = std::collections::VecDeque::from([start]);
        while let Some(state) = open.pop_front() {
            self.expand(&state);
            for at in 0..self.next.steps.len() {
                let step = &self.next.steps[at];
                if known.insert(step.fingerprint) {
                    open.push_back(self.next.state(at).to_vec());
                }
                self.tell_step(&state, at);
            }
            if known.len() > max_states {
                return false;
            }
        }
        true
    }

    fn walk(&mut self, walks: u64, steps: u64, seed: u64) {
        let mut random = mix(seed);
        for _ in 0..walks {
            let mut state = self.world.start();
            for _ in 0..steps {
                self.expand(&state);
                let many = self.next.steps.len();
                if many == 0 {
                    break;
                }
                random = mix(random);
                let at = ((u128::from(random) * many as u128) >> 64) as usize;
                self.tell_step(&state, at);
                state = self.next.state(at).to_vec();
            }
        }
    }

    fn expand(&mut self, state: &[u32]) {
        self.next.clear();
        self.expander.expand(state, &mut self.next);
    }

    fn tell_step(&mut self, state: &[u32], at: usize) {
        let action = self.next.steps[at].action;
        let cut = self.next.steps[at].cut;
        let after = self.next.state(at).to_vec();
        let (from, to) = (self.number(state), self.number(&after));
        if let Action::Deliver(id) | Action::Duplicate(id) | Action::Lose(id) = action {
            self.tell_part("item", id);
        }
        let action = match action {
            Action::Ask(lane) => json!(["ask", lane]),
            Action::Crash(lane) => json!(["crash", lane]),
            Action::CrashManager(manager) => json!(["crash-manager", manager]),
            Action::Deliver(id) => json!(["deliver", id]),
            Action::Done(lane) => json!(["done", lane]),
            Action::Duplicate(id) => json!(["duplicate", id]),
            Action::Leave(lane) => json!(["leave", lane]),
            Action::Lose(id) => json!(["lose", id]),
            Action::Reboot(cell) => json!(["reboot", cell]),
            Action::Return(lane) => json!(["return", lane]),
            Action::Suspect(lane) => json!(["suspect", lane]),
        };
        (self.tell)(&json!({ "step": [from, action, to, cut.is_some()] }));
    }

    /// The number of a state, which is told if it is new.
    fn number(&mut self, state: &[u32]) -> usize {
        if let Some(number) = self.states.get(state) {
            return *number;
        }
        let (world, users) = (self.world, self.world.user_at(0));
        let kinds = [
            ("client", 0, users),
            ("user", users, world.manager_at(0)),
            ("manager", world.manager_at(0), world.items_at()),
            ("item", world.items_at(), state.len()),
        ];
        for (kind, from, to) in kinds {
            state[from..to].iter().for_each(|id| self.tell_part(kind, *id));
        }
        let number = self.states.len();
        self.states.insert(state.to_vec(), number);
        let parts = state.iter().map(|id| (*id != NOBODY).then_some(*id));
        (self.tell)(&json!({ "state": [number, parts.collect::<Vec<_>>()] }));
        number
    }

    fn tell_part(&mut self, kind: &'static str, id: u32) {
        if id == NOBODY || !self.told.insert((kind, id)) {
            return;
        }
        let world = self.world;
        let part = match kind {
            "client" => self.client(world.client_table.value(id)),
            "user" => world.roles.view_user(id),
            "manager" => world.roles.view_manager(id),
            _ => self.item(world.parts.items.value(id)),
        };
        (self.tell)(&json!({ kind: [id, part] }));
    }

    fn client(&self, client: &Client) -> Value {
        let lane = client.user().lane().index();
        let busy = matches!(client.stage, Stage::Waiting | Stage::Using | Stage::Releasing);
        let needs = self.world.scope.users[lane].needs().nth(client.at.into());
        json!({
            "request": client.request,
            "stage": format!("{:?}", client.stage),
            "needs": needs.filter(|_| busy),
            "units": self.world.scope.units_of(client.units),
            "predecessor": client.predecessor,
        })
    }

    fn item(&self, item: &Item) -> Value {
        let content = self.world.roles.content(item);
        match item {
            Item::Call { .. } | Item::LossToken => Value::Null,
            Item::Gone { to, gone } => json!({ "kind": "gone", "to": to, "gone": gone }),
            Item::Lapse { who } => json!({ "kind": "lapse", "who": who }),
            Item::ToManager { from, to, .. } => {
                json!({ "kind": "to-manager", "from": from, "to": to, "message": content })
            }
            Item::ToUser { from, to, .. } => {
                json!({ "kind": "to-user", "from": from, "to": to, "message": content })
            }
            Item::ManagerTimer { at, .. } => json!({ "kind": "manager-timer", "at": at }),
            Item::UserTimer { at, .. } => json!({ "kind": "user-timer", "at": at }),
        }
    }
}
