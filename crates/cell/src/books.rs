//! The books: what facts add up to, and whether they can be.
//!
//! Nothing is decided here, so that this stays the same while the code that decides changes: the
//! books of a log are what another version goes on from, and what an independent checker looks at.
//! A cell keeps them as it goes on: everything that it knows is here, but for how its engine came
//! to it.
//!
//! # Invariants
//! - **B1.** A unit has one holder, and a lock one or any number that share it. What a part holds, its
//!   grant holds, and no other part of it that does not share it; and a grant outlasts its parts.
//! - **B2.** A fence is above every number and fence before it; those who share a lock have the same.
//! - **B3.** A request is asked once, granted at most once, and nothing is said of it after its end.
//! - **B4.** What is granted is what was asked for, need by need.
//! - **B5.** The times to look at a grant again are those of the grants there are.
//! - **B6.** A request that has a session is what a call of it has open; one that outlives its session
//!   has none.

mod drained;
mod entry;
mod look;
mod owed;
mod ties;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use holdall_core::CellId;
use holdall_wire::{Ask, Kind, Name, RequestNo, Who};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::drained::DrainedUnits;
pub use self::entry::{Entry, GRACE, Granted, Held, Left, TakenAway};
pub use self::ties::{Agreed, GivenUp, Heard, Keeping, Recovery, Tie, Ties};
use self::units::{Fences, UnitName, Use};
pub(crate) use self::units::{is_for, is_what_was_asked_for};
use crate::facts::{Clock, Fact, GivenAbroad, How, Imported};
use crate::greeting::{Known, Stranger};
use crate::session::{CallNo, SessionId, Sessions};
use crate::sorted;

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
    drained: DrainedUnits,
    #[serde(with = "sorted")]
    requests: FxHashMap<RequestNo, Box<Entry>>,
    #[serde(with = "sorted")]
    uses: HashMap<UnitName, Use>,
    /// When which grants are to be looked at again.
    due: BTreeSet<(u64, RequestNo)>,
    /// How many requests of each user wait, and how many are reservations.
    of_users: BTreeMap<u32, OfUser>,
    /// About how many bytes will follow from all requests.
    owed: u64,
    /// The highest number or fence there was.
    highest: u64,
    /// New whenever memory may have been lost.
    life: u128,
    clock: Clock,
    pub(crate) sessions: Sessions,
    /// Kept beside the rest, which has a form from before there were other cells.
    #[serde(skip)]
    ties: Ties,
}

/// How many requests a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfUser {
    waiting: u32,
    reserved: u32,
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
    /// A part has what its grant has not.
    #[error(
        "B1: {unit} of {pool} is granted to {request} as a part of {of}, which does not hold it"
    )]
    NotPart {
        /// The pool or lock.
        pool: Name,
        /// The unit.
        unit: Name,
        /// The part.
        request: RequestNo,
        /// The grant.
        of: RequestNo,
    },
    /// A grant ends before its parts.
    #[error("B1: {0} has ended, and parts of it are in use")]
    InParts(RequestNo),
}

