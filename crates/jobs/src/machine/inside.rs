//! What tasks of one group use of what the group was granted.
//!
//! The group has as many units of a pool as its tasks can need at the same time, so those never run
//! out. But it has a lock, or all of a pool, only once: of its tasks that need it, one runs at a time,
//! or any number that share it.

use std::collections::BTreeMap;

use holdall_wire::{Amount, Name, Need};

/// Who uses what there is only once of.
#[derive(Clone, Debug, Default)]
pub(super) struct InUse(BTreeMap<Name, Users>);

#[derive(Clone, Copy, Debug, Default)]
struct Users {
    sharing: usize,
    alone: bool,
}

impl InUse {
    /// Of these needs of a group, what there is only once of.
    pub(super) fn new(granted: &[Need]) -> Self {
        let once = |need: &&Need| matches!(need.amount, Amount::One | Amount::All);
        Self(
            granted.iter().filter(once).map(|need| (need.name.clone(), Users::default())).collect(),
        )
    }

    /// Whether somebody can have these beside those who have some.
    pub(super) fn has_room(&self, needs: &[Need]) -> bool {
        needs.iter().all(|need| match self.0.get(&need.name) {
            None => true,
            Some(users) if need.amount == Amount::Shared => !users.alone,
            Some(users) => !users.alone && users.sharing == 0,
        })
    }

    pub(super) fn take(&mut self, needs: &[Need]) {
        for need in needs {
            match self.0.get_mut(&need.name) {
                Some(users) if need.amount == Amount::Shared => users.sharing += 1,
                Some(users) => users.alone = true,
                None => {}
            }
        }
    }

    pub(super) fn give_back(&mut self, needs: &[Need]) {
        for need in needs {
            match self.0.get_mut(&need.name) {
                Some(users) if need.amount == Amount::Shared => users.sharing -= 1,
                Some(users) => users.alone = false,
                None => {}
            }
        }
    }
}
