//! Many who wait for the same thing: what they ask for is kept once.
//!
//! Whoever asks is compared with the last who waits for the first of it. That finds most who are alike, at the cost of a
//! look, and nothing has to be kept up for it.

use std::sync::Arc;

use holdall_core::{Needs, PoolId, Protocol};
use holdall_wire::{Ask, RequestNo, Who};

use super::{Engine, Entry, Serving};

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// What is asked for, as the last has it who asks for the same; otherwise as it is.
    #[must_use]
    pub fn ask_like(&self, ask: Arc<Ask>) -> Arc<Ask> {
        let pool = ask.needs.first().and_then(|need| self.ledger.find(&need.name));
        let last = pool.and_then(|(id, _)| self.last_waiting_at(id));
        last.filter(|last| last.ask == ask).map_or(ask, |last| last.ask.clone())
    }

    /// What is asked for, and who asks, is kept once with those who keep it as well.
    pub fn share<'a>(&mut self, kept: impl Fn(RequestNo) -> Option<(&'a Arc<Who>, &'a Arc<Ask>)>) {
        for (request, entry) in &mut self.requests {
            let Some((who, ask)) = kept(*request) else { continue };
            if *who == entry.who && ask.needs == entry.ask.needs {
                (entry.who, entry.ask) = (who.clone(), ask.clone());
            }
        }
    }

    /// The same, for the protocol.
    pub(super) fn counts_like(&self, counts: Needs) -> Needs {
        let last = counts.first().and_then(|count| self.last_waiting_at(count.pool));
        last.filter(|last| last.counts == counts).map_or(counts, |last| last.counts.clone())
    }

    fn last_waiting_at(&self, pool: PoolId) -> Option<&Entry> {
        let last = self.ledger.pool(pool)?.waiting.last()?;
        self.requests.get(last).map(|entry| &**entry)
    }
}
