//! Steps of roles, taken once and remembered.

use holdall_registry::roles::Outcome;
use rustc_hash::FxHashMap;

use super::World;

/// More remembered steps than this are forgotten and started anew.
const REMEMBERED_MAX: usize = 1 << 22;

/// What one thread remembers: by the number of the role and the number of what happened to it, or is under way to it,
/// which tells a user from a manager.
#[derive(Default)]
pub(crate) struct Steps {
    outcomes: FxHashMap<(u32, u32), Box<Outcome>>,
    /// Whether the role says of a message that it is stale.
    stale: FxHashMap<(u32, u32), bool>,
}

impl Steps {
    pub(crate) fn outcome(&mut self, world: &World<'_>, role: u32, input: u32) -> &Outcome {
        if self.outcomes.len() >= REMEMBERED_MAX {
            self.outcomes.clear();
        }
        let take = || {
            let input = world.parts.items.value(input);
            Box::new(world.roles.step(&world.parts, role, input))
        };
        self.outcomes.entry((role, input)).or_insert_with(take)
    }

    /// Whether a message will change nothing, whenever it arrives at this role.
    pub(crate) fn is_stale(&mut self, world: &World<'_>, role: u32, message: u32) -> bool {
        if self.stale.len() >= REMEMBERED_MAX {
            self.stale.clear();
        }
        let ask = || world.roles.is_stale(role, world.parts.items.value(message));
        *self.stale.entry((role, message)).or_insert_with(ask)
    }
}
