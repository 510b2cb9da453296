//! One pool: its units, and who holds how many of them.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Broken, Party, RequestId};
use serde::{Deserialize, Serialize};

/// Some units, held by or wanted for a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) request: RequestId,
    pub(crate) units: u32,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.units {
            1 => write!(f, "{:?}", self.request),
            n => write!(f, "{:?} x{n}", self.request),
        }
    }
}

/// The units of a pool. The units of all holders and the free ones make up its capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Units {
    capacity: u32,
    free: u32,
    holders: Vec<Share>,
}

impl Units {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, free: capacity, holders: Vec::new() }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    pub(crate) fn held_by(&self, request: RequestId) -> bool {
        self.holders.iter().any(|share| share.request == request)
    }

    /// Takes units for a request; the caller has looked that they are free.
    pub(crate) fn take(&mut self, share: Share) {
        self.free = self.free.saturating_sub(share.units);
        self.holders.push(share);
    }

    /// Frees what a request holds; false if it holds nothing.
    pub(crate) fn give_back(&mut self, request: RequestId) -> bool {
        let Some(at) = self.holders.iter().position(|share| share.request == request) else {
            return false;
        };
        self.free += self.holders.remove(at).units;
        true
    }

    /// Frees what a party holds.
    pub(crate) fn forget(&mut self, who: Party) {
        let theirs = self.holders.extract_if(.., |share| who.includes(share.request.user));
        self.free += theirs.map(|share| share.units).sum::<u32>();
    }

    pub(crate) fn is_free(&self) -> bool {
        self.holders.is_empty()
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        let held: u64 = self.holders.iter().map(|share| u64::from(share.units)).sum();
        Broken::unless(
            held + u64::from(self.free) == u64::from(self.capacity),
            "held and free units make up the pool",
        )
    }
}
