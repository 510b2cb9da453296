//! The books: what facts add up to, and whether they can be.
//!
//! Nothing is decided here, so that this stays the same while the code that decides changes: the
//! books of a log are what another version goes on from, and what an independent checker looks at.
//! A cell keeps them as it goes on: everything that it knows is here, but for how its engine came
//! to it.
//!
//! # Invariants
//! - **B1.** A unit has one holder, and a lock one or any number that share it.
//! - **B2.** A fence is above every number and fence before it; those who share a lock have the same.
//! - **B3.** A request is asked once, granted at most once, and nothing is said of it after its end.
//! - **B4.** What is granted is what was asked for, need by need.
//! - **B5.** The times to look at a grant again are those of the grants there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_wire::holder::Record;
use holdall_wire::{
    Amount, Ask, Drained, Kind, Lasting, Leftovers, Name, Need, Place, RequestNo, Taken, Who,
};
use serde::{Deserialize, Serialize};

use crate::facts::{Fact, How};
use crate::session::{CallNo, SessionId, Sessions};

/// A request that waits or holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
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
    /// Whether its client may be told, once it is granted.
    pub ready: bool,
    /// Where its command starts, if its client may start it there.
    pub place: Option<Place>,
    /// The processes that use it, if they are known.
    pub holder: Option<Record>,
    /// It was taken away: when its processes are killed.
    pub kill_at: Option<u64>,
    /// Its client has ended or given it back, its processes have not ended.
    pub left: Option<Left>,
}

/// A grant that ends with its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// How.
    pub how: How,
    /// The call that is answered then.
    pub call: Option<CallNo>,
}

impl Entry {
    /// Whether it outlives its client.
    pub fn is_reserved(&self) -> bool {
        matches!(self.ask.lasting, Lasting::Reservation(_))
    }

    /// What becomes of what its command leaves behind, if it is for a command.
    pub fn leftovers(&self) -> Option<Leftovers> {
        match self.ask.lasting {
            Lasting::Command(leftovers) => Some(leftovers),
            _ => None,
        }
    }

    /// When it is to be looked at again.
    fn due(&self) -> Option<u64> {
        self.kill_at.or(self.held.as_ref()?.until)
    }
}

/// What a request holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// For each need in the order named.
    pub taken: Arc<[Taken]>,
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

/// A pool, and whether it is there because the configuration says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// What it consists of.
    pub kind: Kind,
    /// Whether the configuration says so.
    pub configured: bool,
}

/// What all facts add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    pools: BTreeMap<Name, Pool>,
    /// The units that are given to nobody.
    drained: Vec<(Name, Drained)>,
    requests: BTreeMap<RequestNo, Entry>,
    uses: BTreeMap<UnitName, Use>,
    /// When which grants are to be looked at again.
    due: BTreeSet<(u64, RequestNo)>,
    /// The highest number or fence there was.
    highest: u64,
    /// The boot of the machine.
    boot: Arc<str>,
    pub(crate) sessions: Sessions,
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

