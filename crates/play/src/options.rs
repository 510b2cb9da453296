//! The command line.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use holdall_core::Protocol;
use holdall_sim::{Fault, FaultKind, FaultRate, Sets, Workload};

use crate::bill::Bill;
use crate::cast::Cast;
use crate::printer::Printer;
use crate::settings::{BadPlay, Settings};
use crate::{Error, USAGE, play};

/// The options of `holdall play`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Options {
    /// Nodes that the pools are dealt to in turn; the managers of a node are in one process
    /// [default: 4, or as many as there are pools]
    #[arg(long)]
    pub nodes: Option<u32>,
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

/// The longest mean time of anything, in milliseconds: as long as the longest play.
const LONGEST: f64 = 3_600_000.0;
/// How many nodes there are if nobody says so.
const NODES: u32 = 4;

/// Milliseconds as a whole number of microseconds, which are the ticks of the simulator.
fn microseconds(text: &str) -> Result<u32, String> {
    let micros = text.parse::<f64>().map(|milliseconds| (milliseconds * 1000.0).round());
    let micros = micros.ok().filter(|micros| (0.0..=LONGEST * 1000.0).contains(micros));
    let micros = micros.map(|micros| micros as u32);
    micros.ok_or_else(|| format!("not a number of milliseconds from 0 to {LONGEST}"))
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
            nodes: Some(self.nodes.unwrap_or_else(|| NODES.min(self.pools))),
            seed: self.seed,
            faults: leave.chain(stop).collect(),
            ..holdall_sim::Settings::default()
        };
        Settings { workload, seconds: self.seconds }
    }
}

/// Plays protocols one after another, and prints what came of each as soon as it is over: all that the
/// command does once the protocols are found.
///
/// # Errors
/// See [`play`].
pub fn run(bill: &Bill, options: &Options) -> Result<(), Error> {
    let settings = options.settings();
    let mut printer = Printer::new(bill, options, &settings);
    if bill.casts.is_empty() {
        return Err(BadPlay::NoProtocol.into());
    }
    let played = play(&bill.casts, &settings, &mut printer);
    match played.and_then(|()| printer.finish().map_err(Error::Output)) {
        // Whoever reads has read enough.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        played => played,
    }
}

/// Says something to a person, who need not be there to hear it.
pub fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
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
        Ok(cast) => exit(run(&Bill::from(cast), &options)),
        Err(no_cast) => {
            say(no_cast);
            ExitCode::from(USAGE)
        }
    }
}

/// The exit status of a program that played; what went wrong is said on standard error.
pub fn exit(played: Result<(), Error>) -> ExitCode {
    let Err(error) = played else { return ExitCode::SUCCESS };
    say(&error);
    ExitCode::from(error.status())
}
