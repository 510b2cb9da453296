//! Everything there is to see, a page at a time: the work for a page is bounded, however many hold and
//! wait.

use std::collections::BTreeSet;

use holdall_core::{Need as Count, PoolId, Protocol, Unit as Number};
use holdall_wire::{GrantView, Name, PoolView, RequestNo, Status, WaitView};

use super::ledger::{Ledger, Meaning};
use super::view::pool_view;
use super::{Engine, Entry, Serving};

/// How many rows a page has.
const ROWS: usize = 64;
/// How many things are looked at for a page, to find those that concern some names.
const LOOKED_AT: usize = 4096;
/// About how many bytes a page has, unless its last row is longer.
pub(super) const PAGE: usize = 1 << 20;

/// How far somebody has looked.
#[derive(Debug)]
pub struct Walk<L> {
    /// What is to be seen; everything if it is empty.
    names: Vec<Name>,
    /// Those of them that mean a unit.
    units: BTreeSet<(PoolId, Number)>,
    /// What comes next.
    next: Next<L>,
    shown: usize,
}

#[derive(Clone, Debug)]
enum Next<L> {
    /// The pools of the names, from this one on.
    Named(usize),
    /// Those that are declared or being removed, after this name.
    Listed(Option<Name>),
    /// Grants, after this one.
    Held(Option<RequestNo>),
    /// Those who wait, after this place.
    Waiting(Option<L>),
    /// Those who wait for other cells alone, after this one.
    Elsewhere(Option<RequestNo>),
    /// Those who wait for parts of grants, after this one.
    Parts(Option<(RequestNo, RequestNo)>),
    /// Other locks, from this one on.
    Locks(PoolId),
    /// There is nothing more.
    Nothing,
}

impl<L> Walk<L> {
    /// Begins with the pools of some names, or of all.
    pub fn new(mut names: Vec<Name>) -> Self {
        names.sort();
        names.dedup();
        let next = if names.is_empty() { Next::Listed(None) } else { Next::Named(0) };
        Self { names, units: BTreeSet::new(), next, shown: 0 }
    }

    /// Whether everything has been seen.
    pub fn is_over(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }

    fn concerns(&self, entry: &Entry, ledger: &Ledger) -> bool {
        let pool = |id: PoolId| ledger.pool(id).is_some_and(|pool| self.means(&pool.name));
        let unit = |count: &Count| {
            let mut units = self.units.iter().filter(|(pool, _)| *pool == count.pool);
            units.any(|(_, unit)| count.named.contains(unit) || count.more() > 0)
        };
        // What others guard is known by its name alone: of who holds, that of the pool, of who waits, what was asked for.
        let elsewhere = || {
            let taken = entry.taken.iter().flat_map(|taken| taken.iter()).map(|taken| &taken.name);
            taken.chain(entry.needs().iter().map(|need| &need.name)).any(|name| self.means(name))
        };
        let is_here = |count: &Count| pool(count.pool) || unit(count);
        self.names.is_empty() || entry.counts.iter().any(is_here) || elsewhere()
    }

    fn means(&self, name: &Name) -> bool {
        self.names.binary_search(name).is_ok()
    }
}

/// A page that is being filled.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) status: Status,
    pub(super) rows: usize,
    bytes: usize,
    looked_at: usize,
}

