//! Waiting for a grant: patiently or not, telling what it waits for, until a signal ends it.

use std::time::Duration;

use holdall_client::{Client, Grant, Waiting};
use holdall_wire::{Ask, Body, Explanation, Reply, RequestNo};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

use crate::failure::{Failure, NOT_NOW};
use crate::show;

/// The signals that are passed on to the child, and that end a wait.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on these signals do not end this process by themselves.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let all =
            [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
        let listen =
            |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        Ok(Self(all.into_iter().map(listen).collect::<std::io::Result<_>>()?))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Asks, and waits until it is granted, the time is over, or a signal comes.
pub(super) async fn granted(
    client: &Client,
    ask: Ask,
    deadline: Option<Instant>,
    signals: &mut Signals,
) -> anyhow::Result<Grant> {
    let needs = show::needs(&ask.needs);
    let mut waiting = client.enqueue(ask)?;
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    let line = Line::new(needs.clone());
    loop {
        tokio::select! {
            biased;
            granted = waiting.granted() => return Ok(granted?),
            signal = signals.next() => match signal {
                Signal::USR1 | Signal::USR2 => {} // Meant for the child that is not there yet.
                _ => {
                    let code = 128 + signal.as_raw() as u8;
                    return Err(Failure(code, "interrupted while waiting".into()).into());
                }
            },
            () = &mut over => {
                let why = why(client, waiting.number()).await;
                return Err(Failure(NOT_NOW, format!("not granted in time: {why}")).into());
            }
            () = line.pause() => line.tell(client, &waiting).await,
        }
    }
}

async fn explain(client: &Client, number: Option<RequestNo>) -> Option<Explanation> {
    match client.call(Body::Explain(number?)).await {
        Ok(Reply::Explanation(explanation)) => Some(explanation),
        _ => None,
    }
}

async fn why(client: &Client, number: Option<RequestNo>) -> String {
    if number.is_none() {
        return "processes of a former agent still hold what it granted".into();
    }
    let explanation = explain(client, number).await;
    let first = explanation.as_ref().and_then(|explanation| explanation.chain.first());
    first.map_or_else(|| "others hold it".into(), |first| show::hindrances(&first.hindrances))
}

/// The live line on stderr, if that is a terminal.
struct Line {
    bar: Option<ProgressBar>,
    needs: String,
}

impl Line {
    fn new(needs: String) -> Self {
        let terminal = rustix::termios::isatty(rustix::stdio::stderr());
        let bar = terminal.then(|| {
            let style = ProgressStyle::with_template("holdall: {msg} ({elapsed})")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Self { bar, needs }
    }

    async fn pause(&self) {
        match &self.bar {
            Some(bar) if bar.message().is_empty() => {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Some(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            None => std::future::pending().await,
        }
    }

    async fn tell(&self, client: &Client, waiting: &Waiting) {
        let Some(bar) = &self.bar else { return };
        let Some(number) = waiting.number() else {
            bar.set_message(format!("waiting for {}: the agent is starting", self.needs));
            return bar.tick();
        };
        if let Some(explanation) = explain(client, Some(number)).await {
            let reason = explanation.chain.first();
            let reason =
                reason.map(|first| show::hindrances(&first.hindrances)).unwrap_or_default();
            let at = explanation.release.first();
            let at = at.map(|grant| format!(" [{}]", show::who(&grant.who))).unwrap_or_default();
            bar.set_message(format!("{number} waits for {}: {reason}{at}", self.needs));
            bar.tick();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
