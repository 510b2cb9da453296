//! The users of an engine: by their lanes, which are numbered from 0 on and used again, so that a table has hardly a place that
//! is not in use.

use holdall_core::{Home, Lane, Protocol, UserId};
use rustc_hash::FxHashMap;

use super::roles::Slot;

/// All users. Those of this home are found by lane; of a former one there may be some that are not over.
pub(super) struct Users<P: Protocol> {
    home: Home,
    /// Each in a place of its own, with its generation: a table that grows moves what is in it.
    by_lane: Vec<Option<(u64, Box<Slot<P>>)>>,
    others: FxHashMap<UserId, Box<Slot<P>>>,
    count: usize,
}

impl<P: Protocol> Users<P> {
    pub(super) fn new(home: Home) -> Self {
        Self { home, by_lane: Vec::new(), others: FxHashMap::default(), count: 0 }
    }

    /// The same, at a home.
    pub(super) fn at(self, home: Home) -> Self {
        let mut users = Self::new(home);
        for (lane, slot) in self.by_lane.into_iter().enumerate() {
            if let Some((generation, slot)) = slot {
                let lane = Lane { home: self.home, number: lane as u32 };
                users.insert(UserId::after(lane, generation), slot);
            }
        }
        self.others.into_iter().for_each(|(user, slot)| users.insert(user, slot));
        users
    }

    fn place(&self, user: UserId) -> Option<usize> {
        let lane = user.lane().number as usize;
        let slot = self.by_lane.get(lane)?.as_ref();
        let is_it = |(generation, _): &&(u64, _)| *generation == user.generation();
        slot.filter(is_it).filter(|_| user.home() == self.home).map(|_| lane)
    }

    pub(super) fn insert(&mut self, user: UserId, slot: Box<Slot<P>>) {
        self.remove(user);
        self.count += 1;
        let lane = user.lane().number as usize;
        if user.home() == self.home && lane >= self.by_lane.len() {
            self.by_lane.resize_with(lane + 1, || None);
        }
        match self.by_lane.get_mut(lane).filter(|_| user.home() == self.home) {
            Some(free @ None) => *free = Some((user.generation(), slot)),
            _ => drop(self.others.insert(user, slot)),
        }
    }

    pub(super) fn get(&self, user: UserId) -> Option<&Slot<P>> {
        match self.place(user) {
            Some(lane) => self.by_lane[lane].as_ref().map(|(_, slot)| &**slot),
            None => self.others.get(&user).map(|slot| &**slot),
        }
    }

    pub(super) fn get_mut(&mut self, user: UserId) -> Option<&mut Slot<P>> {
        match self.place(user) {
            Some(lane) => self.by_lane[lane].as_mut().map(|(_, slot)| &mut **slot),
            None => self.others.get_mut(&user).map(|slot| &mut **slot),
        }
    }

    pub(super) fn remove(&mut self, user: UserId) {
        let removed = match self.place(user) {
            Some(lane) => self.by_lane[lane].take().is_some(),
            None => self.others.remove(&user).is_some(),
        };
        self.count -= usize::from(removed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, in order.
    pub(super) fn sorted(&self) -> Vec<(UserId, &Slot<P>)> {
        let lanes = self.by_lane.iter().enumerate();
        let own = lanes.filter_map(|(number, slot)| {
            let lane = Lane { home: self.home, number: number as u32 };
            slot.as_ref().map(|(generation, _)| UserId::after(lane, *generation))
        });
        let all = own.chain(self.others.keys().copied());
        let mut all: Vec<_> = all.filter_map(|user| Some((user, self.get(user)?))).collect();
        all.sort_unstable_by_key(|(user, _)| *user);
        all
    }
}
