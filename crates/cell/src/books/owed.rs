//! How much will have to be said of what was let in.

use holdall_wire::{Amount, Ask, Kind, Lasting};

use super::Books;

impl Books {
    /// About how many bytes of inputs and facts will follow from what was let in.
    pub fn owed(&self) -> u64 {
        // Its end, and that it comes back over other connections some times.
        const SESSION: u64 = 1024;
        self.owed + SESSION * self.sessions.count() as u64
    }

    /// About how many bytes will follow from a request until it is over, in inputs and facts.
    pub(crate) fn owed_for(&self, ask: &Ask) -> u32 {
        let units = ask.needs.iter().map(|need| {
            let all = match self.pools.get(&need.name).map(|pool| &pool.kind) {
                Some(Kind::Numbered(units)) => *units,
                Some(Kind::Named(units)) => units.len() as u32,
                _ => 1,
            };
            let units = match need.amount {
                Amount::All => all,
                Amount::Units(units) => units.min(all), // Otherwise it is refused.
                _ => 1,
            };
            units.saturating_mul(2 * need.name.as_str().len() as u32 + 24)
        });
        let rest = match ask.lasting {
            Lasting::Connection | Lasting::Reservation(_) => 256,
            Lasting::Command(_) => 2048, // Its processes, some times over.
        };
        units.fold(rest, u32::saturating_add)
    }
}