impl Books {
    /// Enters a fact.
    ///
    /// # Errors
    /// If it cannot be; then nothing has changed.
    pub fn enter(&mut self, fact: &Fact) -> Result<(), Contradiction> {
        match fact {
            Fact::Started { epoch, life, clock, .. } => {
                self.highest = self.highest.max(u64::from(*epoch) << 32);
                if self.life != *life {
                    // Within one boot a life ends with the log, or with some of it that may have been synced.
                    let is_same_boot = !clock.boot.is_empty() && clock.boot == self.clock.boot;
                    if self.life == 0 || is_same_boot {
                        self.ties.remembers_from(*epoch);
                    }
                    self.ties.lives_anew();
                }
                (self.life, self.clock) = (*life, clock.clone());
            }
            Fact::Session { session, secret, uid, means } => {
                self.sessions.begin(*session, *secret, *uid, *means);
            }
            Fact::SessionOver(session) => {
                for request in self.sessions.end(*session) {
                    self.entry(request)?.session = None;
                }
            }
            Fact::Answered { session, call, answer } => {
                self.sessions.answered(*session, *call, answer.clone());
            }
            Fact::Heard { session, upto } => self.sessions.heard_by(*session, *upto),
            Fact::Pool { name, kind: Some(kind), configured } => {
                let pool = Pool { kind: kind.clone(), configured: *configured };
                self.pools.insert(name.clone(), pool);
            }
            Fact::Pool { name, kind: None, .. } => drop(self.pools.remove(name)),
            Fact::Drained(drained) => self.drained = drained.clone().into(),
            Fact::Asked { request, session, call, who, ask, at } => {
                self.ask(*request, (*session, *call), who, ask, *at)?;
            }
            Fact::Queued { request } => drop(self.entry(*request)?),
            Fact::Granted { request, taken, since, until, limit_at, overtook: _ } => {
                self.check_grant(*request, taken)?;
                let (taken, since) = (taken.clone(), *since);
                let held =
                    Held { taken, since, until: *until, limit_at: *limit_at, overtime: None };
                self.grant(*request, held)?;
            }
            Fact::Ended { request, how } => self.end(*request, how)?,
            Fact::Ready { request, holder, place } => {
                self.held(*request)?.change(|granted| {
                    (granted.ready, granted.place) = (true, place.clone().map(Box::new));
                    if holder.is_some() {
                        granted.holder = holder.clone();
                    }
                });
            }
            Fact::Renewed { request, until } => self.at_another_time(*request, |granted| {
                granted.held.iter_mut().for_each(|held| held.until = Some(*until));
            })?,
            Fact::Used { request, holder } => {
                self.held(*request)?.change(|granted| granted.holder = Some(holder.clone()));
            }
            Fact::TakenAway { request, how, kill_at } => {
                self.at_another_time(*request, |granted| {
                    let (how, kill_at) = (how.clone(), *kill_at);
                    granted.taken_away = Some(Box::new(TakenAway { how, kill_at }));
                })?;
            }
            Fact::Left { request, how, call } => {
                self.at_another_time(*request, |granted| {
                    granted.left = Some(Box::new(Left { how: how.clone(), call: *call }));
                })?;
                let session = self.entry(*request)?.session;
                if let (Some(call), Some((session, _))) = (call, session) {
                    self.sessions.take(session, *call);
                }
            }
            Fact::Closing { request, how } => self.at_another_time(*request, |granted| {
                granted.closing = Some(Box::new(how.clone()));
            })?,
            Fact::Overtime { request, until } => self.at_another_time(*request, |granted| {
                granted.held.iter_mut().for_each(|held| held.overtime = Some(*until));
            })?,
            Fact::Changed { .. } => {} // What came of it are other facts.
            Fact::Forced { request, .. } => drop(self.entry(*request)?),
            Fact::Clock { ahead } => self.clock.ahead = *ahead,
            Fact::Imported(grant) => self.import(grant)?,
            Fact::Peer { cell, life: Some(life) } => drop(self.ties.lives.insert(*cell, *life)),
            Fact::Peer { cell, life: None } => self.ties.parts(*cell),
            Fact::Spans { request, id } => {
                // Whether it may be used yet depends on other cells.
                self.held(*request)?.change(|granted| granted.ready = false);
                self.ties.spanning.insert(*request, *id);
            }
            Fact::Met { cell, presence } => self.ties.meets(*cell, *presence),
            Fact::Begun { nonce, began, cell } => self.ties.begins(*nonce, *began, *cell),
            Fact::Agreed { cell, upto } => self.ties.agrees(*cell, *upto),
            Fact::CameTo { cell, length } => self.ties.comes_to(*cell, *length),
            Fact::NotLeased { request, cells } => {
                self.held(*request)?;
                self.ties.agreed.not_leased.insert(*request, cells.iter().copied().collect());
            }
            Fact::Keeping { request, until, missing, call } => {
                self.held(*request)?;
                self.keep(*request, *until, missing, *call);
            }
            Fact::GivenUp { cell, life, word } => {
                let given_up = GivenUp { life: *life, word: word.clone() };
                self.ties.gives_up(*cell, given_up);
            }
            Fact::HeldFor(given) => self.hold_for(given)?,
            Fact::Recovery { missing, until, horizon, held } => {
                let (missing, held) =
                    (missing.iter().copied().collect(), held.iter().copied().collect());
                self.ties.recovery = Recovery { missing, until: *until, horizon: *horizon, held };
            }
        }
        Ok(())
    }

