//! The other cells: what they are called, and what this cell has to do with them.
//!
//! Other cells are managers for the users here, numbered from 1 on as they became known (0 is the manager here), and homes of
//! users for the manager here.
//!
//! # Invariants
//! - A request here that some other cell guards a part of is in `abroad`, under the id by which the others know it.
//! - A request of another home is in `foreign`, by its user, and has a number here like any other: the ledger, the
//!   books and people know it by that. While the manager holds something for it, and only then, the
//!   ledger does, with a fence of this cell.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{CellId, Home, Life, ManagerId, Needs, Protocol, RequestId, UserId};
use holdall_wire::{Name, Refusal, RequestNo};
use serde::{Deserialize, Serialize};

use super::users::Users;
use super::{Engine, Serving};
use crate::peer::{Given, PeerMessage};

/// A message, and the cell that it is for.
pub type Outgoing<P> = (CellId, PeerMessage<<P as Protocol>::ToManager, <P as Protocol>::ToUser>);

/// A cell as others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which people write after the `@`.
    pub name: Name,
    /// Its number, drawn at random once for all.
    pub cell: CellId,
}

/// Another cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Peer {
    pub(super) member: Member,
    /// Whether there is a link to it.
    pub(super) is_up: bool,
    /// Since when that is so.
    pub(super) since: u64,
    /// It was forgotten, or is no member any more: nothing is said to it.
    pub(super) forgotten: bool,
}

impl Peer {
    /// There is no link to it from now on, if there was one.
    pub(super) fn is_down(&mut self, now: u64) {
        if std::mem::take(&mut self.is_up) {
            self.since = now;
        }
    }
}

/// A request here of which others guard a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Abroad {
    pub(super) id: RequestId,
    /// Whether it does not wait.
    pub(super) now: bool,
    /// What was given, by guard, and under which stance.
    pub(super) given: BTreeMap<ManagerId, (u32, Given)>,
    /// While the manager here holds its part for it, and it is not granted: under which stance, and what it had asked for.
    pub(super) own: Option<(u32, Needs)>,
    /// Until when its guards are to keep it, if it is a reservation that was granted.
    pub(super) until: Option<u64>,
}

impl Abroad {
    pub(super) fn new(id: RequestId, now: bool) -> Self {
        let (given, own, until) = Default::default();
        Self { id, now, given, own, until }
    }
}

/// A request of another home.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Foreign<P: Protocol> {
    pub(super) id: RequestId,
    pub(super) request: RequestNo,
    /// What its user said last.
    pub(super) stance: P::ToManager,
    /// What it needs here; of its entry, with the units that are held.
    pub(super) counts: Needs,
    /// The stance under which it holds, if it does.
    pub(super) held: Option<u32>,
    /// Whether what it holds, or some of it, is given to others some time after its home was last heard of.
    pub(super) leased: bool,
    /// Whether that has happened to some of it, and it has the rest until its home has given it back.
    pub(super) is_rest: bool,
    /// Whether its home, as far as that was heard of since it was held, has lost its memory of it.
    pub(super) is_unclaimed: bool,
}

/// The home of an engine: another one each time that it is built.
pub fn home(cell: CellId, epoch: u32, boottime: u64) -> Home {
    Home { cell, life: Life(u64::from(epoch) << 32 | boottime & 0xffff_ffff) }
}

/// The epoch of the start at which the engine was built that a home is.
pub(super) fn epoch_of(home: Home) -> u32 {
    (home.life.0 >> 32) as u32
}

impl<P: Protocol> Foreign<P> {
    /// One for which nothing is held yet.
    pub(super) fn new(
        id: RequestId,
        request: RequestNo,
        stance: P::ToManager,
        counts: Needs,
        leased: bool,
    ) -> Self {
        let (held, is_rest, is_unclaimed) = (None, false, false);
        Self { id, request, stance, counts, held, leased, is_rest, is_unclaimed }
    }
}

/// Everything about other cells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Cells<P: Protocol> {
    /// What this cell is called, if there are others.
    pub(super) own: Option<Name>,
    /// Where users here come from.
    pub(super) home: Home,
    pub(super) peers: Vec<Peer>,
    pub(super) abroad: BTreeMap<RequestNo, Abroad>,
    pub(super) foreign: BTreeMap<UserId, Foreign<P>>,
    /// Whether homes have yet to say what they hold here, so that nothing is granted.
    pub(super) recovering: bool,
    /// What was asked for meanwhile.
    pub(super) postponed: Vec<RequestNo>,
    /// The pools of which other cells keep what they hold when they are not heard of.
    pub(super) waits: BTreeSet<Name>,
    /// The engines of other cells whose requests were heard here, of which the manager may remember lanes.
    pub(super) engines: BTreeSet<Home>,
}

impl<P: Protocol> Default for Cells<P> {
    fn default() -> Self {
        let (own, home, peers, abroad, foreign, recovering, postponed) = Default::default();
        let (waits, engines) = Default::default();
        Self { own, home, peers, abroad, foreign, recovering, postponed, waits, engines }
    }
}

