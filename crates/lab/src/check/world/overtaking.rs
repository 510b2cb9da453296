//! Who overtakes whom: the account behind `bounded-overtaking`.

use holdall_core::Property;

use super::client::Client;
use super::executor::Executor;

impl Executor<'_> {
    /// The request now asked for is later than all that have settled and conflict with it.
    pub(super) fn note_later(&mut self, lane: usize) {
        let scope = self.world.scope;
        let needs = |lane: usize, at: u8| scope.users[lane].needs().nth(at.into());
        let mine = needs(lane, self.client(lane).at);
        for other in 0..scope.users.len() {
            let Client { overtaken, at, .. } = self.client(other);
            let conflict = mine.zip(needs(other, at)).is_some_and(|(a, b)| scope.conflict(a, b));
            if overtaken.settled && conflict {
                self.change_client(other, |client| client.overtaken.later |= 1 << lane);
            }
        }
    }

    /// A grant passes everybody who had settled before it was asked for.
    pub(super) fn count_overtaking(&mut self, lane: usize) {
        let Some(bound) = self.world.bound else { return };
        for other in 0..self.world.scope.users.len() {
            if self.client(other).overtaken.later >> lane & 1 == 0 {
                continue;
            }
            self.change_client(other, |client| {
                client.overtaken.later &= !(1 << lane);
                client.overtaken.times = (client.overtaken.times + 1).min(bound + 1);
            });
            let times = self.client(other).overtaken.times;
            if times > bound {
                let what = format!("u{other} was overtaken {times} times by later requests");
                self.breach(Property::BoundedOvertaking(bound), Some(other), what);
            }
        }
    }

    pub(super) fn forget_overtaker(&mut self, lane: usize) {
        for other in 0..self.world.scope.users.len() {
            if self.client(other).overtaken.later >> lane & 1 == 1 {
                self.change_client(other, |client| client.overtaken.later &= !(1 << lane));
            }
        }
    }

    /// Notes which waiting requests have nothing under way any more.
    pub(super) fn settle(&mut self) {
        let world = self.world;
        for lane in 0..world.scope.users.len() {
            let client = self.client(lane);
            if client.is_waiting() && !client.overtaken.settled {
                let items = world.items(&self.next);
                if !items.iter().any(|id| world.parts.items.value(*id).involves(client.user())) {
                    self.change_client(lane, |client| client.overtaken.settled = true);
                }
            }
        }
    }
}
