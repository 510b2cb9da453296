//! How requests were asked for, as far as it is remembered: what tells one from another under the same id, and
//! that one was given back, so that an ask which a network delivers late holds nothing.
//!
//! Of each user so many are remembered; of one that asks for more, those that need not be known for
//! longest are forgotten first. What others are remembered for does not depend on it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::caller::Peer;

/// Of how many requests of a user it is remembered.
const OF_EACH: usize = 1 << 13;

/// How a request was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What tells it from others.
    pub(crate) digest: [u8; 32],
    pub(crate) ttl: u64,
    /// Whether its owner has given it back.
    pub(crate) released: bool,
    until: Instant,
}

/// What is remembered, by user and by id.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<u32, HashMap<String, Asked>>>);

impl Memory {
    /// Remembers how a request was asked for, unless it is known: then returns that.
    pub(crate) fn add(&self, peer: &Peer, id: &str, digest: [u8; 32], ttl: u64) -> Asked {
        let mut all = self.lock();
        let own = all.entry(peer.uid).or_default();
        let now = Instant::now();
        if own.len() >= OF_EACH && !own.contains_key(id) {
            forget_some(own, now);
        }
        let until = now + Duration::from_millis(ttl.saturating_mul(2));
        let new = Asked { digest, ttl, released: false, until };
        let known = own.entry(id.to_owned()).or_insert(new);
        if known.released && known.until < now {
            *known = new;
        }
        *known
    }

    /// What is remembered of a request that is known.
    pub(crate) fn find(&self, peer: &Peer, id: &str) -> Option<Asked> {
        let mut all = self.lock();
        let known = all.get_mut(&peer.uid)?.get_mut(id)?;
        let now = Instant::now();
        if !known.released {
            known.until = now + Duration::from_millis(known.ttl.saturating_mul(2));
        }
        Some(*known).filter(|known| known.until > now)
    }

    /// Remembers for a while that a request was given back.
    pub(crate) fn released(&self, peer: &Peer, id: &str) {
        if let Some(known) = self.lock().get_mut(&peer.uid).and_then(|own| own.get_mut(id)) {
            known.released = true;
            known.until = Instant::now() + Duration::from_millis(known.ttl);
        }
    }

    /// A request is not known any more.
    pub(crate) fn remove(&self, peer: &Peer, id: &str) {
        let mut all = self.lock();
        if let Some(own) = all.get_mut(&peer.uid) {
            own.remove(id);
            if own.is_empty() {
                all.remove(&peer.uid);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, HashMap<String, Asked>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room: what need not be known any more, and else an eighth, those that it matters least for.
fn forget_some(own: &mut HashMap<String, Asked>, now: Instant) {
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
    fn whoever_asks_for_very_much_does_not_make_others_forgotten() {
        let memory = Memory::default();
        let user = |uid| Peer { uid, ..Peer::default() };
        let (anna, greedy) = (user(1), user(2));
        memory.add(&anna, "hers", [1; 32], 1000);
        memory.released(&anna, "hers");
        for n in 0..4 * OF_EACH {
            memory.add(&greedy, &n.to_string(), [0; 32], 3_600_000);
        }
        let held = memory.lock().get(&2).map(HashMap::len).expect("some");
        assert!(held <= OF_EACH, "{held}");
        let last = (4 * OF_EACH - 1).to_string();
        assert!(memory.find(&greedy, &last).is_some(), "the newest is known");
        assert!(memory.add(&anna, "hers", [1; 32], 1000).released);
        memory.remove(&anna, "hers");
        assert_eq!(memory.lock().len(), 1);
    }
}
