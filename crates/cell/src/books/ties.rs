//! What ties requests to other cells.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{CellId, RequestId};
use holdall_wire::RequestNo;
use serde::{Deserialize, Serialize};

use crate::greeting::{First, Known, Met, Presence, Stranger};
use crate::session::{CallNo, SessionId};

/// What the books know of other cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ties {
    /// Grants of which other cells guard a part, with the ids by which they know them.
    pub(super) spanning: BTreeMap<RequestNo, RequestId>,
    /// What is held for requests of other homes.
    pub(super) foreign: BTreeMap<RequestNo, Tie>,
    /// The lives of other cells, as far as they were heard of.
    pub(super) lives: BTreeMap<CellId, u128>,
    pub(super) recovery: Recovery,
    /// Kept behind the rest, which has a form from before.
    #[serde(skip)]
    pub(super) agreed: Agreed,
    /// Other cells that an operator has given up, when that was last said of each. Kept behind that.
    #[serde(skip)]
    pub(super) given_up: BTreeMap<CellId, GivenUp>,
    /// Kept behind that.
    #[serde(skip)]
    pub(super) heard: Heard,
}

/// What this cell and others know of each other's logs, of those that say so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// What others know the present start by.
    nonce: u128,
    /// Those that may know something of this life.
    met: BTreeMap<CellId, Met>,
    /// What is known of others.
    known: BTreeMap<CellId, Known>,
    /// Those that have in their log that there is a link, before they tell how long that is.
    agreed: BTreeSet<CellId>,
    /// The epoch of the start since which everything is remembered.
    since: u32,
    /// Which cell this was for others, when it was last among them.
    own: Option<CellId>,
    /// Others whose log was found to lack something that it once had, and the epoch of the start of theirs in which that was found.
    lacking: BTreeMap<CellId, u32>,
}

/// That an operator has given up a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The life that was meant, if that is known.
    pub life: Option<u128>,
    /// What was said with it, which tells it from the next time.
    pub word: Vec<u8>,
}

/// What was agreed with other cells, or is being.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Which start of other cells there was a link to last.
    pub(super) met: BTreeMap<CellId, Presence>,
    /// For grants here, the cells that keep what is held there until this one is back.
    pub(super) not_leased: BTreeMap<RequestNo, BTreeSet<CellId>>,
    /// Reservations that others have yet to confirm.
    pub(super) keeping: BTreeMap<RequestNo, Keeping>,
}

/// A reservation that others have yet to confirm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    /// Until when it lasts then.
    pub until: u64,
    /// Those who have not confirmed it.
    pub missing: BTreeSet<CellId>,
    /// The call that is answered then.
    pub call: Option<(SessionId, CallNo)>,
}

/// What a cell waits for that may have forgotten what it has given to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The cells that have yet to say what they hold here; none if it waits for nothing.
    pub missing: BTreeSet<CellId>,
    /// When these are not waited for any more, if that is so.
    pub until: Option<u64>,
    /// Up to which fence everything is remembered.
    pub horizon: u64,
    /// The requests for which something was held, as far as is remembered.
    pub held: BTreeSet<RequestId>,
}

impl Recovery {
    /// Whether a request may hold something with these fences: it did, or that was forgotten.
    pub fn allows(&self, request: RequestId, mut fences: impl Iterator<Item = u64>) -> bool {
        self.held.contains(&request) || fences.all(|fence| fence > self.horizon)
    }
}

/// A request of another home for which something is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tie {
    /// The request.
    pub id: RequestId,
    /// What its user said last, as the protocol writes it. Nothing, if only the rest of it is held.
    pub stance: Vec<u8>,
    /// Whether it, or some of it, is given to others some time after its home was last heard of.
    pub leased: bool,
}

impl Tie {
    /// The stance of what is the rest of a grant.
    pub const NO_STANCE: Vec<u8> = Vec::new();
    /// Something that is read as no stance, where one could not be written: it is not taken for a rest.
    pub const UNREADABLE: [u8; 1] = [u8::MAX];

    /// Whether some of what was held was given to others since, and what is left is kept until its home gives it back.
    pub fn is_rest(&self) -> bool {
        self.stance.is_empty()
    }
}

impl Ties {
    /// The id by which other cells know a grant, if they do.
    pub fn id(&self, request: RequestNo) -> Option<RequestId> {
        self.spanning.get(&request).copied()
    }

