//! Why a request waits, followed to the end; and requests that would wait for themselves.
//!
//! Whoever waits holds nothing, so a chain of waiting leads from a request over those served
//! earlier to grants, and ends there: unless the holder of a grant itself waits, for a request
//! asked inside that grant. Only this can close a circle, and such a request is refused.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdall_core::{Need as Count, PoolId, Protocol, Unit};
use holdall_wire::{Explanation, Need, Refusal, RequestNo};

use super::ledger::Pool;
use super::look::Page;
use super::view::NAMED;
use super::{Engine, Serving};

/// The chain from a request: who waits along it, and the grants it ends at.
struct Chain {
    waiting: Vec<RequestNo>,
    grants: BTreeSet<RequestNo>,
    circular: bool,
    /// How many were found and not followed.
    left_out: u32,
}

/// Who was followed at a pool.
#[derive(Default)]
struct Followed {
    /// All who are out of turn.
    out_of_turn: bool,
    /// Those in turn who came before this.
    before: RequestNo,
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Why a request waits; nothing if there is no such request. At most so many of those who wait
    /// along the way are followed and shown.
    pub fn explain(&self, request: RequestNo, most: usize) -> Option<Explanation> {
        let held = self.requests.get(&request)?.taken.is_some();
        let chain = self.chain(request, Some(most));
        let (mut waiting, mut release) = (Page::default(), Page::default());
        for request in &chain.waiting {
            if waiting.has_room()
                && let Some(view) = self.wait_view(*request)
            {
                waiting.wait(view);
            }
        }
        for grant in &chain.grants {
            if release.has_room()
                && let Some(view) = self.grant(*grant)
            {
                release.grant(view);
            }
        }
        let found = chain.waiting.len() + chain.grants.len();
        let left_out = chain.left_out + (found - waiting.rows - release.rows) as u32;
        let (chain_shown, release) = (waiting.status.waiting, release.status.grants);
        let circular = chain.circular;
        let (chain, outlook) = (chain_shown, None);
        let elsewhere = None;
        Some(Explanation { request, held, chain, release, circular, left_out, outlook, elsewhere })
    }

    /// Follows so many requests, and of those ahead of one at a pool some; or all.
    fn chain(&self, request: RequestNo, most: Option<usize>) -> Chain {
        let mut chain =
            Chain { waiting: Vec::new(), grants: BTreeSet::new(), circular: false, left_out: 0 };
        if self.is_held(request) {
            return chain;
        }
        if self.requests.get(&request).is_some_and(|entry| entry.besides.part_of.is_some()) {
            // It waits for other parts alone.
            let hindrances = self.hindrances(request, usize::MAX);
            chain.waiting.push(request);
            chain.grants.extend(hindrances.iter().flat_map(|hindrance| &hindrance.holders));
            return chain;
        }
        let outer: BTreeSet<_> = self.outer(request).collect();
        let mut next = VecDeque::from([request]);
        let mut seen = BTreeSet::from([request]);
        let (mut followed, mut held) = (BTreeMap::new(), BTreeSet::new());
        while let Some(waiter) = next.pop_front() {
            if most == Some(chain.waiting.len()) {
                chain.left_out = next.len() as u32 + 1;
                break;
            }
            chain.waiting.push(waiter);
            let Some(entry) = self.requests.get(&waiter) else { continue };
            for count in entry.counts.iter() {
                let Some(pool) = self.ledger.pool(count.pool) else { continue };
                for holder in holders_in_the_way(pool, count, &mut held) {
                    if !self.is_held(holder) {
                        // It is kept for somebody who waits for something elsewhere.
                        next.extend(Some(holder).filter(|holder| seen.insert(*holder)));
                        continue;
                    }
                    // Beside what is around the request itself there may be enough of a pool; if there is not,
                    // it was refused at once.
                    chain.circular |= waiter != request && outer.contains(&holder);
                    let inside = self.waiting_inside(holder);
                    if inside.is_empty() {
                        chain.grants.insert(holder);
                    }
                    next.extend(inside.into_iter().filter(|r| seen.insert(*r)));
                }
                let ahead = match most {
                    Some(_) => self.ahead(waiter, count, NAMED).0,
                    None => self.all_ahead(waiter, count, &mut followed),
                };
                next.extend(ahead.into_iter().filter(|r| seen.insert(*r)));
            }
        }
        chain
    }

    /// Those who compete with a request for some of a pool and are served before it, but for those who were
    /// followed: for a pool, or a unit by name, each is looked at once, however many wait behind it.
    fn all_ahead(
        &self,
        request: RequestNo,
        count: &Count,
        followed: &mut BTreeMap<(PoolId, Option<Unit>), Followed>,
    ) -> Vec<RequestNo> {
        if count.more() > 0 {
            return self.ahead_for(request, count, followed.entry((count.pool, None)));
        }
        let each = count.named.iter().flat_map(|unit| {
            let one = Count { pool: count.pool, units: 1, named: BTreeSet::from([*unit]) };
            self.ahead_for(request, &one, followed.entry((count.pool, Some(*unit))))
        });
        each.collect()
    }

