//! Labels l1 to l3 of Figures 2 and 3: snapshot, renaming, first item.
//!
//! The renaming is Borowsky and Gafni's: take an immediate snapshot among those who have the same
//! one; the largest of each new snapshot takes the last name of the range, and the others go on,
//! in the opposite direction, in the range that is left. The sizes of the snapshots decrease
//! strictly, so the set of sizes so far names the instance.
//!
//! Those who obtain the same snapshot are active at the same time, so no more than n of them, and
//! the renaming needs no level above that.

use super::growth::Growth;
use super::ids::Ids;
use super::snapshot::{Next, Snapshot};
use crate::machine::{Access, Machine};

/// Bits of the path in the name of an instance, below the size of the first snapshot.
const PATH: u32 = 32;

/// How deep an instance is: 0 for the first snapshot, whose name is 0, otherwise one more than the
/// number of sizes on its path.
pub(crate) fn instance_depth(name: u64) -> usize {
    let sizes = (name & ((1 << PATH) - 1)).count_ones() as usize;
    if name == 0 { 0 } else { 1 + sizes }
}

/// One identity's way to its first item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Enter {
    ids: Ids,
    growth: Growth,
    me: usize,
    at: At,
    snapshot: Snapshot,
    /// The immediate snapshot of l1.
    pub(crate) seen: u64,
    /// Sizes of the renaming's snapshots so far, as bits.
    path: u64,
    depth: usize,
    first: i64,
    up: bool,
    /// 1 for the formula as printed, 0 for the right one.
    short: i64,
    /// The first item; 0 until it is known.
    pub(super) item: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Snapshot,
    Rename,
    PostItem,
    Fence,
    Done,
}

impl Enter {
    /// An identity that begins.
    pub(crate) fn new(ids: Ids, growth: &Growth, me: usize) -> Self {
        Self {
            ids,
            growth: growth.clone(),
            me,
            at: At::Snapshot,
            snapshot: Snapshot::new(me, 0, 0, ids.everybody(), ids.all()),
            seen: 0,
            path: 0,
            depth: 0,
            first: 1,
            up: true,
            short: 0,
            item: 0,
        }
    }

    /// With the paper's formula for general f, which is off by one: for the explorer.
    #[must_use]
    pub(crate) fn with_printed_item(self) -> Self {
        Self { short: 1, ..self }
    }

    /// The first item, if it is known.
    pub(crate) fn item(&self) -> Option<u64> {
        (self.item != 0).then_some(self.item)
    }

    /// Whether it has not made its first write.
    pub(crate) fn fresh(&self) -> bool {
        self.at == At::Snapshot && self.snapshot.untouched(self.ids.all())
    }

    /// Whether it has written all it ever will in instances of this depth.
    pub(crate) fn beyond(&self, depth: usize) -> bool {
        match self.at {
            At::Snapshot | At::Rename => self.depth > depth,
            At::PostItem | At::Fence | At::Done => true,
        }
    }

    /// Whose register of levels it is about to read, in which instance and at which level.
    pub(crate) fn asks(&self) -> Option<(usize, u64, u64)> {
        self.snapshot.asks()
    }

    /// Whether it may yet look at the level of `id` in this instance, at this level. `among` are
    /// those who may take part in it: only who obtains exactly them as its snapshot does.
    pub(crate) fn may_look(&self, id: usize, among: u64, name: u64, level: u64) -> bool {
        let depth = instance_depth(name);
        match self.at {
            At::Snapshot if depth == 0 => self.snapshot.may_look(id, name, level),
            At::Snapshot => among >> self.me & 1 == 1,
            At::Rename if self.depth < depth => self.seen == among,
            At::Rename => self.snapshot.may_look(id, name, level),
            At::PostItem | At::Fence | At::Done => false,
        }
    }

    /// l1b: posts the snapshot; renames among those who have the same.
    fn post(&mut self, seen: u64) -> Access {
        self.seen = seen;
        let top = (seen.count_ones() as usize).min(self.ids.processors());
        self.begin_renaming(seen, top);
        self.at = At::Rename;
        Access::Put { slot: self.ids.posted(self.me), value: seen }
    }

    fn begin_renaming(&mut self, members: u64, top: usize) {
        self.depth += 1;
        let name = u64::from(self.seen.count_ones()) << PATH | self.path;
        self.snapshot = Snapshot::new(self.me, self.depth, name, members, top);
    }

    /// A snapshot of the renaming: the name, or another round.
    fn renamed(&mut self, seen: u64) {
        let size = seen.count_ones() as usize;
        let reach = 2 * size as i64 - 2;
        let last = if self.up { self.first + reach } else { self.first - reach };
        if seen >> self.me == 1 {
            // l3, counted from the end of the group's range. The paper's f(|IS|) - Name is off by
            // one (errata D4); for 2k-1 both are 2|IS| - Name.
            let end = self.growth.at(self.seen.count_ones() as usize);
            self.item = (end as i64 + 1 - self.short - last) as u64;
            self.at = At::PostItem;
        } else {
            self.path |= 1 << (size - 1);
            self.first = if self.up { last - 1 } else { last + 1 };
            self.up = !self.up;
            self.begin_renaming(self.seen, size - 1);
        }
    }
}

impl Machine for Enter {
    fn step(&mut self, read: u64) -> Access {
        loop {
            match self.at {
                At::Snapshot => match self.snapshot.step(self.ids, read) {
                    Next::Access(access) => return access,
                    Next::Seen(seen) => return self.post(seen),
                },
                At::Rename => match self.snapshot.step(self.ids, read) {
                    Next::Access(access) => return access,
                    Next::Seen(seen) => self.renamed(seen),
                },
                At::PostItem => {
                    self.at = At::Fence;
                    return Access::Put { slot: self.ids.item(self.me), value: self.item };
                }
                // Of all that post, the last must see the others' items at l4.
                At::Fence => {
                    self.at = At::Done;
                    return Access::Fence;
                }
                At::Done => return Access::Done,
            }
        }
    }
}
