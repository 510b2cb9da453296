//! `holdall check`: explores every interleaving of a small scope.

mod drawings;
mod saving;
mod told;
mod what;

use std::process::ExitCode;

use holdall_lab::check::{self, Interrupt, Progress, Report};
use indicatif::ProgressBar;
use signal_hook::consts::SIGINT;

use self::drawings::Drawings;
use self::saving::Saved;
use self::what::{Job, What};
use crate::search::{LimitArgs, bar, tell};
use crate::{Protocols, Usage, print, print_to_reader, say, usage};

/// Explore every interleaving of a small scope and decide what the protocol promises
///
/// Users are separated by '/', successive requests of one user by ',', the needs of a request by
/// '+' in the order asked; '0:2' is two units of pool 0, '0+1~8' a request whose user says
/// how long its use will probably take (1 to 16). After a user, '*' repeats its list for ever, '^' lets
/// it depart after its list and return under a fresh id, '!' never ends its use.
///
/// A search that takes too long is ended by --max-states, --time, --memory or Ctrl-C, and tells what
/// was seen so far. With --save, `holdall check --resume FILE` goes on with it.
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
  holdall check --suite quick
  holdall check house --pools 1,1,1 --users '0+1/1+2/2+0' --time 10m --save /tmp/three
  holdall check --resume /tmp/three")]
pub struct Args {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    saved: Saved,
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

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let interrupt = on_ctrl_c()?;
    let resumed = args.saved.what(&args.what)?;
    let jobs = resumed.as_ref().unwrap_or(&args.what).jobs(protocols)?;
    args.drawings.can_be_written()?;
    let bar = bar();
    let mut tally = Tally::default();
    let mut drawn = Ok(());
    for (i, job) in jobs.iter().enumerate() {
        let settings = check::Settings {
            interrupt: interrupt.clone(),
            ..args.limits.limit(job.settings.clone())
        };
        let job = Job { settings, ..job.clone() };
        bar.set_message(format!("{} {} ({} of {})", job.chosen.name, job.scope, i + 1, jobs.len()));
        let (report, is_saved) = explore(args, &job, &bar)?;
        tally.add(&report);
        let several = jobs.len() > 1;
        let is_read = bar.suspend(|| tell_of(args, several, &report))?;
        let drawing = args.drawings.draw(&job, &report);
        drawn = drawn.and(drawing);
        args.saved.finish(&report, is_saved)?;
        if interrupt.is_interrupted() || !is_read {
            break;
        }
    }
    bar.finish_and_clear();
    if jobs.len() > 1 && !args.json {
        print(&tally.line(jobs.len()))?;
    }
    match (drawn, tally.status(jobs.len())) {
        // A verdict counts for more than a graph that is too large to be drawn, but whoever cannot read
        // what was found has to know that first.
        (Err(refused), status) if status != 0 && refused.is::<Usage>() => {
            say(refused);
            Ok(status.into())
        }
        (Err(refused), _) => Err(refused),
        (Ok(()), status) => Ok(status.into()),
    }
}

/// What is found; and whether the search is saved, if it is to be.
fn explore(args: &Args, job: &Job, bar: &ProgressBar) -> anyhow::Result<(Report, bool)> {
    let watch = |progress: Progress| tell(bar, progress);
    let Job { chosen, scope, settings } = job;
    if args.saved.is_asked_for() {
        return args.saved.search(job, bar, &watch);
    }
    let report = match args.random_walk {
        Some(walks) => check::random_walks(chosen, scope, settings, (walks, args.seed), &watch),
        None => check::check(chosen, scope, settings, &watch),
    };
    Ok((report.map_err(usage)?, true))
}

/// Prints what was found; whether anybody reads on.
fn tell_of(args: &Args, several: bool, report: &Report) -> anyhow::Result<bool> {
    print_to_reader(&match (args.json, several) {
        (true, _) => serde_json::to_string(report)?,
        (false, true) => told::line(report),
        (false, false) => told::in_full(report, args.chart),
    })
}

/// Ctrl-C ends the search, and what was seen so far is told; a second one ends the program.
fn on_ctrl_c() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::default();
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, interrupt.flag())?;
    signal_hook::flag::register(SIGINT, interrupt.flag())?;
    Ok(interrupt)
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

    /// The exit status.
    fn status(&self, scopes: usize) -> u8 {
        match (self.broken, self.cut_off + (scopes - self.scopes)) {
            (0, 0) => 0,
            (0, _) => 3,
            _ => 1,
        }
    }
}