impl Page {
    /// Whether one thing more may be looked at.
    pub(super) fn has_room(&mut self) -> bool {
        self.looked_at += 1;
        self.rows < ROWS && self.bytes < PAGE && self.looked_at <= LOOKED_AT
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    fn pool(&mut self, view: PoolView) {
        self.add(view.size());
        self.status.pools.push(view);
    }

    pub(super) fn grant(&mut self, view: GrantView) {
        self.add(view.size());
        self.status.grants.push(view);
    }

    pub(super) fn wait(&mut self, view: WaitView) {
        self.add(view.size());
        self.status.waiting.push(view);
    }
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Pools, grants and waiting requests; all, or those that concern some names. It takes as long as
    /// there are of them.
    pub fn status(&self, names: &[Name]) -> Status {
        let (mut all, mut walk) = (Status::default(), Walk::new(names.to_vec()));
        while !walk.is_over() {
            let page = self.look(&mut walk);
            all.pools.extend(page.pools);
            all.grants.extend(page.grants);
            all.waiting.extend(page.waiting);
        }
        all.pools.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The next page, and how many pools, grants and waiting requests there are beside it and those
    /// before: if names were given, that is not known.
    pub fn look(&self, walk: &mut Walk<<P::Manager as Serving>::Place>) -> Status {
        let mut page = Page::default();
        while !walk.is_over() {
            let Some(next) = self.fill(walk, &mut page) else { break };
            walk.next = next;
        }
        walk.shown += page.rows;
        if walk.names.is_empty() && !walk.is_over() {
            let all = self.ledger.listed_len() + self.requests.len();
            page.status.left_out = all.saturating_sub(walk.shown) as u32;
        }
        page.status
    }

    /// Fills a page with what comes next of a kind. Returns the next kind, if the page has room for it.
    fn fill(
        &self,
        walk: &mut Walk<<P::Manager as Serving>::Place>,
        page: &mut Page,
    ) -> Option<Next<<P::Manager as Serving>::Place>> {
        match walk.next.clone() {
            Next::Named(from) => {
                for at in from..walk.names.len() {
                    if !page.has_room() {
                        return None;
                    }
                    let name = &walk.names[at];
                    match self.ledger.meaning(name) {
                        Meaning::Pool(_, pool) => page.pool(pool_view(pool)),
                        Meaning::Unit(id, pool, unit) => {
                            let first = !walk.units.iter().any(|(pool, _)| *pool == id);
                            walk.units.insert((id, unit));
                            if first && !walk.means(&pool.name) {
                                page.pool(pool_view(pool));
                            }
                        }
                        _ => {}
                    }
                    walk.next = Next::Named(at + 1);
                }
                Some(Next::Held(None))
            }
            Next::Listed(after) => {
                for pool in self.ledger.listed(after.as_ref()) {
                    if !page.has_room() {
                        return None;
                    }
                    page.pool(pool_view(pool));
                    walk.next = Next::Listed(Some(pool.name.clone()));
                }
                Some(Next::Held(None))
            }
            Next::Locks(from) => {
                for (id, pool) in self.ledger.pools(from) {
                    if !page.has_room() {
                        return None;
                    }
                    if !pool.declared && !pool.removed {
                        page.pool(pool_view(pool));
                    }
                    walk.next = Next::Locks(PoolId(id.0 + 1));
                }
                Some(Next::Nothing)
            }
            Next::Held(after) => {
                let from = after.map_or(RequestNo(0), |after| RequestNo(after.0 + 1));
                for request in self.held.range(from..) {
                    if !page.has_room() {
                        return None;
                    }
                    let entry = self
                        .requests
                        .get(request)
                        .filter(|entry| walk.concerns(entry, &self.ledger));
                    if let Some(view) = entry.and_then(|entry| self.grant_view(*request, entry)) {
                        page.grant(view);
                    }
                    walk.next = Next::Held(Some(*request));
                }
                Some(Next::Waiting(None))
            }
            Next::Waiting(after) => {
                for (place, id) in self.manager.waiting_after(after) {
                    if !page.has_room() {
                        return None;
                    }
                    let request = self.request_of(id.user);
                    let concerns = |r: &RequestNo| {
                        let entry = self.requests.get(r);
                        entry.is_some_and(|entry| walk.concerns(entry, &self.ledger))
                    };
                    if let Some(view) = request.filter(concerns).and_then(|r| self.wait_view(r)) {
                        page.wait(view);
                    }
                    walk.next = Next::Waiting(Some(place));
                }
                Some(Next::Elsewhere(None))
            }
            Next::Elsewhere(after) => {
                for request in self.waiting_elsewhere(after) {
                    if !page.has_room() {
                        return None;
                    }
                    let entry = self.requests.get(&request);
                    if entry.is_some_and(|entry| walk.concerns(entry, &self.ledger))
                        && let Some(view) = self.wait_view(request)
                    {
                        page.wait(view);
                    }
                    walk.next = Next::Elsewhere(Some(request));
                }
                Some(Next::Parts(None))
            }
            Next::Parts(after) => {
                for next in self.waiting_for_parts().filter(|next| Some(*next) > after) {
                    if !page.has_room() {
                        return None;
                    }
                    let entry = self.requests.get(&next.1);
                    if entry.is_some_and(|entry| walk.concerns(entry, &self.ledger))
                        && let Some(view) = self.wait_view(next.1)
                    {
                        page.wait(view);
                    }
                    walk.next = Next::Parts(Some(next));
                }
                let named = !walk.names.is_empty();
                Some(if named { Next::Nothing } else { Next::Locks(PoolId(0)) })
            }
            Next::Nothing => None,
        }
    }
}
