//! A second witness: the same roles in the same scopes, explored by the `stateright` crate from a
//! model written for it alone, have the same number of states.

use std::collections::BTreeMap;

use holdall_core::{
    Addr, Call, Effect, Event, ManagerId, Options, Outbox, Protocol, Request, RequestId, Role,
    Topology, UserId,
};
use holdall_lab::check::{Scope, Settings, Wanted, check};
use holdall_lab::registry::Chosen;
use holdall_protocols::ordered::{self, Ordered};
use stateright::{Checker, Model, Property};

/// Ordered locking over messages that may arrive in any order.
struct Witness {
    cfg: Ordered,
    scope: Scope,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    clients: Vec<Client>,
    users: Vec<ordered::User>,
    managers: Vec<ordered::Manager>,
    /// How often each message is under way, by its text: messages have no order of their own.
    network: BTreeMap<String, (Message, usize)>,
}

/// Requests begun, and what of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    asked: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Waiting,
    Using,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    ToManager(Addr, ManagerId, ordered::ToManager),
    ToUser(Addr, UserId, ordered::ToUser),
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Ask(usize),
    Deliver(Message),
    Done(usize),
}

impl State {
    fn send(&mut self, message: Message) {
        self.network.entry(format!("{message:?}")).or_insert((message, 0)).1 += 1;
    }

    fn receive(&mut self, message: &Message) {
        let key = format!("{message:?}");
        let (_, times) = self.network.get_mut(&key).expect("it is under way");
        *times -= 1;
        if *times == 0 {
            self.network.remove(&key);
        }
    }

    fn carry_out(&mut self, from: Addr, out: &mut Outbox<Ordered, holdall_core::Never>) {
        for effect in out.drain() {
            match effect {
                Effect::ToManager(to, msg) => self.send(Message::ToManager(from, to, msg)),
                Effect::ToUser(to, msg) => self.send(Message::ToUser(from, to, msg)),
                Effect::Granted(request) => {
                    self.clients[request.id.user.lane().index()].stage = Stage::Using;
                }
                Effect::Released(request) => {
                    self.clients[request.user.lane().index()].stage = Stage::Idle;
                }
                Effect::Lost(request) => panic!("{request:?} is lost"),
                Effect::Tally(..) => {}
                Effect::Misbehaved(who, what) => panic!("{who:?}: {what}"),
                Effect::Arm(never, _) | Effect::Disarm(never) => match never {},
            }
        }
    }
}

impl Witness {
    fn feed_user(&self, state: &mut State, lane: usize, event: Event<ordered::User>) {
        let mut out = Outbox::default();
        state.users[lane].step(&self.cfg, event, &mut out);
        state.carry_out(Addr::User(UserId::first(lane as u32)), &mut out);
    }

    fn feed_manager(&self, state: &mut State, id: ManagerId, event: Event<ordered::Manager>) {
        let mut out = Outbox::default();
        state.managers[id.index()].step(&self.cfg, event, &mut out);
        state.carry_out(Addr::Manager(id), &mut out);
    }
}

impl Model for Witness {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let lanes = 0..self.scope.users.len();
        vec![State {
            clients: lanes.clone().map(|_| Client { asked: 0, stage: Stage::Idle }).collect(),
            users: lanes.map(|lane| self.cfg.user(UserId::first(lane as u32))).collect(),
            managers: (0..self.scope.pools.len())
                .map(|m| self.cfg.manager(ManagerId(m as u64)))
                .collect(),
            network: BTreeMap::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (lane, client) in state.clients.iter().enumerate() {
            match client.stage {
                Stage::Idle if client.asked < self.scope.users[lane].requests.len() => {
                    actions.push(Action::Ask(lane));
                }
                Stage::Using => actions.push(Action::Done(lane)),
                _ => {}
            }
        }
        actions.extend(state.network.values().map(|(message, _)| Action::Deliver(message.clone())));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Ask(lane) => {
                let client = &mut next.clients[lane];
                let Wanted { needs, length } =
                    self.scope.users[lane].requests[client.asked].clone();
                *client = Client { asked: client.asked + 1, stage: Stage::Waiting };
                let id = RequestId { user: UserId::first(lane as u32), seq: client.asked as u64 };
                let ask = Call::Ask(Request { id, needs }, length);
                self.feed_user(&mut next, lane, Event::Call(ask));
            }
            Action::Deliver(message) => {
                next.receive(&message);
                match message {
                    Message::ToManager(from, to, msg) => {
                        self.feed_manager(&mut next, to, Event::Message { from, msg });
                    }
                    Message::ToUser(from, to, msg) => {
                        self.feed_user(&mut next, to.lane().index(), Event::Message { from, msg });
                    }
                }
            }
            Action::Done(lane) => self.feed_user(&mut next, lane, Event::Call(Call::Done)),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("at most one in the whole", |model: &Self, state: &State| {
            let used = state
                .clients
                .iter()
                .zip(&model.scope.users)
                .filter(|(c, _)| c.stage == Stage::Using);
            let mut units = vec![0; model.scope.pools.len()];
            for need in used.flat_map(|(client, user)| user.requests[client.asked - 1].needs.iter())
            {
                units[need.pool.index()] += need.units;
            }
            units.iter().zip(&model.scope.pools).all(|(units, pool)| *units <= pool.capacity)
        })]
    }
}

#[test]
fn stateright_counts_the_same_states() {
    for (pools, users) in [("1,1,1", "0+1/1+2/2+0"), ("2,1", "0:2+1,0/1+0,1/0")] {
        let scope = Scope::parse(pools, users, None).expect("sensible");
        let cfg = Ordered::new(&Topology::of_pools(scope.pools.clone()), &Options::default())
            .expect("served");
        let theirs = Witness { cfg, scope: scope.clone() }.checker().spawn_bfs().join();
        theirs.assert_properties();
        let chosen = Chosen::new("ordered", &[]).expect("known");
        let ours = check(&chosen, &scope, &Settings::default(), &|_| {}).expect("served");
        assert!(ours.complete);
        assert_eq!(ours.states, theirs.unique_state_count(), "{scope}");
    }
}
