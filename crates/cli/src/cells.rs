//! `holdall cells`: whole cells under faults, in a simulated world.

use std::process::ExitCode;

use holdall_cells::{Mutant, Report, Settings, play};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{print, say, usage};

/// Play several cells under faults: links that stall and break, clocks that drift, machines that lose power.
///
/// Each seed is a world of its own: first things go wrong, and nothing may be used twice; then everything heals, and
/// everybody who still wants something must get it. `docs/cells.md` says what is played. Ends with 1 if something
/// is wrong, with the command that plays it again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// How many cells
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=16))]
    cells: u64,
    /// How many clients each of them has
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: u64,
    /// The log of one cell is written late, as in etcd
    #[arg(long)]
    late: bool,
    /// With something wrong on purpose, which must be found: lease-from-receipt, no-grace, old-connections,
    /// fences-at-home, no-resend, assertions-ignored, no-recovery, old-life, keep-unconfirmed, copy-accepted,
    /// refusal-ignored, heard-forgotten, only-last-start, reservations-dropped,
    /// told-before-written (of a log that is written late)
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Tell everything that happens, on standard error
    #[arg(long)]
    told: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mutant = args.mutant.as_deref().map(named).transpose()?;
    let (cells, clients) = (args.cells as usize, args.clients as usize);
    let late = args.late || mutant.is_some_and(Mutant::is_of_late_logs);
    let settings =
        Settings { cells, clients, late, mutant, told: args.told, ..Settings::default() };
    let style = ProgressStyle::with_template("{pos} of {len} seeds, {eta} left")?;
    let bar = ProgressBar::new(args.seeds).with_style(style);
    let mut all = Report::default();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        match play(seed, &settings) {
            Ok(report) => all += report,
            Err(violation) => {
                bar.finish_and_clear();
                say(format!("seed {seed}: {violation}"));
                let wrong = args.mutant.iter().map(|name| format!(" --mutant {name}"));
                let late = args.late.then(|| " --late".to_owned());
                let wrong: String = wrong.chain(late).collect();
                say(format!(
                    "to see it: holdall cells --cells {cells} --clients {clients} --seed {seed} --seeds 1 --told{wrong}"
                ));
                return Ok(ExitCode::FAILURE);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let Report {
        grants,
        spanning,
        reserved,
        renewed,
        lost,
        refused,
        strangers,
        unclaimed,
        cut,
        faults,
        events,
    } = all;
    print(&format!(
        "{} seeds: nothing used twice, nobody starved, nothing left behind\n\
         {grants} grants, {spanning} of them over several cells, of these {reserved} reservations, renewed {renewed} times; \
         {lost} taken away; {refused} refused; {faults} faults, {strangers} copies not let in, {cut} links cut; \
         {unclaimed} reservations that their homes had forgotten; {events} events",
        args.seeds
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> anyhow::Result<Mutant> {
    match Mutant::ALL.into_iter().find(|mutant| mutant.name() == name) {
        Some(mutant) => Ok(mutant),
        None => {
            let all: Vec<_> = Mutant::ALL.into_iter().map(Mutant::name).collect();
            Err(usage(format!("there is no mutant '{name}'; there are {}", all.join(", "))))
        }
    }
}
