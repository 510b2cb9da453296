//! Connecting to members, again and again.
//!
//! Every member is tried by every other as long as there is no link between the two: perhaps only one of them can
//! reach the other. Tries become rarer, up to a bound, and never come at the same time from all.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::cell::CellId;
use crate::frame::Refusal;
use crate::greet::{self, Ending, Greeted};
use crate::hub::Hub;
use crate::link;

/// Sees to it that every member is tried, for ever.
pub(crate) async fn dial_members(hub: Arc<Hub>) {
    let mut changes = hub.changes();
    let mut dialled = BTreeSet::new();
    let mut tasks = JoinSet::new();
    loop {
        for (id, member) in hub.members() {
            if id != hub.own().id && !member.removed && dialled.insert(id) {
                tasks.spawn(dial_member(hub.clone(), id));
            }
        }
        drop(changes.changed().await);
    }
}

/// Connects to one member whenever there is no link with it, until it is removed.
async fn dial_member(hub: Arc<Hub>, peer: CellId) {
    let mut delay = hub.config.retry_min;
    loop {
        if is_up(&hub, peer) {
            delay = hub.config.retry_min;
        }
        if wanted(&hub, peer).await.is_none() {
            return;
        }
        if hub.own().id > peer {
            // The other begins, so that connections seldom cross.
            sleep(hub.config.retry_min).await;
        }
        let Some(addresses) = wanted(&hub, peer).await else { return };
        let begun = Instant::now();
        match connect(&hub, peer, &addresses).await {
            Ok(greeted) => drop(link::run(&hub, *greeted).await),
            Err(why) => {
                debug!(%peer, why, "not reached");
                hub.peers(|peers| peers.entry(peer).or_default().failed(why));
            }
        }
        let lasted = begun.elapsed() > hub.config.retry_max.max(hub.config.dead);
        delay = if lasted { hub.config.retry_min } else { (2 * delay).min(hub.config.retry_max) };
        tokio::select! {
            () = sleep(jittered(delay)) => {}
            () = moved(&hub, peer, &addresses) => delay = hub.config.retry_min,
        }
    }
}

/// The addresses of a member, once there is no link with it; nothing if it was removed, or this cell was.
async fn wanted(hub: &Hub, peer: CellId) -> Option<Vec<String>> {
    let mut changes = hub.changes();
    loop {
        if hub.roster(|roster| roster.is_removed(peer) || roster.is_removed(hub.own().id)) {
            return None;
        }
        let addresses = addresses(hub, peer);
        if !is_up(hub, peer) && !addresses.is_empty() {
            return Some(addresses);
        }
        drop(changes.changed().await);
    }
}

/// Waits until a member has other addresses.
async fn moved(hub: &Hub, peer: CellId, from: &[String]) {
    let mut changes = hub.changes();
    while addresses(hub, peer) == from {
        drop(changes.changed().await);
    }
}

fn is_up(hub: &Hub, peer: CellId) -> bool {
    hub.peers(|peers| peers.get(&peer).is_some_and(|peer| peer.live.is_some()))
}

fn addresses(hub: &Hub, peer: CellId) -> Vec<String> {
    hub.roster(|roster| roster.member(peer).map(|it| it.addresses.clone()).unwrap_or_default())
}

/// Tries one address after the other.
async fn connect(hub: &Hub, peer: CellId, addresses: &[String]) -> Result<Box<Greeted>, String> {
    let mut why = String::new();
    for address in addresses {
        let tried = timeout(hub.config.handshake, connect_to(hub, peer, address)).await;
        match tried {
            Ok(Ok(greeted)) => return Ok(Box::new(greeted)),
            Ok(Err(ending)) => why = format!("{address}: {}", ending.told()),
            Err(_) => why = format!("{address}: no answer"),
        }
    }
    Err(why)
}

async fn connect_to(hub: &Hub, peer: CellId, address: &str) -> Result<Greeted, Ending> {
    let stream = tcp(address).await?;
    let (stream, card) = hub.tls().connect(stream).await?;
    if card.cell.id != peer {
        let why = format!("the cell {} ({}) is there, not {peer}", card.cell.name, card.cell.id);
        return Err(Ending::Misbehaved(why));
    }
    if is_up(hub, peer) {
        // It has come by itself meanwhile: of two that cross each other one would be for nothing.
        return Err(Ending::Refusing(Refusal::Crossed));
    }
    greet::as_dialer(hub, stream, card).await
}

pub(crate) async fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Between half and all of it.
fn jittered(delay: Duration) -> Duration {
    let share = f64::from(random() as u32) / f64::from(u32::MAX);
    delay.mul_f64(0.5 + share / 2.0)
}

/// A number that needs not be secret.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random bits all come at the same time, which is slow and nothing worse.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_between_half_and_all() {
        let delay = Duration::from_secs(10);
        let drawn: Vec<_> = (0..1000).map(|_| jittered(delay)).collect();
        assert!(drawn.iter().all(|it| *it >= delay / 2 && *it <= delay));
        assert!(drawn.iter().max() != drawn.iter().min());
    }
}
