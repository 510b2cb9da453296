//! `holdall run`: hold everything while a command runs.
//!
//! The command is a child of this process. Before it starts, the agent knows it, or the cgroup in
//! which it starts, and has noted that on disk: so nothing that is granted is used by anybody whom
//! this agent, or one that comes after it, does not know of.

mod away;
mod child;
pub(crate) mod environment;
mod leash;
mod plain;
mod waiting;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdall_client::{Client, Error, Grant, Presence};
use holdall_holders::{Ended, boottime};
use holdall_wire::{
    Ask, Fault, From as About, Lasting, Leftovers, NEEDS_MAX, Need, Part, RequestNo, span,
};
use rustix::process::Signal;
use tokio::time::Instant;

pub(crate) use self::away::{Meanwhile, through};
use self::child::{Running, Use};
use self::leash::Leash;
pub(crate) use self::waiting::Signals;
use crate::failure::{Failure, LOST, NEVER, OVER_LIMIT};
use crate::reach::{ANSWER, Reach, block_on_last};
use crate::until::until;
use crate::{USAGE, show, usage};

/// How long an agent may take to answer however short the wait is: it may have to start first.
const LEAST: Duration = Duration::from_secs(1);
/// How long before an agent on another machine takes away what is held a command is stopped, at most.
const BEFORE: Duration = Duration::from_secs(15);
/// How long a command may take to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Hold all needs while a command runs
///
/// A need is a lock (`db`, or `db:shared`), units of a pool (`gpu`, `gpu:2`, `gpu:all`), or a certain
/// unit (`gpu/3`); `gpu/3 gpu:2` is that one and two others. All of them are held, or none.
///
/// The exit status is the command's own (128+n if signal n ended it, 126 or 127 if it cannot be
/// run), or 64 for a usage error, 69 if the agent cannot be reached, 75 if it is not granted in
/// time, 77 if you may not ask, 78 if it can never be granted, 70 if the grant was lost and the command
/// was stopped, 124 if it was stopped at its time limit.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// What becomes of processes that the command leaves behind
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    leftovers: After,
    /// Stop the command after this time: SIGTERM, and SIGKILL after 5 seconds. Pools may allow less
    #[arg(long, value_name = "TIME", value_parser = span)]
    limit: Option<Duration>,
    /// Say nothing but what goes wrong
    #[arg(short, long)]
    quiet: bool,
    /// Use a part of what this grant holds, mostly a reservation of `holdall hold`, instead of what is free
    #[arg(long = "in", value_name = "GRANT")]
    part_of: Option<RequestNo>,
    /// What becomes of the command if that grant ends before it does
    #[arg(long, value_enum, default_value_t, value_name = "HOW", requires = "part_of")]
    at_end: AtEnd,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

/// What becomes of processes that a command leaves behind.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum After {
    /// Everything is held until they are gone
    #[default]
    Wait,
    /// Nothing is held for them; a message names them
    Warn,
    /// They are ended: SIGTERM, and SIGKILL after 5 seconds
    Kill,
}

/// What becomes of a command whose reservation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum AtEnd {
    /// It is stopped: SIGTERM, and SIGKILL after 5 seconds
    #[default]
    Stop,
    /// It goes on, as long as the agent allows, and the reservation with it
    KeepUntilDone,
}

impl From<After> for Leftovers {
    fn from(after: After) -> Self {
        match after {
            After::Wait => Self::Wait,
            After::Warn => Self::Warn,
            After::Kill => Self::Kill,
        }
    }
}

impl Args {
    fn tell_leftovers(&self, pids: &[u32]) {
        let many: Vec<_> = pids.iter().take(8).map(ToString::to_string).collect();
        let more = if pids.len() > many.len() { ", ..." } else { "" };
        let which = format!("{}{more}", many.join(", "));
        let needs = self.wanted.needs.join(" ");
        match self.leftovers {
            _ if pids.is_empty() => {}
            After::Warn => mention(format!(
                "the command has left processes behind that still run, and {needs} is \
                 not held for them: {which}"
            )),
            _ => mention(format!(
                "{needs} is held until what the command has left behind has ended, too: \
                 {which} (--leftovers tells what else can be done)"
            )),
        }
    }
}

/// A common mistake is put into words of our own; all others are left to whoever knows all commands.
///
/// # Errors
/// The exit status, if it was told.
pub(crate) fn explain_misuse(error: &clap::Error) -> Result<(), ExitCode> {
    let words: Vec<_> = std::env::args_os().skip(2).collect();
    let missing = error.kind() == clap::error::ErrorKind::MissingRequiredArgument;
    if !missing || words.is_empty() || words.iter().any(|word| word == "--") {
        return Ok(());
    }
    crate::say(
        "a command is required: put -- before the command, as in `holdall run gpu:2 -- make`",
    );
    Err(ExitCode::from(USAGE))
}

