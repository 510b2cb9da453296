//! Who sends a message and who gets it, in eight bytes: events are moved about, and in a large system most of them are
//! in no cache when their time comes.

use holdall_core::{Addr, Home, Lane, ManagerId, UserId};

/// A party of a simulation, in which all users have one home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    /// Of a lane; or of a manager, with [`MANAGER`] added.
    number: u32,
    /// Of a user.
    generation: u32,
}

const MANAGER: u32 = 1 << 31;

impl Who {
    /// `None` of whom there is not in a simulation: of another home, or after 2^32 others in its lane.
    pub(super) fn of(addr: Addr) -> Option<Self> {
        match addr {
            Addr::Manager(id) => {
                let number = u32::try_from(id.0).ok().filter(|number| *number < MANAGER)?;
                Some(Self { number: number | MANAGER, generation: 0 })
            }
            Addr::User(user) => {
                let generation = u32::try_from(user.generation()).ok()?;
                let at_home = user.home() == Home::default();
                at_home.then_some(Self { number: user.lane().number, generation })
            }
        }
    }

    pub(super) fn addr(self) -> Addr {
        match self.number & MANAGER {
            0 => Addr::User(self.user()),
            _ => Addr::Manager(ManagerId(u64::from(self.number & !MANAGER))),
        }
    }

    /// The user that it is.
    ///
    /// # Panics
    /// Of a manager.
    pub(super) fn user(self) -> UserId {
        let lane = Lane { home: Home::default(), number: self.number };
        UserId::after(lane, u64::from(self.generation))
    }

    /// Where a manager, or the lane of a user, is in the list of all.
    pub(super) fn index(self) -> usize {
        (self.number & !MANAGER) as usize
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{CellId, Life};

    use super::*;

    #[test]
    fn whoever_is_packed_is_the_same_again() {
        let fifth = UserId::after(UserId::first(7).lane(), 5);
        for addr in [Addr::Manager(ManagerId(0)), Addr::Manager(ManagerId(12)), Addr::User(fifth)] {
            let who = Who::of(addr).expect("one of a simulation");
            assert_eq!(who.addr(), addr);
        }
        let index = |addr| Who::of(addr).map(Who::index);
        assert_eq!(index(Addr::Manager(ManagerId(12))), Some(12));
        assert_eq!(index(Addr::User(fifth)), Some(7));
    }

    #[test]
    fn whom_there_is_not_is_nobody() {
        let elsewhere = Home { cell: CellId(1), life: Life(0) };
        assert_eq!(Who::of(Addr::User(UserId::first_at(elsewhere, 7))), None);
        assert_eq!(Who::of(Addr::User(UserId::after(UserId::first(7).lane(), 1 << 32))), None);
        assert_eq!(Who::of(Addr::Manager(ManagerId(1 << 31))), None);
    }
}
