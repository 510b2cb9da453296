//! The rest of a grant to another home, of which a part was given to others when that home's lease was over.
//!
//! What is leased of a grant is given on; what it has of pools that wait is kept until its home gives it back, or is
//! forgotten. The home has lost the whole: it is told so, before another beat of it is confirmed and whenever it says
//! anything else than that it gives the rest back.

use std::collections::BTreeSet;

use holdall_core::{Needs, PoolId, UserId};
use holdall_protocols::house::{House, ToManager};
use holdall_wire::{Need, Taken};

use super::entry::for_needs;
use super::{Defect, Effect, Engine};
use crate::books::is_for;

impl Engine<House> {
    /// Whether a request of another home has only the rest of what it held.
    pub(super) fn is_rest(&self, user: UserId) -> bool {
        self.cells.foreign.get(&user).is_some_and(|foreign| foreign.is_rest)
    }

    /// The lease of a grant is over: of what it holds only that is kept which pools that wait have given. Tells whether there
    /// is any.
    pub(super) fn keep_rest(&mut self, user: UserId) -> Result<bool, Defect> {
        let Some(foreign) = self.cells.foreign.get_mut(&user) else { return Ok(false) };
        let (id, request) = (foreign.id, foreign.request);
        let Some(entry) = self.requests.get_mut(&request) else { return Ok(false) };
        let waits = &self.cells.waits;
        let kept = entry.taken.iter().flat_map(|taken| taken.iter());
        let kept: Vec<Taken> = kept.filter(|one| waits.contains(&one.name)).cloned().collect();
        let pools = kept.iter().filter_map(|one| self.ledger.find(&one.name));
        let pools: BTreeSet<PoolId> = pools.map(|(pool, _)| pool).collect();
        let (counts, rest): (Vec<_>, Vec<_>) =
            entry.counts.iter().cloned().partition(|count| pools.contains(&count.pool));
        let Ok(counts) = Needs::new(counts) else { return Ok(false) };
        let is_kept = |need: &&Need| kept.iter().any(|taken| is_for(need, taken));
        let needs = entry.needs().iter().filter(is_kept).cloned().collect();
        (entry.ask, entry.counts, entry.taken) =
            (for_needs(needs), counts.clone(), Some(kept.into()));
        (foreign.counts, foreign.stance) = (counts, ToManager::Release(id));
        (foreign.leased, foreign.is_rest) = (false, true);
        for count in rest {
            self.resizes.extend(self.ledger.leave(&count, request));
        }
        self.effects.push(Effect::LetGo(request));
        self.is_held_for(request);
        self.says_over(id);
        self.have_manager(|manager, cfg, out| {
            manager.keep_only(cfg, id, |pool| pools.contains(&pool), out);
        })?;
        self.deliver()?;
        self.tell_manager()?;
        Ok(true)
    }
}
