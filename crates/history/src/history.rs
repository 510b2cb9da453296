//! A history as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdall_wire::{Amount, Name, Need, RequestNo};

use crate::forecast::Estimate;
use crate::line::How;
use crate::note::Note;
use crate::pools::{PoolSeen, Pools};

/// A request, from asking to its end. Times are those of the history ([`History::wall`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Its number, if it got one.
    pub request: Option<RequestNo>,
    /// The user.
    pub user: Option<Arc<str>>,
    /// The name of the request.
    pub name: Option<Arc<str>>,
    /// The command or program.
    pub command: Option<Arc<str>>,
    /// What was needed; nothing if it was asked for before the history begins.
    pub needs: Vec<Need>,
    /// When it was asked for; nothing if that was before the history begins.
    pub asked: Option<u64>,
    /// When it was granted, if it was.
    pub granted: Option<u64>,
    /// When it ended, if it did.
    pub ended: Option<u64>,
    /// How.
    pub how: Option<How>,
    /// What it got.
    pub got: BTreeMap<Name, Vec<Name>>,
    /// How many more units of a pool it got than are named.
    pub more: BTreeMap<Name, u32>,
    /// Until when it was reserved, if that was known when it was granted.
    pub until: Option<u64>,
    /// When its time was over, if it had been used for longer.
    pub limit: Option<u64>,
    /// When it was told to expect its grant, and when that was: the first time.
    pub expected: Option<(u64, Estimate)>,
    /// How long it is going to be used, in a workload that is made up.
    pub service: Option<u64>,
    /// The grant of which it is a part. What it holds is held by that one already.
    pub part_of: Option<RequestNo>,
}

impl Use {
    /// When it is first heard of.
    pub fn first(&self) -> u64 {
        self.asked.or(self.granted).or(self.ended).unwrap_or(0)
    }

    /// How long it waited until it was granted.
    pub fn waited(&self) -> Option<u64> {
        Some(self.granted?.saturating_sub(self.asked?))
    }

    /// How long it waited until it was given up or refused: of one of which nothing more was heard that is not known.
    pub fn waited_in_vain(&self) -> Option<u64> {
        let known = self.granted.is_none() && self.how != Some(How::Unknown);
        self.ended.filter(|_| known)?.checked_sub(self.asked?)
    }

    /// How long it was held, once that is over.
    pub fn held(&self) -> Option<u64> {
        Some(self.ended?.saturating_sub(self.granted?))
    }

    /// Whether it was held at this time, or still is.
    pub fn is_held_at(&self, at: u64) -> bool {
        self.granted.is_some_and(|granted| granted <= at) && self.ended.is_none_or(|end| end > at)
    }

    /// Whether it waited at this time, or still does.
    pub fn waits_at(&self, at: u64) -> bool {
        let over = self.granted.or(self.ended);
        self.asked.is_some_and(|asked| asked <= at) && over.is_none_or(|over| over > at)
    }

    /// How many units of a pool it got.
    pub fn units_of(&self, pool: &Name) -> u32 {
        let named = self.got.get(pool).map_or(0, Vec::len);
        let named = u32::try_from(named).unwrap_or(u32::MAX);
        named.saturating_add(self.more.get(pool).copied().unwrap_or(0))
    }

    /// What it is called: its name, or else its command.
    pub fn label(&self) -> Option<&str> {
        self.name.as_deref().or(self.command.as_deref())
    }
}

/// A part of the time of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// From then on.
    pub from: u64,
    /// Before then.
    pub to: u64,
}

impl Period {
    /// How much of a span lies within.
    pub fn share_of(&self, from: u64, to: u64) -> u64 {
        to.min(self.to).saturating_sub(from.max(self.from))
    }

    /// Whether a time lies within.
    pub fn has(&self, at: u64) -> bool {
        (self.from..self.to).contains(&at)
    }

    /// How long it is.
    pub fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// How much of time such spans cover, however many cover the same.
pub(crate) fn covered(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut upto) = (0, 0);
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(upto));
        upto = upto.max(to);
    }
    sum
}

/// All that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The requests, in the order in which they were first heard of.
    pub uses: Vec<Use>,
    /// What is odd about it.
    pub notes: Vec<Note>,
    pub(crate) pools: Pools,
    /// When it begins and ends.
    pub(crate) span: Option<(u64, u64)>,
    /// From when on the clock was behind the time of the history, and by how much, or ahead of it.
    pub(crate) behind: Vec<(u64, i64)>,
}

impl History {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// The pools and locks, by name.
    pub fn pools(&self) -> &BTreeMap<Name, PoolSeen> {
        &self.pools.0
    }

    /// The pool or lock that a need is of, and the unit that it names.
    pub fn pool_of(&self, need: &Need) -> (Name, Option<Name>) {
        self.pools.of(need)
    }

    /// The pool or lock that a name is of, and the unit if it is that of one, which may be told without its pool.
    pub(crate) fn owner_of(&self, name: &Name) -> (Name, Option<Name>) {
        let of = self.pool_of(&Need { name: name.clone(), amount: Amount::One });
        if of.1.is_some() || self.pools().contains_key(name) {
            return of;
        }
        let owner = self.pools().iter().find(|(_, pool)| pool.units.contains(name));
        owner.map_or(of, |(pool, _)| (pool.clone(), Some(name.clone())))
    }

    /// Takes notice of pools as an agent has them now: the names of their units, or nothing for a lock.
    pub fn know_pools(&mut self, pools: impl IntoIterator<Item = (Name, Option<Vec<Name>>)>) {
        for (pool, names) in pools {
            let seen = self.pools.0.entry(pool).or_default();
            seen.lock = names.is_none();
            let Some(names) = names else { continue };
            let units = u32::try_from(names.len()).unwrap_or(u32::MAX);
            seen.units.extend(names);
            if seen.sizes.last().is_none_or(|(_, told)| *told != units) {
                let (from, to) = self.span.unwrap_or_default();
                seen.sizes.push((if seen.sizes.is_empty() { from } else { to }, units));
            }
        }
        let told = |note: &Note| {
            matches!(note, Note::Resized { .. } | Note::Removed(_) | Note::Guessed { .. })
        };
        self.notes.retain(|note| !told(note));
        self.notes.extend(self.pools.notes());
    }

    /// What the clock on the wall said at a time of the history.
    pub fn wall(&self, time: u64) -> u64 {
        let set = self.behind.partition_point(|(from, _)| *from <= time);
        let behind = self.behind[..set].last();
        time.saturating_add_signed(behind.map_or(0, |(_, by)| by.saturating_neg()))
    }

    /// The time of the history at which the clock says this, from the last time it was set on.
    fn time(&self, wall: u64) -> u64 {
        wall.saturating_add_signed(self.behind.last().map_or(0, |(_, by)| *by))
    }

    /// The last so many milliseconds before `now`, by the clock on the wall, or all of it. A history that ends earlier
    /// counts from its end.
    pub fn period(&self, now: Option<u64>, since: Option<u64>) -> Period {
        let (first, last) = self.span.unwrap_or_default();
        let end = last.saturating_add(1);
        let to = now.map_or(end, |now| self.time(now).max(end));
        let from = since.map_or(first, |since| to.saturating_sub(since).max(first));
        Period { from, to }
    }
}
