//! The manager: a pool, or the gate, with a first-in-first-out queue.

use std::collections::VecDeque;

use holdall_core::{Addr, Broken, Event, Never, Outbox, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::{Gate, Held, ToManager};

type Out = Outbox<Gate, Never>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    capacity: u32,
    holders: Vec<Share>,
    queue: VecDeque<Share>,
}

/// Some units, held by a request or waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Share {
    request: RequestId,
    units: u32,
}

impl Manager {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity, holders: Vec::new(), queue: VecDeque::new() }
    }

    fn on_message(&mut self, from: Addr, msg: ToManager, out: &mut Out) {
        let (ToManager::Acquire { request, .. } | ToManager::Release(request)) = msg;
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "speaks for another user");
        }
        match msg {
            ToManager::Acquire { units, .. } if units == 0 || units > self.capacity => {
                out.misbehaved(from, "acquire: units there are not");
            }
            ToManager::Acquire { units, .. } => self.queue.push_back(Share { request, units }),
            ToManager::Release(_) => self.forget(|share| share.request == request),
        }
    }

    fn forget(&mut self, is_over: impl Fn(&Share) -> bool) {
        self.holders.retain(|share| !is_over(share));
        self.queue.retain(|share| !is_over(share));
    }

    /// Serves the head of the queue as long as its units are free.
    fn serve(&mut self, out: &mut Out) {
        while self.could_serve()
            && let Some(head) = self.queue.pop_front()
        {
            out.to_user(head.request.user, Held(head.request));
            self.holders.push(head);
        }
    }

    /// Whether the units are free that the head of the queue waits for.
    pub(super) fn could_serve(&self) -> bool {
        let fits = |head: &Share| self.held() + u64::from(head.units) <= u64::from(self.capacity);
        self.queue.front().is_some_and(fits)
    }

    fn held(&self) -> u64 {
        self.holders.iter().map(|share| u64::from(share.units)).sum()
    }
}

impl Role for Manager {
    type P = Gate;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, _: &Gate, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg } => self.on_message(from, msg, out),
            Event::Gone(gone) => self.forget(|share| gone.who().includes(share.request.user)),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
        self.serve(out);
    }

    fn check(&self, _: &Gate) -> Result<(), Broken> {
        Broken::unless(self.held() <= u64::from(self.capacity), "G1: no more is held than there is")
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }
}
