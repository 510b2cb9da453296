//! What the administrator says: how long a reservation lasts at most, and what a command finds in its
//! environment.

use std::collections::BTreeMap;

use holdall_wire::{Fault, Lasting, Name, Need, Refusal, RequestNo, Taken};

use super::Service;

const HOUR: u64 = 3_600_000;

impl Service {
    /// What a command, or whoever has reserved something, shall find in its environment.
    pub(super) fn variables(&self, request: RequestNo, taken: &[Taken]) -> Vec<(String, String)> {
        let lasts = |request| self.books().get(request).map(|entry| entry.ask.lasting);
        if self.config.pools.is_empty()
            || lasts(request).is_none_or(|lasting| lasting == Lasting::Connection)
        {
            return Vec::new();
        }
        let pools = taken
            .iter()
            .filter_map(|taken| Some(self.config.pools.get(taken.name.as_str())?.variables(taken)));
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in pools.flatten() {
            // Several pools may have a variable in common.
            let joined = |before: &mut String| before.extend([",", &value]);
            all.entry(name).and_modify(joined).or_insert_with(|| value.clone());
        }
        all.into_iter().collect()
    }

    /// Whether a reservation may be that long.
    pub(super) fn admit_span(&self, lasting: Lasting, needs: &[Need]) -> Result<(), Refusal> {
        let Lasting::Reservation(millis) = lasting else { return Ok(()) };
        self.may_reserve_for(millis).map_err(Refusal::Never)?;
        let pools = needs.iter().filter_map(|need| self.engine().pool_of(need));
        self.within_limits(millis, pools.map(Name::as_str)).map_err(Refusal::Never)
    }

    /// Whether a reservation may be prolonged to last so long from now.
    pub(super) fn admit_renewal(
        &self,
        millis: u64,
        since: u64,
        taken: &[Taken],
    ) -> Result<(), Fault> {
        self.may_reserve_for(millis).map_err(Fault::Conflict)?;
        let pools = taken.iter().map(|taken| taken.name.as_str());
        let in_all = self.clock.now().saturating_sub(since).saturating_add(millis);
        self.within_limits(in_all, pools).map_err(Fault::Conflict)
    }

    fn may_reserve_for(&self, millis: u64) -> Result<(), String> {
        let hours = self.config.limits.reservation_hours;
        if millis > hours.saturating_mul(HOUR) {
            return Err(format!(
                "a reservation lasts {hours} hours at most (limits.reservation_hours)"
            ));
        }
        Ok(())
    }

    fn within_limits<'a>(
        &self,
        millis: u64,
        mut pools: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let limit = |name: &str| self.config.pools.get(name).and_then(crate::Pool::limit);
        match pools.find_map(|name| Some((name, limit(name).filter(|limit| millis > *limit)?))) {
            None => Ok(()),
            Some((name, limit)) => Err(format!(
                "nobody has '{name}' for longer than {} seconds (pools.{name}.limit)",
                limit / 1000
            )),
        }
    }
}
