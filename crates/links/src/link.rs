//! A link that is up, until it ends.
//!
//! Three things run side by side: what comes in, what goes out, and the pings. What comes in never waits for those
//! above, so an answer to a ping is always seen; a ping says when it was sent, and the link is down if the youngest
//! that was answered is too old. So a link counts as up only if both directions work.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use crate::ca::REQUEST_MAX;
use crate::card;
use crate::event::Event;
use crate::frame::{self, AT_ONCE, Frame, LINK_MAX, Refusal};
use crate::greet::{Ending, Greeted};
use crate::hub::{Hub, Line};
use crate::member::Roster;
use crate::peer::{Counts, Outgoing, Stop, count};
use crate::renew;

/// How long the last words of a link may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs a link to its end, and tells those above of its beginning and its end.
pub(crate) async fn run(hub: &Hub, greeted: Greeted) -> Ending {
    let Greeted { stream, line, outgoing, greeting } = greeted;
    let peer = &line.peer.cell;
    info!(%peer, "a link is up");
    let way = line.way.clone();
    hub.inbox.put(Event::Up { peer: peer.clone(), greeting, way }).await;
    let (reader, writer) = tokio::io::split(stream);
    let stop = outgoing.stop.clone();
    let ending = tokio::select! {
        ending = hear(hub, &line, stop.clone(), BufReader::with_capacity(AT_ONCE, reader)) => ending,
        ending = speak(outgoing, &line.way.counts, BufWriter::with_capacity(AT_ONCE, writer)) => ending,
        ending = watch_over(hub, &line) => ending,
        ending = overdue(stop) => ending,
    };
    hub.ended(peer, ending.told()).await;
    ending
}

/// Takes what comes in. Once the link is told to end nothing is heard any more; its last words may still take a while.
async fn hear(
    hub: &Hub,
    line: &Line,
    mut stop: watch::Receiver<Option<Stop>>,
    mut from: impl AsyncRead + Unpin,
) -> Ending {
    loop {
        let received = tokio::select! {
            biased;
            _ = stopped(&mut stop) => std::future::pending().await,
            received = frame::receive_bytes(&mut from, LINK_MAX) => received,
        };
        let bytes = match received {
            Ok(bytes) => bytes,
            Err(error) => return error.into(),
        };
        count(&line.way.counts.frames_received, 1);
        count(&line.way.counts.bytes_received, bytes.len() + 4);
        let taken = match frame::decode(&bytes) {
            Ok(frame) => take(hub, line, frame).await,
            Err(bad) => Err(Ending::Misbehaved(bad.to_string())),
        };
        if let Err(ending) = taken {
            return ending;
        }
    }
}

async fn take(hub: &Hub, line: &Line, frame: Frame) -> Result<(), Ending> {
    let peer = &line.peer.cell;
    match frame {
        Frame::Ping(sent) => line.way.outbox.say(Frame::Pong(sent)),
        Frame::Pong(sent) => line.answered(sent),
        Frame::Message(bytes) => {
            if !hub.inbox.put_message(peer.id, bytes) {
                count(&line.way.counts.dropped_in, 1);
                return Err(Ending::Behind);
            }
        }
        Frame::Known(known) => {
            hub.lacking(&known).into_iter().for_each(|it| line.way.outbox.say(it));
        }
        Frame::Told(records) => {
            hub.take(peer.id, records)?;
        }
        Frame::Renew(request) if request.len() <= REQUEST_MAX => {
            renew::sign(hub, peer, request)
                .await
                .into_iter()
                .for_each(|it| line.way.outbox.say(it));
        }
        Frame::Renewed(certificate) => renew::renewed(hub, peer.id, certificate).await,
        Frame::Refused(refusal) => return Err(hub.refused(peer.id, refusal).await),
        Frame::Greeting { .. } | Frame::Ready | Frame::Renew(_) => {
            return Err(Ending::Misbehaved("it said something out of place".into()));
        }
    }
    Ok(())
}

/// Sends what waits; pings first, then what is about the members.
async fn speak(mut outgoing: Outgoing, counts: &Counts, mut to: impl AsyncWrite + Unpin) -> Ending {
    loop {
        let frame = tokio::select! {
            biased;
            stop = stopped(&mut outgoing.stop) => return farewell(stop, outgoing, &mut to).await,
            Some(frame) = outgoing.pings.recv() => frame,
            Some(frame) = outgoing.control.recv() => frame,
            Some(bytes) = outgoing.messages.recv() => {
                outgoing.budget.give_back(bytes.len());
                Frame::Message(bytes)
            }
        };
        let Outgoing { pings, control, messages, .. } = &outgoing;
        let none_waits = pings.is_empty() && control.is_empty() && messages.is_empty();
        if let Err(error) = send(&frame, none_waits, counts, &mut to).await {
            return error.into();
        }
    }
}

