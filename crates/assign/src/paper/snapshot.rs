//! One-shot immediate snapshot (Borowsky and Gafni 1993), many instances in few registers.
//!
//! A participant descends level by level: it writes the level, fences, and collects who is at that
//! level or below; as soon as they are as many as the level is high, they are its snapshot.
//! Levels must not be skipped: jumping to the number collected breaks with four processors.
//!
//! Renaming uses instances one after another, each within the snapshot of the one before. An
//! identity takes part in one instance at each depth, so one register for each depth will do, if
//! it names the instance beside the level.

use super::ids::Ids;
use crate::machine::Access;

/// Bits of a level.
const LEVEL: u32 = 8;

/// What a register of levels holds: which instance, and the level in it.
pub(crate) fn unpack(word: u64) -> (u64, u64) {
    (word >> LEVEL, word & ((1 << LEVEL) - 1))
}

/// An identity's part in one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Snapshot {
    me: usize,
    depth: usize,
    /// Which instance of this depth.
    name: u64,
    /// Who may take part.
    members: u64,
    level: u64,
    seen: u64,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Descend,
    Fence,
    /// The next to ask.
    Ask(usize),
    /// The one asked.
    Asked(usize),
}

/// What comes next.
pub(super) enum Next {
    Access(Access),
    /// The snapshot is this set.
    Seen(u64),
}

impl Snapshot {
    /// At most `top` of the members take part.
    pub(super) fn new(me: usize, depth: usize, name: u64, members: u64, top: usize) -> Self {
        let level = top as u64 + 1;
        Self { me, depth, name, members, level, seen: 0, at: At::Descend }
    }

    /// Whether it is at its highest level, and has not written that yet.
    pub(super) fn untouched(&self, top: usize) -> bool {
        self.level == top as u64 && self.at == At::Fence
    }

    /// Whose register is asked for, in which instance, at which level.
    pub(super) fn asks(&self) -> Option<(usize, u64, u64)> {
        match self.at {
            At::Asked(q) => Some((q, self.name, self.level)),
            _ => None,
        }
    }

    /// Whether it may yet look at the register of `id` in that instance at that level.
    pub(super) fn may_look(&self, id: usize, name: u64, level: u64) -> bool {
        let this_round = match self.at {
            At::Ask(q) | At::Asked(q) => q <= id,
            At::Descend | At::Fence => true,
        };
        self.name == name && (self.level > level || self.level == level && this_round)
    }

    pub(super) fn step(&mut self, ids: Ids, read: u64) -> Next {
        loop {
            match self.at {
                At::Descend => {
                    self.level -= 1;
                    self.seen = 1 << self.me;
                    self.at = At::Fence;
                    let value = self.name << LEVEL | self.level;
                    let slot = ids.level(self.me, self.depth);
                    return Next::Access(Access::Put { slot, value });
                }
                // Of two that reach a level, one must see the other: the write comes before the
                // reads.
                At::Fence => {
                    self.at = At::Ask(0);
                    return Next::Access(Access::Fence);
                }
                At::Ask(q) if q == ids.all() => {
                    if u64::from(self.seen.count_ones()) >= self.level {
                        return Next::Seen(self.seen);
                    }
                    self.at = At::Descend;
                }
                At::Ask(q) if q == self.me || self.members >> q & 1 == 0 => {
                    self.at = At::Ask(q + 1);
                }
                At::Ask(q) => {
                    self.at = At::Asked(q);
                    let slot = ids.level(q, self.depth);
                    return Next::Access(Access::Get { owner: ids.owner(q), slot });
                }
                At::Asked(q) => {
                    let (name, level) = unpack(read);
                    if level != 0 && level <= self.level && name == self.name {
                        self.seen |= 1 << q;
                    }
                    self.at = At::Ask(q + 1);
                }
            }
        }
    }
}
