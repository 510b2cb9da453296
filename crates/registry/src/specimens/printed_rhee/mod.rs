//! `printed-rhee:S`: Rhee's modular algorithm as it is printed.
//!
//! I. Rhee, "A modular algorithm for resource allocation", Distributed Computing 11 (1998),
//! Figure 4 (the user) and Figure 5 (the resource manager), line by line; its variables have the
//! paper's names. Its rules are the repairs of the defects D1 to D4 of `docs/errata.md`; without
//! them the text is the paper's. Messages carry what the paper's carry and no more. A guard that is
//! false keeps a message in the process's buffer, which is served in the order of arrival.

mod manager;
mod user;

use holdall_core::{
    About, Assumes, ManagerId, NodeId, Options, Pool, PoolId, Property, Protocol, Topology,
    Unsupported, UserId, rules,
};
use holdall_protocols::split_name;
use serde::{Deserialize, Serialize};

pub use self::manager::{Manager, PoolManager};
pub use self::user::User;

/// A position in a queue. The printed text leaves the positive numbers.
type Position = i32;

/// What a manager may receive; `M` is what the subroutine's receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager<M> {
    /// For a manager of the subroutine.
    Inner(M),
    /// For the manager of a resource.
    Own(FromUser),
}

/// From a user to a resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FromUser {
    /// "rm can advance user i into position p-1".
    Advance(i32),
    /// "it has finished using the resource".
    Release,
    /// "requests information about the occupied positions".
    Report,
    /// "i selected position p".
    Select(i32),
}

/// What a user may receive; `M` is what the subroutine's receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser<M> {
    /// "position p-1 is unoccupied".
    Dec(i32),
    /// "the resource is granted to the user".
    Grant,
    /// For the user of the subroutine.
    Inner(M),
    /// "all the occupied positions and their preceding positions".
    Marked(Vec<i32>),
}

rules! {
    /// The repairs in force.
    struct Repairs {
        d1 "d1": "line 01 of Figure 4 holds only until a position is selected",
        d2 "d2": "line 09 of Figure 5 is left out at position 1",
        d3 "d3": "line 31 of Figure 5 is left out at position 1",
        d4 "d4": "line 32 of Figure 5 sets has_dec_sent(p-1), not (p)",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct PrintedRhee<S> {
    inner: S,
    /// The number of the subroutine's managers; the resources' follow.
    inner_managers: u64,
    pools: Vec<Pool>,
    rules: Repairs,
}

impl<S: Protocol> PrintedRhee<S> {
    fn manager_of(&self, pool: PoolId) -> ManagerId {
        ManagerId(self.inner_managers + pool.0)
    }
}

fn read<S: Protocol>(variant: Option<&str>) -> Result<Option<&str>, Unsupported> {
    match split_name(variant.unwrap_or_default()) {
        (family, inner) if family == S::FAMILY => Ok(inner),
        _ => {
            let (family, known) = ("printed-rhee", "printed-rhee:S over a subroutine S");
            Err(Unsupported::VariantMissing { family, known })
        }
    }
}

impl<S: Protocol> Protocol for PrintedRhee<S> {
    const FAMILY: &'static str = "printed-rhee";
    /// The registry names one for each subroutine.
    const NAMES: &'static [&'static str] = &[];
    type ToUser = ToUser<S::ToUser>;
    type ToManager = ToManager<S::ToManager>;
    type User = User<S::User>;
    type Manager = Manager<S::Manager>;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let inner = S::about(read::<S>(variant)?)?;
        Ok(About {
            name: format!("{}:{}", Self::FAMILY, inner.name),
            summary: "specimen: the modular algorithm as printed; its rules are the repairs",
            source: "Rhee 1998, Figures 4 and 5",
            assumes: Assumes {
                exactly_once: true,
                no_loss: true,
                units: false,
                named: false,
                departures: false,
                ..inner.assumes
            },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Repairs::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let variant = read::<S>(options.variant.as_deref())?;
        let as_is = Options { variant: variant.map(Into::into), without: Vec::new() };
        let inner = S::new(topology, &as_is)?;
        Ok(Self {
            inner_managers: inner.managers().len() as u64,
            inner,
            pools: topology.pools.clone(),
            rules: Repairs::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        let own = self.pools.iter().map(|pool| pool.node);
        self.inner.managers().into_iter().chain(own).collect()
    }

    fn user(&self, id: UserId) -> Self::User {
        User::new(self.inner.user(id))
    }

    fn manager(&self, id: ManagerId) -> Self::Manager {
        if id.0 < self.inner_managers {
            Manager::Inner(self.inner.manager(id))
        } else {
            Manager::Resource(PoolManager::default())
        }
    }
}
