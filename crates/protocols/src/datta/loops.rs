//! Loops: how the manager finds and breaks them (the paper's Algorithm 3).
//!
//! Each resource is had by one request, and each request waits at one resource at most; so from
//! any waiting request there is one way on: to the head of the queue it waits in, and to where
//! that one waits. Whoever closes a loop is the last to have begun waiting in it, and sends a
//! probe along that way. If the probe comes back to it, there is a loop. If it comes back to any
//! other manager, it has run into a loop that its start is not in, and goes no further: whoever
//! closed that one has sent a probe of its own.

use alloc::collections::BTreeSet;

use holdall_core::{ManagerId, PoolId};
use serde::{Deserialize, Serialize};

use super::entry::{Claim, Entry, Level};
use super::manager::{Manager, Out};
use super::{Datta, ToManager};

/// Looks for a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// Whose way it follows at the moment.
    pub edge: Claim,
    /// How well that one stands.
    pub level: Level,
    /// The way it has come.
    pub way: Way,
}

/// The way of a probe, from its start on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Way {
    /// Whose waiting it began with.
    pub start: Claim,
    /// Where that one waits.
    pub front: ManagerId,
    /// The one on the way, past the start, that stands worst.
    pub least: Option<Victim>,
    /// Who has seen the probe. A loop passes each manager once.
    pub passed: BTreeSet<ManagerId>,
}

impl Way {
    pub(super) const fn new(start: Claim, front: ManagerId) -> Self {
        Self { start, front, least: None, passed: BTreeSet::new() }
    }
}

/// Who would have to give way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Victim {
    /// How well it stands.
    pub level: Level,
    /// What it claims.
    pub claim: Claim,
    /// Where it waits.
    pub at: ManagerId,
}

impl<const MOST: u32> Manager<MOST> {
    /// How well a head stands. Definition 3.2 of the paper, but for the request and not for the
    /// resource: where a request has more than two resources, its loops need not pass its home.
    pub(super) fn level(&self, cfg: &Datta<MOST>, head: &Entry) -> Level {
        if !cfg.rules.home {
            return (self.token.held(), PoolId(self.id.0));
        }
        let shielded = if head.spot.is_home() { self.token.held() } else { head.shielded };
        (shielded && cfg.rules.token, head.home())
    }

    /// Follows the way of a request to where it waits (lines 92 to 110).
    pub(super) fn on_probe(&mut self, cfg: &Datta<MOST>, probe: Probe, out: &mut Out<MOST>) {
        let Probe { edge, level, way } = probe;
        let Some((position, _)) = self.queues.find(edge) else {
            return; // It does not wait here, or not yet; then its own probe will see the rest.
        };
        if self.queues.gave_up(way.start) {
            return;
        }
        let worse = way.least.as_ref().is_none_or(|least| level < least.level);
        let here = Victim { level, claim: edge, at: self.id };
        let least = if position > 0 && worse { Some(here) } else { way.least };
        self.look_on(cfg, Way { least, ..way }, out);
    }

    /// Goes on with a probe on behalf of the head, unless that has everything and will end, or its
    /// waiting is what the probe began with, or it waits where the probe has been.
    pub(super) fn look_on(&mut self, cfg: &Datta<MOST>, mut way: Way, out: &mut Out<MOST>) {
        let Some(head) = self.queues.head() else { return };
        let Some(next) = head.spot.next() else { return };
        let level = self.level(cfg, head);
        way.passed.insert(self.id);
        if head.onward == way.start {
            self.break_loop(cfg, way, level, out);
        } else if !way.passed.contains(&next) {
            out.tally("probe", 1);
            let probe = Probe { edge: head.onward, level, way };
            out.to_manager(next, ToManager::Probe(probe));
        }
    }

    /// The probe is back: whoever stands worst on its way gives way, be it its start, which stands
    /// as its `level` says.
    fn break_loop(&mut self, cfg: &Datta<MOST>, way: Way, level: Level, out: &mut Out<MOST>) {
        let least = way.least.filter(|least| cfg.rules.order && least.level < level);
        let (victim, at) = least.map_or((way.start, way.front), |least| (least.claim, least.at));
        if at == self.id {
            self.on_kill(cfg, victim, out);
        } else {
            out.to_manager(at, ToManager::Kill(victim));
        }
    }

    /// The victim stands aside, unless it has got this resource in the meantime: then there is no
    /// loop, and it may even have been granted everything (lines 121 to 126). Whoever waits at its
    /// home has nothing to give up, and is in no loop, whatever a stranger says.
    pub(super) fn on_kill(&mut self, cfg: &Datta<MOST>, claim: Claim, out: &mut Out<MOST>) {
        let waits = |(position, entry): &(usize, &Entry)| {
            (*position > 0 || !cfg.rules.head) && !entry.spot.is_home()
        };
        let Some((position, _)) = self.queues.find(claim).filter(waits) else { return };
        let Some(entry) = self.queues.take(position) else { return };
        out.tally("kill", 1);
        self.step_back(cfg, entry, out);
        if position == 0 {
            self.serve_head(cfg, out);
        }
    }

    /// The victim gives up this resource as well, back to its home, where it goes to the end of
    /// the queue (lines 128 to 133).
    pub(super) fn on_rollback(&mut self, cfg: &Datta<MOST>, claim: Claim, out: &mut Out<MOST>) {
        if self.queues.head().is_none_or(|head| head.onward != claim) {
            return; // It has departed.
        }
        let Some(entry) = self.queues.pop() else { return };
        let entry = Entry { onward: claim.again(), ..entry };
        if entry.spot.is_home() {
            self.queues.join(Entry { beaten: true, ..entry });
            self.want_token(cfg, out);
        } else {
            self.step_back(cfg, entry, out);
        }
        self.serve_head(cfg, out);
    }

    /// Stands aside here, and gives up the resource before this one.
    fn step_back(&mut self, cfg: &Datta<MOST>, entry: Entry, out: &mut Out<MOST>) {
        if let Some(previous) = entry.spot.previous().filter(|_| cfg.rules.rollback) {
            out.to_manager(previous, ToManager::Rollback(entry.claim));
        }
        let claim = entry.claim.again();
        self.queues.set_aside(Entry { claim, shielded: false, ..entry });
    }
}