    fn ask(
        &mut self,
        request: RequestNo,
        (session, call): (SessionId, CallNo),
        who: &Arc<Who>,
        ask: &Arc<Ask>,
        at: u64,
    ) -> Result<(), Contradiction> {
        self.above(request, request.0)?;
        self.highest = request.0;
        self.sessions.opened(session, call, request);
        self.insert(request, Some((session, call)), who, ask, at);
        Ok(())
    }

    fn insert(
        &mut self,
        request: RequestNo,
        session: Option<(SessionId, CallNo)>,
        who: &Arc<Who>,
        ask: &Arc<Ask>,
        asked: u64,
    ) {
        let (who, ask, owed) = (who.clone(), ask.clone(), self.owed_for(ask));
        let entry = Entry::new(session, who, ask, asked, owed);
        self.count(entry.who.uid, |of_user| {
            of_user.waiting += 1;
            of_user.reserved += u32::from(entry.is_reserved());
        });
        self.owed += u64::from(owed);
        self.requests.insert(request, Box::new(entry));
    }

    fn grant(&mut self, request: RequestNo, held: Held) -> Result<(), Contradiction> {
        self.take(request, &held.taken);
        let entry = self.entry(request)?;
        let ready = entry.leftovers().is_none();
        entry.change(|granted| (granted.ready, granted.held) = (ready, Some(held)));
        let (uid, due) = (entry.who.uid, entry.due());
        let reserves = entry.session.filter(|_| entry.is_reserved());
        self.count(uid, |of_user| of_user.waiting -= 1);
        self.due.extend(due.map(|due| (due, request)));
        if let Some((session, _)) = reserves {
            self.sessions.reserves(session);
        }
        Ok(())
    }

    /// A grant of an agent that had no log. Its numbers are what they are.
    fn import(&mut self, grant: &Imported) -> Result<(), Contradiction> {
        self.check_import(grant)?;
        let Imported { request, who, ask, taken, since, until, holder } = grant;
        let (request, since, until) = (*request, *since, *until);
        self.highest = self.highest.max(request.0);
        self.insert(request, None, who, &Arc::new(ask.clone()), since);
        let taken = taken.clone();
        self.grant(request, Held { taken, since, until, limit_at: None, overtime: None })?;
        self.at_another_time(request, |granted| {
            granted.ready = true;
            if let Some((holder, how)) = holder {
                granted.holder = Some(Box::new(holder.clone()));
                granted.left = Some(Box::new(Left { how: how.clone(), call: None }));
            }
        })
    }

    /// Something is held for a request of another home, which holds and lets go as often as it likes.
    fn hold_for(&mut self, given: &GivenAbroad) -> Result<(), Contradiction> {
        let GivenAbroad { request, id, stance, leased, who, ask, taken, since, until } = given;
        let request = *request;
        if self.requests.contains_key(&request) {
            return Err(Contradiction::Again(request));
        }
        // What was held before the memory was lost is held with the fences from then.
        self.check_units(request, ask, taken, Fences::Recalled)?;
        self.highest = self.highest.max(request.0);
        self.insert(request, None, who, &Arc::new(ask.clone()), *since);
        let (taken, limit_at, overtime) = (taken.clone(), None, None);
        self.grant(request, Held { taken, since: *since, until: *until, limit_at, overtime })?;
        let (id, stance, leased) = (*id, stance.clone(), *leased);
        self.ties.foreign.insert(request, Tie { id, stance, leased });
        Ok(())
    }

