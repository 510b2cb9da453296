//! What an agent without a log has left: it is entered into the books, and put in force when the engine
//! is built from these.

use std::sync::Arc;

use holdall_wire::{Ask, From, Lasting, Part};

use super::{Cell, Defect};
use crate::books::Contradiction;
use crate::engine::Reservation;
use crate::facts::{Fact, How, Imported};
use crate::input::{Effect, Former, Import};

impl Cell {
    pub(super) fn import(&mut self, import: Import) -> Result<(), Defect> {
        let Import { pools, drained, reservations, held } = import;
        for (name, kind) in pools {
            self.note(Fact::Pool { name, kind: Some(kind), configured: false })?;
        }
        if !drained.is_empty() {
            self.note(Fact::Drained(drained))?;
        }
        let held = held.into_iter().map(|Former { grant, holder, abandoned }| {
            let how = if abandoned { How::Gone } else { How::Released };
            (grant, Some((holder, how)))
        });
        let mut all: Vec<_> = reservations.into_iter().map(|one| (one, None)).chain(held).collect();
        // Parts come after what they are parts of.
        all.sort_by_key(|(grant, _)| (grant.part_of.is_some(), grant.request));
        for (grant, holder) in all {
            let Reservation { request, who, needs, taken, since, until, part_of } = grant;
            let whole = part_of.filter(|of| self.books.get(*of).is_some());
            let lasting = match until {
                Some(until) => Lasting::Reservation(until.saturating_sub(since)),
                None => Lasting::Connection,
            };
            let ask = Ask {
                needs,
                now: false,
                lasting,
                from: From::default(),
                within: None,
                limit: None,
                part: whole.map(|of| Part { of, outlasts: false }),
            };
            let (who, taken) = (Arc::new(who), taken.into());
            let grant = Imported { request, who, ask, taken, since, until, holder };
            // Such an agent may have granted a unit twice.
            if let Err(why) = self.books.check_import(&grant) {
                self.effect(Effect::LeftOut(request, told(&grant, &why)));
                continue;
            }
            self.note(Fact::Imported(Box::new(grant)))?;
        }
        self.out.sync = true;
        Ok(())
    }
}

/// What is left out, for people.
fn told(grant: &Imported, why: &Contradiction) -> String {
    let units = grant.taken.iter().flat_map(|taken| taken.units.iter());
    let units: Vec<_> = units.map(|(unit, _)| unit.as_str()).collect();
    let user = &grant.who.user;
    let held = format!("{} of {user}: {why}", units.join(", "));
    match &grant.holder {
        Some((holder, _)) => format!("{held}; its processes go on: {}", holder.told()),
        None => held,
    }
}
