//! Requests that wait all the while, beside the load that is measured.
//!
//! They speak over some connections of their own, without the client library: what a million of
//! them cost shall be the server's.

use std::io;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, bail};
use holdall_client::wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_client::wire::{Amount, Answer, Ask, Body, Call, From, Lasting, Name, Need, Reply};
use holdall_holders::Stream;
use tokio::sync::mpsc;

use crate::load;

/// Over how many connections they wait.
pub(crate) const CONNECTIONS: usize = 100;
/// How many bytes of calls are made up at once.
const AT_ONCE: usize = 1 << 16;

/// Those who wait, as long as it is there.
pub(crate) struct Crowd(Vec<Rc<Stream>>);

/// Lets so many requests wait for one lock, and one more each unless they are alike.
pub(crate) async fn wait(socket: &Path, count: usize, alike: bool) -> anyhow::Result<Crowd> {
    let mut crowd = Crowd(Vec::new());
    if count == 0 {
        return Ok(crowd);
    }
    let (told, mut replies) = mpsc::unbounded_channel();
    // The first one holds what all others wait for.
    let (total, connections) = (count as u64 + 1, CONNECTIONS.min(count) as u64);
    for at in 0..connections {
        let stream = Rc::new(Stream::connect(socket)?);
        let calls = at * total / connections..(at + 1) * total / connections;
        tokio::task::spawn_local(speak(stream.clone(), calls, alike, told.clone()));
        crowd.0.push(stream);
        if at == 0 {
            replies.recv().await.context("the server has gone")??;
        }
    }
    for _ in 1..total {
        load::heed()?;
        replies.recv().await.context("the server has gone")??;
    }
    Ok(crowd)
}

/// Asks with these numbers, and tells of each that it is answered.
async fn speak(
    stream: Rc<Stream>,
    calls: std::ops::Range<u64>,
    alike: bool,
    told: mpsc::UnboundedSender<anyhow::Result<()>>,
) {
    if let Err(error) = ask_all(&stream, calls, alike, &told).await {
        // Whoever waits for it may have given up.
        let _ = told.send(Err(error));
    }
}

async fn ask_all(
    stream: &Stream,
    mut calls: std::ops::Range<u64>,
    alike: bool,
    told: &mpsc::UnboundedSender<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (mut unsent, mut incoming) = (Vec::new(), Incoming::new(FROM_NODE_MAX));
    frame::greet(&mut unsent, frame::OLDEST);
    let mut greeted = false;
    loop {
        while unsent.len() < AT_ONCE
            && let Some(id) = calls.next()
        {
            frame::write(&Call { id, body: ask(id, alike)? }, FROM_CLIENT_MAX, &mut unsent)?;
        }
        match if unsent.is_empty() { Ok(0) } else { stream.write(&unsent) } {
            Ok(sent) => drop(unsent.drain(..sent)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            ready = stream.readable() => if ready?.read(incoming.buffer())? == Some(0) {
                bail!("the server has closed a connection of those who wait");
            },
            ready = stream.writable(), if !unsent.is_empty() => ready?,
        }
        while let Some(content) = incoming.next_frame()? {
            if !std::mem::replace(&mut greeted, true) {
                continue;
            }
            match frame::read::<Answer>(content)?.reply {
                Reply::Queued(_) | Reply::Granted { .. } => told.send(Ok(()))?,
                other => bail!("one that was to wait does not: {other:?}"),
            }
        }
    }
}

fn ask(id: u64, alike: bool) -> anyhow::Result<Body> {
    let need = |name: String| -> anyhow::Result<Need> {
        Ok(Need { name: name.parse::<Name>()?, amount: Amount::One })
    };
    let mut needs = vec![need("crowd".into())?];
    if id > 0 && !alike {
        needs.push(need(format!("crowd/{id}"))?);
    }
    let (lasting, from) = (Lasting::Connection, From::default());
    Ok(Body::Ask(Ask { needs, now: false, lasting, from, within: None, limit: None, part: None }))
}