    /// The grants of which other cells guard a part.
    pub fn spanning(&self) -> impl Iterator<Item = RequestNo> {
        self.spanning.keys().copied()
    }

    /// The request of another home that a grant stands for, if it does.
    pub fn foreign(&self, request: RequestNo) -> Option<&Tie> {
        self.foreign.get(&request)
    }

    /// Whether other homes hold something without a lease.
    pub fn has_unleased(&self) -> bool {
        self.foreign.values().any(|tie| !tie.leased)
    }

    /// The homes for which something is held.
    pub fn homes(&self) -> impl Iterator<Item = CellId> {
        self.foreign.values().map(|tie| tie.id.user.home().cell)
    }

    /// All cells that this one has to do with: that were heard of and not forgotten, hold something, or are waited for.
    pub fn known(&self) -> BTreeSet<CellId> {
        let missing = self.recovery.missing.iter().copied();
        self.lives.keys().copied().chain(self.homes()).chain(missing).collect()
    }

    /// Whether all of it is about grants that there are.
    pub(super) fn is_about(&self, is_held: impl Fn(&RequestNo) -> bool) -> bool {
        let agreed = self.agreed.not_leased.keys().chain(self.agreed.keeping.keys());
        self.spanning.keys().chain(self.foreign.keys()).chain(agreed).all(is_held)
    }

    /// The last known life of another cell.
    pub fn life(&self, cell: CellId) -> Option<u128> {
        self.lives.get(&cell).copied()
    }

    /// What the cell waits for.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The requests for which something is held.
    pub fn all_foreign(&self) -> impl Iterator<Item = (RequestNo, RequestId)> {
        self.foreign.iter().map(|(request, tie)| (*request, tie.id))
    }

    /// The start of another cell that there was a link to last, and how long its log was then.
    pub fn met(&self, cell: CellId) -> Option<&Presence> {
        self.agreed.met.get(&cell)
    }

    /// What is known of the log of another cell, as it is told.
    pub fn known_of(&self, cell: CellId) -> Known {
        self.heard.known.get(&cell).copied().unwrap_or_default()
    }

    /// The epoch of the start before which another cell may know nothing of what it asked for, as far as that is seen from here; 0 if it is not.
    pub fn lacks_before(&self, cell: CellId) -> u32 {
        self.heard.lacking.get(&cell).copied().unwrap_or_default()
    }

    /// What is said first over a link to another cell of which this is known.
    pub fn first(&self, known: Known) -> First {
        First { known, since: self.heard.since }
    }

    /// Whether the log of this life, which is so long, is all that another cell knows of it.
    ///
    /// # Errors
    /// Says what is missing.
    pub(crate) fn check(&self, by: CellId, known: &Known, length: u64) -> Result<(), Stranger> {
        Met::check(self.heard.met.get(&by), known, length)
    }

    /// Whether it is news that the log of another cell is so long, in the start that there is a link to.
    pub(crate) fn is_news(&self, cell: CellId, length: u64) -> bool {
        self.met(cell).is_some_and(|met| length > met.length)
    }

    /// Whether it is to be kept that the log of another cell is so long, though nothing else is said with it: if nothing is known yet of the
    /// start that there is a link to, or that cell holds something here. That it was granted all may be in its log by now, and it does not
    /// say that by itself.
    pub fn is_to_be_kept(&self, cell: CellId, length: u64) -> bool {
        let is_known = |met: &Presence| {
            let known = self.known_of(cell);
            (known.life, known.nonce) == (met.life, met.nonce)
        };
        let is_heard = !self.heard.agreed.contains(&cell) || self.met(cell).is_some_and(is_known);
        self.is_news(cell, length) && (!is_heard || self.homes().any(|home| home == cell))
    }

    /// Whether anybody may know something of this life.
    pub(crate) fn is_met(&self) -> bool {
        !self.heard.met.is_empty()
    }

    /// Another life begins: nobody knows anything of it.
    pub(super) fn lives_anew(&mut self) {
        self.heard.met.clear();
    }

    /// A start begins with no memory of those before, or some of it.
    pub(super) fn remembers_from(&mut self, epoch: u32) {
        self.heard.since = epoch;
    }