impl<P: Protocol> Cells<P> {
    pub(super) fn peer(&self, manager: ManagerId) -> Option<&Peer> {
        self.peers.get(manager.index().checked_sub(1)?)
    }

    /// The manager that a cell is that is heard: not one that was forgotten.
    pub(super) fn heard(&self, cell: CellId) -> Option<ManagerId> {
        self.manager_of(cell)
            .filter(|manager| self.peer(*manager).is_some_and(|peer| !peer.forgotten))
    }

    /// The manager that another cell is.
    pub(super) fn manager_of(&self, cell: CellId) -> Option<ManagerId> {
        let at = self.peers.iter().position(|peer| peer.member.cell == cell)?;
        Some(ManagerId(at as u64 + 1))
    }

    /// The manager of a cell by its name: 0 is that of this cell.
    pub(super) fn named(&self, cell: &str) -> Result<ManagerId, Refusal> {
        if self.own.as_ref().is_some_and(|own| own.as_str() == cell) {
            return Ok(ManagerId(0));
        }
        let is_it = |peer: &Peer| peer.member.name.as_str() == cell && !peer.forgotten;
        let at = self.peers.iter().position(is_it);
        at.map(|at| ManagerId(at as u64 + 1)).ok_or_else(|| {
            Refusal::Never(match self.own {
                Some(_) => format!("there is no cell '{cell}'"),
                None => format!("there is no cell '{cell}': this agent is alone"),
            })
        })
    }

    /// The users of another cell.
    pub(super) fn users_of(&self, cell: CellId) -> Vec<UserId> {
        self.foreign_of(cell).map(|foreign| foreign.id.user).collect()
    }

    /// The requests of another cell.
    pub(super) fn foreign_of(&self, cell: CellId) -> impl Iterator<Item = &Foreign<P>> {
        let first = UserId::first_at(Home { cell, life: Life(0) }, 0);
        let of_cell = self.foreign.range(first..);
        of_cell.take_while(move |(user, _)| user.home().cell == cell).map(|(_, foreign)| foreign)
    }

    /// The users before one in its lane.
    pub(super) fn before(&self, user: UserId) -> Vec<UserId> {
        let first = UserId::first_at(user.home(), user.lane().number);
        self.foreign.range(first..user).map(|(before, _)| *before).collect()
    }
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// The request that a user acts for, here or elsewhere.
    pub(super) fn request_of(&self, user: UserId) -> Option<RequestNo> {
        match self.users.get(user) {
            Some(slot) => slot.request,
            None => self.cells.foreign.get(&user).map(|foreign| foreign.request),
        }
    }

    /// This is a cell among others from now on, or another life of it. Only while there are no requests.
    pub fn settle(&mut self, own: Name, home: Home) {
        (self.cells.own, self.cells.home) = (Some(own), home);
        self.users = std::mem::replace(&mut self.users, Users::new(home)).at(home);
        P::Manager::settle(&mut self.cfg, home.cell);
    }

    /// Other cells that there are, besides those that are known.
    pub fn know(&mut self, members: &[Member]) {
        for member in members {
            let known = self.cells.peers.iter_mut().find(|peer| peer.member.cell == member.cell);
            match known {
                Some(peer) => (peer.member, peer.forgotten) = (member.clone(), false),
                None => {
                    let (member, is_up, since) = (member.clone(), false, self.now);
                    self.cells.peers.push(Peer { member, is_up, since, forgotten: false });
                }
            }
        }
    }

    /// The pools of which other cells keep what they hold when they are not heard of.
    pub fn keep_for_others(&mut self, pools: BTreeSet<Name>) {
        self.cells.waits = pools;
    }

    /// The other cells that are not forgotten.
    pub fn peers(&self) -> impl Iterator<Item = CellId> {
        let known = self.cells.peers.iter().filter(|peer| !peer.forgotten);
        known.map(|peer| peer.member.cell)
    }

    /// Whether there is such another cell.
    pub fn is_member(&self, cell: CellId) -> bool {
        self.cells.heard(cell).is_some()
    }

    /// What this cell is for others, if there are some.
    pub fn cell(&self) -> Option<CellId> {
        self.cells.own.as_ref().map(|_| self.cells.home.cell)
    }

    /// Whether nothing is under way, nor owed to other cells.
    pub fn is_idle(&self) -> bool {
        self.users.is_empty() && self.cells.foreign.is_empty() && self.cells.abroad.is_empty()
    }

    /// The id by which other cells know a request, if they do.
    pub fn id_abroad(&self, request: RequestNo) -> Option<RequestId> {
        self.cells.abroad.get(&request).map(|abroad| abroad.id)
    }

    /// What is to be said to other cells, in this order.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing<P>> {
        std::mem::take(&mut self.outgoing)
    }

    pub(super) fn send(&mut self, to: CellId, message: PeerMessage<P::ToManager, P::ToUser>) {
        self.outgoing.push((to, message));
    }
}
