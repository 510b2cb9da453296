//! Sessions: clients that lose their connection, or their agent, and not their place.
//!
//! A client picks an id and a secret. Every call of its session has a number of its own, higher than
//! those before, and may be repeated: what has been done is not done again, and what came of it is told
//! again. Whoever comes back with id and secret is told everything it may have missed. Calls that the
//! host answers by itself, and that change nothing, do not come here: their numbers are left out.
//!
//! A session is kept alive by what it stands for ([`Means`]): a process, a lease, or, for clients that
//! know no sessions, a connection.
//!
//! # Invariants
//! - **S1.** A call is new once: [`Sessions::call`] says [`Turn::New`] at most once for a number. What
//!   came of it is there, or its client has heard of that.
//! - **S2.** What came of a call is kept until the client has acknowledged it; a request that is
//!   open is kept until it is over.
//! - **S3.** Nobody gets at a session without its secret, nor as another user.
//! - **S4.** A session is attached to one connection at most, the last one that came; and a connection
//!   to one session, the first.
//! - **S5.** The times at which leases lapse are those of the sessions that have one and no connection, and have not
//!   only reservations open: as long as these last their session does, so that whoever asks again for one finds it.
//! - **S6.** What is kept is bounded, for a session and for a user; but whoever gives something back is
//!   always heard, and what is open bounds that.

mod kept;
mod one;
mod said;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hashbrown::HashMap;
use holdall_wire::RequestNo;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::kept::{Kept, count_unheard};
use self::one::{Outcome, Session};
pub use self::said::{Hello, Means, Turn, Turned, Welcome, Wrong};
use crate::facts::Answer;
use crate::input::Limits;

/// How many calls a client may leave unacknowledged, besides those that have a request open.
pub const UNACKNOWLEDGED_MAX: usize = 4096;

/// The same for all clients of a user.
pub const UNACKNOWLEDGED_OF_USER_MAX: usize = 1 << 18;

/// A session, as its client has named it. It is aligned as other numbers are, for the sake of whoever has one beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(Rust, packed(8))]
pub struct SessionId(pub u128);

/// What only the client of a session knows. It is not shown.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub u128);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The number of a call within its session, from 1 on: each is higher than those before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CallNo(pub u64);

impl CallNo {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A connection to the host of the cell; numbers are not used twice while the host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnNo(pub u64);

/// All sessions of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Kept")]
pub struct Sessions {
    sessions: HashMap<SessionId, Session>,
    attached: FxHashMap<ConnNo, SessionId>,
    /// When leases lapse.
    lapses: BTreeSet<(u64, SessionId)>,
    /// How many each user has.
    of_users: BTreeMap<u32, u32>,
    /// How many calls of each user are not acknowledged.
    unheard: FxHashMap<u32, usize>,
}

impl Sessions {
    /// A client comes over a connection.
    ///
    /// # Errors
    /// If it is not let in; then nothing has changed.
    pub fn attach(
        &mut self,
        conn: ConnNo,
        hello: &Hello,
        limits: &Limits,
    ) -> Result<Welcome, Turned> {
        if self.attached.get(&conn).is_some_and(|other| *other != hello.session) {
            return Err(Turned::Attached);
        }
        match self.sessions.get(&hello.session) {
            Some(known) if known.secret == hello.secret && known.uid == hello.uid => {}
            Some(_) => return Err(Turned::Stranger),
            None if hello.returns => return Err(Turned::Forgotten),
            None => {
                let sessions = self.of_users.get(&hello.uid).copied().unwrap_or_default();
                if sessions >= limits.sessions {
                    return Err(Turned::TooMany(limits.sessions));
                }
                if matches!(hello.means, Means::Lease(millis) if millis > limits.lease) {
                    return Err(Turned::TooLong(limits.lease));
                }
                self.begin(hello.session, hello.secret, hello.uid, hello.means);
            }
        }
        let Some(session) = self.sessions.get_mut(&hello.session) else {
            return Err(Turned::Forgotten);
        };
        if let Some(at) = session.lapses() {
            self.lapses.remove(&(at, hello.session));
        }
        let displaced = session.attached.replace(conn).filter(|before| *before != conn);
        if let Some(before) = displaced {
            self.attached.remove(&before);
        }
        self.attached.insert(conn, hello.session);
        let welcome = self.change(hello.session, |session| {
            session.hear(hello.heard);
            session.welcome(displaced)
        });
        welcome.ok_or(Turned::Forgotten)
    }

    /// A connection is gone. Names the session that is over with it, if one is.
    pub fn detach(&mut self, now: u64, conn: ConnNo) -> Option<SessionId> {
        let id = self.attached.remove(&conn)?;
        let session = self.sessions.get_mut(&id)?;
        session.attached = None;
        session.alone_since = now;
        self.lapses.extend(session.lapses().map(|at| (at, id)));
        (session.means == Means::Connection).then_some(id)
    }

