//! What is measured, and how long: graph after graph, until the mean is known well enough.

use std::collections::BTreeSet;

use holdall_sim::{Contender, ORACLE, Report, Settings, half_width, mean, run_graph};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{SERVICES, Set, Study};
use crate::registry::{BadName, contender};

/// Fewer graphs than this say little of how much graphs differ.
const LEAST_GRAPHS: u32 = 5;
/// A point is done when its confidence intervals are within this share of the means.
const SURE: f64 = 0.05;

/// How many pools the users ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// All the same number.
    Fixed,
    /// Each user another number, uniform from 1 to twice the mean less 1.
    Unequal,
}

/// What a row is about. Lines of several figures may go through it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// How large the requests are.
    pub sizes: Sizes,
    /// Mean time of use for each pool, in ticks.
    pub service: u32,
    /// Pools in a request, on average.
    pub per_request: u32,
    /// The protocol.
    pub protocol: String,
}

/// What came of a point. Means are of the graphs' means, each with half the width of its 95 %
/// confidence interval; empty where there is nothing to take the mean of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// How large the requests are.
    pub sizes: Sizes,
    /// Mean time of use for each pool, in ticks.
    pub service: u32,
    /// Pools in a request, on average.
    pub per_request: u32,
    /// The protocol.
    pub protocol: String,
    /// Of the study.
    pub seed: u64,
    /// Of the study.
    pub ticks: u64,
    /// Of the study.
    pub graphs_max: u32,
    /// How many graphs were run.
    pub graphs: u32,
    /// Whether there may be no more, and the means are still not known well enough.
    pub capped: bool,
    /// Conflicting users: the mean number of other users that share a pool with a user.
    pub conflicts: f64,
    /// Response by Little's law: of all requests, granted or not.
    pub response: Option<f64>,
    /// Its confidence.
    pub response_ci: Option<f64>,
    /// Response of the requests that were granted.
    pub granted: Option<f64>,
    /// Its confidence.
    pub granted_ci: Option<f64>,
    /// The time in which 99 % of the granted ones were granted; the mean of the graphs.
    pub granted_p99: Option<f64>,
    /// Messages between machines for each grant.
    pub messages: Option<f64>,
    /// Its confidence.
    pub messages_ci: Option<f64>,
    /// Grants in all graphs.
    pub grants: u64,
    /// Requests that still waited at the end of their runs, in all graphs.
    pub unfinished: u64,
    /// How long the oldest of them had waited.
    pub unfinished_longest: Option<u64>,
}

impl Row {
    /// What it is about.
    pub fn point(&self) -> Point {
        Point {
            sizes: self.sizes,
            service: self.service,
            per_request: self.per_request,
            protocol: self.protocol.clone(),
        }
    }

    /// Whether it was measured in such a study.
    pub(super) fn is_of(&self, study: &Study) -> bool {
        (self.seed, self.ticks, self.graphs_max) == (study.seed, study.ticks, study.graphs)
    }

    fn new(study: &Study, point: &Point, graphs: &[Report]) -> Self {
        let (response, response_ci) = estimate(graphs, |graph| graph.response.little);
        let (granted, granted_ci) = estimate(graphs, |graph| graph.response.mean);
        let (messages, messages_ci) = estimate(graphs, |graph| graph.messages_per_grant);
        let number = graphs.len() as u32;
        let sure = number >= LEAST_GRAPHS.min(study.graphs)
            && is_sure(response, response_ci)
            && is_sure(messages, messages_ci);
        Self {
            sizes: point.sizes,
            service: point.service,
            per_request: point.per_request,
            protocol: point.protocol.clone(),
            seed: study.seed,
            ticks: study.ticks,
            graphs_max: study.graphs,
            graphs: number,
            capped: !sure,
            conflicts: estimate(graphs, |graph| Some(graph.degree)).0.unwrap_or(0.0),
            response,
            response_ci,
            granted,
            granted_ci,
            granted_p99: estimate(graphs, |graph| graph.response.p99.map(|time| time as f64)).0,
            messages,
            messages_ci,
            grants: graphs.iter().map(|graph| graph.grants).sum(),
            unfinished: graphs.iter().map(|graph| graph.unfinished).sum(),
            unfinished_longest: graphs.iter().filter_map(|graph| graph.unfinished_longest).max(),
        }
    }
}

