//! HTTP: the gateway of `holdall-http`, which runs on a thread of its own and reaches the service over
//! pairs of sockets, as the peer for whom it speaks.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use holdall_holders::Stream;
use holdall_http::{Doors, Gateway, Peer};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::agent::Settings;
use crate::socket::{Beside, Socket};

/// A connection that the gateway has made for somebody.
pub(crate) type Guest = (UnixStream, Peer);

/// The gateway, and the connections that it makes.
pub(crate) struct Http {
    guests: mpsc::UnboundedReceiver<Guest>,
    _gateway: Gateway,
    _socket: Option<Beside>,
}

impl Http {
    /// Opens the doors and starts the gateway. Without a socket of its own the agent serves all the
    /// same; an address that was asked for must be had.
    pub(crate) fn start(settings: &Settings, socket: &Socket) -> anyhow::Result<Self> {
        let config = &settings.config.http;
        let tcp = config.bind()?;
        let beside = socket.listen_beside(&name(&settings.socket));
        let (unix, place) = match beside {
            Ok((listener, place)) => (Some(listener), Some(place)),
            Err(error) => {
                warn!("no HTTP over a Unix socket: {error:#}");
                (None, None)
            }
        };
        if let Some(at) = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()) {
            info!(%at, tls = config.certificate.is_some(), "serving HTTP");
        }
        let (sender, guests) = mpsc::unbounded_channel();
        let own = holdall_http::Settings { data: settings.data.clone(), config: config.clone() };
        let gateway = holdall_http::start(&own, Doors { unix, tcp }, Arc::new(Line(sender)))?;
        Ok(Self { guests, _gateway: gateway, _socket: place })
    }

    /// The next connection of the gateway.
    pub(crate) async fn guest(&mut self) -> Guest {
        match self.guests.recv().await {
            Some(guest) => guest,
            // The gateway has ended, and says so itself.
            None => std::future::pending().await,
        }
    }
}

/// `agent.http.sock` beside `agent.sock`.
fn name(socket: &Path) -> String {
    let name = socket.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    format!("{}.http.sock", name.strip_suffix(".sock").unwrap_or(&name))
}

/// How the gateway reaches the service.
struct Line(mpsc::UnboundedSender<Guest>);

impl holdall_http::Service for Line {
    fn peer(&self, connection: &UnixStream) -> io::Result<Peer> {
        let stream = Stream::new(connection.try_clone()?)?;
        let (pid, uid) = stream.peer()?;
        // Groups that cannot be told give no rights.
        let groups = stream.groups().unwrap_or_default();
        Ok(Peer { uid, pid, groups, ..Peer::default() })
    }

    fn connect(&self, peer: &Peer) -> io::Result<UnixStream> {
        let (here, there) = UnixStream::pair()?;
        let sent = self.0.send((there, peer.clone()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::NotConnected, "it is ending"))?;
        Ok(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_for_http_is_beside_the_other() {
        assert_eq!(name(Path::new("/run/holdall/agent.sock")), "agent.http.sock");
        assert_eq!(name(Path::new("x")), "x.http.sock");
    }
}
