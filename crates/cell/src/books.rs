//! The books: what facts add up to, and whether they can be.
//!
//! Nothing is decided here, so that this stays the same while the code that decides changes: the
//! books of a log are what another version goes on from, and what an independent checker looks at.
//!
//! # Invariants
//! - **B1.** A unit has one holder, and a lock one or any number that share it.
//! - **B2.** A fence is above every number and fence before it; those who share a lock have the same.
//! - **B3.** A request is asked once, granted at most once, and nothing is said of it after its end.
//! - **B4.** What is granted is what was asked for, need by need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_wire::{Amount, Ask, Kind, Name, RequestNo, Taken, Who};
use serde::{Deserialize, Serialize};

use crate::facts::Fact;
use crate::session::{CallNo, SessionId};

/// A request that waits or holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<H> {
    /// Whose.
    pub session: SessionId,
    /// The call that asked.
    pub call: CallNo,
    /// Who asks.
    pub who: Arc<Who>,
    /// For what.
    pub ask: Ask,
    /// What it holds, if it does.
    pub held: Option<Held>,
    /// The processes that use it, if they are known.
    pub holder: Option<H>,
    /// Its client has ended, its processes have not.
    pub left: bool,
}

/// What a request holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// For each need in the order named.
    pub taken: Vec<Taken>,
    /// Since when.
    pub since: u64,
    /// Until when, if it is a reservation.
    pub until: Option<u64>,
}

/// A unit that is held: a pool and one of its units, or a lock, which is its own.
type UnitName = (Name, Name);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Use {
    fence: u64,
    shared: bool,
    holders: BTreeSet<RequestNo>,
}

/// What all facts add up to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books<H> {
    pools: BTreeMap<Name, Kind>,
    requests: BTreeMap<RequestNo, Entry<H>>,
    uses: BTreeMap<UnitName, Use>,
    /// The highest number or fence there was.
    highest: u64,
}

/// A fact that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A unit is held already.
    #[error("B1: {unit} of {pool} is granted to {request}, and {holder} holds it")]
    Double {
        /// The pool or lock.
        pool: Name,
        /// The unit.
        unit: Name,
        /// Who gets it.
        request: RequestNo,
        /// Who has it.
        holder: RequestNo,
    },
    /// A fence or number is not above all before.
    #[error("B2: {number:#x} of {request} is not above {highest:#x}")]
    Behind {
        /// Whose.
        request: RequestNo,
        /// The fence or number.
        number: u64,
        /// What there was before.
        highest: u64,
    },
    /// It is granted already.
    #[error("B3: {0} is granted, and was before")]
    Again(RequestNo),
    /// Nobody waits or holds under that number.
    #[error("B3: something is said of {0}, which is not there")]
    Unknown(RequestNo),
    /// Only what is granted can be renewed or used.
    #[error("B3: {0} is used or renewed, and not granted")]
    NotHeld(RequestNo),
    /// It is not what was asked for.
    #[error("B4: {0} is granted something else than it asked for")]
    Other(RequestNo),
}

impl<H> Default for Books<H> {
    fn default() -> Self {
        let (pools, requests, uses) = Default::default();
        Self { pools, requests, uses, highest: 0 }
    }
}

impl<H: Clone> Books<H> {
    /// Enters a fact.
    ///
    /// # Errors
    /// If it cannot be; then nothing has changed.
    pub fn enter(&mut self, fact: &Fact<H>) -> Result<(), Contradiction> {
        match fact {
            Fact::Asked { request, session, call, who, ask } => {
                self.above(*request, request.0)?;
                self.highest = request.0;
                let (session, call, who, ask) = (*session, *call, who.clone(), ask.clone());
                let (held, holder, left) = (None, None, false);
                let entry = Entry { session, call, who, ask, held, holder, left };
                self.requests.insert(*request, entry);
            }
            Fact::Granted { request, taken, since, until } => {
                self.check_grant(*request, taken)?;
                self.take(*request, taken);
                let held = Held { taken: taken.clone(), since: *since, until: *until };
                self.entry(*request)?.held = Some(held);
            }
            Fact::Renewed { request, until } => self.held(*request)?.until = Some(*until),
            Fact::Used { request, holder } => {
                self.held(*request)?;
                self.entry(*request)?.holder = Some(holder.clone());
            }
            Fact::Left { request } => {
                self.held(*request)?;
                self.entry(*request)?.left = true;
            }
            Fact::Ended { request, .. } => {
                let ended = self.requests.remove(request);
                let ended = ended.ok_or(Contradiction::Unknown(*request))?;
                self.give_back(*request, &ended);
            }
            Fact::Pool { name, kind: Some(kind) } => {
                self.pools.insert(name.clone(), kind.clone());
            }
            Fact::Pool { name, kind: None } => drop(self.pools.remove(name)),
        }
        Ok(())
    }

