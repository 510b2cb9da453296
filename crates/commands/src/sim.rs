//! `holdall sim`: compares protocols in simulated time.

mod jobs;
mod output;
mod table;
mod traces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use holdall_sim::{
    self as sim, Contender, Detector, Error, Fault, FaultKind, FaultRate, Outcome, Report, Sets,
    Settings, Spikes, Told, Workload,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Protocols, files, say, usage};

/// Play protocols through in simulated time, on the same workload, and compare them.
///
/// Times are in ticks. The same command prints the same, byte for byte. `docs/simulation.md` says
/// what each figure means.
#[derive(clap::Args)]
pub struct Args {
    /// Protocols, as `holdall protocols` lists them; `all` that are not named and can do it; or
    /// `oracle`: a greedy yardstick that sees everything at once and needs no message; `ideal:reserve=2`: one
    /// that decides like that coordinator, seeing everything, but hands over by messages
    #[arg(required = true, value_name = "PROTOCOL,...")]
    protocols: Vec<String>,

    /// Users at a time
    #[arg(long, default_value_t = 100)]
    users: u32,
    /// Pools; in a ring, as many as users unless told otherwise [default: 100]
    #[arg(long)]
    resources: Option<u32>,
    /// Pools in a request (uniform and hot workloads)
    #[arg(long, default_value_t = 2)]
    per_request: u32,
    /// Let each user have M pools of its own, and each of its requests name some of these at random
    #[arg(long, value_name = "M")]
    of: Option<u32>,
    /// Let the number of pools be uniform from 1 to twice the mean less 1
    #[arg(long)]
    unequal: bool,
    /// fixed: a user always asks for the same; fresh: for something else each time
    #[arg(long, default_value = "fixed")]
    sets: Sets,
    /// uniform; ring: philosophers; hot: half of the requests name pool 0; mix: one user in 16
    /// asks for 8 pools, the others for one
    #[arg(long, default_value = "uniform")]
    workload: Workload,
    /// Units of each pool; a request needs one of each pool it names
    #[arg(long, default_value_t = 1)]
    units: u32,
    /// Let a need be for a certain unit, by name, with probability P; pools are listed then
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    named: f64,
    /// Mean time of use for each pool, uniform from 0; a use lasts for the sum
    #[arg(long, default_value_t = 50)]
    service: u32,
    /// Let the time of a use have nothing to do with its pools: the sum over 1 to twice the mean number
    /// of pools less 1
    #[arg(long)]
    apart: bool,
    /// Let users say how long such uses take, on average for so many pools, when they ask: 1 if they are
    /// right, or so many times as long; M:N for one or the other, each as likely
    #[arg(long, value_name = "M")]
    told: Option<Told>,
    /// Mean time a message takes, uniform from 1; 0 for no time at all
    #[arg(long, default_value_t = 50)]
    delay: u32,
    /// Mean time between a use and the next request, uniform from 0
    #[arg(long, default_value_t = 25)]
    think: u32,
    /// Nodes that the pools are dealt to in turn; managers on one node talk in no time
    /// [default: a node for each pool]
    #[arg(long)]
    nodes: Option<u32>,
    /// Let users live on these nodes as well, dealt to them in turn: an agent on each, that acts for
    /// several users and guards pools
    #[arg(long)]
    colocated: bool,
    /// Let a role handle at most one event a tick
    #[arg(long)]
    one_per_tick: bool,

    /// Let a client leave, saying so, at STAGE (asking, waiting or using) with probability P for
    /// each request
    #[arg(long, value_name = "STAGE:P")]
    leave: Vec<FaultRate>,
    /// Let a client stop silently at STAGE with probability P for each request
    #[arg(long, value_name = "STAGE:P")]
    stop: Vec<FaultRate>,
    /// Time until it is noticed that a client has stopped
    #[arg(long, default_value_t = 1000)]
    detect: u32,
    /// What managers are told then: departed, once its last message has arrived; or reclaim, while
    /// messages of it may still be under way
    #[arg(long, default_value = "departed")]
    detector: Detector,
    /// Let a message be lost with probability P
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    loss: f64,
    /// Let a message arrive twice with probability P
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    duplicates: f64,
    /// Let a message take F times as long with probability P
    #[arg(long, value_name = "P:F")]
    spikes: Option<Spikes>,

    #[command(flatten)]
    jobs: jobs::JobArgs,
    #[command(flatten)]
    traces: traces::TraceArgs,

    /// Length of a run; the first fifth is warm-up
    #[arg(long, default_value_t = 100_000)]
    ticks: u64,
    /// Runs, each with other sets and times
    #[arg(long, default_value_t = 1)]
    graphs: u32,
    /// Where all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Take a rule of the protocols away, to see what it is worth
    #[arg(long, value_name = "RULE")]
    without: Vec<String>,

    /// Print one JSON object for each protocol, one a line, with all settings
    #[arg(long)]
    json: bool,
    /// Print a table in CSV, with all settings
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write every request behind the response times to FILE, in CSV: protocol, graph, when it was
    /// asked for, and how many ticks it waited
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Draw the response times of all protocols into FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Tell how many events a second were simulated: on stderr, or with --json in the object
    #[arg(long)]
    timing: bool,
}

