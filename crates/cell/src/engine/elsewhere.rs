//! What requests have to do with other cells, for people.
//!
//! A request that waits for another cell is followed there: a guard is asked for its id ([`Engine::known_as`]), and explains it as one
//! of its own. Whoever is in the way there may be of a third cell, and wait itself: its id ([`Engine::id_of`])
//! tells its home, which can be asked the same. So whoever joins the answers follows a chain from cell to cell.

use holdall_core::{CellId, Protocol, RequestId};
use holdall_wire::{Name, Need, RequestNo};

use super::cells::Member;
use super::{Engine, Serving};

/// What a request needs of another cell, and how it stands there as far as is known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The cell.
    pub member: Member,
    /// The id by which it knows the request.
    pub id: RequestId,
    /// What is needed of it, as it is written there.
    pub needs: Vec<Need>,
    /// Whether that is held there.
    pub is_given: bool,
    /// Whether there is a link to it.
    pub is_up: bool,
    /// Since when there is, or is none.
    pub since: u64,
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// What a request needs of other cells, in the order in which these became known.
    pub fn elsewhere(&self, request: RequestNo) -> Vec<Elsewhere> {
        let (Some(entry), Some(abroad)) =
            (self.requests.get(&request), self.cells.abroad.get(&request))
        else {
            return Vec::new();
        };
        let guards = self.guards(&entry.counts).into_iter();
        let all = guards.filter_map(|guard| {
            let peer = self.cells.peer(guard)?;
            let is_its = |need: &&Need| need.name.cell() == Some(peer.member.name.as_str());
            Some(Elsewhere {
                member: peer.member.clone(),
                id: abroad.id,
                needs: entry.needs().iter().filter(is_its).map(super::abroad::here).collect(),
                is_given: abroad.given.contains_key(&guard),
                is_up: peer.is_up,
                since: peer.since,
            })
        });
        all.collect()
    }

    /// The request that other cells know by an id, of this home or of another one.
    pub fn known_as(&self, id: RequestId) -> Option<RequestNo> {
        self.request_of(id.user).filter(|_| id.seq == 1)
    }

    /// The id by which other cells know a request, of this home or of another one, if they do.
    pub fn id_of(&self, request: RequestNo) -> Option<RequestId> {
        let foreign = || {
            let user = self.requests.get(&request)?.user;
            self.cells.foreign.get(&user).map(|foreign| foreign.id)
        };
        self.id_abroad(request).or_else(foreign)
    }

    /// The other cells that are not forgotten, each with whether there is a link to it, and since when that is so.
    pub fn links(&self) -> impl Iterator<Item = (&Member, bool, u64)> {
        let known = self.cells.peers.iter().filter(|peer| !peer.forgotten);
        known.map(|peer| (&peer.member, peer.is_up, peer.since))
    }

    /// The first cell that a grant holds something of and there is no link to.
    pub fn unreachable(&self, request: RequestNo) -> Option<&Name> {
        let given: Vec<CellId> = self.given_by(request);
        let away = |peer: &&super::cells::Peer| !peer.is_up && given.contains(&peer.member.cell);
        self.cells.peers.iter().find(away).map(|peer| &peer.member.name)
    }

    /// The name of another cell, if there is no link to it.
    pub fn is_away(&self, cell: CellId) -> Option<&Name> {
        let mut away = self.cells.peers.iter().filter(|peer| !peer.is_up);
        away.find(|peer| peer.member.cell == cell).map(|peer| &peer.member.name)
    }
}
