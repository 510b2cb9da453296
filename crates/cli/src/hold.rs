//! `holdall hold`, `renew`, `release`: reservations, which outlive the command and the agent.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdall_client::{Client, Presence};
use holdall_wire::{Body, Lasting, Name, RequestNo, Taken, span};
use serde::Serialize;

use crate::failure::{Failure, NOT_NOW, UNAVAILABLE};
use crate::reach::{self, Reach, block_on};
use crate::run::{Meanwhile, Signals, Wanted, environment, through};
use crate::until::until;
use crate::{print, show};

/// Reserve all needs for a time; prints the grant
///
/// The reservation outlives this command and restarts of the agent. `holdall release GRANT` ends
/// it, `holdall renew GRANT` prolongs it. The grant alone goes to stdout, so that `G=$(holdall hold gpu)` has it;
/// what is held goes to stderr.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    lasts: Lasts,
    /// Print one JSON object
    #[arg(long, conflicts_with = "export")]
    json: bool,
    /// Print lines for a shell: eval "$(holdall hold gpu --export)" sets what a command of `run` would see
    #[arg(long)]
    export: bool,
    /// Stay until it ends, and say so some time before; whatever ends this command, the reservation stays
    #[arg(long)]
    watch: bool,
}

/// How long something lasts.
#[derive(clap::Args)]
struct Lasts {
    /// For how long from now, like 30m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "1h")]
    lasts: Duration,
    /// Until then, like 18:00 or 2026-11-16T18:00
    #[arg(long, value_name = "TIME", value_parser = until, conflicts_with = "lasts", allow_hyphen_values = true)]
    until: Option<Duration>,
}

impl Lasts {
    fn span(&self) -> Duration {
        self.until.unwrap_or(self.lasts)
    }

    /// The same for what was granted so much later.
    fn after(&self, waited: Duration) -> anyhow::Result<Duration> {
        let Some(until) = self.until.filter(|_| waited >= Duration::from_secs(1)) else {
            return Ok(self.span());
        };
        let left = until.checked_sub(waited).filter(|left| !left.is_zero());
        left.ok_or_else(|| Failure(NOT_NOW, "not granted before that time".into()).into())
    }
}

