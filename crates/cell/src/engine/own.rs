//! What is held here for requests of this home that wait for other cells.
//!
//! The manager here holds its part for such a request before the others do. The ledger knows that from then on: a unit that is
//! drained, or goes, while it is kept for somebody is that one's as if it were granted.

use holdall_core::{Addr, Picked, UserId};
use holdall_protocols::house::{House, Stance, ToManager, ToUser};
use holdall_wire::RequestNo;

use super::abroad::guard;
use super::{Defect, Engine};

impl Engine<House> {
    /// The manager here says something to a user here.
    pub(super) fn tells_own(&mut self, user: UserId, message: &ToUser) -> Result<(), Defect> {
        let request = self.request_of(user).filter(|request| !self.is_held(*request));
        match (request, message) {
            (Some(request), ToUser::Yes { n, units, .. }) => self.claim(request, *n, units),
            (Some(request), ToUser::Over(_)) => {
                self.give_up_claim(request);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The manager here is about to hear from a user here: a later stance ends a hold, or a release, in the ledger first, since
    /// the manager may pass on at once what comes back.
    pub(super) fn is_told_by_own(&mut self, from: Addr, message: &ToManager) {
        let Addr::User(user) = from else { return };
        let request = self.request_of(user).filter(|request| !self.is_held(*request));
        let Some(request) = request else { return };
        let own = self.cells.abroad.get(&request).and_then(|abroad| abroad.own.as_ref());
        let ends = match message {
            ToManager::Queue(Stance { n, .. }) => own.is_some_and(|(held, _)| held < n),
            ToManager::Release(_) => true,
            ToManager::Try { .. } => false,
        };
        if ends {
            self.give_up_claim(request);
        }
    }

    fn claim(&mut self, request: RequestNo, n: u32, units: &Picked) -> Result<(), Defect> {
        let Some(abroad) = self.cells.abroad.get_mut(&request) else { return Ok(()) };
        if let Some((held, _)) = &mut abroad.own {
            *held = n;
            return Ok(());
        }
        let Some(entry) = self.requests.get_mut(&request) else { return Ok(()) };
        let counts = entry.counts.with(units);
        abroad.own = Some((n, std::mem::replace(&mut entry.counts, counts.clone())));
        let mut own = counts.iter().filter(|count| guard(count).is_none());
        own.try_for_each(|count| self.ledger.claim(count, request))
    }

    /// What was kept here for a request is not any more; it waits here again. Whoever calls tells the manager.
    pub(super) fn give_up_claim(&mut self, request: RequestNo) {
        let own = self.cells.abroad.get_mut(&request).and_then(|abroad| abroad.own.take());
        let Some((_, asked)) = own else { return };
        let Some(entry) = self.requests.get_mut(&request) else { return };
        let held = std::mem::replace(&mut entry.counts, asked);
        for count in held.iter().filter(|count| guard(count).is_none()) {
            self.resizes.extend(self.ledger.back_to_waiting(count, request));
        }
    }
}