    /// A start begins. What others have told another cell they do not know that this one may know.
    pub(super) fn begins(&mut self, nonce: u128, began: u64, cell: Option<CellId>) {
        if self.heard.own.is_some_and(|own| cell.is_some_and(|cell| cell != own)) {
            self.heard.known.clear();
            self.heard.agreed.clear();
        }
        (self.heard.nonce, self.heard.own) = (nonce, cell.or(self.heard.own));
        self.heard.met.values_mut().for_each(|met| met.starts(nonce, began));
    }

    /// There is a link to another cell. Records are numbered across lives: where another life begins with fewer than there were, some are gone,
    /// whether it knows that or not. Its log may be a copy that was put back.
    pub(super) fn meets(&mut self, cell: CellId, presence: Presence) {
        let lacks = |met: &Presence| met.life != presence.life && presence.began < met.length;
        if self.met(cell).is_some_and(lacks) {
            self.heard.lacking.insert(cell, presence.epoch);
        }
        self.agreed.met.insert(cell, presence);
        self.heard.agreed.remove(&cell);
    }

    /// It has said what it knew of this one. What it knew before is in this log, too, also if it has forgotten that and remembers it later.
    pub(super) fn agrees(&mut self, cell: CellId, upto: u64) {
        let before = self.heard.met.get(&cell).map_or(0, Met::found);
        self.heard.met.insert(cell, Met::now(upto.max(before), self.heard.nonce));
        self.heard.agreed.insert(cell);
    }

    /// It has said how long its log is.
    pub(super) fn comes_to(&mut self, cell: CellId, length: u64) {
        let Some(met) = self.agreed.met.get_mut(&cell) else { return };
        met.has_come_to(length);
        if self.heard.agreed.contains(&cell) {
            let Presence { life, nonce, length, .. } = *met;
            self.heard.known.insert(cell, Known { life, nonce, length });
        }
    }

    /// An operator has given it up. If that was waited for, it may come back in another life, and still know what this log does not tell of:
    /// that is settled.
    pub(super) fn gives_up(&mut self, cell: CellId, given_up: GivenUp) {
        self.given_up.insert(cell, given_up);
        if self.recovery.missing.contains(&cell) {
            self.heard.met.insert(cell, Met::excused(self.heard.nonce));
        }
    }

    /// Nothing is known of it any more. It may know of this one what it did.
    pub(super) fn parts(&mut self, cell: CellId) {
        self.lives.remove(&cell);
        self.agreed.met.remove(&cell);
        self.heard.known.remove(&cell);
        self.heard.agreed.remove(&cell);
        self.heard.lacking.remove(&cell);
    }

    /// What others have yet to confirm of a reservation.
    pub fn keeping(&self, request: RequestNo) -> Option<&Keeping> {
        self.agreed.keeping.get(&request)
    }

    /// The reservations that a cell has yet to confirm.
    pub fn unconfirmed_by(&self, cell: CellId) -> Vec<RequestNo> {
        let all = self.agreed.keeping.iter();
        all.filter(|(_, one)| one.missing.contains(&cell)).map(|(request, _)| *request).collect()
    }

    /// The cells that keep what a grant holds there until this one is back.
    pub fn not_leased(&self, request: RequestNo) -> BTreeSet<CellId> {
        self.agreed.not_leased.get(&request).cloned().unwrap_or_default()
    }

    /// How another cell was given up last, if it ever was. It may have come back since, in another life.
    pub fn given_up(&self, cell: CellId) -> Option<&GivenUp> {
        self.given_up.get(&cell)
    }

    /// What is kept behind the ties, in this order.
    pub(crate) fn behind(&self) -> (&Agreed, &BTreeMap<CellId, GivenUp>, &Heard) {
        (&self.agreed, &self.given_up, &self.heard)
    }

    /// The ties with what was kept behind them; what later logics have added may be missing.
    ///
    /// # Errors
    /// If it is not understood.
    pub(crate) fn with_behind(mut self, bytes: &[u8]) -> postcard::Result<Self> {
        let mut rest;
        (self.agreed, rest) = postcard::take_from_bytes(bytes)?;
        if !rest.is_empty() {
            (self.given_up, rest) = postcard::take_from_bytes(rest)?;
        }
        if !rest.is_empty() {
            self.heard = postcard::from_bytes(rest)?;
        }
        Ok(self)
    }

    pub(super) fn end(&mut self, request: RequestNo) {
        self.spanning.remove(&request);
        self.foreign.remove(&request);
        self.agreed.not_leased.remove(&request);
        self.agreed.keeping.remove(&request);
    }
}
