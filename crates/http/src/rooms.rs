//! What there is only so much of, and who has how much of it: connections, listeners, bytes of answers
//! that are not read yet.
//!
//! Nobody has more than a quarter, nor more than is left over: however greedy some are, whoever comes new
//! finds room. Somebody who has nothing is given what it needs, however much that is, as long as anything is left:
//! an answer that is longer than a quarter is still told, one at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What there is of something.
pub(crate) struct Rooms<K>(Arc<Inner<K>>);

struct Inner<K> {
    most: usize,
    taken: Mutex<Taken<K>>,
}

struct Taken<K> {
    all: usize,
    by: HashMap<K, usize>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Whoever wants it has as much as it may.
    Own,
    /// Nothing is left.
    All,
}

/// Some of it, given back when this is dropped.
pub(crate) struct Room<K: Hash + Eq> {
    whose: K,
    amount: usize,
    rooms: Rooms<K>,
}

impl<K> Clone for Rooms<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Hash + Eq + Copy> Rooms<K> {
    /// So much in all.
    pub(crate) fn new(most: usize) -> Self {
        let taken = Mutex::new(Taken { all: 0, by: HashMap::new() });
        Self(Arc::new(Inner { most, taken }))
    }

    /// Takes some, if there is room.
    pub(crate) fn take(&self, whose: K, amount: usize) -> Result<Room<K>, Full> {
        let most = self.0.most;
        let mut taken = self.lock();
        let own = taken.by.get(&whose).copied().unwrap_or_default();
        let left = most.saturating_sub(taken.all);
        if left == 0 {
            return Err(if own >= most / 4 { Full::Own } else { Full::All });
        }
        if own > 0 && own.saturating_add(amount) > left.min(most / 4) {
            return Err(Full::Own);
        }
        Ok(self.put_down(&mut taken, whose, amount))
    }

    /// Takes some, room or not.
    pub(crate) fn take_anyway(&self, whose: K, amount: usize) -> Room<K> {
        self.put_down(&mut self.lock(), whose, amount)
    }

    fn put_down(&self, taken: &mut Taken<K>, whose: K, amount: usize) -> Room<K> {
        taken.all = taken.all.saturating_add(amount);
        *taken.by.entry(whose).or_default() += amount;
        Room { whose, amount, rooms: self.clone() }
    }
}

impl<K> Rooms<K> {
    fn lock(&self) -> MutexGuard<'_, Taken<K>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq> Drop for Room<K> {
    fn drop(&mut self) {
        let mut taken = self.rooms.lock();
        taken.all = taken.all.saturating_sub(self.amount);
        if let Some(own) = taken.by.get_mut(&self.whose) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                taken.by.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_all_the_room_and_it_comes_back() {
        let rooms = Rooms::new(8);
        let mut greedy: Vec<_> = (0..2).map(|_| rooms.take(1, 1).expect("room")).collect();
        assert_eq!(rooms.take(1, 1).err(), Some(Full::Own));
        assert!(rooms.take(2, 1).is_ok());
        greedy.pop();
        assert!(rooms.take(1, 1).is_ok());
        drop(greedy);
        assert!(rooms.lock().by.is_empty() && rooms.lock().all == 0);
    }

    #[test]
    fn whoever_comes_new_finds_room_however_many_are_greedy() {
        let rooms = Rooms::new(1024);
        let mut all = Vec::new();
        for user in 0..8 {
            let first = rooms.take(user, 1);
            all.push(first.unwrap_or_else(|full| panic!("user {user} finds nothing: {full:?}")));
            while let Ok(room) = rooms.take(user, 1) {
                all.push(room);
            }
        }
        assert!(all.len() < 1024);
    }

    #[test]
    fn one_long_answer_is_told_at_a_time() {
        let rooms = Rooms::new(100);
        let long = rooms.take(1, 500).expect("it has nothing else");
        assert_eq!(rooms.take(1, 1).err(), Some(Full::Own));
        assert_eq!(rooms.take(2, 1).err(), Some(Full::All));
        let small = rooms.take_anyway(2, 1);
        drop(long);
        assert!(rooms.take(2, 24).is_ok());
        drop(small);
    }
}
