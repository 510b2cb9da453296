//! HTTP: the gateway of `holdall-http`, which runs on a thread of its own and reaches the service over
//! pairs of sockets, as the peer for whom it speaks.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use holdall_holders::Stream;
use holdall_http::{Doors, Gateway, Peer};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use crate::agent::Settings;
use crate::handover::is_handed_over;
use crate::socket::{Beside, Socket};

/// A connection that the gateway has made for somebody.
pub(crate) type Guest = (UnixStream, Peer);

/// The gateway, and the connections that it makes.
pub(crate) struct Http {
    settings: holdall_http::Settings,
    /// The name of its socket.
    name: String,
    line: mpsc::UnboundedSender<Guest>,
    guests: mpsc::UnboundedReceiver<Guest>,
    gateway: Option<Gateway>,
    beside: Option<Beside>,
}

impl Http {
    /// Opens the doors and starts the gateway. An address that was asked for must be had; but an agent that
    /// has taken the place of another serves those who hold something in any case.
    pub(crate) fn start(settings: &Settings, socket: &Socket) -> anyhow::Result<Self> {
        let (line, guests) = mpsc::unbounded_channel();
        let config = settings.config.http.clone();
        let mut http = Self {
            settings: holdall_http::Settings { data: settings.data.clone(), config },
            name: name(&settings.socket),
            line,
            guests,
            gateway: None,
            beside: None,
        };
        match http.open(socket) {
            Err(error) if is_handed_over() => error!("no HTTP: {error:#}"),
            opened => opened?,
        }
        Ok(http)
    }

    fn open(&mut self, socket: &Socket) -> anyhow::Result<()> {
        let config = &self.settings.config;
        let tcp = config.bind()?;
        let (unix, beside) = match socket.listen_beside(&self.name) {
            Ok((listener, beside)) => (Some(listener), Some(beside)),
            Err(error) => {
                warn!("no HTTP over a Unix socket: {error:#}");
                (None, None)
            }
        };
        if let Some(at) = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()) {
            info!(%at, tls = config.certificate.is_some(), "serving HTTP");
        }
        let line = Arc::new(Line(self.line.clone()));
        self.gateway = Some(holdall_http::start(&self.settings, Doors { unix, tcp }, line)?);
        self.beside = beside;
        Ok(())
    }

    /// If its socket has been removed, begins anew. Whoever is connected comes again.
    pub(crate) fn restore(&mut self, socket: &Socket) {
        if self.beside.as_ref().is_none_or(Beside::in_place) {
            return;
        }
        warn!("the socket for HTTP was removed; binding it again");
        (self.gateway, self.beside) = (None, None);
        if let Err(error) = self.open(socket) {
            error!("no HTTP any more: {error:#}");
        }
    }

    /// The next connection of the gateway.
    pub(crate) async fn guest(&mut self) -> Guest {
        match self.guests.recv().await {
            Some(guest) => guest,
            None => std::future::pending().await, // We could send one ourselves.
        }
    }
}

/// `agent.http.sock` beside `agent.sock`.
fn name(socket: &Path) -> String {
    let part = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let (stem, kind) = (part(socket.file_stem()), part(socket.extension()));
    format!(
        "{}.http{}",
        stem.unwrap_or_default(),
        kind.map(|kind| format!(".{kind}")).unwrap_or_default()
    )
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
        assert_eq!(name(Path::new("x")), "x.http");
    }
}
