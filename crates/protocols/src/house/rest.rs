//! A hold of which a part is taken back.

use alloc::vec::Vec;

use holdall_core::{Needs, PoolId, RequestId};

use super::House;
use super::manager::{Manager, Out};
use super::passed::Passed;

impl Manager {
    /// Of what a request holds, only what it has of these pools stays its own. Its user is not told here.
    pub fn keep_only(
        &mut self,
        cfg: &House,
        request: RequestId,
        keeps: impl Fn(PoolId) -> bool,
        out: &mut Out,
    ) {
        let Some(entry) = self.entry(request).filter(|entry| entry.held) else { return };
        let (kept, rest): (Vec<_>, Vec<_>) =
            entry.needs.iter().cloned().partition(|need| keeps(need.pool));
        let (Ok(kept), Ok(rest)) = (Needs::new(kept), Needs::new(rest)) else { return };
        let Some(at) = self.entries.arrival(request) else { return };
        let Some(mut entry) = self.entries.remove(request) else { return };
        entry.needs = rest;
        self.take_back(cfg, &entry);
        entry.passed = Passed::none_of(kept.len());
        entry.needs = kept;
        entry.units.change(|units| units.retain(|pool, _| keeps(*pool)));
        self.entries.insert(at, entry);
        self.scan(cfg, out);
    }
}
