//! The paper's figures, played.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use holdall_core::{Addr, Call, Effect, Event, ManagerId, Protocol, UserId};

use super::{Manager, ToManager, Two, User};
use crate::ring::ToUser;
use crate::testing::{config, request, step};

/// Three clients and three resources; each client asks for its own resource and the next.
struct Ring {
    cfg: Two,
    managers: Vec<Manager<2>>,
    users: Vec<User<2>>,
    to_managers: VecDeque<(Addr, ManagerId, ToManager)>,
    to_users: Vec<(UserId, ToUser)>,
}

impl Ring {
    fn new() -> Self {
        let cfg: Two = config("", &[1, 1, 1]);
        let managers = (0..3).map(|id| cfg.manager(ManagerId(id))).collect();
        let users = (0..3).map(|lane| cfg.user(UserId::first(lane))).collect();
        let (to_managers, to_users) = (VecDeque::new(), Vec::new());
        Self { cfg, managers, users, to_managers, to_users }
    }

    fn ask(&mut self, client: u32, first: u64, second: u64) {
        let id = UserId::first(client);
        let call = Call::Ask(request(id, &[(first, 1), (second, 1)]), None);
        let effects = step(&self.cfg, &mut self.users[client as usize], Event::Call(call));
        self.send(Addr::User(id), effects);
    }

    fn send<T>(&mut self, from: Addr, effects: Vec<Effect<Two, T>>) {
        for effect in effects {
            match effect {
                Effect::ToManager(to, msg) => self.to_managers.push_back((from, to, msg)),
                Effect::ToUser(to, msg) => self.to_users.push((to, msg)),
                _ => {}
            }
        }
    }

    /// Delivers all messages of a kind, and those that follow from them; how many.
    fn deliver(&mut self, is: fn(&ToManager) -> bool) -> usize {
        let mut delivered = 0;
        while let Some(at) = self.to_managers.iter().position(|(.., msg)| is(msg)) {
            let (from, to, msg) = self.to_managers.remove(at).expect("it was found there");
            let event = Event::Message { from, msg };
            let effects = step(&self.cfg, &mut self.managers[to.index()], event);
            self.send(Addr::Manager(to), effects);
            delivered += 1;
            assert!(delivered < 100, "messages go round and round: {:?}", self.to_managers);
        }
        delivered
    }

    /// The clients in the strong queue of each resource, the head first.
    fn strong(&self) -> Vec<Vec<u32>> {
        let client = |entry: &super::entry::Entry| entry.request().user.lane().number;
        self.managers.iter().map(|m| m.queues.strong().map(client).collect()).collect()
    }

    /// Definition 3.1: resource i depends on j if the client at the head of i's strong queue, at its
    /// home, waits in the strong queue of j.
    fn dependencies(&self) -> Vec<(u64, u64)> {
        let head = |m: &Manager<2>| m.queues.head().filter(|head| head.spot.is_home()).cloned();
        let depends = |m: &Manager<2>| {
            let head = head(m)?;
            let next = head.spot.next()?;
            let waits = self.managers[next.index()].queues.find(head.onward);
            waits.map(|_| (m.id.0, next.0))
        };
        self.managers.iter().filter_map(depends).collect()
    }
}

#[test]
fn figures_3_to_6_are_played() {
    let mut ring = Ring::new();
    for client in 0..3 {
        ring.ask(client, client.into(), (u64::from(client) + 1) % 3);
    }
    let asks = |msg: &ToManager| matches!(msg, ToManager::Client(_) | ToManager::Ask(_));
    assert_eq!(ring.deliver(asks), 6, "each request goes to both its resources, the last first");
    assert_eq!(ring.strong(), [[0], [1], [2]], "each client heads its home");

    // Figure 3: everybody is called in where somebody else is; Figure 4: a loop of dependencies.
    assert_eq!(ring.deliver(|msg| matches!(msg, ToManager::Promote { .. })), 3);
    assert_eq!(ring.strong(), [[0, 2], [1, 0], [2, 1]]);
    assert_eq!(ring.dependencies(), [(0, 1), (1, 2), (2, 0)]);

    // Figure 5: whoever began to wait has sent a probe, and the loop is found. The token is at
    // resource 0, so of the homes of the others the lowest is that of client 1.
    assert!(ring.deliver(|msg| matches!(msg, ToManager::Probe(_))) >= 2);
    let kills = |msg: &ToManager| matches!(msg, ToManager::Kill(_) | ToManager::Rollback(_));
    ring.deliver(kills);

    // Figure 6: client 1 stands aside at resource 2, and is at the end of its home.
    assert_eq!(ring.strong(), [[0, 2].as_slice(), &[0, 1], &[2]]);
    assert_eq!(ring.dependencies(), [(0, 1), (2, 0)], "the loop is open");
    let granted =
        |(to, msg): &(UserId, ToUser)| matches!(msg, ToUser::Grant(_)).then_some(to.lane().number);
    assert_eq!(ring.to_users.iter().filter_map(granted).collect::<Vec<_>>(), [0]);
}

/// Clients 0 and 1 wait for each other, and client 2 for them. Were its probe to go round in their
/// loop until that is broken, the network would never be quiet, and whoever waits for that before
/// it repeats what was lost would never repeat their probes.
#[test]
fn a_probe_leaves_a_loop_of_others_alone() {
    let mut ring = Ring::new();
    for (client, first, second) in [(0, 0, 1), (1, 1, 0), (2, 2, 0)] {
        ring.ask(client, first, second);
    }
    ring.deliver(|msg| matches!(msg, ToManager::Client(_) | ToManager::Ask(_)));
    ring.deliver(|msg| matches!(msg, ToManager::Promote { .. }));
    assert_eq!(ring.dependencies(), [(0, 1), (1, 0), (2, 0)]);

    let of_client_2 = |msg: &ToManager| matches!(msg, ToManager::Probe(probe) if probe.way.start.request.user.lane().number == 2);
    assert_eq!(ring.deliver(of_client_2), 1, "from resource 0 to 1, and no further");
    assert_eq!(ring.dependencies(), [(0, 1), (1, 0), (2, 0)], "it has broken nothing");

    ring.deliver(|msg| !matches!(msg, ToManager::Ring(_)));
    assert!(!ring.dependencies().contains(&(1, 0)), "who closed the loop has broken it");
}
