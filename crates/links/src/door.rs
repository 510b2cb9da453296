//! Where connections come in: members, those who join, clients, and strangers.
//!
//! Whoever has not shown yet who he is has a place in a small room, a few per address, and little time. What is
//! beyond is closed at once, without a word and before TLS costs anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::bounds::{Place, Room};
use crate::frame::{self, Purpose};
use crate::greet::{self, Ending, Greeted};
use crate::hub::Hub;
use crate::{client, join, link};

/// How long to wait if the machine lets no connection in, for want of files above all.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes connections for ever.
pub(crate) async fn open(hub: Arc<Hub>, listener: TcpListener) {
    hub.opened().await;
    let room = Room::new(hub.config.strangers.all, hub.config.strangers.each);
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => match room.enter(from.ip()) {
                Some(place) => drop(tasks.spawn(serve(hub.clone(), stream, from, place))),
                None => debug!(%from, "turned away: too many have not shown yet who they are"),
            },
            Err(error) => {
                warn!("no connection comes in: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(hub: Arc<Hub>, stream: TcpStream, from: SocketAddr, place: Place) {
    let greeted = match timeout(hub.config.handshake, receive(&hub, stream, from)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(ending)) => return debug!(%from, "turned away: {ending}"),
        Err(_) => return debug!(%from, "turned away: too slow"),
    };
    drop(place);
    if let Some(greeted) = greeted {
        link::run(&hub, *greeted).await;
    }
}

/// Finds out who it is and what he wants; a link if he is a member, and nothing if all is done.
async fn receive(
    hub: &Hub,
    stream: TcpStream,
    from: SocketAddr,
) -> Result<Option<Box<Greeted>>, Ending> {
    stream.set_nodelay(true)?;
    let (mut stream, card) = hub.tls().accept(stream).await?;
    let (purpose, _) = frame::answer_hello(&mut stream).await?;
    match purpose {
        Purpose::Link => return Ok(Some(Box::new(greet::as_acceptor(hub, stream, card).await?))),
        Purpose::Join => join::serve(hub, stream, from.ip()).await?,
        Purpose::Client => {
            if let Some(event) = client::serve(hub, stream, from).await? {
                hub.inbox.put(event).await;
            }
        }
    }
    Ok(None)
}