    /// The host has started again: nobody is connected, and every lease is as if just renewed.
    /// Names the sessions that are over with their connections.
    pub fn detach_all(&mut self, now: u64) -> Vec<SessionId> {
        self.attached.clear();
        self.lapses.clear();
        for (id, session) in &mut self.sessions {
            session.attached = None;
            session.alone_since = now;
            self.lapses.extend(session.lapses().map(|at| (at, *id)));
        }
        let all = self.means().filter(|(_, means)| *means == Means::Connection);
        all.map(|(id, _)| id).collect()
    }

    /// A call comes over a connection; perhaps one that gives back something that is open.
    ///
    /// # Errors
    /// If it cannot be taken; then nothing has changed.
    pub fn call(
        &mut self,
        conn: ConnNo,
        call: CallNo,
        gives_back: bool,
    ) -> Result<(SessionId, Turn), Wrong> {
        let id = *self.attached.get(&conn).ok_or(Wrong::NotAttached)?;
        let session = self.sessions.get(&id).ok_or(Wrong::NotAttached)?;
        if call.0 == 0 {
            return Err(Wrong::Zero);
        }
        let turn = match session.outcomes.get(&call) {
            Some(Outcome::Open(request)) => Turn::Open(*request),
            Some(Outcome::Replied(answer)) => Turn::Replied(answer.clone()),
            Some(Outcome::Pending) => Turn::Pending,
            None if call <= session.heard => Turn::Heard,
            None if !gives_back && session.unheard() >= UNACKNOWLEDGED_MAX => {
                return Err(Wrong::TooMany);
            }
            None if !gives_back && self.unheard_of(session.uid) >= UNACKNOWLEDGED_OF_USER_MAX => {
                return Err(Wrong::TooManyOfUser);
            }
            None => {
                self.take(id, call);
                Turn::New
            }
        };
        Ok((id, turn))
    }

    /// A call was made, if it is not known already, and has become a request, which waits or holds.
    pub fn opened(&mut self, session: SessionId, call: CallNo, request: RequestNo) {
        self.change(session, |session| {
            session.take(call);
            session.set(call, Outcome::Open(request));
        });
    }

    /// A call was made, if it is not known already, and has its last reply.
    pub fn answered(&mut self, session: SessionId, call: CallNo, answer: Answer) {
        self.change(session, |session| {
            session.take(call);
            session.set(call, Outcome::Replied(answer));
        });
    }

    /// The request of a call is over.
    pub fn replied(&mut self, session: SessionId, call: CallNo, answer: Answer) {
        self.change(session, |session| session.set(call, Outcome::Replied(answer)));
    }

    /// A request that is open holds a reservation from now on.
    pub(crate) fn reserves(&mut self, session: SessionId) {
        self.change(session, |session| session.reserved += 1);
    }

    /// A reservation of a session is over.
    pub(crate) fn reserves_no_more(&mut self, session: SessionId) {
        self.change(session, |session| session.reserved -= 1);
    }

    /// How many reservations the sessions hold that have some.
    pub(crate) fn reserved(&self) -> BTreeMap<SessionId, usize> {
        let all = self.sessions.iter().filter(|(_, session)| session.reserved > 0);
        all.map(|(id, session)| (*id, session.reserved)).collect()
    }

    /// Changes what is kept of the calls of a session, and counts it for its user.
    fn change<T>(&mut self, id: SessionId, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let session = self.sessions.get_mut(&id)?;
        let (before, lapsed) = (session.unheard(), session.lapses());
        let changed = change(session);
        let (after, lapses, uid) = (session.unheard(), session.lapses(), session.uid);
        if lapses != lapsed {
            if let Some(at) = lapsed {
                self.lapses.remove(&(at, id));
            }
            self.lapses.extend(lapses.map(|at| (at, id)));
        }
        if after != before {
            self.recount(uid, before, after);
        }
        Some(changed)
    }

    fn recount(&mut self, uid: u32, before: usize, after: usize) {
        let unheard = self.unheard.entry(uid).or_default();
        *unheard = *unheard + after - before;
        if *unheard == 0 {
            self.unheard.remove(&uid);
        }
    }

    /// How many calls of a user are not acknowledged.
    fn unheard_of(&self, uid: u32) -> usize {
        self.unheard.get(&uid).copied().unwrap_or_default()
    }

    /// A session is there, though nobody is attached to it.
    pub(crate) fn begin(&mut self, id: SessionId, secret: Secret, uid: u32, means: Means) {
        if self.sessions.contains_key(&id) {
            return;
        }
        let session = Session::new(secret, uid, means);
        self.lapses.extend(session.lapses().map(|at| (at, id)));
        self.sessions.insert(id, session);
        *self.of_users.entry(uid).or_default() += 1;
    }

    /// A call was made, if it is not known already.
    pub(crate) fn take(&mut self, session: SessionId, call: CallNo) {
        self.change(session, |session| session.take(call));
    }

    /// Whether a call could still be made.
    pub(crate) fn is_new(&self, session: SessionId, call: CallNo) -> bool {
        let known = self.sessions.get(&session);
        known.is_some_and(|known| call > known.heard && !known.outcomes.contains_key(&call))
    }

    /// The client of a session has heard the end of all calls up to one.
    pub(crate) fn heard_by(&mut self, session: SessionId, upto: CallNo) {
        self.change(session, |session| session.hear(upto));
    }

