//! The plain fingerprints of successors, made from that of the state they come from.
//!
//! The plain fingerprint of a state is the sum of what its parts add to it, each in its place
//! ([`StateFingerprint::plain`](holdall_registry::roles::StateFingerprint::plain)). A step changes few
//! places, so what the others add is kept; and of each part its own fingerprint, in a list of one
//! thread's own, which is quicker to read than the tables that all threads share.

use holdall_registry::roles::{NOBODY, mix};

use super::World;
use super::known::read;

/// What is kept of one state, and of the parts.
#[derive(Default)]
pub(super) struct Prints {
    /// What all places but the items add in the state whose successors are made.
    roles: u64,
    clients: Vec<u64>,
    users: Vec<u64>,
    managers: Vec<u64>,
    /// What an item adds. Its place does not count, unless links keep order.
    items: Vec<u64>,
}

impl Prints {
    /// Begins with the successors of a state, whose fingerprint is known.
    pub(super) fn begin(&mut self, world: &World<'_>, state: &[u32], fingerprint: u64) {
        self.roles = fingerprint.wrapping_sub(self.items(world, state));
    }

    /// The fingerprint of a successor of the state `before`, with which it was begun.
    pub(super) fn successor(&mut self, world: &World<'_>, before: &[u32], state: &[u32]) -> u64 {
        let mut sum = self.roles;
        for place in 0..world.items_at() {
            if state[place] != before[place] {
                let (old, new) = (before[place], state[place]);
                sum = sum.wrapping_sub(self.adds(world, place, old));
                sum = sum.wrapping_add(self.adds(world, place, new));
            }
        }
        sum.wrapping_add(self.items(world, state))
    }

    /// What the items of a state add.
    fn items(&mut self, world: &World<'_>, state: &[u32]) -> u64 {
        let from = world.items_at();
        let item = |id| at_place(world.parts.items.fingerprint(id).plain, from);
        state[from..].iter().fold(0, |sum, id| sum.wrapping_add(read(&mut self.items, *id, item)))
    }

    /// What the part in a place adds.
    fn adds(&mut self, world: &World<'_>, place: usize, id: u32) -> u64 {
        if id == NOBODY {
            return 0;
        }
        let plain = if place < world.user_at(0) {
            read(&mut self.clients, id, |id| world.client_table.fingerprint(id).plain)
        } else if place < world.manager_at(0) {
            read(&mut self.users, id, |id| world.parts.users[id as usize].fingerprint.plain)
        } else {
            read(&mut self.managers, id, |id| world.parts.managers[id as usize].fingerprint.plain)
        };
        at_place(plain, place)
    }
}

fn at_place(plain: u64, place: usize) -> u64 {
    mix(plain ^ mix(place as u64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::check::search::model::{Model, Successors};
    use crate::check::world::World;
    use crate::check::{Scope, Settings, prepare};
    use crate::registry::Chosen;

    #[test]
    fn a_successor_has_the_fingerprint_that_it_has_by_itself() {
        let crash = Settings { crash: Some(0), crash_amid: true, loss: 1, ..Settings::default() };
        let overlap = Settings { overlap: true, departures: true, ..Settings::default() };
        let plain = Settings { canonical: Some(false), ..overlap.clone() };
        for (name, users, settings) in [
            ("ordered", "0+1/1+0/0", &Settings::default()),
            ("house", "0+1/1", &crash),
            ("skeen", "0/0", &overlap),
            ("ordered", "0^/0^", &plain),
            ("chandy-misra", "0+1/1+0", &Settings::default()),
        ] {
            let chosen = Chosen::new(name, &[]).expect("known");
            let scope = Scope::parse("1,1", users, None).expect("sensible");
            let (roles, settings) = prepare(&chosen, &scope, settings).expect("served");
            let world = World::of(&chosen, roles, &scope, &settings);
            let mut expander = world.expander();
            let mut states = vec![world.start()];
            let mut known = HashSet::from([expander.fingerprint(&states[0])]);
            for at in 0..500 {
                let Some(state) = states.get(at).cloned() else { break };
                let mut out = Successors::default();
                expander.expand(&state, &mut out);
                for (i, step) in out.steps.iter().enumerate() {
                    let next = out.state(i);
                    assert_eq!(step.fingerprint, expander.fingerprint(next), "{name} {users}");
                    if known.insert(step.fingerprint) {
                        states.push(next.to_vec());
                    }
                }
            }
        }
    }
}
