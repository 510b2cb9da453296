//! Why a request waits, followed to the end; and requests that would wait for themselves.
//!
//! Whoever waits holds nothing, so a chain of waiting leads from a request over those served
//! earlier to grants, and ends there: unless the holder of a grant itself waits, for a request
//! asked inside that grant. Only this can close a circle, and such a request is refused.

use std::collections::BTreeSet;

use holdall_core::Protocol;
use holdall_wire::{Explanation, Refusal, RequestNo};

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
        let (chain, places) = (self.chain(request), self.places());
        Some(Explanation {
            request,
            held,
            chain: chain.waiting.iter().filter_map(|r| self.wait_view(*r, &places)).collect(),
            release: chain.grants.iter().filter_map(|r| self.grant(*r)).collect(),
            circular: chain.circular,
        })
    }

    fn chain(&self, request: RequestNo) -> Chain {
        let mut chain = Chain { waiting: Vec::new(), grants: BTreeSet::new(), circular: false };
        if self.is_held(request) {
            return chain;
        }
        let places = self.places();
        let outer: BTreeSet<_> = self.outer(request).collect();
        let mut next = std::collections::VecDeque::from([request]);
        let mut seen = BTreeSet::from([request]);
        while let Some(waiter) = next.pop_front() {
            chain.waiting.push(waiter);
            for hindrance in self.hindrances(waiter, &places, usize::MAX) {
                for holder in hindrance.holders {
                    chain.circular |= outer.contains(&holder);
                    let inner = self.waiting_inside(holder);
                    if inner.is_empty() {
                        chain.grants.insert(holder);
                    }
                    next.extend(inner.into_iter().filter(|r| seen.insert(*r)));
                }
                next.extend(hindrance.ahead.into_iter().filter(|r| seen.insert(*r)));
            }
        }
        chain
    }

    /// The grants inside which a request was asked, from the inside out.
    fn outer(&self, request: RequestNo) -> impl Iterator<Item = RequestNo> + '_ {
        let within = |request: RequestNo| self.requests.get(&request)?.within;
        std::iter::successors(within(request), move |outer| within(*outer))
    }

    fn waiting_inside(&self, grant: RequestNo) -> Vec<RequestNo> {
        let waiting = self.requests.iter().filter(|(_, entry)| entry.taken.is_none());
        let inside = waiting.filter(|(request, _)| self.outer(**request).any(|g| g == grant));
        inside.map(|(request, _)| *request).collect()
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
        let chain = self.chain(request);
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
        let hindrances = self.hindrances(request, &self.places(), 3);
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
