//! The command line, and what is printed.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use holdall_core::Protocol;
use holdall_sim::{Fault, FaultKind, FaultRate, Sets, Workload};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cast::Cast;
use crate::settings::Settings;
use crate::{Error, Failure, Outcome, play, table};

/// The options of `holdall play`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Nodes that the pools are dealt to in turn; the managers of a node are in one process
    #[arg(long, default_value_t = 4)]
    pub nodes: u32,
    /// Clients, each in a process of its own
    #[arg(long, default_value_t = 20)]
    pub clients: u32,
    /// Pools
    #[arg(long, default_value_t = 20)]
    pub pools: u32,
    /// How long it lasts; the first fifth is warm-up
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Where all chance comes from, except for what really happens by chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Pools in a request (uniform and hot workloads)
    #[arg(long, default_value_t = 2)]
    pub per_request: u32,
    /// Let each client have M pools of its own, and each of its requests name some of these at random
    #[arg(long, value_name = "M")]
    pub of: Option<u32>,
    /// fixed: a client always asks for the same; fresh: for something else each time
    #[arg(long, default_value = "fixed")]
    pub sets: Sets,
    /// uniform; ring: philosophers; hot: half of the requests name pool 0; mix: one client in 16
    /// asks for 8 pools, the others for one
    #[arg(long, default_value = "uniform")]
    pub workload: Workload,
    /// Units of each pool; a request needs one of each pool it names
    #[arg(long, default_value_t = 1)]
    pub units: u32,
    /// Mean time of use for each pool in milliseconds, uniform from 0; a use lasts for the sum
    #[arg(long, value_name = "MS", default_value = "5", value_parser = microseconds)]
    pub service: u32,
    /// Mean time between a use and the next request in milliseconds, uniform from 0
    #[arg(long, value_name = "MS", default_value = "10", value_parser = microseconds)]
    pub think: u32,

    /// Let a client leave, saying so, at STAGE (asking, waiting or using) with probability P for
    /// each request; another takes its place
    #[arg(long, value_name = "STAGE:P")]
    pub leave: Vec<FaultRate>,
    /// Let the process of a client die by SIGKILL at STAGE with probability P for each request;
    /// another takes its place
    #[arg(long, value_name = "STAGE:P")]
    pub stop: Vec<FaultRate>,
    /// Take a rule of the protocol away, to see what it is for
    #[arg(long, value_name = "RULE")]
    pub without: Vec<String>,

    /// Print one JSON object for each protocol, one a line
    #[arg(long)]
    pub json: bool,
}

/// Milliseconds as a whole number of microseconds, which are the ticks of the simulator.
fn microseconds(text: &str) -> Result<u32, String> {
    let most = f64::from(u32::MAX / 2);
    let micros = text.parse::<f64>().map(|milliseconds| (milliseconds * 1000.0).round());
    let micros = micros.ok().filter(|micros| (0.0..=most).contains(micros));
    micros.map(|micros| micros as u32).ok_or_else(|| "not a time in milliseconds".into())
}

impl Options {
    /// The settings that these options mean.
    pub fn settings(&self) -> Settings {
        let fault = |kind| move |rate: &FaultRate| Fault { kind, rate: *rate };
        let leave = self.leave.iter().map(fault(FaultKind::Leave));
        let stop = self.stop.iter().map(fault(FaultKind::Stop));
        let workload = holdall_sim::Settings {
            users: self.clients,
            resources: self.pools,
            per_request: self.per_request,
            of: self.of,
            sets: self.sets,
            workload: self.workload,
            units: self.units,
            service: self.service,
            think: self.think,
            nodes: Some(self.nodes),
            seed: self.seed,
            faults: leave.chain(stop).collect(),
            ..holdall_sim::Settings::default()
        };
        Settings { workload, seconds: self.seconds }
    }
}

/// Plays protocols one after another, and prints what came of it: all that the command does once the
/// protocols are found.
///
/// # Errors
/// See [`play`]. What was played before is printed all the same.
pub fn run(casts: &[Cast], options: &Options) -> Result<(), Error> {
    let bar = progress_bar();
    let mut tell = |name: &str, share: f64, grants: u64| {
        bar.set_position((share * 1000.0) as u64);
        bar.set_message(format!("of {name}: {grants} grants"));
    };
    let mut outcomes = Vec::new();
    let played = play(casts, &options.settings(), &mut tell, &mut outcomes);
    bar.finish_and_clear();
    if played.is_err() && outcomes.is_empty() {
        return played;
    }
    match print(options, &outcomes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::System { what: "write the result", error }.into())
        }
        _ => played, // Written, or whoever reads has read enough.
    }
}

/// On stderr, and only if that is a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent} % {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(1000).with_style(style)
}

fn print(options: &Options, outcomes: &[Outcome]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if options.json {
        for outcome in outcomes {
            serde_json::to_writer(&mut out, &Line { schema: 1, outcome })?;
            writeln!(out)?;
        }
    } else if !outcomes.is_empty() {
        write!(out, "{}", table(&options.settings(), outcomes))?;
    }
    out.flush()
}

#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Play a protocol, its roles in separate processes, over TCP.
#[derive(Parser)]
struct Program {
    /// The name of the protocol, with a variant if there is one
    protocol: Option<String>,
    #[command(flatten)]
    options: Options,
}

/// A whole program that plays one protocol: it takes the options of `holdall play`, and instead of any
/// protocol's name one of this one's, if it has several.
pub fn main<P: Protocol>() -> ExitCode {
    let Program { protocol, options } = Program::parse();
    let name = protocol.as_deref().unwrap_or_else(|| P::NAMES.first().unwrap_or(&P::FAMILY));
    match Cast::of::<P>(name, &options.without) {
        Ok(cast) => exit(run(&[cast], &options)),
        Err(no_cast) => {
            eprintln!("{no_cast}");
            ExitCode::from(USAGE)
        }
    }
}

/// `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// The exit status of a program that played; what went wrong is said on standard error.
pub fn exit(played: Result<(), Error>) -> ExitCode {
    let Err(error) = played else { return ExitCode::SUCCESS };
    eprintln!("{error}");
    ExitCode::from(if error.is_usage() { USAGE } else { 1 })
}
