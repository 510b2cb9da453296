//! The simulator: plays protocols through in simulated time, on the same workload, and measures
//! them. `docs/simulation.md` says what is simulated and what the figures mean.
//!
//! [`run`] is a function of its arguments: neither the machine nor the number of threads changes
//! the result. Time is counted in *ticks*.

mod faults;
mod pools;
mod random;
mod settings;
mod stats;
mod timers;
mod waiting;
mod wheel;
mod workload;
mod world;

use std::time::Instant;

use holdall_core::{About, Known, Protocol, Topology, Unsupported};
use holdall_protocols::Visitor;
use rayon::prelude::*;

use crate::registry::{self, BadName, Chosen};

pub use self::settings::{At, BadSettings, Fault, How, Sets, Settings, Spikes, Stage, Workload};
pub use self::stats::{Report, Response, Tally};

use self::stats::Seen;
use self::world::{Manner, World};

/// The name of the yardstick: see [`Contender::new`].
pub const ORACLE: &str = "oracle";

/// A protocol to be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    name: String,
    protocol: Chosen,
    oracle: bool,
}

impl Contender {
    /// Looks a protocol up. [`ORACLE`] is accepted as well: it sees all requests at once and grants
    /// whatever fits, without any message (`coordinator:skip`, in no time).
    ///
    /// # Errors
    /// If there is no such protocol, or no such variant.
    pub fn new(name: &str) -> Result<Self, BadName> {
        let oracle = name == ORACLE;
        let protocol = Chosen::new(if oracle { "coordinator:skip" } else { name }, &[])?;
        Ok(Self { name: name.into(), protocol, oracle })
    }

    /// Whether it can be put to such a workload, by what it says of itself.
    ///
    /// # Errors
    /// Says what it cannot do.
    pub fn supports(&self, settings: &Settings) -> Result<(), Error> {
        let About { assumes, .. } = &self.protocol.about;
        let largest = settings.largest_request();
        let why = if let Some(most) = assumes.needs_max.filter(|most| largest > *most) {
            format!("takes at most {most} pools a request, not {largest}")
        } else if settings.units > 1 && !assumes.units {
            "takes pools of one unit only".into()
        } else if !settings.faults.is_empty() && !assumes.departures {
            "assumes that nobody leaves or stops".into()
        } else {
            return Ok(());
        };
        Err(Error::Unsupported { protocol: self.name.clone(), why })
    }
}

impl From<Chosen> for Contender {
    fn from(protocol: Chosen) -> Self {
        Self { name: protocol.name.clone(), protocol, oracle: false }
    }
}

/// What came of one protocol.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it did.
    pub report: Report,
    /// How long its runs took on this machine, added up. This differs from time to time.
    pub seconds: f64,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings make no sense.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// The protocol cannot be run with such settings.
    #[error("{protocol}: {why}")]
    Unsupported {
        /// Its name.
        protocol: String,
        /// What it cannot do.
        why: String,
    },
    /// The protocol broke an invariant, or called an honest party dishonest.
    #[error("{protocol} went wrong in graph {graph} of seed {seed} at tick {tick}: {what}")]
    Wrong {
        /// Its name.
        protocol: String,
        /// In which run, counted from 0.
        graph: u32,
        /// Of which seed.
        seed: u64,
        /// When.
        tick: u64,
        /// Who, and how.
        what: String,
    },
}

/// Simulates every protocol on every graph, on all cores. `progress` is told now and then how many
/// ticks of some run went by; in the end that is `protocols * graphs * ticks` in all.
///
/// A violation of exclusion is no error here: it is counted in the report.
///
/// # Errors
/// If the settings make no sense, a protocol does not support them, or goes wrong.
pub fn run(
    settings: &Settings,
    contenders: &[Contender],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Outcome>, Error> {
    settings.validate()?;
    for contender in contenders {
        contender.supports(settings)?;
    }
    let jobs: Vec<_> =
        contenders.iter().flat_map(|c| (0..settings.graphs).map(move |graph| (c, graph))).collect();
    let done: Vec<(Seen, f64)> = jobs
        .par_iter()
        .map(|(contender, graph)| {
            let started = Instant::now();
            let job = Job { settings, contender, graph: *graph, progress };
            let seen = registry::with(&contender.protocol.name, job)
                .map_err(|unknown| job.unsupported(format!("no protocol '{}'", unknown.0)))??;
            Ok((seen, started.elapsed().as_secs_f64()))
        })
        .collect::<Vec<Result<_, Error>>>()
        .into_iter()
        .collect::<Result<_, Error>>()?;
    let outcome = |(contender, runs): (&Contender, &[(Seen, f64)])| {
        let seen: Vec<Seen> = runs.iter().map(|(seen, _)| seen.clone()).collect();
        let seconds = runs.iter().map(|(_, seconds)| seconds).sum();
        Outcome { report: stats::report(&contender.name, &seen), seconds }
    };
    Ok(contenders.iter().zip(done.chunks(settings.graphs as usize)).map(outcome).collect())
}

/// One run, of a protocol known by name.
#[derive(Clone, Copy)]
struct Job<'a> {
    settings: &'a Settings,
    contender: &'a Contender,
    graph: u32,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Job<'_> {
    fn unsupported(&self, why: String) -> Error {
        Error::Unsupported { protocol: self.contender.name.clone(), why }
    }
}

impl Visitor for Job<'_> {
    type Out = Result<Seen, Error>;

    fn visit<P: Protocol>(self) -> Self::Out {
        let Chosen { about, options, .. } = &self.contender.protocol;
        let mut topology = Topology::of_pools(self.settings.pools());
        if about.assumes.participants == Known::Known {
            topology.users = workload::pools_of_users(self.settings, self.graph);
        }
        let cfg = P::new(&topology, options).map_err(|Unsupported(why)| self.unsupported(why))?;
        let manner = Manner::new(about, self.contender.oracle);
        let world = World::new(cfg, self.settings, self.graph, manner);
        world.run(self.progress).map_err(|wrong| Error::Wrong {
            protocol: self.contender.name.clone(),
            graph: self.graph,
            seed: self.settings.seed,
            tick: wrong.tick,
            what: format!("{:?}: {}", wrong.who, wrong.what),
        })
    }
}
