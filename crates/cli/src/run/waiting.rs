//! Waiting for a grant: patiently or not, telling what it waits for, until a signal ends it.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::time::Duration;

use holdall_client::{Client, Error, Grant, Presence, Waiting};
use holdall_holders::Caught;
use holdall_wire::{Ask, Body, Explanation, Lasting, Need, Outlook, Reply, RequestNo};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::failure::{Failure, NOT_NOW, UNAVAILABLE};
use crate::reach::ANSWER;
use crate::show;
use crate::unreached::{Unreached, unreached};

/// The signals that are passed on to the child, and that end a wait.
pub(crate) struct Signals(holdall_holders::Signals);

impl Signals {
    /// From now on these signals do not end this process by themselves.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let all =
            [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
        Ok(Self(holdall_holders::Signals::new(&all)?))
    }

    /// The next one, or that a child has changed.
    pub(super) async fn any(&mut self) -> std::io::Result<Caught> {
        self.0.next().await
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            match self.any().await {
                Ok(caught) if caught.signal != Signal::CHILD => return caught.signal,
                Ok(_) => crate::reach::reap(),
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// The signals that were blocked before.
    pub(super) fn mask_before(&self) -> holdall_holders::SigSet {
        self.0.mask_before()
    }
}

/// How long an agent may take to say why we still wait, when there is no time left.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Waits for something, unless the time is over or a signal comes before.
pub(super) async fn before<T>(
    deadline: Option<Instant>,
    signals: &mut Signals,
    future: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        biased;
        done = future => done,
        error = ended_by(signals) => Err(error),
        () = over(deadline) => {
            let text = "not granted in time: the agent does not answer";
            Err(Failure(NOT_NOW, text.into()).into())
        }
    }
}

/// Waits for an answer of the agent that needs nobody else, unless a signal comes before. One that is away
/// is waited for.
pub(super) async fn answered<T>(
    client: &Client,
    signals: &mut Signals,
    future: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let in_time = async {
        tokio::select! {
            biased;
            done = future => done,
            () = silent(client) => {
                Err(Failure(UNAVAILABLE, "the agent does not answer".into()).into())
            }
        }
    };
    before(None, signals, pin!(in_time)).await
}

/// Waits until the agent has been there for so long that it should have answered.
async fn silent(client: &Client) {
    let mut presence = client.presence();
    loop {
        // The client is there, and so is what tells.
        let _ = presence.wait_for(|now| *now == Presence::Here).await;
        let gone = presence.wait_for(|now| *now != Presence::Here);
        if tokio::time::timeout(ANSWER, gone).await.is_err() {
            return;
        }
    }
}

/// Waits for a signal that ends us while there is no child yet.
async fn ended_by(signals: &mut Signals) -> anyhow::Error {
    loop {
        match signals.next().await {
            Signal::USR1 | Signal::USR2 => {} // Meant for the child.
            signal => {
                let code = 128 + signal.as_raw() as u8;
                return Failure(code, "interrupted while waiting".into()).into();
            }
        }
    }
}

async fn over(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// How long somebody waits.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    /// Until then.
    pub(super) at: Option<Instant>,
    /// Not even so long if it will very probably not be granted by then.
    pub(super) foresees: bool,
}

/// An estimate that is older, in milliseconds, is nothing to give up for: much may have happened since.
const OLD: u64 = 60_000;

impl Deadline {
    /// Why not to wait any more, if it is foreseen not to be granted in time: nine of ten cases are later, and half of the rest.
    fn foresees(self, outlook: Option<&Outlook>) -> Option<Failure> {
        let Some(Outlook::Expected(expected)) = outlook.filter(|_| self.foresees) else {
            return None;
        };
        if show::now().saturating_sub(expected.made) > OLD {
            return None;
        }
        let earliest = Duration::from_millis(expected.nine.0.saturating_sub(show::now()));
        let left = self.at?.saturating_duration_since(Instant::now());
        let text =
            || format!("not granted in time: {}", show::outlook(&Outlook::Expected(*expected)));
        (earliest > left).then(|| Failure(NOT_NOW, text()))
    }
}

/// Waits until what was asked is granted, the time is over, or a signal comes.
pub(super) async fn granted(
    client: &Client,
    ask: &Ask,
    asked: Result<Waiting, Error>,
    deadline: Deadline,
    signals: &mut Signals,
) -> anyhow::Result<Grant> {
    let line = Line::new(show::needs(&ask.needs), deadline.foresees);
    let reserves = matches!(ask.lasting, Lasting::Reservation(_));
    let undecided = undecided(&ask.needs);
    let give_up = || {
        if reserves && *client.presence().borrow() != Presence::Here {
            super::mention(
                "the agent is away; if it has granted this before, `holdall status` will show it, \
                 and `holdall release` end it",
            );
        }
    };
    let mut waiting = asked?;
    waiting.on_warning(|text| super::mention(show::clean(text)));
    let mut answer: Option<Pin<Box<dyn Future<Output = Option<Explanation>>>>> = None;
    loop {
        let idle = answer.is_none();
        let explained = async {
            match &mut answer {
                Some(answer) => answer.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            granted = waiting.granted() => return Ok(granted?),
            error = ended_by(signals) => {
                give_up();
                return Err(error);
            }
            () = over(deadline.at) => {
                // However short the wait is, the agent may say whether it is one.
                while waiting.number().is_none()
                    && let Ok(heard) = tokio::time::timeout(LAST_WORD, waiting.heard()).await
                {
                    if let Some(grant) = heard? {
                        return Ok(grant);
                    }
                }
                give_up();
                let why = why(client, waiting.number(), &undecided).await;
                return Err(Failure(NOT_NOW, format!("not granted in time: {why}")).into());
            }
            explanation = explained => {
                answer = None;
                let outlook = explanation.as_ref().and_then(|explained| explained.outlook.as_ref());
                if let Some(foreseen) = deadline.foresees(outlook) {
                    return Err(foreseen.into());
                }
                line.show(explanation);
            }
            () = line.pause(), if idle => match waiting.number() {
                Some(number) => answer = Some(Box::pin(explain(client, number))),
                None => line.show(None),
            },
        }
    }
}

async fn explain(client: &Client, number: RequestNo) -> Option<Explanation> {
    match client.call(Body::Explain { request: number, most: 1 }).await {
        Ok(Reply::Explanation(explanation)) => Some(explanation),
        _ => None,
    }
}

/// Why somebody who does not even wait yet has not got it, though the agent answers.
fn undecided(needs: &[Need]) -> String {
    let cells: BTreeSet<_> = needs.iter().filter_map(|need| need.name.cell()).collect();
    match cells.is_empty() {
        true => "the agent has not decided it yet".into(),
        false => format!("no answer yet of {}", Vec::from_iter(cells).join(", ")),
    }
}

async fn why(client: &Client, number: Option<RequestNo>, undecided: &str) -> String {
    if *client.presence().borrow() != Presence::Here {
        return "the agent is away".into();
    }
    let explain = |request| Body::Explain { request, most: 1 };
    let call = client.call(number.map_or(Body::Agent, explain));
    match tokio::time::timeout(LAST_WORD, call).await {
        Ok(Ok(Reply::Explanation(explanation))) => match explanation.chain.first() {
            // Nothing is in the way; the agent says why it is not granted all the same.
            Some(first) if first.hindrances.is_empty() => match &explanation.outlook {
                Some(Outlook::Unknown(why)) => show::clean(why),
                _ => "others are served before".into(),
            },
            Some(first) => {
                let asked = unreached(client, &first.needs);
                let unreached = tokio::time::timeout(LAST_WORD, asked).await.unwrap_or_default();
                show::hindrances(&first.hindrances, &unreached)
            }
            None => "others hold it".into(),
        },
        Ok(_) if number.is_none() => undecided.into(),
        Ok(_) => "others hold it".into(),
        Err(_) => "the agent does not answer".into(),
    }
}

/// The live line on stderr, if that is a terminal.
struct Line {
    bar: Option<ProgressBar>,
    needs: String,
    /// Whether the agent is asked why we wait though nobody is shown it.
    asks: bool,
}

impl Line {
    fn new(needs: String, asks: bool) -> Self {
        let terminal = rustix::termios::isatty(rustix::stdio::stderr());
        let bar = terminal.then(|| {
            let style = ProgressStyle::with_template("holdall: {msg} ({elapsed})")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Self { bar, needs, asks }
    }

    async fn pause(&self) {
        match &self.bar {
            Some(bar) if bar.message().is_empty() => {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Some(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            None if self.asks => tokio::time::sleep(Duration::from_secs(1)).await,
            None => std::future::pending().await,
        }
    }

    fn show(&self, explanation: Option<Explanation>) {
        let Some(bar) = &self.bar else { return };
        let Some(explanation) = explanation else {
            bar.set_message(format!("waiting for {}: the agent is starting", self.needs));
            return bar.tick();
        };
        let reason = explanation.chain.first();
        let reason = reason
            .map(|first| show::hindrances(&first.hindrances, &Unreached::new()))
            .unwrap_or_default();
        let at = explanation.release.first();
        let at = at.map(|grant| format!(" [{}]", show::who(&grant.who))).unwrap_or_default();
        let number = explanation.request;
        let outlook = explanation.outlook.as_ref().map(show::outlook);
        let outlook = outlook.map(|outlook| format!("; {outlook}")).unwrap_or_default();
        bar.set_message(format!("{number} waits for {}: {reason}{at}{outlook}", self.needs));
        bar.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
