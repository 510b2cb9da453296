//! How long who waits: timers by patience.

use alloc::vec::Vec;

use holdall_core::{Effect, Event, Rung, UserId};

use super::Desk;
use crate::house::manager::Timer;
use crate::house::{Manager, PATIENCE, Span, ToManager};
use crate::testing::{by_user, request, step};

fn asks(lane: u32, units: u32) -> Event<Manager> {
    let user = UserId::first(lane);
    let request = request(user, &[(0, units)]);
    let (id, span) = (request.id, Span::ONE);
    by_user(user, ToManager::Try { request: id, needs: request.needs, solo: true, span })
}

fn ends(lane: u32) -> Event<Manager> {
    let user = UserId::first(lane);
    by_user(user, ToManager::Release(request(user, &[(0, 1)]).id))
}

impl Desk {
    /// The timers that are armed in a step.
    fn arms(&mut self, event: Event<Manager>) -> Vec<(u8, Rung)> {
        let armed = step(&self.cfg, &mut self.manager, event).into_iter();
        let armed = armed.filter_map(|effect| match effect {
            Effect::Arm(Timer::Patience(patience), rung) => Some((patience, rung)),
            _ => None,
        });
        armed.collect()
    }

    fn rings(&mut self, patience: u8) -> Vec<(u8, Rung)> {
        self.arms(Event::Timer(Timer::Patience(patience)))
    }
}

/// Whoever has stepped aside before has twice the patience. Whoever comes new beside it has no more
/// than anybody who comes new: the timer of the one is not that of the other.
#[test]
fn patience_is_not_inherited() {
    let mut desk = Desk::new(&[2]);
    desk.asks(0, 1);
    desk.asks(1, 1);
    assert_eq!(desk.arms(asks(2, 2)), [(0, PATIENCE)]);
    assert_eq!(desk.rings(0), [(0, PATIENCE)], "one ring may have been due soon");
    assert_eq!(desk.rings(0), [], "both are overdue, and who waits steps aside");
    desk.asks(3, 1);
    assert_eq!(desk.ends(0), (Vec::from([3]), Vec::new()), "past the one that has stepped aside");
    assert_eq!(desk.arms(ends(1)), [(1, PATIENCE + 1)], "which waits again, for longer");
    assert_eq!(desk.arms(asks(4, 1)), [(0, PATIENCE)]);
}
