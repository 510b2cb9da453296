//! `holdall check`: explores every interleaving of a small scope.

mod drawings;
mod told;

use std::process::ExitCode;

use clap::ValueEnum;
use holdall_core::CellId;
use holdall_lab::check::{self, Interrupt, Report, Scope, Settings, Suite, every_assignment};
use holdall_registry::Chosen;
use signal_hook::consts::SIGINT;

use self::drawings::Drawings;
use crate::search::{DetectorArg, SearchArgs, bar, tell};
use crate::{Protocols, print, usage};

/// Explore every interleaving of a small scope and decide what the protocol promises
///
/// Users are separated by '/', successive requests of one user by ',', the needs of a request by
/// '+' in the order asked; '0:2' is two units of pool 0. After a user, '*' repeats its list for
/// ever, '^' lets it depart after its list and return under a fresh id, '!' never ends its use.
///
/// A search that takes too long is ended by --max-states, --time, --memory or Ctrl-C, and tells what
/// was seen so far.
///
/// Exit status: 0 if every promised property holds and everything was seen, 1 if a promised one
/// is violated, 3 if the search was cut off, 64 on bad input, 74 if something cannot be written.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  holdall check ordered --pools 1,1 --users '0+1/1+0'
  holdall check coordinator:skip --pools 1,1 --users '0+1*/0*/1*'
  holdall check ordered --without sorted --pools 1,1 --users '0+1/1+0'
  holdall check skeen --all 3x2
  holdall check skeen --pools 1,1,1,1 --users '0+1*/1+2*/2+3*/3+0*' --random-walk 1000
  holdall check --suite quick")]
pub struct Args {
    /// The protocol (`holdall protocols` lists them); with --suite, all of them if left out
    #[arg(required_unless_present = "suite")]
    protocol: Option<String>,
    /// Units of each pool, like 1,1,2
    #[arg(long, value_name = "UNITS,...", requires = "users")]
    pools: Option<String>,
    /// What the users ask for, like '0+1/1+0,2/0:2*'
    #[arg(long, value_name = "USERS", requires = "pools")]
    users: Option<String>,
    /// The node each pool is on, like 0,0,1; by default each on its own
    #[arg(long, value_name = "NODE,...", requires = "pools")]
    nodes: Option<String>,
    /// Every assignment of one request to each of C clients over R resources, up to renaming
    #[arg(long, value_name = "CxR", conflicts_with_all = ["pools", "suite"])]
    all: Option<String>,
    /// A prepared set of scopes
    #[arg(long, conflicts_with = "pools")]
    suite: Option<SuiteArg>,
    /// Let users depart at any stage
    #[arg(long)]
    departures: bool,
    /// Let this user stop silently at any stage
    #[arg(long, value_name = "USER")]
    crash: Option<usize>,
    /// What every manager is told of a user that stopped silently [default: departed]
    #[arg(long, requires = "crash")]
    detector: Option<DetectorArg>,
    /// Let it stop also in the middle of a step, when only the first of its messages have left
    #[arg(long, requires = "crash")]
    amid: bool,
    /// Let this user be taken for dead once, at any stage, although it lives
    #[arg(long, value_name = "USER")]
    suspect: Option<usize>,
    /// Let the next client of a user begin while the one before is still heard of
    #[arg(long)]
    overlap: bool,
    /// The cell each user comes from, like 0,0,1; by default all from cell 0
    #[arg(long, value_name = "CELL,...", requires = "users")]
    homes: Option<String>,
    /// Let this cell stop once with all its users, and come back without its memory
    #[arg(long, value_name = "CELL")]
    reboot: Option<u64>,
    /// Let the network deliver any message twice
    #[arg(long)]
    duplicates: bool,
    /// Let up to N messages be lost, in all
    #[arg(long, value_name = "N", default_value_t = 0)]
    loss: u32,
    /// Decide whether a settled request is overtaken more often than N times
    #[arg(long, value_name = "N")]
    overtaking: Option<u32>,
    /// Keep messages that their receivers say they will ignore
    #[arg(long)]
    keep_stale: bool,
    #[command(flatten)]
    search: SearchArgs,
    /// Take N random walks instead of a search, of at most 10,000 steps each: for scopes that no
    /// search gets to the end of
    #[arg(long, value_name = "N")]
    random_walk: Option<u64>,
    /// Where all chance of the walks comes from
    #[arg(long, value_name = "S", default_value_t = 1, requires = "random_walk")]
    seed: u64,
    /// Tell violations as message sequence charts instead of step by step
    #[arg(long, conflicts_with = "json")]
    chart: bool,
    #[command(flatten)]
    drawings: Drawings,
    /// Print one JSON object per scope
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SuiteArg {
    /// Seconds
    Quick,
    /// Minutes
    Full,
}

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let interrupt = on_ctrl_c()?;
    let jobs = jobs(args, protocols, &interrupt)?;
    let several = jobs.len() > 1;
    args.drawings.can_be_written()?;
    let bar = bar();
    let watch = |progress| tell(&bar, progress);
    let mut tally = Tally::default();
    for (i, (chosen, scope, settings)) in jobs.iter().enumerate() {
        bar.set_message(format!("{} {scope} ({} of {})", chosen.name, i + 1, jobs.len()));
        let report = match args.random_walk {
            Some(walks) => check::random_walks(chosen, scope, settings, (walks, args.seed), &watch),
            None => check::check(chosen, scope, settings, &watch),
        };
        let report = report.map_err(usage)?;
        tally.add(&report);
        bar.suspend(|| match (args.json, several) {
            (true, _) => print(&serde_json::to_string(&report)?),
            (false, true) => print(&told::line(&report)),
            (false, false) => print(&told::in_full(&report, args.chart)),
        })?;
        args.drawings.draw(chosen, scope, settings, &report)?;
        if interrupt.is_interrupted() {
            break;
        }
    }
    bar.finish_and_clear();
    if several && !args.json {
        print(&tally.line(jobs.len()))?;
    }
    Ok(tally.exit_code(jobs.len()))
}

