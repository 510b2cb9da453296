//! The simulator: plays protocols through in simulated time, on the same workload, and measures
//! them. `docs/simulation.md` says what is simulated and what the figures mean.
//!
//! A [`Contender`] is a protocol, of any registry; [`Settings`] are the system, its users and what
//! happens to them; a [`Report`] is what came of it.
//!
//! [`run`] is a function of its arguments: neither the machine nor the number of threads changes
//! the result. Time is counted in *ticks*.

#![forbid(unsafe_code)]

mod clients;
mod contender;
mod course;
mod faults;
mod pools;
mod random;
mod settings;
mod stats;
mod telling;
mod timers;
mod trace;
mod waiting;
mod wheel;
mod workload;
mod world;

use std::time::Instant;

use rayon::prelude::*;

pub use self::clients::{Clients, Deed, draws, run_clients, settings_for};
pub use self::contender::{Contender, ORACLE};
pub use self::course::{Course, Mishap, Round};
pub use self::settings::{
    BadSettings, Detector, Fault, FaultKind, FaultRate, Sets, Settings, Spikes, Stage, Told,
    Workload,
};
pub use self::stats::{Report, Response, Sample, Tally, half_width, mean};
pub use self::trace::{
    Asked, Fate, Played, Progress, Trace, TracePool, play, play_told, trace_settings,
};

use self::contender::Run;
use self::stats::RunStats;

/// What came of one protocol.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it did.
    pub report: Report,
    /// The requests that its response times are of.
    pub samples: Vec<Sample>,
    /// How long its runs took on this machine, added up. This differs from time to time.
    pub seconds: f64,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The settings make no sense.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// There is no such protocol.
    #[error(transparent)]
    Unknown(#[from] holdall_protocols::Unknown),
    /// The protocol has no such variant.
    #[error(transparent)]
    Variant(#[from] holdall_core::Unsupported),
    /// The protocol cannot be run with such settings.
    #[error("{protocol}: {}", limit.to_string().replace("PROTOCOL", protocol))]
    Limit {
        /// Its name.
        protocol: String,
        /// What it cannot do.
        limit: Limit,
    },
    /// The protocol broke an invariant, or called an honest party dishonest.
    #[error("{protocol} went wrong in graph {graph} of seed {seed} at tick {tick}: {what}")]
    Failure {
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

/// What a protocol cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Requests are too large.
    #[error("takes at most {most} pools a request, not {asked}")]
    Needs {
        /// The most pools it takes.
        most: u32,
        /// The most pools in a request.
        asked: u32,
    },
    /// Pools have several units.
    #[error("takes pools of one unit only")]
    Units,
    /// Units are asked for by name.
    #[error("knows no units by name; house, coordinator and ordered do")]
    Named,
    /// Users go.
    #[error("assumes that nobody leaves or stops")]
    Departures,
    /// Messages are lost.
    #[error("assumes that every message arrives{}", over_links(*linked))]
    Loss {
        /// Whether it is listed over links that see to it.
        linked: bool,
    },
    /// Messages arrive twice.
    #[error("assumes that every message arrives once{}", over_links(*linked))]
    Duplicates {
        /// Whether it is listed over links that see to it.
        linked: bool,
    },
    /// Managers are told of the gone before their messages have arrived.
    #[error("assumes that nothing is heard of those who are reported gone")]
    Reclaiming,
}

/// The remedy, if there is one.
const fn over_links(linked: bool) -> &'static str {
    if linked { "; put it over links, as linked:PROTOCOL" } else { "" }
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
    let done: Vec<(RunStats, f64)> = jobs
        .par_iter()
        .map(|(contender, graph)| {
            let started = Instant::now();
            let run = Run { settings, contender, graph: *graph, progress };
            Ok((run.go()?, started.elapsed().as_secs_f64()))
        })
        .collect::<Vec<Result<_, Error>>>()
        .into_iter()
        .collect::<Result<_, Error>>()?;
    let mut done = done.into_iter();
    let outcome = |contender: &Contender| {
        let runs: Vec<_> = done.by_ref().take(settings.graphs as usize).collect();
        let seconds = runs.iter().map(|(_, seconds)| seconds).sum();
        let seen: Vec<RunStats> = runs.into_iter().map(|(seen, _)| seen).collect();
        let (report, samples) = (stats::report(contender.name(), &seen), stats::samples(&seen));
        Outcome { report, samples, seconds }
    };
    Ok(contenders.iter().map(outcome).collect())
}

/// Simulates one protocol on one graph, of any number: what [`run`] does there.
///
/// # Errors
/// As for [`run`].
pub fn run_graph(settings: &Settings, contender: &Contender, graph: u32) -> Result<Report, Error> {
    settings.validate()?;
    contender.supports(settings)?;
    let seen = Run { settings, contender, graph, progress: &|_| {} }.go()?;
    Ok(stats::report(contender.name(), &[seen]))
}
