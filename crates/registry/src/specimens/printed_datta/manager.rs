//! Algorithm 2: the resource, common features.

use std::collections::VecDeque;

use holdall_core::{Addr, Broken, Event, ManagerId, Never, Outbox, RequestId, Role};
use holdall_protocols::datta::Claim;
use serde::{Deserialize, Serialize};

use super::{PrintedDatta, ToManager, ToUser};

pub(super) type Out = Outbox<PrintedDatta, Never>;

/// A resource: Variable 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    pub(super) id: ManagerId,
    pub(super) strong: VecDeque<Entry>,
    pub(super) weak: Vec<Entry>,
    token: VecDeque<RequestId>,
    /// `rmin`; `None` is infinity.
    pub(super) rmin: Option<ManagerId>,
    pub(super) lock: bool,
    pub(super) new_head: bool,
    pub(super) strong_ready: bool,
    pub(super) weak_ready: bool,
    pub(super) holding: bool,
    sending: bool,
    /// What was not received while locked.
    inbox: Vec<(RequestId, u8, Option<ManagerId>)>,
}

/// A `REQUESTQUEUEELEMENT`. `Score` is left out: nothing reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The client's claim to its weak resource.
    pub(super) claim: Claim,
    /// `RqNo`: 1 is strong, 2 is weak.
    pub(super) number: u8,
    /// `NextResId`.
    pub(super) next: Option<ManagerId>,
    /// The repaired `StrongReady`.
    pub(super) ready: bool,
}

impl Manager {
    pub(super) fn new(id: ManagerId) -> Self {
        Self {
            id,
            strong: VecDeque::new(),
            weak: Vec::new(),
            token: VecDeque::new(),
            rmin: Some(id),
            lock: false,
            new_head: false,
            strong_ready: false,
            weak_ready: false,
            holding: id.0 == 0,
            sending: false,
            inbox: Vec::new(),
        }
    }

    pub(super) fn holds_token(&self) -> bool {
        self.holding
    }

    pub(super) fn undefined(&self, what: &'static str, out: &mut Out) {
        out.misbehaved(Addr::Manager(self.id), what);
    }

    /// `Head(Qstrong)`, or the line that reads it although there is none.
    pub(super) fn head(&self, line: &'static str, out: &mut Out) -> Option<&Entry> {
        if self.strong.is_empty() {
            self.undefined(line, out);
        }
        self.strong.front()
    }

    /// Sends to `NextResId`, or reports the line that does so although it is not set.
    pub(super) fn send(
        &self,
        to: Option<ManagerId>,
        msg: ToManager,
        line: &'static str,
        out: &mut Out,
    ) {
        match to {
            Some(to) => out.to_manager(to, msg),
            None => self.undefined(line, out),
        }
    }

    /// 3-10
    fn on_token(&mut self) {
        let strong = self.strong.iter().filter(|entry| entry.number == 1);
        self.token.extend(strong.map(|entry| entry.claim.request));
        self.holding = true;
    }

    /// 19-34
    fn on_request(&mut self, id: RequestId, number: u8, next: Option<ManagerId>, out: &mut Out) {
        if self.lock {
            return self.inbox.push((id, number, next));
        }
        let claim = Claim { request: id, place: 1, attempt: 0 };
        let entry = Entry { claim, number, next, ready: false };
        if number == 1 {
            self.new_head |= self.strong.is_empty();
            self.strong.push_back(entry);
        } else {
            self.weak.push(entry);
            let msg = ToManager::NewRequest(id, 1, Some(self.id));
            self.send(next, msg, "line 31: a message to nobody", out);
        }
    }

    /// 50-58
    fn on_new_strong(&mut self, cfg: &PrintedDatta, from: Addr, claim: Claim, out: &mut Out) {
        let Some(at) = self.weak.iter().position(|e| e.claim.request == claim.request) else {
            return self.undefined("line 55: no such request in Qweak", out);
        };
        self.new_head |= self.strong.is_empty();
        let entry = Entry { claim, ..self.weak.remove(at) };
        self.strong.push_back(Entry { ready: entry.ready && !cfg.repairs.d12, ..entry });
        let Addr::Manager(from) = from else { return };
        out.to_manager(from, ToManager::NewStrongAck(claim));
    }

    /// 60-62
    fn on_ready(&mut self, cfg: &PrintedDatta, claim: Claim, out: &mut Out) {
        if !cfg.repairs.d1 {
            return; // It was sent under another name.
        }
        if !cfg.repairs.d11 {
            self.strong_ready = true;
            return;
        }
        let Some(at) = self.strong.iter().position(|e| cfg.same(e.claim, claim)) else { return };
        let entry = &mut self.strong[at];
        if !std::mem::replace(&mut entry.ready, true) && at == 0 {
            out.to_user(claim.request.user, ToUser::Allowed);
        }
    }

