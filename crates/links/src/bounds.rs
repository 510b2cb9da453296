//! What keeps memory bounded: budgets of bytes, rooms for connections, patience with wrong tokens.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many bytes may wait somewhere.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }

    /// Takes so many bytes, if there are as many.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let enough = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A room for connections: so many of all, and so many of one address.
#[derive(Debug)]
pub(crate) struct Room {
    all: usize,
    each: usize,
    inside: Mutex<HashMap<IpAddr, usize>>,
}

/// A place in a room, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    address: IpAddr,
}

impl Room {
    pub(crate) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, inside: Mutex::default() })
    }

    /// A place for a connection from there, if there is one.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = neighbourhood(address);
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.values().sum::<usize>() >= self.all {
            return None;
        }
        let here = inside.entry(address).or_default();
        if *here >= self.each {
            return None;
        }
        *here += 1;
        Some(Place { room: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.room.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = inside.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                inside.remove(&self.address);
            }
        }
    }
}

/// Wrong tokens within a minute: so many from one address.
#[derive(Debug)]
pub(crate) struct Patience {
    each: usize,
    /// The oldest first.
    wrong: Mutex<VecDeque<(IpAddr, Instant)>>,
}

const MINUTE: Duration = Duration::from_secs(60);
/// How many wrong tokens are remembered.
const REMEMBERED: usize = 1000;

impl Patience {
    pub(crate) fn new(each: usize) -> Self {
        Self { each, wrong: Mutex::default() }
    }

    /// Whether somebody from there may try.
    pub(crate) fn lasts(&self, address: IpAddr, now: Instant) -> bool {
        let address = neighbourhood(address);
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.retain(|(_, at)| now.saturating_duration_since(*at) < MINUTE);
        wrong.iter().filter(|(from, _)| *from == address).count() < self.each
    }

    /// Somebody from there tried, and was wrong.
    pub(crate) fn tried(&self, address: IpAddr, now: Instant) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() >= REMEMBERED {
            wrong.pop_front();
        }
        wrong.push_back((neighbourhood(address), now));
    }
}

/// What counts as one address: a machine has as many of IPv6 as it likes, but they begin alike.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_budget_is_not_overdrawn() {
        let budget = Budget::new(10);
        assert!(budget.take(7) && !budget.take(4) && budget.take(3));
        assert!(!budget.take(1) && !budget.take(usize::MAX));
        budget.give_back(7);
        assert!(budget.take(7) && !budget.take(1));
    }

    #[test]
    fn a_room_is_shared_and_free_again() {
        let room = Room::new(3, 2);
        let first = room.enter(address(1)).expect("a place");
        let _second = room.enter(address(1)).expect("a place");
        assert!(room.enter(address(1)).is_none(), "its own places are taken");
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 0x0001]);
        assert!(room.enter(mapped).is_none(), "the same address in other words");
        let _third = room.enter(address(2)).expect("a place");
        assert!(room.enter(address(3)).is_none(), "all are taken");
        drop(first);
        let _again = room.enter(address(3)).expect("a place");
        assert_eq!(room.inside.lock().expect("whole").len(), 3);
    }

    #[test]
    fn patience_ends_and_comes_back() {
        let patience = Patience::new(2);
        let start = Instant::now();
        for _ in 0..2 {
            assert!(patience.lasts(address(1), start));
            patience.tried(address(1), start);
        }
        assert!(!patience.lasts(address(1), start) && patience.lasts(address(2), start));
        assert!(patience.lasts(address(1), start + MINUTE));
        for n in 0..2000u128 {
            patience.tried(Ipv6Addr::from_bits(n << 64).into(), start);
        }
        assert_eq!(patience.wrong.lock().expect("whole").len(), REMEMBERED);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let at = |text: &str| neighbourhood(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