/// What is asked for, and how patiently.
#[derive(clap::Args, Debug)]
pub(crate) struct Wanted {
    /// What to hold: gpu, gpu:2, gpu:all, gpu/3, db, db:shared
    #[arg(required = true, value_name = "NEED")]
    needs: Vec<String>,
    /// Do not wait: give up if it is not free right now
    #[arg(short = 'n', long = "no-wait", conflicts_with = "wait")]
    no_wait: bool,
    /// Wait no longer than this, like 30s or 5m
    #[arg(short = 'w', long, value_name = "TIME", value_parser = span)]
    wait: Option<Duration>,
    /// Give up, at once if it will very probably not be granted by then: 18:00, 2026-11-16T18:00 or 2h
    #[arg(long, value_name = "TIME", value_parser = until, conflicts_with_all = ["no_wait", "wait"], allow_hyphen_values = true)]
    by: Option<Duration>,
    /// The exit status if it is not granted in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::failure::NOT_NOW)]
    conflict_exit_code: u8,
    /// Why, for others to see
    #[arg(long)]
    reason: Option<String>,
    /// A name for the request, for others to see
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

impl Wanted {
    /// The request, with sense checked as far as it can be here.
    pub(crate) fn ask(&self, command: String, lasting: Lasting) -> anyhow::Result<Ask> {
        if self.needs.len() > NEEDS_MAX {
            let count = self.needs.len();
            return Err(usage(format!("{count} needs; a request has at most {NEEDS_MAX}")));
        }
        let needs: Vec<Need> =
            self.needs.iter().map(|need| need.parse()).collect::<Result<_, _>>().map_err(usage)?;
        environment::check(&needs).map_err(usage)?;
        let from = About { command, name: self.name.clone(), reason: self.reason.clone() };
        let within = within(&self.reach)?;
        Ok(Ask { needs, now: self.no_wait, lasting, from, within, limit: None, part: None })
    }

    /// Asks, starting an agent if need be, and waits as long as it is told to.
    pub(crate) async fn get(
        &self,
        ask: &Ask,
        signals: &mut Signals,
    ) -> anyhow::Result<(Client, Grant)> {
        let got = self.wait_for(ask, signals).await;
        got.map_err(|error| match crate::failure::code(&error) {
            crate::failure::NOT_NOW => {
                Failure(self.conflict_exit_code, format!("{error:#}")).into()
            }
            _ => error,
        })
    }

