//! Grants of a former life of the node, put in force again as they were or not at all.

use std::sync::Arc;

use holdall_core::Protocol;

use super::entry::for_needs;
use super::{Defect, Effect, Engine, Reservation, Serving};

impl<P: Protocol<Manager: Serving>> Engine<P> {
    pub(super) fn on_restore(&mut self, reservation: Reservation) -> Result<(), Defect> {
        let Reservation { request, who, needs, taken, since, until, part_of } = reservation;
        self.counter = self.counter.max(request.0);
        if let Some(of) = part_of.filter(|of| self.is_held(*of)) {
            let (who, taken) = (Arc::new(who), taken.into());
            if !self.restore_part(request, who, needs, taken, of) {
                self.effects.push(Effect::Unrestored(request));
            } else if let Some(entry) = self.requests.get_mut(&request) {
                entry.since = since;
            }
            return Ok(());
        }
        let Some(counts) = self.as_it_was(&needs, &taken) else {
            self.effects.push(Effect::Unrestored(request));
            return Ok(());
        };
        self.tell_manager()?;
        self.enter(request, for_needs(needs), counts, Arc::new(who), None, None);
        if let Some(entry) = self.requests.get_mut(&request) {
            (entry.since, entry.taken) = (since, Some(taken.into()));
            entry.besides.change(|besides| besides.until = until);
        }
        self.call_ask(request)?;
        let held = self.effects.iter().any(|effect| matches!(effect, Effect::Granted { .. }));
        if !held {
            // It waits, and holds nothing, whatever it held in its former life.
            if let Some(entry) = self.requests.get_mut(&request) {
                entry.taken = None;
            }
            self.end(request)?;
            self.effects.push(Effect::Unrestored(request));
        }
        Ok(())
    }
}