/// Let a reservation last for a time from now
#[derive(clap::Args)]
pub(crate) struct RenewArgs {
    /// The grant, as `holdall hold` printed it
    grant: RequestNo,
    #[command(flatten)]
    lasts: Lasts,
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
    /// Why it is forced, for the audit log
    #[arg(long, requires = "force")]
    reason: Option<String>,
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
    let (begun, span) = (Instant::now(), args.lasts.span());
    let ask = args.wanted.ask("hold".into(), Lasting::Reservation(millis(span)))?;
    block_on(async {
        let mut signals = Signals::new()?;
        let (client, grant) = args.wanted.get(&ask, &mut signals).await?;
        let number = grant.number();
        let span = args.lasts.after(begun.elapsed())?;
        if span != args.lasts.span() {
            let millis = millis(span);
            reach::call(&client, Body::Renew { request: number, millis }).await?;
        }
        let until = show::now() + millis(span);
        if args.json {
            print(&show::json(&Held { grant: number, taken: grant.taken(), until })?)?;
        } else if args.export {
            let agent = args.wanted.reach.name()?;
            print(&exports(&environment::variables(&grant, &ask.needs, &agent, grant.limit())))?;
        } else {
            print(&number.to_string())?;
            let held = show::shorten(&show::taken(grant.taken()), 200);
            crate::say(format!("{number} holds {held} {}", show::until(until)));
        }
        let names: Vec<_> = grant.taken().iter().map(|taken| taken.name.clone()).collect();
        grant.keep();
        if args.watch {
            let watch = watch(&client, number, &names);
            tokio::select! {
                watched = through(&args.wanted.reach, &client, Meanwhile::Watching, watch) => watched?,
                _ = signals.next() => {}
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Lines that set variables in a shell.
fn exports(variables: &[(String, String)]) -> String {
    let line = |(name, value): &(String, String)| {
        format!("export {name}='{}'", value.replace('\'', "'\\''"))
    };
    variables.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How often it is looked whether a reservation was prolonged or released.
const LOOK: Duration = Duration::from_secs(10);
/// How long before its end a reservation's end is told, at most.
const NOTICE: u64 = 300_000;

/// Says before a reservation ends that it will, and when it has.
async fn watch(client: &Client, grant: RequestNo, names: &[Name]) -> anyhow::Result<()> {
    let mut told = None;
    loop {
        let status = match reach::look(client, names, |_| false).await {
            Err(_) if *client.presence().borrow() != Presence::Here => continue,
            looked => looked?.0,
        };
        let held = status.grants.iter().find(|held| held.request == grant);
        let Some(until) = held.and_then(|held| held.until) else {
            crate::say(format!("{grant} has ended"));
            return Ok(());
        };
        let left = until.saturating_sub(show::now());
        let lasts = until.saturating_sub(held.map_or(until, |held| held.since));
        let notice = NOTICE.min(lasts / 10);
        if left <= notice && told != Some(until) {
            crate::say(format!(
                "{grant} ends in {}; `holdall renew {grant}` prolongs it",
                show::soon(Duration::from_millis(left))
            ));
            told = Some(until);
        }
        let next = if left > notice { left - notice } else { left };
        let next = tokio::time::sleep(Duration::from_millis(next + 10).min(LOOK));
        tokio::select! {
            () = next => {}
            () = client.lost() => {} // Whoever asks again waits for the next agent.
        }
    }
}

/// How long it may take to say that it is there.
const LAST_WORD: Duration = Duration::from_secs(2);

pub(crate) fn renew(args: &RenewArgs) -> anyhow::Result<ExitCode> {
    let (request, millis) = (args.grant, millis(args.lasts.span()));
    block_on(async {
        let client = args.reach.connect_or_start().await?;
        let renewed = reach::call(&client, Body::Renew { request, millis }).await;
        if let Err(error) = renewed {
            // It is the agent that answers nothing, or another cell that does not confirm it.
            let is_there = client.call(Body::Agent);
            let is_there = matches!(tokio::time::timeout(LAST_WORD, is_there).await, Ok(Ok(_)));
            let is_silent =
                error.downcast_ref().is_some_and(|told: &Failure| told.0 == UNAVAILABLE);
            return Err(if is_silent && is_there { unconfirmed(request) } else { error });
        }
        print(&format!("{request} lasts {}", show::until(show::now() + millis)))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Why a reservation is not renewed though the agent answers.
fn unconfirmed(grant: RequestNo) -> anyhow::Error {
    let why = format!(
        "{grant} is not renewed: what guards it has not confirmed that; if it never does, it ends as before (`holdall status --all` tells \
         until when, and what is wrong)"
    );
    Failure(UNAVAILABLE, why).into()
}

pub(crate) fn release(args: &ReleaseArgs) -> anyhow::Result<ExitCode> {
    let (request, force, reason) = (args.grant, args.force, args.reason.clone());
    call(&args.reach, Body::Release { request, force, reason })
}

fn call(reach: &Reach, body: Body) -> anyhow::Result<ExitCode> {
    block_on(async {
        reach::call(&reach.connect_or_start().await?, body).await?;
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stays_where_it_is_while_one_waits_for_it_and_a_span_does_not() {
        let seconds = Duration::from_secs;
        let lasts = Lasts { lasts: seconds(60), until: None };
        assert_eq!(lasts.after(seconds(50)).ok(), Some(seconds(60)));
        let until = Lasts { lasts: seconds(60), until: Some(seconds(30)) };
        assert_eq!(until.after(seconds(10)).ok(), Some(seconds(20)));
        assert_eq!(until.after(seconds(0)).ok(), Some(seconds(30)));
        assert!(until.after(seconds(30)).is_err());
    }

    #[test]
    fn a_shell_reads_back_what_was_exported() {
        let told = exports(&[("A".into(), "it's".into()), ("B".into(), "1,2".into())]);
        assert_eq!(told, "export A='it'\\''s'\nexport B='1,2'");
    }
}
