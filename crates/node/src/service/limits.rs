//! What the administrator says: how many may wait, how long a use lasts at most, and what a command finds in its
//! environment.

use std::collections::BTreeMap;
use std::time::Duration;

use holdall_wire::{Fault, Lasting, Name, Need, Refusal, Reply, RequestNo, Taken};
use tracing::info;

use super::Service;
use crate::engine::Input;

/// How much longer than its limit a command may take to end. Its `holdall run` tells it to.
const GRACE: Duration = Duration::from_secs(15);
const HOUR: u64 = 3_600_000;

impl Service {
    /// It waits, if its user may have one more that does.
    pub(super) fn on_queued(&mut self, request: RequestNo) {
        let Some(known) = self.known.get_mut(&request) else { return };
        known.waits = self.waiting.take(known.who.uid, 1);
        if known.waits {
            return self.reply(request, Reply::Queued(request));
        }
        let most = self.config.limits.waiting;
        let why =
            format!("{most} requests of this user wait, which is as many as may (limits.waiting)");
        self.log("refused", request, None, Some(why.clone()));
        self.reply(request, Reply::Refused(Refusal::Closed(why)));
        // It has been told, and waits for nothing more.
        let asked = self.known.get_mut(&request).and_then(|known| known.asked.take());
        if let Some((conn, call)) = asked
            && let Some(peer) = self.peers.get_mut(&conn)
        {
            peer.requests.remove(&call);
        }
        self.input(Input::End(request));
    }

    /// What a command, or whoever has reserved something, shall find in its environment.
    pub(super) fn variables(&self, request: RequestNo, taken: &[Taken]) -> Vec<(String, String)> {
        let known = self.known.get(&request);
        if self.config.pools.is_empty()
            || known.is_none_or(|k| k.leftovers.is_none() && !k.reserved)
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

    /// After how many milliseconds a grant is over, if its client or a pool says so; and sees to it.
    pub(super) fn limit(&mut self, request: RequestNo, taken: &[Taken]) -> Option<u64> {
        let known = self.known.get(&request)?;
        if known.reserved || (known.limit.is_none() && self.config.pools.is_empty()) {
            return None;
        }
        let pools = taken.iter().filter_map(|taken| self.config.pools.get(taken.name.as_str()));
        let limit = pools.filter_map(crate::Pool::limit).chain(known.limit).min()?;
        let command = known.leftovers.is_some();
        let (me, grace) = (self.me.clone(), if command { GRACE } else { Duration::ZERO });
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(limit).saturating_add(grace)).await;
            if let Some(service) = me.upgrade() {
                service.borrow_mut().over_the_limit(request);
            }
        });
        let over = self.clock.now().saturating_add(limit);
        if let Some(known) = self.known.get_mut(&request) {
            known.over = Some((over, task.abort_handle()));
        }
        Some(limit)
    }

    /// The time of a grant is over, and its client has not given it back.
    fn over_the_limit(&mut self, request: RequestNo) {
        info!(%request, "its time limit is over");
        let taken = self.engine.taken(request).cloned();
        self.log("overrun", request, taken.as_ref(), None);
        if let Some(known) = self.known.get_mut(&request) {
            known.over = None; // This is it; its end shall not end what is under way here.
        }
        self.take_away(request);
    }

    /// Whether a reservation may be that long.
    pub(super) fn admit_span(&self, lasting: Lasting, needs: &[Need]) -> Result<(), Refusal> {
        let Lasting::Reservation(millis) = lasting else { return Ok(()) };
        self.may_reserve_for(millis).map_err(Refusal::Never)?;
        let pools = needs.iter().filter_map(|need| self.engine.pool_of(need));
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