impl Books {
    /// Enters a fact.
    ///
    /// # Errors
    /// If it cannot be; then nothing has changed.
    pub fn enter(&mut self, fact: &Fact) -> Result<(), Contradiction> {
        match fact {
            Fact::Started { epoch, boot } => {
                self.highest = self.highest.max(u64::from(*epoch) << 32);
                self.boot = boot.clone();
            }
            Fact::Session { session, secret, uid, means } => {
                self.sessions.begin(*session, *secret, *uid, *means);
            }
            Fact::SessionOver(session) => drop(self.sessions.end(*session)),
            Fact::Answered { session, call, reply } => {
                self.sessions.take(*session, *call);
                self.sessions.replied(*session, *call, reply.clone());
            }
            Fact::Heard { session, upto } => self.sessions.heard_by(*session, *upto),
            Fact::Pool { name, kind: Some(kind), configured } => {
                let pool = Pool { kind: kind.clone(), configured: *configured };
                self.pools.insert(name.clone(), pool);
            }
            Fact::Pool { name, kind: None, .. } => drop(self.pools.remove(name)),
            Fact::Drained(drained) => self.drained = drained.clone(),
            Fact::Asked { request, session, call, who, ask } => {
                self.ask(*request, *session, *call, who, ask)?;
            }
            Fact::Granted { request, taken, since, until } => {
                self.check_grant(*request, taken)?;
                self.take(*request, taken);
                let held = Held { taken: taken.clone(), since: *since, until: *until };
                let entry = self.entry(*request)?;
                entry.ready = entry.leftovers().is_none();
                entry.held = Some(held);
                self.due.extend(until.map(|until| (until, *request)));
            }
            Fact::Ended { request, how } => self.end(*request, how)?,
            Fact::Ready { request, holder, place } => {
                let entry = self.held(*request)?;
                entry.ready = true;
                (entry.holder, entry.place) = (holder.clone(), place.clone());
            }
            Fact::Renewed { request, until } => self.at_another_time(*request, |entry| {
                entry.held.iter_mut().for_each(|held| held.until = Some(*until));
            })?,
            Fact::Used { request, holder } => {
                self.held(*request)?.holder = Some(holder.clone());
            }
            Fact::TakenAway { request, kill_at } => self.at_another_time(*request, |entry| {
                entry.kill_at = Some(*kill_at);
            })?,
            Fact::Left { request, how, call } => {
                self.at_another_time(*request, |entry| {
                    entry.kill_at = None;
                    entry.left = Some(Left { how: how.clone(), call: *call });
                })?;
                if let Some(call) = call {
                    let session = self.entry(*request)?.session;
                    self.sessions.take(session, *call);
                }
            }
        }
        Ok(())
    }

    fn ask(
        &mut self,
        request: RequestNo,
        session: SessionId,
        call: CallNo,
        who: &Arc<Who>,
        ask: &Ask,
    ) -> Result<(), Contradiction> {
        self.above(request, request.0)?;
        self.highest = request.0;
        self.sessions.take(session, call);
        self.sessions.opened(session, call, request);
        let (who, ask) = (who.clone(), ask.clone());
        let (held, ready, place, holder, kill_at, left) = Default::default();
        let entry = Entry { session, call, who, ask, held, ready, place, holder, kill_at, left };
        self.requests.insert(request, entry);
        Ok(())
    }

    fn end(&mut self, request: RequestNo, how: &How) -> Result<(), Contradiction> {
        let ended = self.requests.remove(&request).ok_or(Contradiction::Unknown(request))?;
        self.give_back(request, &ended);
        if let Some(due) = ended.due() {
            self.due.remove(&(due, request));
        }
        self.sessions.replied(ended.session, ended.call, how.reply(request));
        Ok(())
    }

    /// Changes a grant so that it may have to be looked at again at another time.
    fn at_another_time(
        &mut self,
        request: RequestNo,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), Contradiction> {
        let entry = self.held(request)?;
        let before = entry.due();
        change(entry);
        let after = entry.due();
        if let Some(before) = before {
            self.due.remove(&(before, request));
        }
        self.due.extend(after.map(|after| (after, request)));
        Ok(())
    }

