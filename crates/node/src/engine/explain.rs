//! Why a request waits, followed to the end; and requests that would wait for themselves.
//!
//! Whoever waits holds nothing, so a chain of waiting leads from a request over those served
//! earlier to grants, and ends there: unless the holder of a grant itself waits, for a request
//! asked inside that grant. Only this can close a circle, and such a request is refused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdall_core::{PoolId, Protocol};
use holdall_wire::{Explanation, GrantView, Refusal, RequestNo, WaitView};

use super::view::{Queues, Room};
use super::{Engine, Serving};

/// The chain from a request: who waits along it, and the grants it ends at.
struct Chain {
    waiting: Vec<RequestNo>,
    grants: BTreeSet<RequestNo>,
    circular: bool,
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Why a request waits; nothing if there is no such request.
    pub fn explain(&self, request: RequestNo) -> Option<Explanation> {
        let held = self.requests.get(&request)?.taken.is_some();
        let queues = self.queues();
        let chain = self.chain(request, &queues);
        let mut room = Room::new();
        let waiting = chain.waiting.iter().filter_map(|r| self.wait_view(*r, &queues));
        let waiting = room.take(waiting, WaitView::size);
        let release = chain.grants.iter().filter_map(|r| self.grant(*r));
        let release = room.take(release, GrantView::size);
        let (circular, left_out) = (chain.circular, room.left_out);
        Some(Explanation { request, held, chain: waiting, release, circular, left_out })
    }

    /// Each pool is looked at no more often than somebody waits further back for it.
    fn chain(&self, request: RequestNo, queues: &Queues) -> Chain {
        let mut chain = Chain { waiting: Vec::new(), grants: BTreeSet::new(), circular: false };
        if self.is_held(request) {
            return chain;
        }
        let outer: BTreeSet<_> = self.outer(request).collect();
        let mut next = VecDeque::from([request]);
        let mut seen = BTreeSet::from([request]);
        let (mut followed, mut held) = (BTreeMap::<PoolId, usize>::new(), BTreeSet::new());
        while let Some(waiter) = next.pop_front() {
            chain.waiting.push(waiter);
            let Some(entry) = self.requests.get(&waiter) else { continue };
            for count in entry.counts.iter() {
                let Some(pool) = self.ledger.pool(count.pool) else { continue };
                if count.units > pool.free() && held.insert(count.pool) {
                    for holder in pool.holders.keys() {
                        chain.circular |= outer.contains(holder);
                        let inside = self.waiting_inside(*holder);
                        if inside.is_empty() {
                            chain.grants.insert(*holder);
                        }
                        next.extend(inside.into_iter().filter(|r| seen.insert(*r)));
                    }
                }
                let ahead = queues.ahead(waiter, count.pool);
                let before = followed.entry(count.pool).or_default();
                let new = ahead.get(*before..).unwrap_or_default();
                next.extend(new.iter().filter(|r| seen.insert(**r)));
                *before = ahead.len().max(*before);
            }
        }
        chain
    }

    /// The grants inside which a request was asked, from the inside out.
    fn outer(&self, request: RequestNo) -> impl Iterator<Item = RequestNo> + '_ {
        let within = |request: RequestNo| self.requests.get(&request)?.within;
        std::iter::successors(within(request), move |outer| within(*outer))
    }

    /// The requests that wait inside a grant, or inside one that is inside it.
    fn waiting_inside(&self, grant: RequestNo) -> BTreeSet<RequestNo> {
        let (mut waiting, mut around) = (BTreeSet::new(), vec![grant]);
        while let Some(outer) = around.pop() {
            for request in self.inside.get(&outer).into_iter().flatten() {
                around.push(*request);
                if !self.is_held(*request) {
                    waiting.insert(*request);
                }
            }
        }
        waiting
    }

    /// Whether a request wants what the grants around it hold.
    pub(super) fn waits_for_itself(&self, request: RequestNo) -> Option<Refusal> {
        let entry = self.requests.get(&request)?;
        for (need, count) in entry.needs.iter().zip(entry.counts.iter()) {
            let pool = self.ledger.pool(count.pool)?;
            let held = |grant| pool.holders.get(&grant).map(|units| (grant, *units));
            let own: Vec<_> = self.outer(request).filter_map(held).collect();
            let units = own.iter().fold(0u32, |sum, (_, units)| sum.saturating_add(*units));
            if let Some((grant, _)) = own.first()
                && count.units > pool.capacity().saturating_sub(units)
            {
                return Some(Refusal::Never(format!(
                    "'{need}' would wait for itself: it is asked inside grant {grant}, which holds it"
                )));
            }
        }
        None
    }

    /// Whether a request that waits does so, over others, for a grant around it.
    pub(super) fn waits_in_a_circle(&self, request: RequestNo) -> Option<Refusal> {
        self.requests.get(&request)?.within?;
        let chain = self.chain(request, &self.queues());
        chain.circular.then(|| {
            let over: Vec<_> = chain.waiting.iter().skip(1).map(ToString::to_string).collect();
            Refusal::Never(format!(
                "it would wait for itself: it is asked inside a grant that {} waits for",
                if over.is_empty() { "its rival".into() } else { over.join(", ") }
            ))
        })
    }

    /// Why a request is not free right now, in a few words.
    pub(super) fn busy(&self, request: RequestNo) -> String {
        let hindrances = self.hindrances(request, &self.queues(), 3);
        let told = hindrances.into_iter().map(|hindrance| {
            let name = hindrance.need.name;
            let by = |r: &RequestNo| match self.who(*r) {
                Some(who) => format!("{r} ({}, pid {})", who.user, who.pid),
                None => r.to_string(),
            };
            let holders: Vec<_> = hindrance.holders.iter().map(by).collect();
            match hindrance.holders_total {
                0 => format!("{name} is wanted by {} before", hindrance.ahead_total),
                n if n > 3 => {
                    format!("{name} is held by {} and {} more", holders.join(", "), n - 3)
                }
                _ => format!("{name} is held by {}", holders.join(", ")),
            }
        });
        let told: Vec<_> = told.take(3).collect();
        if told.is_empty() { "others are served before".into() } else { told.join("; ") }
    }
}
