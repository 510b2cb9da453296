//! A request, as far as its facts tell.

use std::ops::Deref;
use std::sync::Arc;

use holdall_core::{Seldom, Usual};
use holdall_wire::holder::Record;
use holdall_wire::{Ask, Lasting, Leftovers, Place, Taken, Who};
use serde::{Deserialize, Serialize, Serializer};

use crate::facts::How;
use crate::session::{CallNo, SessionId};

/// A request that waits or holds. There may be a million that wait: what only those have that hold is kept elsewhere, and is
/// read as if it were here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Read")]
pub struct Entry {
    /// Whose it is, and the call that asked; nobody's if it has outlived its session.
    pub session: Option<(SessionId, CallNo)>,
    /// Who asks.
    pub who: Arc<Who>,
    /// For what.
    pub ask: Arc<Ask>,
    /// When it was asked for.
    pub asked: u64,
    /// About how many bytes of facts and inputs will follow from it.
    pub(super) owed: u32,
    granted: Seldom<Granted>,
}

/// What there is of a request that was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// What it holds, if it does.
    pub held: Option<Held>,
    /// Whether its client may be told, once it is granted.
    pub ready: bool,
    /// Where its command starts, if its client may start it there.
    pub place: Option<Box<Place>>,
    /// The processes that use it, if they are known.
    pub holder: Option<Box<Record>>,
    /// It was taken away from its client.
    pub taken_away: Option<Box<TakenAway>>,
    /// Its client has ended or given it back, its processes have not ended.
    pub left: Option<Box<Left>>,
    /// It has ended, and how; it lasts until the parts of it have that are still in use.
    pub closing: Option<Box<How>>,
    /// How many parts of it are in use.
    pub(super) parts: u32,
}

impl Usual for Granted {
    const USUAL: &'static Self = &Self {
        held: None,
        ready: false,
        place: None,
        holder: None,
        taken_away: None,
        left: None,
        closing: None,
        parts: 0,
    };
}

impl Deref for Entry {
    type Target = Granted;

    fn deref(&self) -> &Granted {
        &self.granted
    }
}

/// A grant that was taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenAway {
    /// Why.
    pub how: How,
    /// When its processes are killed.
    pub kill_at: u64,
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
    /// A request that waits.
    pub(super) fn new(
        session: Option<(SessionId, CallNo)>,
        who: Arc<Who>,
        ask: Arc<Ask>,
        asked: u64,
        owed: u32,
    ) -> Self {
        Self { session, who, ask, asked, owed, granted: Seldom::USUAL }
    }

    /// Changes what there is of it since it was granted.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Granted) -> R) -> R {
        self.granted.change(change)
    }

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

    /// How many parts of it are in use.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Whether its client has it: neither given back, nor lost with its session, nor ended.
    pub fn is_in_hand(&self) -> bool {
        self.held.is_some() && self.left.is_none() && self.closing.is_none()
    }

    /// Whether its processes are killed already.
    fn is_killed(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.how != How::Released)
    }

    /// Whether a release leads to its end: what is ending already comes to no other end by it.
    pub(crate) fn can_be_released(&self) -> bool {
        let is_ending = self.closing.is_some() || self.taken_away.is_some() || self.is_killed();
        self.held.is_some() && !is_ending
    }

    /// When it is to be looked at again.
    pub(super) fn due(&self) -> Option<u64> {
        let held = self.held.as_ref()?;
        if self.is_killed() || self.closing.is_some() {
            return None; // That is its end.
        }
        if let Some(taken_away) = &self.taken_away {
            return Some(taken_away.kill_at);
        }
        let grace = if self.leftovers().is_some() { GRACE } else { 0 };
        let limit = held.limit_at.map(|at| at.saturating_add(grace));
        [held.until, limit, held.overtime].into_iter().flatten().min()
    }
}

/// How much longer than its limit a command may take to end, in milliseconds: its client tells it to.
pub const GRACE: u64 = 15_000;

/// What a request holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// For each need in the order named.
    pub taken: Arc<[Taken]>,
    /// Since when.
    pub since: u64,
    /// Until when, if it is a reservation.
    pub until: Option<u64>,
    /// When its time is over, if it is for a time. A command has some seconds more to end.
    pub limit_at: Option<u64>,
    /// Until when it may outlast its grant, if it is a part that does.
    pub overtime: Option<u64>,
}

/// An entry as it is written down.
#[derive(Serialize)]
#[serde(rename = "Entry")]
struct Written<'a> {
    session: &'a Option<(SessionId, CallNo)>,
    who: &'a Who,
    ask: &'a Ask,
    asked: u64,
    held: &'a Option<Held>,
    ready: bool,
    place: &'a Option<Box<Place>>,
    holder: &'a Option<Box<Record>>,
    taken_away: &'a Option<Box<TakenAway>>,
    left: &'a Option<Box<Left>>,
    closing: &'a Option<Box<How>>,
    parts: u32,
    owed: u32,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { session, who, ask, asked, owed, granted } = self;
        let Granted { held, ready, place, holder, taken_away, left, closing, parts } = &**granted;
        let (asked, owed, ready, parts) = (*asked, *owed, *ready, *parts);
        let written = Written {
            session,
            who,
            ask,
            asked,
            held,
            ready,
            place,
            holder,
            taken_away,
            left,
            closing,
            parts,
            owed,
        };
        written.serialize(to)
    }
}

/// The same, to be read.
#[derive(Deserialize)]
struct Read {
    session: Option<(SessionId, CallNo)>,
    who: Arc<Who>,
    ask: Arc<Ask>,
    asked: u64,
    held: Option<Held>,
    ready: bool,
    place: Option<Box<Place>>,
    holder: Option<Box<Record>>,
    taken_away: Option<Box<TakenAway>>,
    left: Option<Box<Left>>,
    closing: Option<Box<How>>,
    parts: u32,
    owed: u32,
}

impl From<Read> for Entry {
    fn from(read: Read) -> Self {
        let Read { session, who, ask, asked, held, ready, place, .. } = read;
        let Read { holder, taken_away, left, closing, parts, owed, .. } = read;
        let granted = Granted { held, ready, place, holder, taken_away, left, closing, parts };
        Self { session, who, ask, asked, owed, granted: granted.into() }
    }
}
