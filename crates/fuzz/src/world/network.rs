//! Messages under way.

use holdall_core::{Addr, Order};

use crate::random::Random;
use crate::roles::Message;

/// A message under way.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) from: Addr,
    pub(super) to: Addr,
    pub(super) msg: Message,
    /// Not delivered before this step.
    pub(super) ready: u64,
}

/// All messages under way, in the order in which they were sent.
#[derive(Debug)]
pub(super) struct Network {
    order: Order,
    under_way: Vec<Envelope>,
}

impl Network {
    pub(super) fn new(order: Order) -> Self {
        Self { order, under_way: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn send(&mut self, envelope: Envelope) {
        self.under_way.push(envelope);
    }

    /// Takes out some message that may arrive now.
    pub(super) fn take(&mut self, ready: u64, random: &mut Random) -> Option<Envelope> {
        let first = random.below(self.under_way.len());
        let turned = (first..self.under_way.len()).chain(0..first);
        let at = { turned }.find(|at| self.under_way[*at].ready <= ready && self.is_next(*at))?;
        Some(self.under_way.remove(at))
    }

    /// Whether nothing on its link must arrive before it.
    fn is_next(&self, at: usize) -> bool {
        let link = |envelope: &Envelope| (envelope.from, envelope.to);
        self.order == Order::Unordered
            || self.under_way[..at].iter().all(|other| link(other) != link(&self.under_way[at]))
    }

    /// Whether a message from one of these to this address is under way.
    pub(super) fn has_any(&self, from: impl Fn(Addr) -> bool, to: Addr) -> bool {
        self.under_way.iter().any(|envelope| envelope.to == to && from(envelope.from))
    }

    pub(super) fn to_managers(&self) -> impl Iterator<Item = &Message> {
        let envelopes = self.under_way.iter();
        envelopes.filter(|e| matches!(e.to, Addr::Manager(_))).map(|envelope| &envelope.msg)
    }

    /// With their senders.
    pub(super) fn to_users(&self) -> impl Iterator<Item = (Addr, &Message)> {
        let envelopes = self.under_way.iter();
        envelopes.filter(|e| matches!(e.to, Addr::User(_))).map(|e| (e.from, &e.msg))
    }
}