    /// The pools there are.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, &Pool)> {
        self.pools.iter()
    }

    /// The units that are given to nobody, by name.
    pub fn drained(&self) -> &[(Name, Drained)] {
        &self.drained
    }

    /// What is held, oldest request first.
    pub fn grants(&self) -> impl Iterator<Item = (RequestNo, &Entry, &Held)> {
        let all = self.requests.iter();
        all.filter_map(|(request, entry)| Some((*request, entry, entry.held.as_ref()?)))
    }

    /// What waits, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestNo, &Entry)> {
        let all = self.requests.iter().filter(|(_, entry)| entry.held.is_none());
        all.map(|(request, entry)| (*request, entry))
    }

    /// The highest number or fence there was: whoever goes on does so above it.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The boot of the machine in which the host was last started.
    pub fn boot(&self) -> &Arc<str> {
        &self.boot
    }

    /// The sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// A request that waits or holds.
    pub fn get(&self, request: RequestNo) -> Option<&Entry> {
        self.requests.get(&request)
    }

    /// When a grant is next to be looked at, and which.
    pub fn next_due(&self) -> Option<(u64, RequestNo)> {
        self.due.first().copied()
    }

    /// Looks whether the invariants hold, all of them: for tests, and for checkers.
    ///
    /// # Errors
    /// Names the one that does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let all = self.requests.iter();
        let due = all.filter_map(|(request, entry)| Some((entry.due()?, *request)));
        if due.collect::<BTreeSet<_>>() != self.due {
            return Err("B5: the times to look at grants are others than those of the grants");
        }
        let held = self.grants().flat_map(|(request, entry, held)| {
            let units = units(&entry.ask, &held.taken);
            units.map(move |(pool, unit, ..)| (pool, unit, request)).collect::<Vec<_>>()
        });
        let used = self.uses.iter().flat_map(|((pool, unit), used)| {
            used.holders.iter().map(move |request| (pool, unit, *request))
        });
        if held.collect::<BTreeSet<_>>() != used.collect() {
            return Err("B1: what is held is other than what the holders have");
        }
        self.sessions.check()
    }

    fn entry(&mut self, request: RequestNo) -> Result<&mut Entry, Contradiction> {
        self.requests.get_mut(&request).ok_or(Contradiction::Unknown(request))
    }

    fn held(&mut self, request: RequestNo) -> Result<&mut Entry, Contradiction> {
        let entry = self.entry(request)?;
        if entry.held.is_some() { Ok(entry) } else { Err(Contradiction::NotHeld(request)) }
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
        let needs = &entry.ask.needs;
        let met = |need: &Need| taken.iter().any(|taken| is_for(need, taken));
        let first = |taken| needs.iter().position(|need| is_for(need, taken));
        let in_order = taken.is_sorted_by(|one, other| first(one) < first(other));
        let asked_for = taken.iter().all(|taken| is_asked_for(needs, taken));
        if !(in_order && asked_for && needs.iter().all(met)) {
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

    fn give_back(&mut self, request: RequestNo, ended: &Entry) {
        let taken = ended.held.as_ref().map_or(&[][..], |held| &*held.taken);
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

/// Whether this is what a need is for: its pool or lock, or the pool of its unit.
fn is_for(need: &Need, taken: &Taken) -> bool {
    let rest = need.name.as_str().strip_prefix(taken.name.as_str());
    let unit = rest.and_then(|rest| rest.strip_prefix('/'));
    let named = |unit: &str| {
        let mut units = taken.units.iter().map(|(unit, _)| unit);
        units.any(|one| one.as_str() == unit || *one == need.name)
    };
    need.name == taken.name || unit.is_some_and(named)
}

/// Whether this is as much of a pool or lock as was asked for.
fn is_asked_for(needs: &[Need], taken: &Taken) -> bool {
    let of_it = needs.iter().filter(|need| is_for(need, taken));
    let (mut units, mut all) = (0, false);
    for need in of_it {
        units += match need.amount {
            Amount::One | Amount::Shared | Amount::All => 1,
            Amount::Units(units) => units as usize,
        };
        all |= need.amount == Amount::All;
    }
    units > 0 && (taken.units.len() == units || (all && taken.units.len() > units))
}

/// Each unit of a grant: its pool, its name, its fence, and whether it is shared.
fn units<'a>(
    ask: &'a Ask,
    taken: &'a [Taken],
) -> impl Iterator<Item = (&'a Name, &'a Name, u64, bool)> {
    taken.iter().enumerate().flat_map(|(at, taken)| {
        // Mostly they come in the order of the needs.
        let same = |need: &&Need| need.name == taken.name;
        let need = ask.needs.get(at).filter(same).or_else(|| ask.needs.iter().find(same));
        let shared = need.is_some_and(|need| need.amount == Amount::Shared);
        taken.units.iter().map(move |(unit, fence)| (&taken.name, unit, *fence, shared))
    })
}

#[cfg(test)]
mod tests;
