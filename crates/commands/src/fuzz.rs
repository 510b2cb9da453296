//! `holdall fuzz`: runs protocols at random, at scopes that no search covers.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use holdall_fuzz::{Mode, Summary, Target};

use crate::{Failure, Protocols, names, print, usage};

/// Besides those that `holdall protocols` lists: messages may be lost.
const LOSSY: &str = "house:resend=1";

/// Run protocols at random: long schedules with faults, and messages that no honest party sends.
///
/// Up to eight users on up to three cells ask for up to six pools. With --mode faults, whatever the
/// protocol says it can bear happens: users leave, stop and return while messages of their past are
/// under way, cells reboot, messages are late, lost or doubled, the living are taken for dead; then the
/// system must heal. With --mode forged, one party sends changed copies of real messages: nobody may
/// panic, no honest role's invariant may break. A run is a function of its seed; a failure prints the
/// command that repeats it. Exit status 1 if something failed.
#[derive(clap::Args)]
pub struct Args {
    /// Protocols, as `holdall protocols` lists them [default: all]
    #[arg(value_name = "PROTOCOL,...")]
    protocols: Vec<String>,
    /// What to try [default: both, in turn]
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// The seed of the first run; the others follow one by one
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Runs of each protocol in each mode
    #[arg(long, default_value_t = 100, conflicts_with = "minutes")]
    runs: u64,
    /// Go on for so long instead
    #[arg(long)]
    minutes: Option<u64>,
    /// Rules to do without, to see whether that is noticed
    #[arg(long, value_name = "RULE,...", value_delimiter = ',')]
    without: Vec<String>,
    /// Tell all that happened in a run that fails, not only the end of it
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeArg {
    Faults,
    Forged,
}

/// A protocol in one mode, and what came of it so far.
struct Line {
    target: Target,
    mode: Mode,
    runs: u64,
    all: Summary,
    failed: bool,
}

/// So many runs of one protocol before it is the next one's turn.
const TURN: u64 = 50;

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let mut lines = lines(args, protocols)?;
    let end = args.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let over = |runs: u64| match end {
        Some(end) => Instant::now() >= end,
        None => runs >= args.runs,
    };
    while lines.iter().any(|line| !line.failed && !over(line.runs)) {
        for line in lines.iter_mut().filter(|line| !line.failed) {
            let turn = if end.is_some() { TURN } else { args.runs };
            for _ in 0..turn {
                if over(line.runs) || line.failed {
                    break;
                }
                line.try_once(args)?;
            }
        }
    }
    for line in &lines {
        print(&line.told())?;
    }
    let failed = lines.iter().filter(|line| line.failed).count();
    if failed > 0 {
        return Err(Failure(1, format!("{failed} of {} failed", lines.len())).into());
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(args: &Args, protocols: &Protocols) -> anyhow::Result<Vec<Line>> {
    let mut names = names(&args.protocols);
    if names.is_empty() {
        names = protocols.names().map(Into::into).collect();
        names.push(LOSSY.into());
    }
    let modes: &[Mode] = match args.mode {
        None => &Mode::ALL,
        Some(ModeArg::Faults) => &[Mode::Faults],
        Some(ModeArg::Forged) => &[Mode::Forged],
    };
    let mut lines = Vec::new();
    for name in &names {
        let chosen = protocols.choose(name, &args.without).map_err(usage)?;
        let target = chosen.target().map_err(usage)?;
        lines.extend(modes.iter().map(|mode| Line::new(target.clone(), *mode)));
    }
    Ok(lines)
}

impl Line {
    fn new(target: Target, mode: Mode) -> Self {
        Self { target, mode, runs: 0, all: Summary::default(), failed: false }
    }

    fn try_once(&mut self, args: &Args) -> anyhow::Result<()> {
        let seed = args.seed.wrapping_add(self.runs);
        let done = if args.trace {
            self.target.run_traced(self.mode, seed)
        } else {
            self.target.run(self.mode, seed)
        };
        self.runs += 1;
        match done {
            Ok(summary) => self.all += summary,
            Err(failure) => {
                self.failed = true;
                print(&failure.to_string())?;
            }
        }
        Ok(())
    }

    fn told(&self) -> String {
        let Summary { steps, grants, replaced, forged } = self.all;
        let verdict = if self.failed { "FAILED" } else { "ok" };
        format!(
            "{} {} {verdict}: {} runs, {steps} steps, {grants} grants, {replaced} users replaced, \
             {forged} messages forged",
            self.target.name(),
            self.mode.name(),
            self.runs
        )
    }
}