    /// 70-84
    fn on_done(&mut self, cfg: &PrintedDatta, out: &mut Out) {
        let Some(head) = self.head("line 71: the head of an empty queue", out).cloned() else {
            return;
        };
        self.strong.pop_front();
        if head.number == 1 {
            if self.holding {
                self.leave_token(cfg, &head, out);
            }
            out.to_user(head.claim.request.user, ToUser::End);
        } else {
            let line = "line 80: the head of an empty queue";
            let next = if cfg.repairs.d2 { Some(&head) } else { self.head(line, out) };
            let Some(next) = next.map(|entry| entry.next) else { return };
            self.send(next, ToManager::Done, "line 80: a message to nobody", out);
        }
        self.new_head = !self.strong.is_empty();
        if self.holding || !cfg.repairs.d4 {
            self.sending = self.token.is_empty();
        }
    }

    /// 75
    fn leave_token(&mut self, cfg: &PrintedDatta, head: &Entry, out: &mut Out) {
        if cfg.repairs.d3 {
            self.token.retain(|id| *id != head.claim.request);
        } else if self.token.pop_front().is_none() {
            self.undefined("line 75: a pop of an empty queue", out);
        }
    }

    /// 36-48
    fn on_new_head(&mut self, cfg: &PrintedDatta, out: &mut Out) {
        self.new_head = false;
        let Some(head) = self.head("line 37: the head of an empty queue", out) else { return };
        let (claim, ready) = (head.claim, head.ready);
        match (head.number, head.next) {
            (1, None) => out.to_user(claim.request.user, ToUser::Allowed),
            (1, Some(next)) => out.to_manager(next, ToManager::NewStrong(claim)),
            _ if !cfg.repairs.d11 => self.weak_ready = true,
            _ if ready => out.to_user(claim.request.user, ToUser::Allowed),
            _ => {}
        }
    }

    /// What the loop does without a message: 12-16, 36-48, 64-68.
    fn go_round(&mut self, cfg: &PrintedDatta, out: &mut Out) {
        while !self.lock && !self.inbox.is_empty() {
            let (id, number, next) = self.inbox.remove(0);
            self.on_request(id, number, next, out);
        }
        if self.new_head {
            self.on_new_head(cfg, out);
        }
        if self.strong_ready && self.weak_ready {
            if let Some(head) = self.head("line 65: the head of an empty queue", out) {
                out.to_user(head.claim.request.user, ToUser::Allowed);
            }
            (self.strong_ready, self.weak_ready) = (false, false);
        }
        if cfg.repairs.d5 && self.holding && self.token.is_empty() {
            self.sending = true;
        }
        if std::mem::take(&mut self.sending) {
            self.holding = false;
            out.to_manager(cfg.next(self.id), ToManager::Token);
        }
    }
}

impl Role for Manager {
    type P = PrintedDatta;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &PrintedDatta, event: Event<Self>, out: &mut Out) {
        let Event::Message { from, msg } = event else { return };
        match msg {
            ToManager::Token => self.on_token(),
            ToManager::NewRequest(id, number, next) => self.on_request(id, number, next, out),
            ToManager::NewStrong(claim) => self.on_new_strong(cfg, from, claim, out),
            ToManager::Ready(claim) => self.on_ready(cfg, claim, out),
            ToManager::Done => self.on_done(cfg, out),
            ToManager::NewStrongAck(claim) => self.on_new_strong_ack(cfg, claim, out),
            ToManager::SeekLoop(seek) => self.on_seek(cfg, seek, out),
            ToManager::NoLoop(claim) => self.on_no_loop(cfg, claim, out),
            ToManager::RemoteKill(claim) => self.kill(cfg, claim, out),
            ToManager::Kill(claim) => self.on_kill(cfg, from, claim, out),
            ToManager::KillAck1(claim, killed) => self.on_ack1(cfg, from, claim, killed, out),
            ToManager::KillAck2 => self.on_ack2(cfg),
        }
        self.go_round(cfg, out);
    }

    fn check(&self, _: &PrintedDatta) -> Result<(), Broken> {
        Ok(())
    }

    /// What the repairs let a resource ignore, so that it need not be kept.
    fn is_stale(&self, cfg: &PrintedDatta, _: Addr, msg: &ToManager) -> bool {
        let fixed = &cfg.repairs;
        let heads = |claim| self.strong.front().is_some_and(|head| cfg.same(head.claim, claim));
        match msg {
            ToManager::NewStrongAck(claim) | ToManager::NoLoop(claim) => {
                fixed.d10 && fixed.d19 && !heads(*claim)
            }
            ToManager::Ready(claim) => {
                let waits = self.strong.iter().any(|entry| cfg.same(entry.claim, *claim));
                fixed.d1 && fixed.d11 && fixed.d19 && !waits
            }
            ToManager::RemoteKill(claim) => fixed.d14 && fixed.d19 && !heads(*claim),
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.strong.is_empty() && self.weak.is_empty() && self.inbox.is_empty()
    }
}