    /// Up to which call a client has heard the end of all.
    pub fn heard(&self, session: SessionId) -> Option<CallNo> {
        Some(self.sessions.get(&session)?.heard)
    }

    /// The user of a session.
    pub fn uid(&self, session: SessionId) -> Option<u32> {
        Some(self.sessions.get(&session)?.uid)
    }

    /// How long it lasts without a connection, if it has a lease: nobody here sees its processes.
    pub fn lease(&self, session: SessionId) -> Option<u64> {
        match self.sessions.get(&session)?.means {
            Means::Lease(millis) => Some(millis),
            _ => None,
        }
    }

    /// Whether it has a lease.
    pub fn is_leased(&self, session: SessionId) -> bool {
        self.lease(session).is_some()
    }

    /// The request that a call has open.
    pub fn request(&self, session: SessionId, call: CallNo) -> Option<RequestNo> {
        match self.sessions.get(&session)?.outcomes.get(&call)? {
            Outcome::Open(request) => Some(*request),
            _ => None,
        }
    }

    /// What a session has open, in the order asked.
    pub fn open(&self, session: SessionId) -> Vec<RequestNo> {
        let session = self.sessions.get(&session);
        session.into_iter().flat_map(Session::open).map(|(_, request)| request).collect()
    }

    /// The client of a connection has heard the end of all calls up to one. Names its session, and up to
    /// which, if that is new.
    pub fn hear(&mut self, conn: ConnNo, upto: CallNo) -> Option<(SessionId, CallNo)> {
        let id = *self.attached.get(&conn)?;
        let (before, after) = self.change(id, |session| {
            let before = session.heard;
            session.hear(upto);
            (before, session.heard)
        })?;
        (after > before).then_some((id, after))
    }

    /// A session is over: its process has ended, its lease has lapsed, or it says so. Returns what it
    /// has open.
    pub fn end(&mut self, session: SessionId) -> Vec<RequestNo> {
        let Some(ended) = self.sessions.remove(&session) else { return Vec::new() };
        if let Some(conn) = ended.attached {
            self.attached.remove(&conn);
        }
        if let Some(at) = ended.lapses() {
            self.lapses.remove(&(at, session));
        }
        self.recount(ended.uid, ended.unheard(), 0);
        if let Some(sessions) = self.of_users.get_mut(&ended.uid) {
            *sessions -= 1;
            if *sessions == 0 {
                self.of_users.remove(&ended.uid);
            }
        }
        ended.open().map(|(_, request)| request).collect()
    }

    /// The sessions whose lease has lapsed.
    pub fn lapsed(&self, now: u64) -> impl Iterator<Item = SessionId> {
        self.lapses.iter().take_while(move |(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// When the next lease lapses, if nobody comes back.
    pub fn next_lapse(&self) -> Option<u64> {
        Some(self.lapses.first()?.0)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// The session of a connection.
    pub fn of(&self, conn: ConnNo) -> Option<SessionId> {
        self.attached.get(&conn).copied()
    }

    /// The connection of a session.
    pub fn connection(&self, session: SessionId) -> Option<ConnNo> {
        self.sessions.get(&session)?.attached
    }

    /// All sessions, and what keeps them alive: for whoever watches that.
    pub fn means(&self) -> impl Iterator<Item = (SessionId, Means)> {
        let mut all: Vec<_> = self.sessions.iter().map(|(id, one)| (*id, one.means)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter()
    }

    /// Looks whether the invariants hold.
    ///
    /// # Errors
    /// Names the one that does not.
    pub fn check(&self) -> Result<(), &'static str> {
        for (conn, id) in &self.attached {
            let attached = self.sessions.get(id).and_then(|session| session.attached);
            if attached != Some(*conn) {
                return Err("S4: a connection knows a session that does not know it");
            }
        }
        for (id, session) in &self.sessions {
            if session.attached.is_some_and(|conn| self.attached.get(&conn) != Some(id)) {
                return Err("S4: a session knows a connection that does not know it");
            }
            if session.heard > session.last {
                return Err("S1: a client has heard of a call that was not made");
            }
            let kept = |call: &CallNo| *call <= session.last;
            if !session.outcomes.keys().all(kept) {
                return Err("S1: there is an outcome of a call that was not made");
            }
            if session.open().count() != session.opened {
                return Err("S2: another number of requests is open than was counted");
            }
        }
        let lapses = self.sessions.iter().filter_map(|(id, one)| Some((one.lapses()?, *id)));
        if lapses.collect::<BTreeSet<_>>() != self.lapses {
            return Err(
                "S5: the times at which leases lapse are others than those of the sessions",
            );
        }
        let mut of_users: BTreeMap<u32, u32> = BTreeMap::new();
        self.sessions.values().for_each(|one| *of_users.entry(one.uid).or_default() += 1);
        if of_users != self.of_users {
            return Err("users have other numbers of sessions than are counted");
        }
        if count_unheard(&self.sessions) != self.unheard {
            return Err("S6: users have left other numbers of calls unheard than are counted");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
