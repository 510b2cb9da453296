//! What the commands that search have in common: which protocol, in which world, and how far.

use std::time::Duration;

use clap::ValueEnum;
use holdall_core::Order;
use holdall_lab::check::{Detector, Progress, Settings, Timers};
use holdall_registry::Chosen;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Protocols, usage};

/// What is searched, beside the scope.
#[derive(clap::Args, PartialEq)]
pub(crate) struct SearchArgs {
    /// When timers may ring: at any time, or only when nothing else can move
    #[arg(long, default_value = "any")]
    timers: TimersArg,
    /// The order in which links deliver [default: what the protocol assumes]
    #[arg(long)]
    order: Option<OrderArg>,
    /// Take away a rule of the protocol, to see what it is for (`holdall protocols P` lists them)
    #[arg(long, value_name = "RULE")]
    without: Vec<String>,
    /// Explore the algorithm as its paper prints it: with every known defect, or with only those
    /// named (`docs/errata.md` numbers them) and all others repaired
    #[arg(long, value_name = "DEFECT,...", num_args = 0..=1, value_delimiter = ',')]
    #[arg(conflicts_with = "without")]
    as_printed: Option<Vec<String>>,
    /// Treat states as equal only if their clocks and counters are, also where users ask for ever
    #[arg(long)]
    plain: bool,
}

/// How far a search goes.
#[derive(clap::Args)]
pub(crate) struct LimitArgs {
    /// Give up after this many states
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    max_states: u32,
    /// Give up after this time, like 90s, 5m or 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Give up when the program takes up so much memory, like 500M or 2G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Threads that make successors [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum TimersArg {
    Any,
    Quiet,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum OrderArg {
    Fifo,
    Unordered,
}

/// What the managers are told of a user that stopped.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DetectorArg {
    /// That it is certainly gone, after its last message
    Departed,
    /// Nothing, ever
    None,
    /// That it is suspected, and after its lease, to reclaim what it held
    Reclaim,
    /// That it is suspected
    Suspect,
}

impl From<DetectorArg> for Detector {
    fn from(arg: DetectorArg) -> Self {
        match arg {
            DetectorArg::Departed => Self::Departed,
            DetectorArg::None => Self::None,
            DetectorArg::Reclaim => Self::Reclaim,
            DetectorArg::Suspect => Self::Suspect,
        }
    }
}

impl SearchArgs {
    /// The protocol of that name, without the rules that were taken away, or as printed.
    pub(crate) fn chosen(&self, protocols: &Protocols, name: &str) -> anyhow::Result<Chosen> {
        match &self.as_printed {
            Some(defects) => Chosen::as_printed(name, defects),
            None => protocols.choose(name, &self.without),
        }
        .map_err(usage)
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            timers: match self.timers {
                TimersArg::Any => Timers::Any,
                TimersArg::Quiet => Timers::Quiet,
            },
            order: self.order.map(|order| match order {
                OrderArg::Fifo => Order::Fifo,
                OrderArg::Unordered => Order::Unordered,
            }),
            canonical: self.plain.then_some(false),
            ..Settings::default()
        }
    }
}

impl LimitArgs {
    pub(crate) fn limit(&self, settings: Settings) -> Settings {
        Settings {
            max_states: self.max_states as usize,
            time: self.time,
            memory: self.memory,
            threads: self.threads.map(usize::from),
            ..settings
        }
    }
}

/// Seconds, minutes or hours.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let seconds = match unit {
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let time = number.parse::<f64>().ok().zip(seconds).map(|(number, unit)| number * unit);
    time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "not a time like 90s, 5m or 2h".into())
}

/// Megabytes or gigabytes, by 1024.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let bytes: Option<u64> = match unit {
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let size = number.parse::<u64>().ok().zip(bytes);
    size.and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| "not a size like 500M or 2G".into())
}

/// A number and what follows it.
fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()))
}

/// Tells how far a search has come.
pub(crate) fn tell(bar: &ProgressBar, progress: Progress) {
    bar.set_position(progress.states as u64);
    bar.set_prefix(format!("{} to expand", progress.frontier));
}

/// Shows how many states were found and how fast, how many wait, and what is being explored. On
/// stderr, and only if that is a terminal.
pub(crate) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{spinner} {pos} states, {prefix}, {per_sec}, {elapsed} {msg}",
    );
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