/// Ctrl-C ends the search, and what was seen so far is told; a second one ends the program.
fn on_ctrl_c() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::default();
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, interrupt.flag())?;
    signal_hook::flag::register(SIGINT, interrupt.flag())?;
    Ok(interrupt)
}

/// What is to be explored, one after another.
fn jobs(
    args: &Args,
    protocols: &Protocols,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<(Chosen, Scope, Settings)>> {
    let chosen = match &args.protocol {
        Some(name) => vec![args.search.chosen(protocols, name)?],
        None => protocols.all().map_err(usage)?,
    };
    let settings = Settings { interrupt: interrupt.clone(), ..settings(args) };
    if let Some(suite) = args.suite {
        let suite = match suite {
            SuiteArg::Quick => Suite::Quick,
            SuiteArg::Full => Suite::Full,
        };
        let mut jobs = Vec::new();
        for chosen in chosen {
            for (scope, faults) in suite.scopes(&chosen) {
                let settings = Settings {
                    departures: faults.departures || settings.departures,
                    crash: faults.crash.or(settings.crash),
                    timers: faults.timers,
                    ..settings.clone()
                };
                jobs.push((chosen.clone(), scope, settings));
            }
        }
        return Ok(jobs);
    }
    let Some(chosen) = chosen.into_iter().next() else {
        return Err(usage("name a protocol; `holdall protocols` lists them"));
    };
    let scopes = match (&args.all, &args.pools, &args.users) {
        (Some(all), _, _) => every_assignment(all, &chosen.about).map_err(usage)?,
        (None, Some(pools), Some(users)) => {
            let scope = Scope::parse(pools, users, args.nodes.as_deref()).map_err(usage)?;
            vec![match &args.homes {
                Some(homes) => scope.with_homes(homes).map_err(usage)?,
                None => scope,
            }]
        }
        _ => {
            return Err(usage(
                "name a scope: --pools 1,1 --users '0+1/1+0', or --all 3x3, or --suite quick",
            ));
        }
    };
    Ok(scopes.into_iter().map(|scope| (chosen.clone(), scope, settings.clone())).collect())
}

fn settings(args: &Args) -> Settings {
    Settings {
        departures: args.departures,
        crash: args.crash,
        crash_amid: args.amid,
        detector: args.detector.map(Into::into),
        suspect: args.suspect,
        overlap: args.overlap,
        reboot: args.reboot.map(CellId),
        duplicates: args.duplicates,
        loss: args.loss,
        overtaking: args.overtaking,
        keep_stale: args.keep_stale,
        ..args.search.settings()
    }
}

/// How all of it went.
#[derive(Default)]
struct Tally {
    scopes: usize,
    states: usize,
    broken: usize,
    cut_off: usize,
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.scopes += 1;
        self.states += report.states;
        self.broken += usize::from(report.broken());
        self.cut_off += usize::from(!report.complete);
    }

    fn line(&self, scopes: usize) -> String {
        let Self { states, broken, cut_off, .. } = self;
        let begun = match scopes - self.scopes {
            0 => format!("{scopes} scopes"),
            _ => format!("{} of {scopes} scopes", self.scopes),
        };
        format!("{begun}, {states} states: {broken} with a broken promise, {cut_off} cut off")
    }

    fn exit_code(&self, scopes: usize) -> ExitCode {
        match (self.broken, self.cut_off + (scopes - self.scopes)) {
            (0, 0) => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(3),
            _ => ExitCode::from(1),
        }
    }
}
