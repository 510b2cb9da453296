//! What Section 4 of the paper claims on the way to its theorem, in every state.
//!
//! Of the snapshots and items posted, which are in memory:
//! - the specification of immediate snapshot: who obtained one is in it; of two, one contains the
//!   other; and if q is in p's, q's is contained in p's;
//! - the specification of renaming, and Lemma 4.2: the items of those who obtained the same
//!   snapshot IS lie between f(L) and f(|IS|), L being the size of the next smaller snapshot, and
//!   no two are equal.
//!
//! Of what was announced by Fig. 2's rule:
//! - Lemma 4.3: those seen to take part are a snapshot that somebody obtained;
//! - Lemma 4.5, and with the check of consistency 4.4: of two that took the else branch, one says
//!   all that the other says;
//! - Lemma 4.6: at the end, somebody saw that all had posted.

use super::World;
use super::single::Busy;
use crate::paper::{Announcing, Growth, Ids};

/// The snapshot and the item that an identity has posted; 0 for what it has not.
fn posts<S>(world: &World<'_, Busy<S>>, ids: Ids) -> Vec<(usize, u64, u64)> {
    let memory = world.memory();
    let post = |id| {
        let owner = ids.owner(id);
        (id, memory.get(owner, ids.posted(id)), memory.get(owner, ids.item(id)))
    };
    (0..ids.all()).map(post).filter(|(_, seen, _)| *seen != 0).collect()
}

pub(super) fn check<S: Announcing>(
    world: &World<'_, Busy<S>>,
    ids: Ids,
    growth: &Growth,
) -> Result<(), String> {
    let posts = posts(world, ids);
    for (p, seen, item) in posts.iter().copied() {
        if seen >> p & 1 == 0 {
            return Err(format!("immediate snapshot: {p} is not in its own, {seen:b}"));
        }
        for (q, other, theirs) in posts.iter().copied() {
            if seen & !other != 0 && other & !seen != 0 {
                return Err(format!("immediate snapshot: {p} has {seen:b}, {q} has {other:b}"));
            }
            if seen >> q & 1 == 1 && other & !seen != 0 {
                return Err(format!("immediate snapshot: {q} is in {p}'s, but has {other:b}"));
            }
            if p != q && item != 0 && item == theirs {
                return Err(format!("Lemma 4.2: {p} and {q} both have item {item}"));
            }
        }
        let smaller = posts.iter().map(|(_, other, _)| *other).filter(|other| *other & !seen == 0);
        let below = smaller.filter(|other| *other != seen).map(u64::count_ones).max().unwrap_or(0);
        let within = growth.at(below as usize) + 1..=growth.at(seen.count_ones() as usize);
        if item != 0 && !within.contains(&item) {
            return Err(format!("Lemma 4.2: item {item} of {p} is not among {within:?}"));
        }
    }
    branches(world, &posts)
}

/// Lemmas 4.3 and 4.5.
fn branches<S: Announcing>(
    world: &World<'_, Busy<S>>,
    posts: &[(usize, u64, u64)],
) -> Result<(), String> {
    if S::FRAMES || !S::SMALLEST || !S::ATOMIC {
        return Ok(());
    }
    let took = || world.processes().map(|p| &p.process).filter_map(|p| Some((p, p.participants?)));
    for (p, part) in took() {
        if !posts.iter().any(|(_, seen, _)| *seen == part) {
            return Err(format!("Lemma 4.3: nobody obtained the participants {part:b}"));
        }
        for (q, other) in took() {
            let (less, more) = if part & !other == 0 { (p, q) } else { (q, p) };
            if !less.said.iter().all(|said| more.said.contains(said)) {
                return Err(format!("Lemma 4.5: {:?} and {:?}", less.said, more.said));
            }
        }
    }
    Ok(())
}

/// Lemma 4.6, when all that began are done.
pub(super) fn check_end<S: Announcing>(world: &World<'_, Busy<S>>, ids: Ids) -> Result<(), String> {
    if S::FRAMES || !S::ATOMIC {
        return Ok(());
    }
    let all = posts(world, ids).iter().fold(0, |all, (id, ..)| all | 1 << id);
    let seen = world.processes().any(|p| p.process.participants == Some(all));
    if all == 0 || seen || world.processes().any(|p| p.process.ops > 1) {
        Ok(())
    } else {
        Err(format!("Lemma 4.6: nobody saw that all of {all:b} had posted"))
    }
}
