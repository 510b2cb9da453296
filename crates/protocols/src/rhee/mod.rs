//! Rhee's modular algorithm: any allocation protocol S becomes one whose users wait only for those
//! they conflict with now.
//!
//! Source: I. Rhee, "A modular algorithm for resource allocation", Distributed Computing 11 (1998),
//! Figures 4 and 5, repaired (`docs/errata.md`). S guards no units; it keeps conflicting users from
//! *selecting a position* at the same time. A user enters S, asks its managers which positions of
//! their queues are marked, selects the least position that is marked nowhere, and leaves S. From
//! there on the queues carry it forward (`positions`).
//!
//! S is a type parameter, its roles and messages are unchanged. Its managers have the first
//! numbers; those of the pools follow. To S every pool has a single unit.
//!
//! `rhee+:S` is the same with two improvements: (a) no grant messages: marks from all that leave
//! position 1 free, or *dec* from all at position 2, already say that position 1 is kept
//! everywhere; (b) a manager goes on moving its queue while a selection is open.
//!
//! # Invariants
//! Those of the queues (Q1 to Q3), and, looked at in every state of the whole system:
//! - **R1** (Section 4.1) Nobody selects while another selects who needs a pool of it: whoever selects
//!   has S.
//! - **R2** (Claims 5.6 and 5.8) The positions of a request in its queues differ by at most one, and
//!   wherever it stands one behind, its advance is on the way.
//! - **R3** (Lemma 5.7, for pools of one unit) Waiting has no cycles, where a request waits for all who
//!   stand before it in one of its queues.
//!
//! Lemma 5.9, that the queues move on, follows from R3 and Q2: somebody waits for nobody, and whoever
//! has room before it is told.

mod manager;
mod system;
#[cfg(test)]
mod tests;
mod user;

use alloc::format;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Broken, ManagerId, NodeId, Options, Pool, PoolId, Property, Protocol,
    RequestId, System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::{Manager, PoolManager};
pub use self::user::User;
use crate::positions::{Move, News, QueueRules};
use crate::split_name;

/// What a manager may receive; `M` is what S's managers receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager<M> {
    /// For a manager of S.
    Inner(M),
    /// A move in the queue.
    Move(Move),
    /// Which positions are marked?
    Report {
        /// For this request.
        request: RequestId,
        /// This many units.
        units: u32,
    },
}

/// What a user may receive; `M` is what S's users receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser<M> {
    /// For the user of S.
    Inner(M),
    /// From a queue.
    News(News),
}

rules! {
    /// The rules in force.
    struct Rules {
        guard "guard": "no report is answered while a selection is open",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Rhee<S> {
    inner: S,
    /// The number of S's managers; the pools' follow.
    inner_managers: u64,
    pools: Vec<Pool>,
    /// With both improvements.
    plus: bool,
    rules: Rules,
    queues: QueueRules,
}

impl<S: Protocol> Rhee<S> {
    fn manager_of(&self, pool: PoolId) -> ManagerId {
        ManagerId(self.inner_managers + pool.0)
    }
}

/// What a variant says: whether the improvements are in, and which variant of S.
fn read<S: Protocol>(variant: Option<&str>) -> Result<(bool, Option<&str>), Unsupported> {
    let variant = variant.unwrap_or_default();
    let (plus, inner) = match variant.strip_prefix("+:") {
        Some(inner) => (true, inner),
        None => (false, variant),
    };
    match split_name(inner) {
        (family, variant) if family == S::FAMILY => Ok((plus, variant)),
        _ => Err(Unsupported::variant("rhee", inner, "rhee:S or rhee+:S over a subroutine S")),
    }
}

impl<S: Protocol> Protocol for Rhee<S> {
    const FAMILY: &'static str = "rhee";
    /// The registry names one for each subroutine.
    const NAMES: &'static [&'static str] = &[];
    const DRIFTS: bool = S::DRIFTS;
    const STAGES: u32 = 1 + S::STAGES;
    type ToUser = ToUser<S::ToUser>;
    type ToManager = ToManager<S::ToManager>;
    type User = User<S::User>;
    type Manager = Manager<S::Manager>;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let (plus, variant) = read::<S>(variant)?;
        let inner = S::about(variant)?;
        let lively: &[_] = match inner.promises.contains(&Property::NoStarvation) {
            true => &[Property::NoStarvation, Property::CurrentConflicts],
            false => &[],
        };
        Ok(About {
            name: format!("rhee{}:{}", if plus { "+" } else { "" }, inner.name),
            summary: "queues of positions; a subroutine keeps selections of positions apart",
            source: "Rhee 1998, Figures 4 and 5, repaired",
            assumes: Assumes {
                exactly_once: true,
                no_loss: true,
                units: true,
                named: false,
                ..inner.assumes
            },
            promises: Property::sound_and(lively),
            with_patience: Vec::new(),
            rules: [Rules::ALL, QueueRules::ALL].concat(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let (plus, variant) = read::<S>(options.variant.as_deref())?;
        let single = |pool: &Pool| Pool { capacity: 1, ..*pool };
        let singles =
            Topology { pools: topology.pools.iter().map(single).collect(), ..topology.clone() };
        let as_is = Options { variant: variant.map(Into::into), without: Vec::new() };
        let inner = S::new(&singles, &as_is)?;
        Ok(Self {
            inner_managers: inner.managers().len() as u64,
            inner,
            pools: topology.pools.clone(),
            plus,
            rules: Rules::new(options),
            queues: QueueRules::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        let own = self.pools.iter().map(|pool| pool.node);
        self.inner.managers().into_iter().chain(own).collect()
    }

    fn user(&self, id: UserId) -> Self::User {
        User::new(id, self.inner.user(id))
    }

    fn manager(&self, id: ManagerId) -> Self::Manager {
        match id.index().checked_sub(self.inner_managers as usize) {
            None => Manager::Inner(self.inner.manager(id)),
            Some(pool) => Manager::Pool(PoolManager::new(self.pools[pool].capacity)),
        }
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        system::check(self, system)
    }
}