    async fn wait_for(&self, ask: &Ask, signals: &mut Signals) -> anyhow::Result<(Client, Grant)> {
        let start = Instant::now();
        let wait = self.wait.or(self.by);
        let deadline = wait.or_else(|| self.no_wait.then_some(ANSWER)).map(|wait| start + wait);
        let deadline = waiting::Deadline { at: deadline, foresees: self.by.is_some() };
        let reached_by = wait.map(|wait| start + wait.max(LEAST));
        // Of a reservation that is asked for before the agent is known to answer nobody would know.
        let (client, mut asked) = match ask.lasting {
            Lasting::Command(_) => {
                let connected = pin!(self.reach.connect_asking(ask));
                waiting::before(reached_by, signals, connected).await?
            }
            _ => {
                let connected = pin!(self.reach.connect_or_start());
                (waiting::before(reached_by, signals, connected).await?, None)
            }
        };
        loop {
            let asked = asked.take().map_or_else(|| client.enqueue(ask.clone()), Ok);
            let granted = waiting::granted(&client, ask, asked, deadline, signals);
            let done = through(&self.reach, &client, Meanwhile::Waiting, pin!(granted)).await;
            match done {
                Err(error) if matches!(error.downcast_ref(), Some(Error::Lost)) => {
                    // One on another machine gives up whom it has not heard of for too long.
                    let why = match self.reach.elsewhere() {
                        Ok(Some(_)) => "was out of reach for too long, or has lost its memory",
                        _ => "has lost its memory",
                    };
                    mention(format!("the agent {why}; asking again"));
                }
                Err(error) => return Err(error),
                Ok(grant) => return Ok((client, grant)),
            }
        }
    }
}

/// Whether only what goes wrong is said.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Says what is worth knowing and no error.
pub(crate) fn mention(text: impl std::fmt::Display) {
    if !QUIET.load(Ordering::Relaxed) {
        crate::say(text);
    }
}

/// The grant inside which this command runs, if it is of the agent that is asked.
fn within(reach: &Reach) -> anyhow::Result<Option<RequestNo>> {
    if let Some(agent) = std::env::var_os(environment::GRANT_AGENT)
        && agent != *reach.name()?
    {
        return Ok(None);
    }
    match std::env::var("HOLDALL_GRANT") {
        Ok(text) if !text.is_empty() => {
            text.parse().map(Some).map_err(|bad| usage(format!("HOLDALL_GRANT: {bad}")))
        }
        _ => Ok(None),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let words = args.command.iter().map(|word| word.to_string_lossy());
    let command = words.collect::<Vec<_>>().join(" ").chars().take(1000).collect();
    let lasting = match args.wanted.reach.elsewhere()? {
        // Its agent does not see the command: we do.
        Some(_) => Lasting::Connection,
        None => Lasting::Command(args.leftovers.into()),
    };
    let mut ask = args.wanted.ask(command, lasting)?;
    QUIET.store(args.quiet, Ordering::Relaxed);
    // Where the agent takes away what is held at the limit, the command is stopped before.
    let later = if ask.lasting == Lasting::Connection { BEFORE } else { Duration::ZERO };
    ask.limit = args.limit.map(|limit| limit.saturating_add(later).as_millis() as u64);
    let outlasts = args.at_end == AtEnd::KeepUntilDone;
    ask.part = args.part_of.map(|of| Part { of, outlasts });
    if let Some(outer) = ask.within.filter(|_| ask.part.is_none()) {
        mention(format!(
            "asking inside grant {outer}, which is held while this waits; \
             better ask for everything at once"
        ));
    }
    block_on_last(pin!(hold_and_run(args, &ask)))
}

async fn hold_and_run(args: &Args, ask: &Ask) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let (client, mut grant) = args.wanted.get(ask, &mut signals).await?;
    // What is not used is given back when it is dropped, or with our end: that waits for nobody.
    if let Err(why) = environment::differ(grant.taken().iter().map(|taken| &taken.name)) {
        return Err(usage(why));
    }
    let granted = Instant::now();
    let mut leash = Leash::default();
    leash.set(grant.deadline(), boottime);
    let agent = args.wanted.reach.name()?;
    let alone = ask.lasting == Lasting::Connection;
    let limit = grant.limit().map(|limit| {
        let before = if alone { BEFORE.min(limit / 4) } else { Duration::ZERO };
        (limit - before).min(args.limit.filter(|_| alone).unwrap_or(Duration::MAX))
    });
    let mut variables = environment::variables(&grant, &ask.needs, &agent, limit);
    if let Err(why) = environment::fits(&variables, &args.command) {
        return Err(Failure(NEVER, why).into());
    }
    if args.wanted.reach.socket.is_some() {
        // What runs inside shall talk to the same agent, which knows our grant.
        variables.push(("HOLDALL_AGENT".into(), agent));
    }
    let deadline = limit.and_then(|limit| granted.checked_add(limit));
    if let Some(limit) = limit.filter(|limit| Some(*limit) != args.limit) {
        mention(format!("the command is stopped after {}", show::span(limit.as_secs())));
    }
    let (reach, leftovers) = (&args.wanted.reach, args.leftovers.into());
    let mut running = if alone {
        let words = &args.command;
        Running::start_alone(words, variables, leftovers, &mut grant, leash, &signals)?
    } else {
        let (words, grant, signals) = (&args.command, &mut grant, &mut signals);
        let start = Running::start(words, variables, leftovers, &client, grant, leash, signals);
        through(reach, &client, Meanwhile::Waiting, pin!(start)).await?
    };
    let used = running.supervise(&mut grant, &mut signals, GRACE, deadline);
    let used = through(reach, &client, Meanwhile::Running, pin!(used)).await?;
    // Whoever stopped it in time may be away by now, and we have stood still meanwhile.
    let is_late = running.is_late(&mut grant);
    let mut back = async |grant: Grant| {
        if alone {
            args.tell_leftovers(&running.left().unwrap_or_default());
            return give_back_alone(&client, grant, &mut signals).await;
        }
        let back = pin!(give_back(args, &client, &mut running, grant, &mut signals));
        through(reach, &client, Meanwhile::Waiting, back).await
    };
    match used {
        Use::OverLimit => {
            back(grant).await?;
            let text = "the time limit was over, and the command was stopped";
            Err(Failure(OVER_LIMIT, text.into()).into())
        }
        Use::Over(ended) => {
            let lost = back(grant).await? == Back::Lost;
            if lost && ended == Ended::Signal(Signal::KILL.as_raw()) {
                // It was taken away, and the agent has ended the command for us.
                return Err(lost_grant());
            }
            if is_late && ended == Ended::Signal(Signal::KILL.as_raw()) {
                return Err(lapsed());
            }
            if ended == Ended::Signal(Signal::INT.as_raw()) {
                // A shell that runs us in a script then knows that it was interrupted.
                crate::messages::finish();
                holdall_holders::end_by(Signal::INT);
            }
            Ok(ExitCode::from(ended.code()))
        }
        Use::Lost => {
            drop(grant);
            Err(lost_grant())
        }
        Use::Lapsed => {
            drop(grant);
            Err(lapsed())
        }
    }
}

fn lapsed() -> anyhow::Error {
    let text = "the agent was not heard of in time, and the command was stopped before others \
                are given what it held";
    Failure(LOST, text.into()).into()
}

fn lost_grant() -> anyhow::Error {
    Failure(LOST, "the grant was lost, and the command was stopped".into()).into()
}

/// What became of a grant that was given back.
#[derive(PartialEq, Eq)]
enum Back {
    /// The agent has it.
    Given,
    /// The agent had taken it away before, or has lost its memory.
    Lost,
    /// The agent is away, does not answer or could not do it, and will notice our end.
    Unanswered,
}

/// Gives the grant back. For what the command has left behind and the agent cannot see, we hold it
/// ourselves.
async fn give_back(
    args: &Args,
    client: &Client,
    running: &mut Running,
    mut grant: Grant,
    signals: &mut Signals,
) -> anyhow::Result<Back> {
    let mut told = false;
    loop {
        let error = match end(client, &mut grant, running, signals).await {
            Ok(Some(pids)) => {
                args.tell_leftovers(&pids);
                return Ok(Back::Given);
            }
            Ok(None) => return Ok(Back::Unanswered),
            Err(error) => error,
        };
        if !running.has_left() {
            crate::say(format!("the grant was not given back in order: {error}"));
            return Ok(match error.downcast_ref() {
                Some(Error::Fault(Fault::Failed(_))) => Back::Unanswered,
                Some(Error::Lost | Error::Fault(_)) => Back::Lost,
                _ => Back::Unanswered,
            });
        }
        if !matches!(error.downcast_ref(), Some(Error::Fault(Fault::Failed(_)))) {
            // Nothing is held any more for what is left.
            let left = running.supervise(&mut grant, signals, GRACE, None).await;
            return left.map(|_| Back::Lost);
        }
        if !told {
            let needs = args.wanted.needs.join(" ");
            mention(format!(
                "holding {needs} until what the command has left behind has ended: {error}"
            ));
            told = true;
        }
        let changed = tokio::time::timeout(LEAST, running.next_end(signals)).await;
        changed.unwrap_or(Ok(()))?;
    }
}

/// Tells the agent that the command has ended. With nothing left, an agent that does not answer
/// notices our own end when it wakes up, and one that is away when it is back: none is returned then.
async fn end(
    client: &Client,
    grant: &mut Grant,
    running: &mut Running,
    signals: &mut Signals,
) -> anyhow::Result<Option<Vec<u32>>> {
    let mut end = pin!(grant.end(running.has_left()));
    while running.has_left() {
        tokio::select! {
            done = &mut end => return Ok(Some(done?)),
            changed = running.next_end(signals) => changed?,
        }
    }
    let needless = pin!(async {
        loop {
            // What is left is looked at only when that matters: mostly the agent has answered by then.
            away::gone(client).await;
            running.until_empty().await;
            if *client.presence().borrow() != Presence::Here {
                return;
            }
        }
    });
    unless_needless(client, signals, end, needless).await
}

/// Gives back what a command has used of which the agent knows nothing. What it was not told it frees when the lease is over.
async fn give_back_alone(
    client: &Client,
    mut grant: Grant,
    signals: &mut Signals,
) -> anyhow::Result<Back> {
    let (end, gone) = (pin!(grant.end(false)), pin!(away::gone(client)));
    match unless_needless(client, signals, end, gone).await {
        Ok(Some(_)) => Ok(Back::Given),
        Ok(None) => {
            mention("the agent is out of reach; it frees everything when the lease is over");
            Ok(Back::Unanswered)
        }
        Err(error) => {
            crate::say(format!("the grant was not given back in order: {error}"));
            let is_lost = matches!(error.downcast_ref(), Some(Error::Lost | Error::Fault(_)));
            Ok(if is_lost { Back::Lost } else { Back::Unanswered })
        }
    }
}

/// Waits until the agent has taken a grant back, or that need not be waited for: none is returned then.
async fn unless_needless(
    client: &Client,
    signals: &mut Signals,
    ended: impl Future<Output = Result<Vec<u32>, Error>>,
    needless: impl Future<Output = ()>,
) -> anyhow::Result<Option<Vec<u32>>> {
    let either = async {
        tokio::select! {
            biased;
            ended = ended => Ok(Some(ended?)),
            () = needless => Ok(None),
        }
    };
    waiting::answered(client, signals, pin!(either)).await
}
