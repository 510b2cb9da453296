//! What is played, and for how long.

use holdall_core::{Known, Topology, UserId};
use holdall_sim::{BadSettings, Course};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cast::Cast;
use crate::process::links::STRANGERS;

/// The settings of a play.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The system, its users and what happens to them. A tick is a microsecond; there is one graph.
    /// The delay of messages is not set but measured.
    pub workload: holdall_sim::Settings,
    /// How long it lasts, in seconds.
    pub seconds: f64,
}

/// Settings that make no sense, and how to mend them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadPlay {
    /// There is nobody, or too many.
    #[error("clients is {0}: let there be at least 1 and at most {MOST_CLIENTS}")]
    Clients(u32),
    /// There is nothing to use.
    #[error("pools is 0: let there be at least 1")]
    NoPools,
    /// There is no node.
    #[error("nodes is 0: let there be at least 1")]
    NoNodes,
    /// There would be too many lock files.
    #[error(
        "{pools} pools of {units} units take a lock file for each unit: let there be at most \
         {MOST_UNITS} units in all"
    )]
    Units {
        /// How many pools.
        pools: u32,
        /// How many units of each.
        units: u32,
    },
    /// None of all protocols can do this.
    #[error("no protocol is left to be played")]
    NoProtocol,
    /// A node would have nothing.
    #[error("{nodes} nodes for {pools} pools: let there be at most as many nodes as pools")]
    Nodes {
        /// How many nodes.
        nodes: u32,
        /// How many pools.
        pools: u32,
    },
    /// It would be over at once, or never.
    #[error("seconds is {0}: let it be more than 0 and at most 3600")]
    Seconds(f64),
    /// The workload makes no sense.
    #[error(transparent)]
    Workload(#[from] BadSettings),
    /// The protocol cannot do this.
    #[error(transparent)]
    Unable(#[from] holdall_sim::Error),
    /// There are not enough descriptors.
    #[error(
        "{clients} clients take {needed} open files in a process, and the limit is {limit}: \
         raise it (ulimit -n), or let there be fewer clients"
    )]
    Files {
        /// How many clients.
        clients: u32,
        /// What they take.
        needed: u64,
        /// What there may be.
        limit: u64,
    },
}

/// An hour: every wait is kept until the end.
const LONGEST: f64 = 3600.0;
const MOST_CLIENTS: u32 = UserId::LANES - 1;
/// A file takes some ten microseconds to make, and a page of memory or so.
const MOST_UNITS: u64 = 100_000;
/// Open files that have nothing to do with the number of processes.
const OTHER_FILES: u64 = 64 + STRANGERS as u64;

impl Settings {
    /// Whether the settings make sense together, and whether a protocol can be played with them.
    ///
    /// # Errors
    /// Says what does not, and how to mend it.
    pub fn validate(&self, cast: &Cast) -> Result<(), BadPlay> {
        let (clients, pools) = (self.workload.users, self.workload.resources);
        match self.workload.nodes {
            _ if !(1..=MOST_CLIENTS).contains(&clients) => return Err(BadPlay::Clients(clients)),
            _ if pools == 0 => return Err(BadPlay::NoPools),
            Some(0) => return Err(BadPlay::NoNodes),
            Some(nodes) if nodes > pools => return Err(BadPlay::Nodes { nodes, pools }),
            _ if !(self.seconds > 0.0 && self.seconds <= LONGEST) => {
                return Err(BadPlay::Seconds(self.seconds));
            }
            _ => {}
        }
        let units = self.workload.units;
        if u64::from(pools) * u64::from(units) > MOST_UNITS {
            return Err(BadPlay::Units { pools, units });
        }
        self.workload.validate()?;
        cast.contender().supports(&self.workload)?;
        self.validate_files()
    }

    /// Every process may be connected to every other, in both directions.
    fn validate_files(&self) -> Result<(), BadPlay> {
        let clients = self.workload.users;
        let nodes = self.workload.nodes.unwrap_or(self.workload.resources);
        let needed = 2 * (u64::from(clients) + u64::from(nodes)) + OTHER_FILES;
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let limit = maximum.unwrap_or(u64::MAX);
        if needed > limit {
            return Err(BadPlay::Files { clients, needed, limit });
        }
        if current.is_some_and(|current| current < needed) {
            // If that is refused after all, whoever opens too many says so.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum });
        }
        Ok(())
    }

    /// The system as a protocol sees it.
    pub(crate) fn topology(&self, cast: &Cast) -> Topology {
        let mut topology = Topology::of_pools(self.workload.pools());
        if cast.about().assumes.participants == Known::Known {
            topology.users = Course::pools_of_users(&self.workload);
        }
        topology
    }
}
