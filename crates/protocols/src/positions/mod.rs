//! Rhee's queues of positions, which `rhee`, `skr` and `walk` have in common: the queue of a pool
//! (`Queue`, at its manager) and a request's place in the queues of all its pools (`Place`).
//!
//! Source: I. Rhee, "A modular algorithm for resource allocation" (1998), Figures 4 and 5, lines 05
//! to 33, repaired (`docs/errata.md`). A request stands at the same position in the queues of all
//! its pools, or one position further on in some of them. When the position before it has room in
//! one queue, that queue tells it so (*dec*) and keeps the room for it; when all have, it
//! *advances* in all. At position 1 of all its queues it is granted.
//!
//! # Several units
//! The paper's pools have one unit, and a position is taken or not. Here a position is a round
//! with room for as many requests as fit into the pool:
//! - a request may select a position if it fits there *together with all who stand right behind*,
//!   so that it keeps none of them from moving up (the paper's rule 4: for one unit, positions
//!   `j` and `j-1` are marked if `j` is taken);
//! - room in the position before goes to those at a position in the order in which they came to
//!   it, and nobody passes one who waits for more room.
//!
//! Whoever stands first at its position and waits for room keeps every newcomer out of the position
//! before, which can therefore only empty.
//!
//! # Invariants
//! - **Q1** (Lemma 5.1) Those at a position, and those behind it for whom room is kept, fit into
//!   the pool. At position 1 this is exclusion (Theorem 5.2).
//! - **Q2** (Claims 5.3 and 5.4) Room is kept for a request if and only if it was told so, and it
//!   is told as soon as there is room.
//! - **Q3** (Lemma 5.5, Claim 5.6) A request advances from a position only if it stands there and
//!   was told; so its positions differ by at most one.
//!
//! At most one selection is open in a queue at a time; its owner sees to that.

mod place;
mod queue;

use alloc::vec::Vec;

use holdall_core::{RequestId, rules};
use serde::{Deserialize, Serialize};

pub(crate) use self::place::{Place, Turn};
pub(crate) use self::queue::{Answers, Queue};

/// What a request tells the queue of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Move {
    /// It moves up from this position to the one before.
    Advance {
        /// The request.
        request: RequestId,
        /// The position it leaves.
        from: u32,
    },
    /// It leaves the queue, wherever it is, or gives the units back.
    Release(RequestId),
    /// It takes this position.
    Select {
        /// The request.
        request: RequestId,
        /// Its position, from 1.
        position: u32,
    },
}

impl Move {
    /// Whose move it is.
    pub fn request(&self) -> RequestId {
        match self {
            Self::Advance { request, .. }
            | Self::Release(request)
            | Self::Select { request, .. } => *request,
        }
    }
}

/// What the queue of a pool tells a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum News {
    /// There is room before this position, and it is kept for the request.
    Dec {
        /// The request.
        request: RequestId,
        /// The position it may leave.
        from: u32,
    },
    /// It stands at position 1.
    Grant(RequestId),
    /// It may select any position but these.
    Marked {
        /// The request.
        request: RequestId,
        /// The positions, ascending.
        positions: Vec<u32>,
    },
}

impl News {
    /// For which request it is.
    pub fn request(&self) -> RequestId {
        match self {
            Self::Dec { request, .. } | Self::Grant(request) | Self::Marked { request, .. } => {
                *request
            }
        }
    }
}

rules! {
    /// The rules of the queues that are in force.
    pub(crate) struct QueueRules {
        behind "behind":
            "a position is taken only where one fits together with those right behind it",
        front "front": "nobody moves up from position 1",
        hole "hole":
            "the least position that is free everywhere is taken, not the end of the queues",
        turn "turn": "room goes to those at a position in the order they came to it",
        frozen "frozen":
            "whoever moved while a selection is open is told of no more room before it ends",
        align "align": "a request moves up when all its queues have room, not the first",
        early "early": "a release that overtakes its request is remembered",
        purge "purge": "whoever is reported gone loses its place",
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{Options, UserId};

    use super::*;
    use crate::pool::Share;
    use crate::testing::request;

    /// The positions of users on a path, each of which shares a pool with the next, who come one after
    /// another while nobody leaves.
    fn on_a_path(users: u32, without: &[&str]) -> Vec<u32> {
        let without = without.iter().map(|rule| (*rule).into()).collect();
        let rules = QueueRules::new(&Options { without, ..Options::default() });
        let mut queues: Vec<Queue> = (0..=users).map(|_| Queue::new(1)).collect();
        let select = |user: u32| {
            let asked = request(UserId::first(user), &[(user.into(), 1), (u64::from(user) + 1, 1)]);
            let own = &mut queues[user as usize..][..2];
            let mut answers = Answers::default();
            let share = Share { request: asked.id, units: 1 };
            own.iter_mut().for_each(|queue| queue.open(rules, share, &mut answers));
            let marks = |news| match news {
                News::Marked { positions, .. } => positions,
                News::Dec { .. } | News::Grant(_) => Vec::new(),
            };
            let marked = answers.news.drain(..).flat_map(marks).collect();
            let turn = Place::selecting(asked).on_all_marks(marked, rules);
            let Some(step @ Move::Select { position, .. }) = turn.tell else {
                panic!("it selects a position");
            };
            own.iter_mut().for_each(|queue| queue.make(rules, false, &step, &mut answers));
            position
        };
        (0..users).map(select).collect()
    }

    /// Figure 1: at the end of the queues a user waits for all who came before, however far away.
    #[test]
    fn a_chain_is_as_long_as_its_users_unless_holes_are_taken() {
        for users in [6, 12, 24] {
            assert_eq!(on_a_path(users, &[]), [1, 2, 3].repeat(users as usize / 3));
            assert_eq!(on_a_path(users, &["hole"]), (1..=users).collect::<Vec<_>>());
        }
    }
}