    /// The pools there are.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, &Kind)> {
        self.pools.iter()
    }

    /// What is held, oldest request first.
    pub fn grants(&self) -> impl Iterator<Item = (RequestNo, &Entry<H>, &Held)> {
        let all = self.requests.iter();
        all.filter_map(|(request, entry)| Some((*request, entry, entry.held.as_ref()?)))
    }

    /// What waits, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestNo, &Entry<H>)> {
        let all = self.requests.iter().filter(|(_, entry)| entry.held.is_none());
        all.map(|(request, entry)| (*request, entry))
    }

    /// The highest number or fence there was: whoever goes on does so above it.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    fn entry(&mut self, request: RequestNo) -> Result<&mut Entry<H>, Contradiction> {
        self.requests.get_mut(&request).ok_or(Contradiction::Unknown(request))
    }

    fn held(&mut self, request: RequestNo) -> Result<&mut Held, Contradiction> {
        self.entry(request)?.held.as_mut().ok_or(Contradiction::NotHeld(request))
    }

    fn above(&self, request: RequestNo, number: u64) -> Result<(), Contradiction> {
        let highest = self.highest;
        let behind = Contradiction::Behind { request, number, highest };
        if number > highest { Ok(()) } else { Err(behind) }
    }

    /// Whether a request can be granted this.
    fn check_grant(&self, request: RequestNo, taken: &[Taken]) -> Result<(), Contradiction> {
        let entry = self.requests.get(&request).ok_or(Contradiction::Unknown(request))?;
        if entry.held.is_some() {
            return Err(Contradiction::Again(request));
        }
        let fits = |(need, taken): (&holdall_wire::Need, &Taken)| {
            let enough = match need.amount {
                Amount::One | Amount::Shared => taken.units.len() == 1,
                Amount::Units(units) => taken.units.len() == units as usize,
                Amount::All => !taken.units.is_empty(),
            };
            need.name == taken.name && enough
        };
        let needs = &entry.ask.needs;
        if needs.len() != taken.len() || !needs.iter().zip(taken).all(fits) {
            return Err(Contradiction::Other(request));
        }
        let mut seen = BTreeSet::new();
        for (pool, unit, fence, shared) in units(&entry.ask, taken) {
            if !seen.insert((pool, unit)) {
                return Err(Contradiction::Other(request));
            }
            match self.uses.get(&(pool.clone(), unit.clone())) {
                Some(used) if shared && used.shared => {
                    if fence != used.fence {
                        let (number, highest) = (fence, used.fence);
                        return Err(Contradiction::Behind { request, number, highest });
                    }
                }
                Some(used) => {
                    let (pool, unit) = (pool.clone(), unit.clone());
                    let holder = used.holders.first().copied().unwrap_or(request);
                    return Err(Contradiction::Double { pool, unit, request, holder });
                }
                None => self.above(request, fence)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, request: RequestNo, taken: &[Taken]) {
        let Some(entry) = self.requests.get(&request) else { return };
        for (pool, unit, fence, shared) in units(&entry.ask, taken) {
            let fresh = || Use { fence, shared, holders: BTreeSet::new() };
            let used = self.uses.entry((pool.clone(), unit.clone())).or_insert_with(fresh);
            used.holders.insert(request);
            self.highest = self.highest.max(fence);
        }
    }

    fn give_back(&mut self, request: RequestNo, ended: &Entry<H>) {
        let taken = ended.held.as_ref().map_or(&[][..], |held| &held.taken);
        for (pool, unit, ..) in units(&ended.ask, taken) {
            let unit = (pool.clone(), unit.clone());
            if let Some(used) = self.uses.get_mut(&unit) {
                used.holders.remove(&request);
                if used.holders.is_empty() {
                    self.uses.remove(&unit);
                }
            }
        }
    }
}

/// Each unit of a grant: its pool, its name, its fence, and whether it is shared.
fn units<'a>(
    ask: &'a Ask,
    taken: &'a [Taken],
) -> impl Iterator<Item = (&'a Name, &'a Name, u64, bool)> {
    ask.needs.iter().zip(taken).flat_map(|(need, taken)| {
        let shared = need.amount == Amount::Shared;
        taken.units.iter().map(move |(unit, fence)| (&taken.name, unit, *fence, shared))
    })
}

#[cfg(test)]
mod tests;
