//! When the requests at a manager came, by what they are called.
//!
//! Most come from few homes, and there may be a million of one: what is the same of all is kept once.

use alloc::collections::BTreeMap;

use holdall_core::{Home, RequestId};

use super::places::Arrival;

/// A request at its home: which of the users there has asked, and the number.
type Local = (u64, u64);

#[derive(Clone, Default)]
pub(super) struct Arrivals(BTreeMap<Home, BTreeMap<Local, Arrival>>);

fn parts(request: RequestId) -> (Home, Local) {
    let (user, seq) = (request.user, request.seq);
    (user.home(), (user.local(), seq))
}

impl Arrivals {
    pub(super) fn get(&self, request: RequestId) -> Option<Arrival> {
        let (home, local) = parts(request);
        self.0.get(&home)?.get(&local).copied()
    }

    pub(super) fn insert(&mut self, request: RequestId, at: Arrival) {
        let (home, local) = parts(request);
        self.0.entry(home).or_default().insert(local, at);
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Arrival> {
        let (home, local) = parts(request);
        let of_home = self.0.get_mut(&home)?;
        let at = of_home.remove(&local);
        if of_home.is_empty() {
            self.0.remove(&home);
        }
        at
    }

    /// In the order of what they are called.
    pub(super) fn iter(&self) -> impl Iterator<Item = Arrival> + '_ {
        self.0.values().flat_map(|of_home| of_home.values().copied())
    }
}