    fn ahead_for(
        &self,
        request: RequestNo,
        count: &Count,
        followed: Entry<'_, (PoolId, Option<Unit>), Followed>,
    ) -> Vec<RequestNo> {
        let followed = followed.or_default();
        let (mine, mut ahead) = (self.place_out_of_turn(request), Vec::new());
        if !followed.out_of_turn {
            followed.out_of_turn = mine.is_none();
            let first = self.manager.out_of_turn();
            let first = first.take_while(|(place, _)| mine.is_none_or(|mine| *place < mine));
            let first = first.filter_map(|(_, id)| self.request_of(id.user));
            ahead.extend(first.filter(|r| self.competes(*r, count)));
        }
        if mine.is_none()
            && followed.before < request
            && let Some(pool) = self.ledger.pool(count.pool)
        {
            let new = pool.waiting.between(followed.before, request).copied();
            let new = new.filter(|r| self.place_out_of_turn(*r).is_none());
            ahead.extend(new.filter(|r| self.competes(*r, count)));
            followed.before = request;
        }
        ahead
    }

    /// The grants inside which a request was asked, from the inside out, and those that they are parts of.
    pub(super) fn outer(&self, request: RequestNo) -> impl Iterator<Item = RequestNo> + '_ {
        let within = |request: RequestNo| self.requests.get(&request)?.besides.within;
        let whole = |part: RequestNo| self.requests.get(&part)?.besides.part_of;
        let around = std::iter::successors(within(request), move |outer| within(*outer));
        around.flat_map(move |grant| [Some(grant), whole(grant)]).flatten()
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
        for count in entry.counts.iter() {
            let pool = self.ledger.pool(count.pool)?;
            let held = |grant| pool.holders.get(&grant).map(|units| (grant, *units));
            let own: Vec<_> = self.outer(request).filter_map(held).collect();
            let units = own.iter().fold(0u32, |sum, (_, units)| sum.saturating_add(*units));
            let named = count.named.iter().filter_map(|unit| pool.units()?.get(*unit)?.holder);
            let by_name = named.into_iter().any(|holder| own.iter().any(|(own, _)| *own == holder));
            if let Some((grant, _)) = own.first()
                && (by_name || count.units > pool.size().saturating_sub(units))
            {
                return Some(Refusal::Never(format!(
                    "'{}' would wait for itself: it is asked inside grant {grant}, which holds it",
                    told(entry, pool)
                )));
            }
        }
        None
    }

    /// Whether a request that waits does so, over others, for a grant around it.
    pub(super) fn waits_in_a_circle(&self, request: RequestNo) -> Option<Refusal> {
        self.requests.get(&request)?.besides.within?;
        let chain = self.chain(request, None);
        chain.circular.then(|| {
            let over: Vec<_> = chain.waiting.iter().skip(1).map(ToString::to_string).collect();
            Refusal::Never(format!(
                "it would wait for itself: it is asked inside a grant that {} waits for",
                over.join(", ")
            ))
        })
    }

    /// Why a request is not free right now, in a few words.
    pub(super) fn busy(&self, request: RequestNo) -> String {
        let hindrances = self.hindrances(request, 3);
        let told = hindrances.into_iter().map(|hindrance| {
            let name = hindrance.need.name;
            if let [(unit, drained), ..] = &hindrance.drained[..]
                && hindrance.holders.is_empty()
            {
                return format!("{unit} is drained: {}", drained.reason);
            }
            let by = |r: &RequestNo| match self.who(*r) {
                // Of whoever comes over a network, no process is known.
                Some(who) if who.pid == 0 => format!("{r} ({})", who.user),
                Some(who) => format!("{r} ({}, pid {})", who.user, who.pid),
                None => r.to_string(),
            };
            let holders: Vec<_> = hindrance.holders.iter().map(by).collect();
            let missing = match hindrance.wanted {
                1 => String::new(),
                wanted => format!(" ({} of {wanted} free)", hindrance.free),
            };
            match hindrance.holders_total {
                0 => format!("{name} is wanted by {} before{missing}", hindrance.ahead_total),
                n if n > 3 => {
                    format!("{name} is held by {} and {} more{missing}", holders.join(", "), n - 3)
                }
                _ => format!("{name} is held by {}{missing}", holders.join(", ")),
            }
        });
        let told: Vec<_> = told.take(3).collect();
        if told.is_empty() { "others are served before".into() } else { told.join("; ") }
    }
}

/// Who holds what a request lacks of a pool. Those who hold some of a pool are told once for it.
fn holders_in_the_way(
    pool: &Pool,
    count: &Count,
    told: &mut BTreeSet<PoolId>,
) -> BTreeSet<RequestNo> {
    let by_count = match pool.units() {
        None => pool.lacks(count),
        Some(units) => count.more() > 0 && count.more() > units.free_beside(&count.named),
    };
    if by_count && told.insert(count.pool) {
        return pool.holders.keys().copied().collect();
    }
    let missing = pool.units().into_iter().flat_map(|units| {
        units.missing(&count.named).flat_map(|(_, unit)| units.in_the_way_of(unit))
    });
    missing.collect()
}

/// What a request has asked for of a pool, as it was written.
fn told(entry: &super::Entry, pool: &Pool) -> String {
    let name = pool.name.as_str();
    let of_pool = |need: &&Need| {
        let rest = need.name.as_str().strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let needs = entry.needs().iter().filter(of_pool).map(ToString::to_string);
    needs.collect::<Vec<_>>().join(" ")
}