/// The mean of a figure over the graphs and its confidence, as they are written down. Nothing if
/// some graph has no such figure: it would be a mean of the others only.
fn estimate(graphs: &[Report], figure: fn(&Report) -> Option<f64>) -> (Option<f64>, Option<f64>) {
    let Some(samples) = graphs.iter().map(figure).collect::<Option<Vec<_>>>() else {
        return (None, None);
    };
    let written = |value: f64| (value * 1000.0).round() / 1000.0;
    (mean(&samples).map(written), half_width(&samples).map(written))
}

fn is_sure(mean: Option<f64>, half_width: Option<f64>) -> bool {
    mean.zip(half_width).is_some_and(|(mean, half_width)| half_width <= SURE * mean)
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A protocol that is not there.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The simulation could not be run, or went wrong.
    #[error(transparent)]
    Sim(#[from] holdall_sim::Error),
    /// Two users had the same thing at the same time.
    #[error("{protocol} broke exclusion {times} times in graph {graph} of seed {seed}")]
    Exclusion {
        /// Whose fault it is.
        protocol: String,
        /// How often.
        times: u64,
        /// In which run, counted from 0.
        graph: u32,
        /// Of which seed.
        seed: u64,
    },
    /// A row could not be kept.
    #[error("cannot write a row: {0}")]
    Write(#[from] std::io::Error),
}

/// What has to be measured for these sets, in order, each point once.
pub fn points(study: &Study, sets: &[Set]) -> BTreeSet<Point> {
    let mut points = BTreeSet::new();
    for set in sets {
        for (service, per_request) in SERVICES
            .into_iter()
            .flat_map(|service| study.per_request.iter().map(move |size| (service, *size)))
        {
            points.extend(set.lines.iter().map(|line| Point {
                sizes: set.sizes,
                service,
                per_request,
                protocol: line.protocol.clone(),
            }));
        }
    }
    points
}

/// Makes sure that every point can be measured.
///
/// # Errors
/// If a protocol is not known, or cannot be put to a point.
pub fn can_be_measured<'p>(
    study: &Study,
    points: impl IntoIterator<Item = &'p Point>,
) -> Result<(), Failed> {
    for point in points {
        contender(&point.protocol)?.supports(&settings(study, point))?;
    }
    Ok(())
}

/// Measures points on all cores, and hands over each row as soon as it is there, in whatever order.
///
/// # Errors
/// If a protocol is not known, does not fit the study or goes wrong, or a row is not taken.
pub fn measure(
    study: &Study,
    points: &[Point],
    done: &(dyn Fn(Row) -> std::io::Result<()> + Sync),
) -> Result<(), Failed> {
    let contenders = points.iter().map(|point| contender(&point.protocol));
    let contenders: Vec<Contender> = contenders.collect::<Result<_, _>>()?;
    // In order, unlike a parallel slice, so that the time left can be foreseen.
    points.iter().zip(&contenders).par_bridge().try_for_each(|(point, contender)| {
        done(measure_one(study, point, contender)?)?;
        Ok(())
    })
}

fn measure_one(study: &Study, point: &Point, contender: &Contender) -> Result<Row, Failed> {
    let settings = settings(study, point);
    let mut graphs = Vec::new();
    for graph in 0..study.graphs {
        let report = run_graph(&settings, contender, graph)?;
        if report.violations > 0 {
            let (protocol, times) = (report.protocol, report.violations);
            return Err(Failed::Exclusion { protocol, times, graph, seed: study.seed });
        }
        graphs.push(report);
        let row = Row::new(study, point, &graphs);
        if !row.capped {
            return Ok(row);
        }
    }
    Ok(Row::new(study, point, &graphs))
}

fn settings(study: &Study, point: &Point) -> Settings {
    Settings {
        per_request: point.per_request,
        unequal: point.sizes == Sizes::Unequal,
        service: point.service,
        // "at every one time unit, each process executes one enabled guarded command". The oracle
        // is no process; it would be the bottleneck.
        one_per_tick: point.protocol != ORACLE,
        ticks: study.ticks,
        seed: study.seed,
        ..Settings::default()
    }
}
