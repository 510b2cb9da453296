//! `holdall hold`, `renew`, `release`: reservations, which outlive the command and the agent.

use std::process::ExitCode;
use std::time::Duration;

use holdall_wire::{Body, Lasting, RequestNo, Taken, span};
use serde::Serialize;

use crate::reach::{self, Reach, block_on};
use crate::run::{Signals, Wanted};
use crate::{print, show};

/// Reserve all needs for a time; prints the grant
///
/// The reservation outlives this command and restarts of the agent. `holdall release GRANT` ends
/// it, `holdall renew GRANT` prolongs it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// For how long, like 30m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "1h")]
    lasts: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Let a reservation last for a time from now
#[derive(clap::Args)]
pub(crate) struct RenewArgs {
    /// The grant, as `holdall hold` printed it
    grant: RequestNo,
    /// For how long from now, like 30m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "1h")]
    lasts: Duration,
    #[command(flatten)]
    reach: Reach,
}

/// End a reservation; with --force any grant
#[derive(clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The grant, as `holdall hold` printed it or `holdall status` shows it
    grant: RequestNo,
    /// Even if it is somebody else's, or in use: its command is stopped. Goes to the audit log
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Serialize)]
struct Held<'a> {
    grant: RequestNo,
    taken: &'a [Taken],
    until: u64,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let lasts = millis(args.lasts);
    let ask = args.wanted.ask("hold".into(), Lasting::Reservation(lasts))?;
    block_on(async {
        let mut signals = Signals::new()?;
        let (_client, grant) = args.wanted.get(&ask, &mut signals).await?;
        let held = Held { grant: grant.number(), taken: grant.taken(), until: show::now() + lasts };
        let text = if args.json {
            show::json(&held)?
        } else {
            let units = grant.units().map(|(unit, fence)| format!("\n  {unit} fence {fence}"));
            format!("{}{}", grant.number(), units.collect::<String>())
        };
        print(&text)?;
        grant.keep();
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn renew(args: &RenewArgs) -> anyhow::Result<ExitCode> {
    let body = Body::Renew { request: args.grant, millis: millis(args.lasts) };
    call(&args.reach, body)
}

pub(crate) fn release(args: &ReleaseArgs) -> anyhow::Result<ExitCode> {
    call(&args.reach, Body::Release { request: args.grant, force: args.force })
}

fn call(reach: &Reach, body: Body) -> anyhow::Result<ExitCode> {
    block_on(async {
        reach::call(&reach.connect_or_start().await?, body).await?;
        Ok(ExitCode::SUCCESS)
    })
}
