//! Steps of roles, taken once and remembered.

use holdall_registry::roles::Outcome;
use rustc_hash::FxHashMap;

use super::World;

/// More remembered steps than this are forgotten and started anew.
const REMEMBERED_MAX: usize = 1 << 22;

/// What one thread remembers: by the number of the role and the number of what happened to it,
/// which tells a user from a manager.
#[derive(Default)]
pub(crate) struct Steps(FxHashMap<(u32, u32), Box<Outcome>>);

impl Steps {
    pub(crate) fn outcome(&mut self, world: &World<'_>, role: u32, input: u32) -> &Outcome {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        let take = || {
            let input = world.parts.items.value(input);
            Box::new(world.roles.step(&world.parts, role, input))
        };
        self.0.entry((role, input)).or_insert_with(take)
    }
}
