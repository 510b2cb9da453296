//! Which requests were given back a short time ago, so that an ask which a network delivers late holds nothing.
//!
//! Of each user so many are remembered; of one that gives back more, those that need not be known for
//! longest are forgotten first. What others are remembered for does not depend on it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::caller::Peer;
use crate::mark::Mark;

/// Of how many requests of a user it is remembered.
const OF_EACH: usize = 1 << 13;
/// For how long, if it is not known how long the lease was.
const SOME_TIME: u64 = 30_000;

/// A request that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GivenBack {
    mark: Mark,
    until: Instant,
}

/// What is remembered, by user and by id.
#[derive(Default)]
pub(crate) struct Released(Mutex<HashMap<u32, HashMap<String, GivenBack>>>);

impl Released {
    /// Remembers for the length of its lease that a request was given back.
    pub(crate) fn add(&self, peer: &Peer, id: &str, mark: Mark) {
        let mut all = self.lock();
        let own = all.entry(peer.uid).or_default();
        let now = Instant::now();
        if own.len() >= OF_EACH && !own.contains_key(id) {
            forget_some(own, now);
        }
        let until = now + Duration::from_millis(mark.ttl().unwrap_or(SOME_TIME));
        own.insert(id.to_owned(), GivenBack { mark, until });
    }

    /// The request that had this id, if it was given back.
    pub(crate) fn find(&self, peer: &Peer, id: &str) -> Option<Mark> {
        let mut all = self.lock();
        let own = all.get_mut(&peer.uid)?;
        let known = *own.get(id)?;
        if known.until > Instant::now() {
            return Some(known.mark);
        }
        own.remove(id);
        if own.is_empty() {
            all.remove(&peer.uid);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, HashMap<String, GivenBack>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room: what need not be known any more, and else an eighth, those that it matters least for.
fn forget_some(own: &mut HashMap<String, GivenBack>, now: Instant) {
    own.retain(|_, known| known.until > now);
    if own.len() < OF_EACH {
        return;
    }
    let mut ends: Vec<Instant> = own.values().map(|known| known.until).collect();
    let (_, end, _) = ends.select_nth_unstable(OF_EACH / 8);
    let end = *end;
    own.retain(|_, known| known.until > end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_gives_back_very_much_does_not_make_others_forgotten() {
        let released = Released::default();
        let user = |uid| Peer { uid, ..Peer::default() };
        let (anna, greedy) = (user(1), user(2));
        let mark = |ttl| Mark::new(ttl, [1; 32]);
        released.add(&anna, "hers", mark(60_000));
        for n in 0..4 * OF_EACH {
            released.add(&greedy, &n.to_string(), mark(3_600_000));
        }
        let held = released.lock().get(&2).map(HashMap::len).expect("some");
        assert!(held <= OF_EACH, "{held}");
        let last = (4 * OF_EACH - 1).to_string();
        assert!(released.find(&greedy, &last).is_some(), "the newest is known");
        assert_eq!(released.find(&anna, "hers"), Some(mark(60_000)));
        assert_eq!(released.find(&anna, "other"), None);
    }

    #[test]
    fn after_the_length_of_its_lease_it_is_forgotten() {
        let (released, anna) = (Released::default(), Peer::default());
        let mark = Mark::new(1, [1; 32]);
        released.add(&anna, "hers", mark);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(released.find(&anna, "hers"), None);
        assert!(released.lock().is_empty());
    }
}
