//! A request at the engine. There may be a million that wait: what was asked for is that of the books, and what few have is
//! kept elsewhere.

use std::sync::Arc;

use holdall_core::{Length, Needs, Seldom, UserId, Usual};
use holdall_wire::{Ask, From as Words, Lasting, Need, RequestNo, Taken, Who};
use serde::{Deserialize, Serialize};

/// A request that waits or holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(super) struct Entry {
    pub(super) user: UserId,
    /// What was asked for, by name.
    pub(super) ask: Arc<Ask>,
    /// The same for the protocol; once it is granted, with every unit by number.
    pub(super) counts: Needs,
    pub(super) who: Arc<Who>,
    pub(super) since: u64,
    pub(super) taken: Option<Arc<[Taken]>>,
    pub(super) besides: Seldom<Besides>,
}

/// What few requests have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Besides {
    /// How long its use will probably take, as far as that was known when it was asked for.
    pub(super) length: Option<Length>,
    /// How long a reservation lasts, from its grant.
    pub(super) lasts: Option<u64>,
    /// Until when, once it is granted.
    pub(super) until: Option<u64>,
    pub(super) within: Option<RequestNo>,
    /// The grant that it uses a part of, or wants to.
    pub(super) part_of: Option<RequestNo>,
    /// It ends with its last part.
    pub(super) closing: bool,
}

impl Usual for Besides {
    const USUAL: &'static Self = &Self {
        length: None,
        lasts: None,
        until: None,
        within: None,
        part_of: None,
        closing: false,
    };
}

impl Entry {
    /// A request that waits, and is nothing else.
    pub(super) fn new(
        user: UserId,
        ask: Arc<Ask>,
        counts: Needs,
        who: Arc<Who>,
        since: u64,
    ) -> Self {
        Self { user, ask, counts, who, since, taken: None, besides: Seldom::USUAL }
    }

    /// What was asked for, by name.
    pub(super) fn needs(&self) -> &[Need] {
        &self.ask.needs
    }
}

/// A request of which nothing else is told.
pub(super) fn for_needs(needs: Vec<Need>) -> Arc<Ask> {
    let (lasting, from) = (Lasting::Connection, Words::default());
    Arc::new(Ask { needs, now: false, lasting, from, within: None, limit: None, part: None })
}

/// What is written down of it.
#[derive(Serialize, Deserialize)]
struct Written {
    user: UserId,
    needs: Vec<Need>,
    counts: Needs,
    who: Arc<Who>,
    since: u64,
    length: Option<Length>,
    lasts: Option<u64>,
    until: Option<u64>,
    within: Option<RequestNo>,
    taken: Option<Arc<[Taken]>>,
    part_of: Option<RequestNo>,
    closing: bool,
}

impl From<Entry> for Written {
    fn from(entry: Entry) -> Self {
        let Entry { user, ask, counts, who, since, taken, besides } = entry;
        let Besides { length, lasts, until, within, part_of, closing } = Besides::clone(&besides);
        let needs = ask.needs.clone();
        Self {
            user,
            needs,
            counts,
            who,
            since,
            length,
            lasts,
            until,
            within,
            taken,
            part_of,
            closing,
        }
    }
}

impl From<Written> for Entry {
    fn from(written: Written) -> Self {
        let Written { user, needs, counts, who, since, taken, .. } = written;
        let Written { length, lasts, until, within, part_of, closing, .. } = written;
        let besides = Besides { length, lasts, until, within, part_of, closing }.into();
        Self { user, ask: for_needs(needs), counts, who, since, taken, besides }
    }
}
