//! Drinking: a bottle for each pool that two users share, over the forks of `chandy-misra`, which
//! decide who gets a bottle that both want.
//!
//! Source: K. M. Chandy and J. Misra, "The drinking philosophers problem", ACM TOPLAS 6(4), 1984,
//! the drinkers. `docs/protocols/chandy-misra-drinking.md` sets its rules beside the code.
//!
//! The diners are the roles of [`chandy_misra`], unchanged: they are asked
//! while their user is thirsty, and done as soon as they eat and it is not. A user may drink before
//! its diner eats, and be thirsty again before that; the diner then waits for the newer request.
//!
//! # Invariants
//! - **B1, one bottle.** Whoever lacks a bottle has the token with which to ask for it, or has
//!   asked (`User::check`).
//! - **B2, all bottles.** Whoever drinks holds every bottle of every pool it uses (`User::check`).
//!
//! Assumes that every message arrives once, in any order.

mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Options, PoolId, Property, Protocol, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::user::User;
use crate::chandy_misra::{self, ChandyMisra};
use crate::neighbours::{AMONG_NEIGHBOURS, Neighbours};
use crate::nobody::no_managers;
use crate::plain;

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The token of a bottle: give me the bottle.
    Ask(PoolId),
    /// A bottle.
    Bottle(PoolId),
    /// What diners tell each other.
    Dining(chandy_misra::ToUser),
}

rules! {
    /// The rules in force.
    struct Rules {
        drink "drink": "a bottle in use is kept until the use ends",
        fork "fork": "whoever holds the fork keeps the bottles it needs",
        hunger "hunger": "whoever is thirsty becomes hungry",
        rise "rise": "whoever eats and is no longer thirsty ends its meal",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Drinking {
    dining: ChandyMisra,
    /// For each lane its bottles: the place of the neighbour that shares it, and the pool;
    /// ascending.
    bottles: Vec<Vec<(usize, PoolId)>>,
    rules: Rules,
}

impl Drinking {
    /// The bottles that a user shares with its neighbours. A place in this list names a bottle.
    fn bottles(&self, user: UserId) -> &[(usize, PoolId)] {
        self.bottles.get(user.lane().index()).map_or(&[], |list| list)
    }

    fn neighbours(&self) -> &Neighbours {
        &self.dining.neighbours
    }
}

/// The bottles of each lane.
fn bottles(neighbours: &Neighbours, lanes: usize) -> Vec<Vec<(usize, PoolId)>> {
    let of = |user: UserId| {
        let edges = neighbours.of(user).iter().enumerate();
        let shared = |(place, other): (usize, &UserId)| {
            neighbours.shared(user, *other).map(move |pool| (place, pool)).collect::<Vec<_>>()
        };
        edges.flat_map(shared).collect()
    };
    (0..).map(UserId::first).take(lanes).map(of).collect()
}

impl Protocol for Drinking {
    const FAMILY: &'static str = "chandy-misra-drinking";
    const NAMES: &'static [&'static str] = &["chandy-misra-drinking"];
    const STAGES: u32 = 2;
    type ToUser = ToUser;
    type User = User;
    no_managers!();

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        plain(Self::FAMILY, variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "drinking: a bottle for each pool two neighbours share, over their forks",
            source: "Chandy and Misra 1984, the drinkers",
            assumes: AMONG_NEIGHBOURS,
            promises: Property::sound_and(&[Property::NoStarvation, Property::CurrentConflicts]),
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        plain(Self::FAMILY, options.variant.as_deref())?;
        let dining = ChandyMisra::new(topology, &Options::default())?;
        Ok(Self {
            bottles: bottles(&dining.neighbours, topology.users.len()),
            dining,
            rules: Rules::new(options),
        })
    }

    fn user(&self, id: UserId) -> User {
        User::new(self, id)
    }
}
