//! Users that stop, lose their lease, return as others, or go down with their cell.

use holdall_core::{Addr, CellId, Gone, Home, Life, ManagerId, Party, UserId};

use super::NOBODY;
use super::client::{Client, Overtaken, Stage};
use super::executor::Executor;
use crate::check::Detector;
use holdall_registry::roles::Item;

impl Executor<'_> {
    /// The user stops; what was on its way to it is lost, and the detector takes notice.
    pub(super) fn crash(&mut self, lane: usize) {
        let who = self.client(lane).user();
        self.change_client(lane, |client| {
            (client.stage, client.overtaken) = (Stage::Crashed, Overtaken::default());
        });
        self.forget_overtaker(lane);
        let world = self.world;
        self.next[world.user_at(lane)] = NOBODY;
        let lapse = world.parts.items.number(Item::Lapse { who });
        let detector = world.settings.detector();
        // Who is certainly gone need not be waited for. Otherwise a lease runs out all the same.
        let lasts = |id: u32| id == lapse && detector != Detector::Departed;
        let to_it = |id: &u32| world.parts.items.value(*id).to() == Addr::User(who);
        let items = self.take_items();
        self.next.extend(items.into_iter().filter(|id| !to_it(id) || lasts(*id)));
        // A suspicion that was wrong until now is not raised again.
        match detector {
            Detector::Departed => self.report(Gone::Departed(Party::User(who))),
            _ if self.is_under_way(lapse) => {}
            Detector::None => {}
            Detector::Reclaim => {
                self.report(Gone::Suspected(who));
                self.next.push(lapse);
            }
            Detector::Suspect => self.report(Gone::Suspected(who)),
        }
    }

    /// The manager stops; what was on its way to it, and what it was to be told, is lost.
    pub(super) fn crash_manager(&mut self, manager: usize) {
        let world = self.world;
        self.next[world.manager_at(manager)] = NOBODY;
        let stopped = Addr::Manager(ManagerId(manager as u64));
        let items = self.take_items();
        let kept = items.into_iter().filter(|id| world.parts.items.value(*id).to() != stopped);
        self.next.extend(kept);
    }

    /// A lease runs out: the client stops using what it has, its user leaves, and only then are the
    /// managers told. Whoever was idle is lost as well, so that it asks again as another.
    pub(super) fn lapse(&mut self, who: UserId) {
        let lane = who.lane().index();
        let present =
            self.client(lane).user() == who && self.next[self.world.user_at(lane)] != NOBODY;
        if present && !matches!(self.client(lane).stage, Stage::Left | Stage::Lost) {
            self.change_client(lane, |client| {
                (client.stage, client.overtaken) = (Stage::Lost, Overtaken::default());
            });
            self.forget_overtaker(lane);
            self.call(lane);
        }
        self.report(Gone::Reclaimed(who));
    }

    /// Every manager will be told of a user.
    pub(super) fn report(&mut self, gone: Gone) {
        for to in (0..self.world.managers as u64).map(ManagerId) {
            self.next.push(self.world.parts.items.number(Item::Gone { to, gone }));
        }
    }

    /// The next user of a lane begins. What is left of its predecessor stays beside it, if lives
    /// overlap.
    pub(super) fn succeed(&mut self, lane: usize) {
        let before = self.client(lane);
        let next = before.user().next_generation().expect("fewer than 2^40 generations");
        let at = if before.stage == Stage::Lost { before.at } else { 0 };
        let place = self.world.user_at(lane);
        if let Some(beside) = self.world.predecessor_at(lane) {
            self.next[beside] = self.next[place];
        }
        let predecessor = self.world.settings.overlap.then_some(before.user());
        let suspected = before.suspected;
        self.change_client(lane, |client| {
            *client = Client { at, suspected, predecessor, ..Client::fresh(next) };
        });
        self.next[place] = self.world.roles.user(&self.world.parts, next);
    }

    /// A predecessor that is idle is dropped, and forgotten when nothing of it is under way.
    pub(super) fn retire_predecessors(&mut self) {
        let world = self.world;
        if !world.settings.overlap {
            return;
        }
        for lane in 0..world.scope.users.len() {
            let Some((old, place)) = self.client(lane).predecessor.zip(world.predecessor_at(lane))
            else {
                continue;
            };
            let idle = |id: u32| id != NOBODY && world.parts.users[id as usize].idle;
            if idle(self.next[place]) {
                self.next[place] = NOBODY;
                self.drop_items_to(|user| user == old);
            }
            let items = world.items(&self.next);
            let involved = items.iter().any(|id| world.parts.items.value(*id).involves(old));
            if self.next[place] == NOBODY && !involved {
                self.change_client(lane, |client| client.predecessor = None);
            }
        }
    }

    /// A cell stops with all its users, and comes back in another life without its memory. The
    /// managers are told of all its users at once.
    pub(super) fn reboot(&mut self, cell: CellId) {
        let (old, new) = (Home { cell, life: Life(0) }, Home { cell, life: Life(1) });
        for lane in 0..self.world.scope.users.len() {
            let before = self.client(lane);
            if before.user().home() != old {
                continue;
            }
            self.forget_overtaker(lane);
            let user = UserId::first_at(new, lane as u32);
            let Client { at, suspected, .. } = before;
            self.change_client(lane, |client| {
                *client = Client { at, suspected, ..Client::fresh(user) };
            });
            let place = self.world.user_at(lane);
            self.next[place] = self.world.roles.user(&self.world.parts, user);
            if let Some(beside) = self.world.predecessor_at(lane) {
                self.next[beside] = NOBODY;
            }
        }
        self.drop_items_to(|user| user.home() == old);
        self.report(Gone::Departed(Party::Home(old)));
    }

    /// Takes all items out; those that are put back count as put under way by the step.
    fn take_items(&mut self) -> Vec<u32> {
        self.fresh_at = self.world.items_at();
        self.next.split_off(self.fresh_at)
    }

    /// What was on its way to somebody who is no longer there is lost.
    fn drop_items_to(&mut self, gone: impl Fn(UserId) -> bool) {
        let items = self.take_items();
        let to_gone = |id: &u32| match self.world.parts.items.value(*id).to() {
            Addr::Manager(_) => false,
            Addr::User(user) => gone(user),
        };
        let kept = items.into_iter().filter(|id| !to_gone(id));
        self.next.extend(kept);
    }
}
