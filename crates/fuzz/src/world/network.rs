//! Messages under way.

use holdall_core::{Addr, Order, Protocol};

use crate::random::Random;

/// A message under way.
#[derive(Debug)]
pub(super) struct Envelope<P: Protocol> {
    pub(super) from: Addr,
    pub(super) to: Addr,
    pub(super) body: Body<P>,
    /// Not delivered before this step.
    pub(super) ready: u64,
}

/// Its content.
#[derive(Debug)]
pub(super) enum Body<P: Protocol> {
    ToManager(P::ToManager),
    ToUser(P::ToUser),
}

impl<P: Protocol> Clone for Body<P> {
    fn clone(&self) -> Self {
        match self {
            Self::ToManager(msg) => Self::ToManager(msg.clone()),
            Self::ToUser(msg) => Self::ToUser(msg.clone()),
        }
    }
}

/// All messages under way, in the order in which they were sent.
#[derive(Debug)]
pub(super) struct Network<P: Protocol> {
    order: Order,
    under_way: Vec<Envelope<P>>,
}

impl<P: Protocol> Network<P> {
    pub(super) fn new(order: Order) -> Self {
        Self { order, under_way: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn send(&mut self, envelope: Envelope<P>) {
        self.under_way.push(envelope);
    }

    /// Takes out some message that may arrive now.
    pub(super) fn take(&mut self, ready: u64, random: &mut Random) -> Option<Envelope<P>> {
        let first = random.below(self.under_way.len());
        let turned = (first..self.under_way.len()).chain(0..first);
        let at = { turned }.find(|at| self.under_way[*at].ready <= ready && self.is_next(*at))?;
        Some(self.under_way.remove(at))
    }

    /// Whether nothing on its link must arrive before it.
    fn is_next(&self, at: usize) -> bool {
        let link = |envelope: &Envelope<P>| (envelope.from, envelope.to);
        self.order == Order::Unordered
            || self.under_way[..at].iter().all(|other| link(other) != link(&self.under_way[at]))
    }

    /// Whether a message from one of these to this address is under way.
    pub(super) fn has_any(&self, from: impl Fn(Addr) -> bool, to: Addr) -> bool {
        self.under_way.iter().any(|envelope| envelope.to == to && from(envelope.from))
    }

    pub(super) fn to_managers(&self) -> impl Iterator<Item = &P::ToManager> {
        self.under_way.iter().filter_map(|envelope| match &envelope.body {
            Body::ToManager(msg) => Some(msg),
            Body::ToUser(_) => None,
        })
    }
}
