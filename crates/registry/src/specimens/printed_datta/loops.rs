//! Algorithm 3: the resource, features related to the loop breaking.

use holdall_core::{Addr, ManagerId};
use holdall_protocols::datta::Claim;
use serde::{Deserialize, Serialize};

use super::manager::{Entry, Manager, Out};
use super::{PrintedDatta, ToManager};

/// `seekLoop`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seek {
    /// `rmin`; `None` is infinity.
    rmin: Option<ManagerId>,
    /// `rinit`.
    init: ManagerId,
    /// For the repairs: whose loop is sought, whom the search follows, who is the minimum, and
    /// where it has been.
    start: Claim,
    edge: Claim,
    victim: Claim,
    seen: Vec<ManagerId>,
}

impl Manager {
    /// 85-90
    pub(super) fn on_new_strong_ack(&mut self, cfg: &PrintedDatta, claim: Claim, out: &mut Out) {
        let Some(head) = self.concerned(cfg, claim, "line 89: the head of an empty queue", out)
        else {
            return;
        };
        let level = (!self.holding).then_some(self.id);
        if cfg.repairs.d6 || self.holding {
            self.rmin = level;
        }
        let (start, seen) = (head.claim, Vec::new());
        let seek = Seek { rmin: self.rmin, init: self.id, start, edge: start, victim: start, seen };
        self.forget_min(cfg);
        self.send(head.next, ToManager::SeekLoop(seek), "line 89: a message to nobody", out);
    }

    /// 92-110
    pub(super) fn on_seek(&mut self, cfg: &PrintedDatta, seek: Seek, out: &mut Out) {
        self.rmin = seek.rmin;
        let follows = self.strong.iter().any(|entry| cfg.same(entry.claim, seek.edge));
        let visited = self.id != seek.init && seek.seen.contains(&self.id);
        if cfg.repairs.d8 && !follows || cfg.repairs.d13 && visited {
            self.forget_min(cfg);
            return out.to_manager(seek.init, ToManager::NoLoop(seek.start));
        }
        if self.id == seek.init {
            self.on_found(cfg, &seek, out);
            return self.forget_min(cfg);
        }
        match self.strong.front().cloned() {
            Some(head) if head.number == 1 && head.next.is_some() => {
                let mut seek = Seek { edge: head.claim, ..seek };
                if !self.holding && self.rmin.is_none_or(|rmin| rmin > self.id) {
                    self.rmin = Some(self.id);
                    seek.victim = head.claim;
                }
                seek.rmin = self.rmin;
                if cfg.repairs.d13 {
                    seek.seen.push(self.id);
                }
                self.send(head.next, ToManager::SeekLoop(seek), "line 107", out);
            }
            _ => out.to_manager(seek.init, ToManager::NoLoop(seek.start)),
        }
        self.forget_min(cfg);
    }

    /// 93-99: the search has come back.
    fn on_found(&mut self, cfg: &PrintedDatta, seek: &Seek, out: &mut Out) {
        let head = self.strong.front();
        if cfg.repairs.d10 && head.is_none_or(|head| !cfg.same(head.claim, seek.start)) {
            return;
        }
        match self.rmin {
            None if cfg.repairs.d7 => self.kill(cfg, seek.start, out),
            None => self.undefined("line 95: RemoteKillLoop to infinity", out),
            Some(rmin) if rmin == self.id => self.kill(cfg, seek.start, out),
            Some(rmin) => {
                out.to_manager(rmin, ToManager::RemoteKill(seek.victim));
                if cfg.repairs.d9 {
                    self.on_no_loop(cfg, seek.start, out);
                }
            }
        }
    }

    /// 112-114
    pub(super) fn on_no_loop(&mut self, cfg: &PrintedDatta, claim: Claim, out: &mut Out) {
        let Some(head) = self.concerned(cfg, claim, "line 113: the head of an empty queue", out)
        else {
            return;
        };
        let (next, msg) = (head.next, ToManager::Ready(head.claim));
        self.send(next, msg, "line 113: a message to nobody", out);
    }

    /// 97-98, 117-118
    pub(super) fn kill(&mut self, cfg: &PrintedDatta, claim: Claim, out: &mut Out) {
        if cfg.repairs.d14 && self.strong.front().is_none_or(|h| !cfg.same(h.claim, claim)) {
            return;
        }
        self.lock |= !cfg.repairs.d17;
        let line = "line 98 or 118: the head of an empty queue";
        let Some(head) = self.head(line, out) else { return };
        let (next, msg) = (head.next, ToManager::Kill(head.claim));
        self.send(next, msg, "line 98 or 118: a message to nobody", out);
    }

    /// 121-126
    pub(super) fn on_kill(&mut self, cfg: &PrintedDatta, from: Addr, claim: Claim, out: &mut Out) {
        let Addr::Manager(from) = from else { return };
        self.lock |= !cfg.repairs.d17;
        let at = self.strong.iter().position(|entry| cfg.same(entry.claim, claim));
        match at {
            None if !cfg.repairs.d14 => {
                return self.undefined("line 123: no such request in Qstrong", out);
            }
            None => return out.to_manager(from, ToManager::KillAck1(claim, false)),
            Some(0) if cfg.repairs.d15 => {
                return out.to_manager(from, ToManager::KillAck1(claim, false));
            }
            Some(at) => {
                let entry = self.strong.remove(at).expect("it is there");
                self.weak.push(Entry { ready: entry.ready && !cfg.repairs.d12, ..entry });
                self.strong_ready &= !cfg.repairs.d12;
                self.weak_ready &= !cfg.repairs.d12 || at > 0;
                self.new_head |= cfg.repairs.d18 && at == 0 && !self.strong.is_empty();
            }
        }
        out.to_manager(from, ToManager::KillAck1(claim, true));
    }

    /// 128-133
    pub(super) fn on_ack1(
        &mut self,
        cfg: &PrintedDatta,
        from: Addr,
        claim: Claim,
        killed: bool,
        out: &mut Out,
    ) {
        if !cfg.repairs.d1 {
            return; // It was sent under another name.
        }
        let Addr::Manager(from) = from else { return };
        self.lock = false;
        if !cfg.repairs.d17 {
            out.to_manager(from, ToManager::KillAck2);
        }
        if !killed {
            if cfg.repairs.d9 {
                self.on_no_loop(cfg, claim, out);
            }
            return;
        }
        let line = "line 129: the head of an empty queue";
        if self.concerned(cfg, claim, line, out).is_none() {
            return;
        }
        let Some(mut head) = self.strong.pop_front() else { return };
        head.claim.attempt += 1;
        self.strong.push_back(head);
        self.new_head = true;
    }

    /// 135-137
    pub(super) fn on_ack2(&mut self, cfg: &PrintedDatta) {
        self.lock &= !cfg.repairs.d1;
    }

    /// The head, if it is the one that a message is about; as printed, whoever is the head.
    fn concerned(
        &self,
        cfg: &PrintedDatta,
        claim: Claim,
        line: &'static str,
        out: &mut Out,
    ) -> Option<Entry> {
        let is = |head: &&Entry| cfg.same(head.claim, claim);
        if cfg.repairs.d10 {
            return self.strong.front().filter(is).cloned();
        }
        self.head(line, out).cloned()
    }

    /// The repaired `rmin` is no variable of the resource.
    fn forget_min(&mut self, cfg: &PrintedDatta) {
        if cfg.repairs.d6 {
            self.rmin = Some(self.id);
        }
    }
}
