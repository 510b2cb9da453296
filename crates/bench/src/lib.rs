//! `holdall bench`: a load generator that measures the agent beside others, in one run.
//!
//! Clients run in this process, on one thread; whatever is measured runs in another. Each target is
//! measured in each round, in the opposite order every other time, and the medians are told: so a
//! machine that is slower for a while is so for all of them.
//!
//! Whether two clients have the same thing at a time is seen by the clients themselves, who share
//! a list of who has what.

#![forbid(unsafe_code)]

mod case;
mod crowd;
mod figures;
mod load;
mod options;
#[cfg_attr(not(feature = "peers"), path = "peers/absent.rs")]
mod peers;
mod process;
mod report;
mod server;
mod target;

use std::process::ExitCode;

pub use self::options::Options;

/// As a shell says it of what was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Bad input.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// There is no such case.
    #[error("no case '{0}'; there are {names}", names = case::NAMES.join(", "))]
    Case(String),
    /// There is nothing of that name to be measured.
    #[error("'{0}' cannot be measured; what can is: {names}{remedy}",
        names = target::names().join(", "), remedy = peers::REMEDY)]
    Target(String),
    /// Something is zero, or larger than something else.
    #[error("{0}")]
    Number(&'static str),
}

/// Measures, and prints a table or JSON.
///
/// # Errors
/// [`Bad`] if the input is; otherwise if a server cannot be started or a client fails.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(place) = server::asked_to_serve() {
        server::serve(&place)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (cases, targets) = (options.cases()?, options.targets()?);
    load::heed_signals()?;
    server::raise_file_limit();
    let mut report = report::Report::new(options);
    let measured = measure(&cases, &targets, options, &mut report);
    report.end()?;
    match measured {
        Ok(exclusive) => Ok(ExitCode::from(u8::from(!exclusive))),
        Err(error) if error.is::<load::Interrupted>() => Ok(ExitCode::from(INTERRUPTED)),
        Err(error) => Err(error),
    }
}

/// Measures everything, and says whether nobody had what another had.
fn measure(
    cases: &[case::Case],
    targets: &[String],
    options: &Options,
    report: &mut report::Report,
) -> anyhow::Result<bool> {
    let mut exclusive = true;
    let mut peers = peers::Peers::default();
    for case in cases {
        let mut rows: Vec<Vec<figures::Figures>> = vec![Vec::new(); targets.len()];
        for round in 0..options.rounds {
            let mut order: Vec<usize> = (0..targets.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                report.progress(case, &targets[at], round);
                let figures =
                    target::measure(&targets[at], case, options, round as u64, &mut peers)?;
                exclusive &= figures.violations == 0;
                rows[at].push(figures);
            }
        }
        for (target, rounds) in targets.iter().zip(&rows) {
            report.row(case, target, &figures::median(rounds))?;
        }
    }
    Ok(exclusive)
}