impl Args {
    fn settings(&self) -> Settings {
        let ring = self.workload == Workload::Ring;
        let fault = |kind| move |rate: &FaultRate| Fault { kind, rate: *rate };
        let leave = self.leave.iter().map(fault(FaultKind::Leave));
        let stop = self.stop.iter().map(fault(FaultKind::Stop));
        Settings {
            users: self.users,
            resources: self.resources.unwrap_or(if ring { self.users } else { 100 }),
            per_request: self.per_request,
            of: self.of,
            unequal: self.unequal,
            sets: self.sets,
            workload: self.workload,
            units: self.units,
            named: self.named,
            service: self.service,
            apart: self.apart,
            told: self.told,
            delay: self.delay,
            think: self.think,
            nodes: self.nodes,
            colocated: self.colocated,
            ticks: self.ticks,
            graphs: self.graphs,
            seed: self.seed,
            one_per_tick: self.one_per_tick,
            faults: leave.chain(stop).collect(),
            detect: self.detect,
            detector: self.detector,
            loss: self.loss,
            duplicates: self.duplicates,
            spikes: self.spikes,
        }
    }
}

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let settings = args.settings();
    if let Some(jobs) = args.jobs.jobs()? {
        let settings = jobs.settings(&settings);
        let contenders = contenders(args, protocols, &settings)?;
        jobs::run(&jobs, &settings, &contenders, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Better to say so before a long history is read than after it.
    for name in names(&args.protocols).iter().filter(|name| *name != "all") {
        protocols.contender(name, &args.without).map_err(usage)?;
    }
    let out = traces::Output { json: args.json, svg: args.svg.as_deref() };
    if let Some(replay) = args.traces.replay(out)? {
        let settings = sim::trace_settings(&replay.trace, &settings);
        let contenders = contenders(args, protocols, &settings)?;
        traces::run(&replay, &settings, &contenders, &args.traces, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let contenders = contenders(args, protocols, &settings)?;
    simulate(args, &settings, &contenders)?;
    Ok(ExitCode::SUCCESS)
}

/// Plays users through protocols, and tells what came of it.
fn simulate(args: &Args, settings: &Settings, contenders: &[Contender]) -> anyhow::Result<()> {
    let files: Vec<&Path> =
        [&args.samples, &args.svg].into_iter().flatten().map(AsRef::as_ref).collect();
    files::try_all(None, &files)?;

    let runs = contenders.len() as u64 * u64::from(settings.graphs);
    let bar = progress_bar(settings.ticks.saturating_mul(runs));
    let outcomes = sim::run(settings, contenders, &|ticks| bar.inc(ticks));
    bar.finish_and_clear();
    let outcomes = outcomes.map_err(failed)?;

    let printed = table::printed(output::print(args, settings, &outcomes));
    // What can be written is, whatever else cannot.
    let samples = args.samples.as_ref().map_or(Ok(()), |path| output::samples(path, &outcomes));
    let draw = |path| output::svg(path, settings, &outcomes);
    let drawn = args.svg.as_deref().map_or(Ok(()), draw);
    let broken = match outcomes.iter().find(|outcome| outcome.report.violations > 0) {
        Some(Outcome { report: Report { protocol, violations, .. }, .. }) => {
            Err(anyhow!("{protocol} broke exclusion {violations} times"))
        }
        None => Ok(()),
    };
    // All that went wrong is told, the worst last.
    let mut wrong = [broken, printed, samples, drawn].into_iter().filter_map(Result::err);
    let Some(worst) = wrong.next() else { return Ok(()) };
    wrong.for_each(say);
    Err(worst)
}

/// A protocol went wrong, or a person asked for what it cannot do.
fn failed(error: Error) -> anyhow::Error {
    match error {
        Error::Failure { .. } => error.into(),
        _ => usage(error),
    }
}

/// The protocols that are named, if these settings make sense. `all` is every listed one that is not named and can do it; who
/// cannot is told.
fn contenders(
    args: &Args,
    protocols: &Protocols,
    settings: &Settings,
) -> anyhow::Result<Vec<Contender>> {
    settings.validate().map_err(usage)?;
    let names = names(&args.protocols);
    let mut found = Vec::new();
    let mut left_out: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in &names {
        if name != "all" {
            found.push(protocols.contender(name, &args.without).map_err(usage)?);
            continue;
        }
        for other in protocols.names().filter(|other| names.iter().all(|name| name != other)) {
            let contender = protocols.contender(other, &args.without);
            let able = contender.map_err(|_| "has no such rule".to_owned()).and_then(|contender| {
                match contender.supports(settings) {
                    Err(Error::Limit { limit, .. }) => Err(limit.to_string()),
                    _ => Ok(contender),
                }
            });
            match able {
                Ok(contender) => found.push(contender),
                Err(why) => left_out.entry(why).or_default().push(other),
            }
        }
    }
    for (why, names) in left_out {
        say(format!("left out: {}: {why}", names.join(", ")));
    }
    if found.is_empty() {
        return Err(usage("no protocol is left to be simulated"));
    }
    Ok(found)
}

/// The names in lists separated by commas. Settings of a protocol are separated by commas as well:
/// `ordered,house:reserve=1,passes=2` are two.
pub fn names(lists: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in lists.iter().flat_map(|list| list.split(',')) {
        match names.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => {
                last.push(',');
                last.push_str(part);
            }
            _ => names.push(part.into()),
        }
    }
    names
}

/// On stderr, and only if that is a terminal.
fn progress_bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent} % of the ticks, {eta} to go")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
