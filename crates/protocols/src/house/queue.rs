//! Who waits, in the order of service: for those who look on.

use alloc::vec::Vec;

use holdall_core::RequestId;

use super::manager::Manager;
use super::places::Rank;

/// A place in the order of service.
pub type Place = Rank;

impl Manager {
    /// The requests that wait, in the order in which they would be served if all were free.
    pub fn waiting(&self) -> Vec<RequestId> {
        self.waiting_after(None).map(|(_, request)| request).collect()
    }

    /// The same, those behind a place.
    pub fn waiting_after(
        &self,
        after: Option<Place>,
    ) -> impl Iterator<Item = (Place, RequestId)> + '_ {
        let came = after.filter(|(last, ..)| *last).map_or(0, |(_, _, at)| at + 1);
        let first = self.out_of_turn_after(after);
        let rest = self.entries.without_round(came);
        first.chain(rest.map(|(at, entry)| ((true, None, at), entry.request)))
    }

    /// Those who wait and are not served in the order in which they came, but before all others.
    pub fn out_of_turn(&self) -> impl Iterator<Item = (Place, RequestId)> + '_ {
        self.out_of_turn_after(None)
    }

    fn out_of_turn_after(
        &self,
        after: Option<Place>,
    ) -> impl Iterator<Item = (Place, RequestId)> + '_ {
        let ranks = self.entries.with_round(after);
        ranks.filter_map(|rank| Some((*rank, rank.1?.1)))
    }

    /// The place of a request, if it waits out of turn.
    pub fn place_out_of_turn(&self, request: RequestId) -> Option<Place> {
        let entry = self.entry(request).filter(|entry| !entry.held)?;
        Some((false, Some(entry.key()?), self.entries.arrival(request)?))
    }
}
