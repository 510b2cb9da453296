//! Clients without an agent: programs on machines that are no members.
//!
//! A client believes the agent whose id is part of its token, together with the digest of the authority, shows the token as the first frame, and is
//! welcomed or turned away. From then on both ends have a plain stream of bytes, over which the agent's own frames
//! run as over its socket.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use crate::bounds::Place;
use crate::dial;
use crate::event::Event;
use crate::frame::{self, ClientAnswer, Purpose, Refusal, STRANGER_MAX};
use crate::greet::brief;
use crate::hub::Hub;
use crate::tls::{self, Stream};
use crate::token::ClientToken;

/// How long it may take to be welcomed.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a client is not served.
#[derive(Debug, thiserror::Error)]
pub enum Unserved {
    /// The agent cannot be reached, or is not the one the token is for.
    #[error("{0}: {1}")]
    Unreachable(String, String),
    /// The agent refuses.
    #[error("{at} refuses: {why}", at = .0, why = brief(&.1.to_string()))]
    Refused(String, Refusal),
}

/// A client's connection: bytes in and out.
#[derive(Debug)]
pub struct ClientStream {
    stream: Box<Stream>,
    /// At the agent: its place among the clients, free again when it is gone.
    _place: Option<Place>,
}

/// Connects to the agent at this address.
///
/// # Errors
/// If it is not reached, is not of the cluster that the token is for, or refuses the token.
pub async fn connect(address: &str, token: &ClientToken) -> Result<ClientStream, Unserved> {
    let unreachable = |why| Unserved::Unreachable(address.into(), why);
    let (stream, answer) = match timeout(PATIENCE, show(address, token)).await {
        Ok(Ok(shown)) => shown,
        Ok(Err(error)) => return Err(unreachable(tls::told(&error))),
        Err(_) => return Err(unreachable("no answer".into())),
    };
    match answer {
        ClientAnswer::Welcome => Ok(ClientStream { stream: stream.into(), _place: None }),
        ClientAnswer::Refused(refusal) => Err(Unserved::Refused(address.into(), refusal)),
    }
}

async fn show(address: &str, token: &ClientToken) -> io::Result<(Stream, ClientAnswer)> {
    let stream = dial::tcp(address).await?;
    let mut stream = tls::connect_as_nobody(token.pin, token.agent, stream).await?;
    frame::hello(&mut stream, Purpose::Client).await?;
    frame::send(&mut stream, &token.secret).await?;
    let answer = frame::receive(&mut stream, STRANGER_MAX).await?;
    Ok((stream, answer))
}

/// Looks at the token of somebody who wants to be a client; what those above are told if it is good.
pub(crate) async fn serve(
    hub: &Hub,
    mut stream: Stream,
    from: SocketAddr,
) -> io::Result<Option<Event>> {
    let token: String = frame::receive(&mut stream, STRANGER_MAX).await?;
    let (name, place) = match admitted(hub, &token, from) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            frame::send(&mut stream, &ClientAnswer::Refused(refusal)).await?;
            frame::close(&mut stream).await;
            return Ok(None);
        }
    };
    frame::send(&mut stream, &ClientAnswer::Welcome).await?;
    let stream = ClientStream { stream: stream.into(), _place: Some(place) };
    Ok(Some(Event::Client { name, from, stream }))
}

fn admitted(hub: &Hub, token: &str, from: SocketAddr) -> Result<(String, Place), Refusal> {
    if !hub.patience.lasts(from.ip(), Instant::now()) {
        return Err(Refusal::Guessing);
    }
    let Some(name) = hub.above.client(token) else {
        hub.patience.tried(from.ip(), Instant::now());
        return Err(Refusal::Client);
    };
    let full = || Refusal::Failed("there are too many clients".into());
    Ok((name, hub.clients.enter(from.ip()).ok_or_else(full)?))
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
