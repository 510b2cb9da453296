//! `holdall top`: pools, holders and the queue at a glance, as it changes.
//!
//! | module | what |
//! |---|---|
//! | `state` | what is seen and selected, and what a key does to it; no I/O |
//! | `draw` | how that looks |
//! | `work` | what is asked of the agent meanwhile |
//!
//! Nothing waits for anything else here: keys are taken while the agent is asked, and whatever ends the
//! command leaves the terminal as it was, and no release undone that was confirmed.

mod draw;
mod state;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use holdall_client::{Client, Presence};
use holdall_wire::{Body, Name, Reply, RequestNo, Status};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc;

use self::state::{Act, Key, Top};
use self::work::{Doing, Work};
use crate::reach::{ANSWER, Reach, block_on, call, look};
use crate::run::Signals;
use crate::{explain, say, show, usage};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);
/// How many rows are asked for; what is more is counted.
const ROWS: usize = 5000;

/// Watch pools, holders and the queue in a terminal; explain and release from there
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what concerns these pools and locks
    #[arg(value_name = "POOL")]
    names: Vec<Name>,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_terminal = rustix::termios::isatty(rustix::stdio::stdin())
        && rustix::termios::isatty(rustix::stdio::stdout());
    if !is_terminal {
        let text = "top needs a terminal; `holdall status --watch` prints to whatever there is";
        return Err(usage(text.to_owned()));
    }
    block_on(async {
        let client = args.reach.connect().await?;
        // Before there are other threads, which they could go to.
        let mut signals = Signals::new()?;
        let mut terminal = ratatui::try_init()?;
        let mut work = Work::new(|act| Box::pin(done(&client, act)));
        let ended = tokio::select! {
            ended = live(&client, &args.names, &mut terminal, &mut work) => ended,
            _ = signals.next() => Ok(()),
        };
        // If the terminal is gone, so is what was to be restored.
        let _ = ratatui::try_restore();
        leave(&mut work, &mut signals).await;
        ended.map(|()| ExitCode::SUCCESS)
    })
}

/// Shows what there is and takes keys, until one leaves or there is no terminal any more.
async fn live(
    client: &Client,
    names: &[Name],
    terminal: &mut ratatui::DefaultTerminal,
    work: &mut Work<'_, Told>,
) -> anyhow::Result<()> {
    let mut events = events();
    let mut top = Top::new(client.agent().you.to_string());
    let mut looking: Doing<'_, (Status, bool)> = Box::pin(ask(client, names));
    let mut presence = client.presence();
    loop {
        terminal.draw(|frame| draw::draw(frame, &mut top))?;
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => match top.key(key) {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Do(act)) => work.add(act),
                    None => {}
                },
                Some(_) => {} // It has another size, above all.
                None => return Ok(()),
            },
            Ok(()) = presence.changed() => top.missed(missed(*presence.borrow_and_update())),
            looked = &mut looking => {
                let missed = missed(*presence.borrow());
                top.looked(looked.map_err(|error| missed.map_or_else(|| format!("{error:#}"), Into::into)));
                looking = Box::pin(async {
                    tokio::time::sleep(EVERY).await;
                    ask(client, names).await
                });
            }
            told = work.next() => match told {
                Ok(Told::Text(text)) => top.show(&text),
                Ok(Told::Nothing) => {}
                Err(error) => top.show(&format!("{error:#}")),
            },
        }
    }
}

/// Why nothing is heard of the agent, if it is known not to be there.
fn missed(presence: Presence) -> Option<&'static str> {
    match presence {
        Presence::Here => None,
        Presence::Away => Some("the agent is away; this is from before"),
        Presence::Stopped => Some("the agent was stopped; this is from before"),
    }
}

/// Sees to it that what was confirmed is released, and says what came of it, unless a signal comes or the agent does not answer.
async fn leave(work: &mut Work<'_, Told>, signals: &mut Signals) {
    let told = |act: &Act, told| match told {
        Ok(Told::Text(text)) => say(show::clean(&text)),
        Ok(Told::Nothing) => {}
        Err(error) => say(format!("{act} failed: {error:#}")),
    };
    let in_time = tokio::select! {
        biased;
        done = tokio::time::timeout(ANSWER, work.release(told)) => done.is_ok(),
        _ = signals.next() => false,
    };
    if !in_time {
        work.left().for_each(|act| {
            say(format!("{act} was not confirmed by the agent: look with `holdall status`"));
        });
    }
}

/// What the agent said.
enum Told {
    Text(String),
    Nothing,
}

async fn ask(client: &Client, names: &[Name]) -> anyhow::Result<(Status, bool)> {
    let rows = |status: &Status| status.pools.len() + status.grants.len() + status.waiting.len();
    look(client, names, |status| rows(status) >= ROWS).await
}

async fn done(client: &Client, act: Act) -> anyhow::Result<Told> {
    match act {
        Act::Explain(request) => explained(client, request).await,
        Act::Release { request, force } => {
            let (force, reason) = (force.is_some(), force.filter(|reason| !reason.is_empty()));
            released(client, Body::Release { request, force, reason }).await
        }
    }
}

async fn explained(client: &Client, request: RequestNo) -> anyhow::Result<Told> {
    match call(client, Body::Explain { request, most: u32::MAX }).await? {
        Reply::Explanation(explanation) => Ok(Told::Text(explain::told(&explanation))),
        _ => anyhow::bail!("the agent gave an unexpected reply"),
    }
}

async fn released(client: &Client, body: Body) -> anyhow::Result<Told> {
    match call(client, body).await? {
        Reply::Warning(text) => Ok(Told::Text(text)),
        _ => Ok(Told::Nothing),
    }
}

/// What is typed, and when the terminal has another size. The thread that reads it ends with the process.
fn events() -> mpsc::UnboundedReceiver<Event> {
    let (sender, events) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    events
}
