//! Which accesses of Figures 2 and 3 are settled: see the [reduction](super#reduction).
//!
//! Three facts about the machines of [`crate::paper`] make most of them so. Snapshots and items are
//! posted once and never change. In an instance of immediate snapshot an identity only descends,
//! one level at a time, and takes part in one instance at each depth; a reader at level l asks
//! only whether it is at l or below, so a step down to l is noticed by readers at exactly that
//! level, and a reader that would be answered yes will always be. And who obtains a snapshot S
//! renames among S: only identities of S can obtain S too, and others, whose instances have other
//! names, do not notice.
//!
//! That the reduction leaves nothing out is tested by comparing all ends with and without it.

use super::World;
use super::single::{Busy, Doing};
use crate::machine::Access;
use crate::paper::{Announcing, Ids, instance_depth, unpack_level};

pub(super) fn settled<S: Announcing>(world: &World<'_, Busy<S>>, who: usize) -> bool {
    // Fig. 2's own rule looks at levels in another way.
    S::FRAMES
        && match world.process(who).next {
            Access::Get { owner, slot } => !world.acts(owner) || answered(world, who, owner, slot),
            Access::Put { slot, value } => !noticed(world, who, slot, value),
            Access::Done | Access::Fence | Access::Publish => false,
        }
}

/// Whether a get would always be answered as now.
fn answered<S: Announcing>(
    world: &World<'_, Busy<S>>,
    who: usize,
    owner: usize,
    slot: usize,
) -> bool {
    let word = world.memory().get(owner, slot);
    let (me, other) = (&world.process(who).process, &world.process(owner).process);
    match &me.doing {
        Doing::Enter(enter) => enter.asks().is_some_and(|(id, name, level)| {
            let (there, at) = unpack_level(word);
            let known = at != 0 && (there != name || at <= level);
            known || other.beyond(id, instance_depth(name))
        }),
        Doing::Announce(announce) => word != 0 || announce.asks().is_some_and(|id| other.never(id)),
        Doing::Nothing => false,
    }
}

/// Whether anybody else could tell that this put was made.
fn noticed<S: Announcing>(world: &World<'_, Busy<S>>, who: usize, slot: usize, value: u64) -> bool {
    let me = &world.process(who).process;
    let (ids, id) = (me.ids, me.id());
    let mut others = world.other_acts(who).map(|other| &world.process(other).process);
    match &me.doing {
        Doing::Enter(enter) if !is_post(ids, id, slot) => {
            let (name, level) = unpack_level(value);
            others.any(|other| other.may_look_at_level(id, enter.seen, name, level))
        }
        _ => others.any(|other| other.may_look_at_posts(id)),
    }
}

fn is_post(ids: Ids, id: usize, slot: usize) -> bool {
    slot == ids.posted(id) || slot == ids.item(id)
}

impl<S: Announcing> Busy<S> {
    /// Whether this identity is of an operation that this processor does not make.
    fn never(&self, id: usize) -> bool {
        self.ids.operation(id) >= self.ops
    }

    /// Whether it has written all that it ever will write at this depth for this identity.
    fn beyond(&self, id: usize, depth: usize) -> bool {
        let operation = self.ids.operation(id);
        let now = operation == self.made;
        match &self.doing {
            Doing::Enter(enter) if now => enter.beyond(depth),
            Doing::Announce(_) if now => true,
            _ => operation < self.made || self.never(id),
        }
    }

    fn has_more_operations(&self) -> bool {
        self.made + 1 < self.ops
    }

    /// Whether it may yet ask whether `id` is at this level or below, in an instance among
    /// `among`: those of later operations are not among any that obtained a snapshot by now.
    fn may_look_at_level(&self, id: usize, among: u64, name: u64, level: u64) -> bool {
        let later = name == 0 && self.has_more_operations();
        let now = match &self.doing {
            Doing::Enter(enter) => enter.may_look(id, among, name, level),
            Doing::Announce(_) | Doing::Nothing => false,
        };
        later || now
    }

    /// Whether it may yet ask what `id` has posted.
    fn may_look_at_posts(&self, id: usize) -> bool {
        self.has_more_operations()
            || match &self.doing {
                Doing::Enter(_) => true,
                Doing::Announce(announce) => announce.may_look(id),
                Doing::Nothing => false,
            }
    }
}
