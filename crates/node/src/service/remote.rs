//! Clients on other machines, who have come through the door of the links and shown a token.
//!
//! They speak as over the socket, with the rights of their token and the limits of a user of its own, as those who come
//! over HTTP. Their sessions have a lease: nobody here sees their processes. The lease counts from the end of the
//! connection; one over which nothing is heard for a while ends, since its client asks something every ten seconds.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use holdall_holders::Stream;
use holdall_http::Peer;
use holdall_http::token::Tokens;
use holdall_links::client::ClientStream;
use tokio::runtime::Handle;
use tracing::{debug, warn};

use super::connection::serve_as;
use super::{Peer as Served, Service, Shared};
use crate::rights::Rights;

/// How long a client may be silent.
const SILENCE: Duration = Duration::from_secs(30);

impl Service {
    /// Somebody has come with the token of this name.
    pub(super) fn let_in_remote(&mut self, name: &str, from: SocketAddr, stream: ClientStream) {
        let Some(cells) = &self.cells else { return };
        let (Some(running), Some(service)) = (&cells.running, self.me.upgrade()) else { return };
        let tokens = &cells.greeter.tokens;
        let Some(peer) = tokens.named(name) else {
            return debug!(%from, "its token was just removed");
        };
        match near_end(&running.runtime, tokens, &peer, stream) {
            Ok(socket) => drop(tokio::task::spawn_local(serve_remote(service, socket, peer, from))),
            Err(error) => warn!(%from, "a client on another machine cannot be served: {error}"),
        }
    }
}

/// The near end of a client's connection. What is said is carried where the links run, not on the thread that grants, until
/// either side ends or the token is good no more.
fn near_end(
    runtime: &Handle,
    tokens: &Arc<Tokens>,
    whose: &Peer,
    stream: ClientStream,
) -> io::Result<UnixStream> {
    let (socket, near) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let (tokens, whose) = (tokens.clone(), whose.clone());
    runtime.spawn(async move {
        let near = tokio::net::UnixStream::from_std(near)?;
        tokio::select! {
            () = holdall_links::carry(stream, near, Some(SILENCE)) => {}
            () = tokens.gone(&whose) => debug!(name = ?whose.name, "a token is good no more"),
        }
        Ok::<_, io::Error>(())
    });
    Ok(socket)
}

/// Serves a client on another machine to the end of its connection.
async fn serve_remote(service: Shared, socket: UnixStream, peer: Peer, from: SocketAddr) {
    let Peer { uid, name, may, .. } = peer;
    let Ok(stream) = Stream::new(socket) else { return };
    let introduce = |peer: &mut Served| {
        peer.rights = Rights::of(&may.unwrap_or_default());
        peer.who.user = name.unwrap_or_else(|| peer.who.user.clone());
        peer.who.host = from.ip().to_string().into();
    };
    serve_as(service, stream, 0, uid, true, introduce).await;
}