    fn keep(
        &mut self,
        request: RequestNo,
        until: u64,
        missing: &[CellId],
        call: Option<(SessionId, CallNo)>,
    ) {
        if missing.is_empty() {
            self.ties.agreed.keeping.remove(&request);
            return;
        }
        if let Some((session, call)) = call {
            self.sessions.take(session, call);
        }
        let missing = missing.iter().copied().collect();
        self.ties.agreed.keeping.insert(request, Keeping { until, missing, call });
    }

    /// Whether the log, which is so long, is all that another cell knows of it.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn check_known(&self, by: CellId, known: &Known, length: u64) -> Result<(), Stranger> {
        match known.life == self.life {
            true => self.ties.check(by, known, length),
            // Nothing is known to it of this one.
            false => Ok(()),
        }
    }

    /// What ties requests to other cells.
    pub fn ties(&self) -> &Ties {
        &self.ties
    }

    /// The books with what was kept beside them.
    pub(crate) fn tied(mut self, ties: Ties) -> Self {
        self.ties = ties;
        self
    }

    /// The books with what is not kept of sessions, since it can be counted again.
    pub(crate) fn counted(mut self) -> Self {
        self.reserved_by().for_each(|session| self.sessions.reserves(session));
        self
    }

    /// The sessions that hold reservations, each as often as it does.
    fn reserved_by(&self) -> std::vec::IntoIter<SessionId> {
        let all =
            self.requests.values().filter(|entry| entry.is_reserved() && entry.held.is_some());
        let by: Vec<_> = all.filter_map(|entry| Some(entry.session?.0)).collect();
        by.into_iter()
    }

    /// Whether it can be taken over.
    ///
    /// # Errors
    /// If it is there already, or cannot be beside what is.
    pub(crate) fn check_import(&self, grant: &Imported) -> Result<(), Contradiction> {
        if self.requests.contains_key(&grant.request) {
            return Err(Contradiction::Again(grant.request));
        }
        self.check_units(grant.request, &grant.ask, &grant.taken, Fences::Kept)
    }

    fn end(&mut self, request: RequestNo, how: &How) -> Result<(), Contradiction> {
        self.check_end(request)?;
        let ended = self.requests.remove(&request).ok_or(Contradiction::Unknown(request))?;
        self.ties.end(request);
        self.give_back(request, &ended);
        if let Some(due) = ended.due() {
            self.due.remove(&(due, request));
        }
        self.owed -= u64::from(ended.owed);
        self.count(ended.who.uid, |of_user| {
            of_user.waiting -= u32::from(ended.held.is_none());
            of_user.reserved -= u32::from(ended.is_reserved());
        });
        if let Some((session, call)) = ended.session {
            self.sessions.replied(session, call, how.answer(request));
            if ended.is_reserved() && ended.held.is_some() {
                self.sessions.reserves_no_more(session);
            }
        }
        Ok(())
    }

    /// Counts requests of a user; those who have none are not kept.
    fn count(&mut self, uid: u32, change: impl FnOnce(&mut OfUser)) {
        let of_user = self.of_users.entry(uid).or_default();
        change(of_user);
        if *of_user == OfUser::default() {
            self.of_users.remove(&uid);
        }
    }

    /// Changes a grant so that it may have to be looked at again at another time.
    fn at_another_time(
        &mut self,
        request: RequestNo,
        change: impl FnOnce(&mut Granted),
    ) -> Result<(), Contradiction> {
        let entry = self.held(request)?;
        let before = entry.due();
        entry.change(change);
        let after = entry.due();
        if let Some(before) = before {
            self.due.remove(&(before, request));
        }
        self.due.extend(after.map(|after| (after, request)));
        Ok(())
    }

    fn entry(&mut self, request: RequestNo) -> Result<&mut Entry, Contradiction> {
        let entry = self.requests.get_mut(&request).map(|entry| &mut **entry);
        entry.ok_or(Contradiction::Unknown(request))
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
}

#[cfg(test)]
mod tests;
