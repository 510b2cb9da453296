//! `holdall check`: explores every interleaving of a small scope.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use holdall_core::CellId;
use holdall_lab::check::{
    self, Asked, CutOff, Outcome, Report, Scope, Settings, Suite, Trace, every_assignment,
};
use holdall_registry::Chosen;

use crate::search::{DetectorArg, SearchArgs, bar};
use crate::{Protocols, files, print, usage};

/// Explore every interleaving of a small scope and decide what the protocol promises
///
/// Users are separated by '/', successive requests of one user by ',', the needs of a request by
/// '+' in the order asked; '0:2' is two units of pool 0. After a user, '*' repeats its list for
/// ever, '^' lets it depart after its list and return under a fresh id, '!' never ends its use.
///
/// Exit status: 0 if every promised property holds and everything was seen, 1 if a promised one
/// is violated, 3 if the search was cut off, 64 on bad input, 74 if something cannot be written.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  holdall check ordered --pools 1,1 --users '0+1/1+0'
  holdall check coordinator:skip --pools 1,1 --users '0+1*/0*/1*'
  holdall check ordered --without sorted --pools 1,1 --users '0+1/1+0'
  holdall check skeen --all 3x2
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
    /// Tell violations as message sequence charts instead of step by step
    #[arg(long, conflicts_with = "json")]
    chart: bool,
    /// Draw the first violation, of something promised if there is one, as a message sequence
    /// chart (SVG)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "suite"])]
    chart_svg: Option<PathBuf>,
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
    let jobs = jobs(args, protocols)?;
    let several = jobs.len() > 1;
    if let Some(file) = &args.chart_svg {
        files::try_all(&[file])?;
    }
    let bar = bar();
    let mut tally = Tally::default();
    for (i, (chosen, scope, settings)) in jobs.iter().enumerate() {
        bar.set_message(format!("{} {scope} ({} of {})", chosen.name, i + 1, jobs.len()));
        let progress = |states| bar.set_position(states as u64);
        let report = check::check(chosen, scope, settings, &progress).map_err(usage)?;
        tally.add(&report);
        bar.suspend(|| {
            if args.json {
                print(&serde_json::to_string(&report)?)
            } else if several {
                print(&line(&report))
            } else {
                print(&in_full(&report, args.chart))
            }
        })?;
        if let Some(file) = &args.chart_svg {
            write_chart(file, &report)?;
        }
    }
    bar.finish_and_clear();
    if several && !args.json {
        print(&tally.line(jobs.len()))?;
    }
    Ok(tally.exit_code())
}

/// What is to be explored, one after another.
fn jobs(args: &Args, protocols: &Protocols) -> anyhow::Result<Vec<(Chosen, Scope, Settings)>> {
    let chosen = match &args.protocol {
        Some(name) => vec![args.search.chosen(protocols, name)?],
        None => protocols.all().map_err(usage)?,
    };
    let settings = settings(args);
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
    states: usize,
    broken: usize,
    cut_off: usize,
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.states += report.states;
        self.broken += usize::from(report.broken());
        self.cut_off += usize::from(!report.complete);
    }

    fn line(&self, scopes: usize) -> String {
        format!(
            "{scopes} scopes, {} states: {} with a broken promise, {} cut off",
            self.states, self.broken, self.cut_off
        )
    }

    fn exit_code(&self) -> ExitCode {
        match (self.broken, self.cut_off) {
            (0, 0) => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(3),
            _ => ExitCode::from(1),
        }
    }
}

fn line(report: &Report) -> String {
    let violated = report.properties.iter().filter(|v| v.verdict == Outcome::Violated);
    let mut text = String::new();
    for verdict in violated {
        let promised = if verdict.promised { " (promised!)" } else { "" };
        let _ = write!(text, " {}{promised}", verdict.name);
    }
    let verdict = match (text.is_empty(), report.complete) {
        (false, _) => format!("violates{text}"),
        (true, true) => "ok".into(),
        (true, false) => "cut off, nothing found".into(),
    };
    format!("{:>9} states  {} {}: {verdict}", report.states, report.protocol, report.scope)
}

/// Draws a violation of something promised, or else of anything.
fn write_chart(file: &Path, report: &Report) -> anyhow::Result<()> {
    let violated = || report.properties.iter().filter(|verdict| verdict.trace.is_some());
    let worst = violated().find(|verdict| verdict.promised).or_else(|| violated().next());
    let Some((verdict, trace)) = worst.and_then(|v| Some((v, v.trace.as_ref()?))) else {
        crate::say(format!("nothing is violated, so {} is not written", file.display()));
        return Ok(());
    };
    let title = format!("{} {}: {}", report.protocol, report.scope, verdict.name);
    files::write(file, trace.chart_svg(&title))
}

fn in_full(report: &Report, chart: bool) -> String {
    let mut text = format!(
        "{} {}\n{} states, {} transitions, depth {}, {}\n",
        report.protocol,
        report.scope,
        report.states,
        report.transitions,
        report.depth,
        match report.cut_off {
            None => "complete",
            Some(CutOff::BehindViolation) => "cut off behind a violation",
            Some(CutOff::MaxStates) => "cut off (--max-states)",
        }
    );
    if let Some(gap) = report.growing_gap {
        let _ = writeln!(
            text,
            "clocks or counters run apart without bound, by all appearances: {gap} at the end"
        );
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for verdict in &report.properties {
        let user = verdict.user.map_or(String::new(), |user| format!("for user {user}"));
        let promised = if verdict.promised { "promised" } else { "not promised" };
        table.add_row([verdict.name, promised, &verdict.verdict.to_string(), &user]);
    }
    for answer in &report.questions {
        let (asked, verdict) = match (answer.kind, answer.verdict) {
            (Asked::Always, Outcome::Violated) => ("asked: always", "no"),
            (Asked::Always, Outcome::Holds) => ("asked: always", "yes"),
            (Asked::Sometime, Outcome::Violated) => ("asked: sometime", "never"),
            (Asked::Sometime, Outcome::Holds) => ("asked: sometime", "yes"),
            (Asked::Always, Outcome::Undecided) => ("asked: always", "undecided"),
            (Asked::Sometime, Outcome::Undecided) => ("asked: sometime", "undecided"),
        };
        table.add_row([answer.name, asked, verdict, ""]);
    }
    let _ = writeln!(text, "{table}");
    let told = |trace: &Trace| if chart { trace.chart() } else { trace.to_string() };
    for verdict in &report.properties {
        if let Some(trace) = &verdict.trace {
            let _ = write!(text, "\n{} is violated:\n{}", verdict.name, told(trace));
        }
    }
    for answer in &report.questions {
        if let Some(trace) = &answer.trace {
            let _ = write!(text, "\n{}:\n{}", answer.name, told(trace));
        }
    }
    text.pop();
    text
}