async fn send(
    frame: &Frame,
    none_waits: bool,
    counts: &Counts,
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let bytes = frame::encode(frame)?;
    count(&counts.frames_sent, 1);
    count(&counts.bytes_sent, bytes.len());
    to.write_all(&bytes).await?;
    if none_waits { to.flush().await } else { Ok(()) }
}

/// The last words: what is known of the members, and why this is the end.
async fn farewell(
    stop: Stop,
    mut outgoing: Outgoing,
    to: &mut (impl AsyncWrite + Unpin),
) -> Ending {
    let refusal = match stop {
        Stop::Expelled => Refusal::Expelled,
        Stop::Removed => Refusal::Removed,
        Stop::Replaced => Refusal::Crossed,
        Stop::Unwanted(why) => Refusal::Above(why.into()),
    };
    let words = async {
        while let Ok(frame) = outgoing.control.try_recv() {
            frame::send(to, &frame).await?;
        }
        frame::send(to, &Frame::Refused(refusal)).await?;
        to.shutdown().await
    };
    // Whoever does not listen to them does not need them.
    drop(timeout(FAREWELL, words).await);
    Ending::Stopped(stop)
}

/// Asks the peer from time to time whether it is there, and what it knows.
pub(crate) async fn watch_over(hub: &Hub, line: &Line) -> Ending {
    let config = &hub.config;
    let mut compared: Option<Instant> = None;
    loop {
        if compared.is_none_or(|at| at.elapsed() >= config.compare) {
            line.way.outbox.say(Frame::Known(hub.roster(Roster::known)));
            compared = Some(Instant::now());
        }
        line.way.outbox.say(Frame::Ping(line.age()));
        sleep(config.ping).await;
        let unanswered = line.age().saturating_sub(line.answered.load(Ordering::Relaxed));
        if Duration::from_micros(unanswered) > config.dead {
            return Ending::Silent(config.dead);
        }
        if line.peer.is_over(card::now()) {
            return Ending::Expired;
        }
    }
}

/// Ends a link that was told to end and could not even say so.
async fn overdue(mut stop: watch::Receiver<Option<Stop>>) -> Ending {
    let stop = stopped(&mut stop).await;
    sleep(2 * FAREWELL).await;
    Ending::Stopped(stop)
}

async fn stopped(stop: &mut watch::Receiver<Option<Stop>>) -> Stop {
    match stop.wait_for(Option::is_some).await {
        Ok(stop) => stop.unwrap_or(Stop::Replaced),
        // The peer is not known any more; that happens only when everything ends.
        Err(_) => Stop::Replaced,
    }
}

impl Line {
    /// How long the link has been up, in microseconds: what pings say.
    fn age(&self) -> u64 {
        self.since.elapsed().as_micros() as u64
    }

    fn answered(&self, sent: u64) {
        let age = self.age();
        if sent <= age {
            self.answered.fetch_max(sent, Ordering::Relaxed);
            self.way.counts.round_trip.store((age - sent).max(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellId;
    use crate::tests::{first, joined, quick};

    #[tokio::test]
    async fn a_link_that_is_told_to_end_hears_nothing_any_more() {
        let a = first(1, "a", quick()).await;
        let _b = joined(&a, 2, "b", "127.0.0.1:9").await;
        let (inbox, mut events) = crate::event::inbox(9, 9);
        let hub = Hub::new(a.home(), quick(), a.words.clone(), inbox).expect("made");
        let cell = crate::Cell { id: CellId(2), name: "b".parse().expect("a name") };
        let card = card::Card { cell, from: 0, until: i64::MAX };
        let (line, outgoing) = hub.admit(&card, CellId(2), 1).await.expect("admitted");
        let bytes = frame::encode(&Frame::Message(b"late".to_vec())).expect("written");
        assert!(hub.change(|roster| roster.remove(CellId(2), 0)));
        tokio::select! {
            biased;
            ending = hear(&hub, &line, outgoing.stop.clone(), &bytes[..]) => panic!("{ending}"),
            heard = events.next() => panic!("{heard:?}"),
            () = std::future::ready(()) => {}
        }
    }
}
