//! `holdall sim --job`: copies of a job, played through protocols.
//!
//! Each copy has the very machine that real runners have, and its requests are clients of the
//! protocol. Tasks all end well, after times that are drawn once and are the same for every protocol.

mod players;
mod pools;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use comfy_table::Table;
use holdall_jobs::Plan;
use holdall_sim::{Contender, Settings, run_clients, settings_for};
use serde::Serialize;

use self::players::{Players, Summary};
use self::pools::Pools;
pub(super) use self::pools::Size;
use super::failed;
use super::table::{self, Figure, decimal};
use crate::{Failure, usage};

/// Jobs in place of a workload.
#[derive(clap::Args)]
pub(super) struct JobArgs {
    /// Let copies of a job, as `holdall job` runs it, ask in place of users
    #[arg(long, value_name = "FILE")]
    pub(super) job: Option<PathBuf>,
    /// Copies of the job
    #[arg(long, value_name = "N", default_value_t = 20, requires = "job")]
    copies: u32,
    /// Mean time between the arrivals of two copies, uniform from 0; 0 for all at once
    #[arg(long, value_name = "TICKS", default_value_t = 0, requires = "job")]
    every: u32,
    /// How many units a pool of the job has; what is not named is a lock
    #[arg(long = "pool", value_name = "NAME:UNITS", requires = "job")]
    pools: Vec<Size>,
}

/// What one protocol made of the jobs.
#[derive(Serialize)]
struct Line {
    protocol: String,
    #[serde(flatten)]
    summary: Summary,
    messages_per_grant: Option<f64>,
    violations: u64,
}

/// A job, and how many of it there are.
pub(super) struct Jobs {
    plan: Plan,
    pools: Pools,
    copies: u32,
    every: u32,
}

impl JobArgs {
    /// The jobs that are to be played, if any.
    pub(super) fn jobs(&self) -> anyhow::Result<Option<Jobs>> {
        let Some(file) = &self.job else { return Ok(None) };
        let text = std::fs::read_to_string(file)
            .map_err(|error| usage(format!("cannot read {}: {error}", file.display())))?;
        let plan = holdall_jobs::read(&text, "job");
        let plan = plan.map_err(|flaw| usage(format!("{}: {flaw}", file.display())))?;
        if self.copies == 0 {
            return Err(usage("copies is 0: let it be at least 1"));
        }
        let clients = (self.copies as usize).saturating_mul(plan.requests.len());
        let pools = Pools::of(&plan, &self.pools, clients).map_err(usage)?;
        if pools.names.is_empty() {
            return Err(usage(format!("{}: no task needs anything", file.display())));
        }
        Ok(Some(Jobs { plan, pools, copies: self.copies, every: self.every }))
    }
}

impl Jobs {
    fn players(&self, settings: &Settings) -> Players<'_> {
        Players::new(&self.plan, &self.pools, settings, self.copies, self.every)
    }

    /// The settings under which protocols are judged.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        settings_for(&self.players(settings), settings)
    }
}

/// Plays them through all protocols, and prints what came of it.
pub(super) fn run(
    jobs: &Jobs,
    settings: &Settings,
    contenders: &[Contender],
    json: bool,
) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for contender in contenders {
        let mut players = jobs.players(settings);
        let report = run_clients(settings, contender, &mut players);
        let report = report.map_err(failed)?;
        lines.push(Line {
            protocol: report.protocol,
            messages_per_grant: report.messages_per_grant,
            violations: players.violations(),
            summary: players.summary(),
        });
    }
    let Jobs { plan, copies, every, .. } = jobs;
    let headline = format!(
        "{}: {} copies of {} tasks, one every {} ticks; a task takes {} ticks, a message {}; seed {}",
        plan.name,
        copies,
        plan.tasks.len(),
        every,
        settings.service,
        settings.delay,
        settings.seed
    );
    table::print(&headline, &lines, table_of, json)?;
    match lines.iter().find(|line| line.violations > 0) {
        Some(line) => {
            let told = format!("{} broke exclusion {} times", line.protocol, line.violations);
            Err(Failure(1, told).into())
        }
        None => Ok(()),
    }
}

fn ended(summary: &Summary) -> String {
    summary.ended.map_or_else(|| "never".into(), |tick| tick.to_string())
}

const FIGURES: [Figure<Line>; 10] = [
    ("all jobs ended at, ticks", |l| ended(&l.summary)),
    ("jobs that did not end", |l| l.summary.unfinished.to_string()),
    ("a job took: mean, ticks", |l| decimal(Some(l.summary.job_mean), 1)),
    ("  longest, ticks", |l| l.summary.job_longest.to_string()),
    ("a request waited: mean, ticks", |l| decimal(Some(l.summary.wait_mean), 1)),
    ("  median, ticks", |l| l.summary.wait_median.to_string()),
    ("  99th percentile, ticks", |l| l.summary.wait_p99.to_string()),
    ("  longest, ticks", |l| l.summary.wait_longest.to_string()),
    ("messages a grant", |l| decimal(l.messages_per_grant, 2)),
    ("exclusion violated, times", |l| l.violations.to_string()),
];

fn table_of(lines: &[Line]) -> Table {
    let mut table = table::table(lines, |line| line.protocol.clone(), &FIGURES);
    for (at, name) in lines.first().into_iter().flat_map(|l| l.summary.pools.keys()).enumerate() {
        let busy = |line: &Line| line.summary.pools.values().nth(at).copied().unwrap_or_default();
        let values = lines.iter().map(|line| decimal(Some(busy(line) * 100.0), 1));
        table::add_line(&mut table, format!("{name} in use, %"), values);
    }
    table
}
