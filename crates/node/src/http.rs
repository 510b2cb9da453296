//! HTTP: the gateway of `holdall-http`, which runs on a thread of its own and reaches the service over
//! pairs of sockets, as the peer for whom it speaks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdall_holders::Stream;
use holdall_http::{Doors, Gateway, Peer, Tcp};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use crate::agent::Settings;
use crate::clock::boottime;
use crate::handover::is_handed_over;
use crate::socket::{Beside, Socket};

/// What the gateway says.
pub(crate) enum Said {
    /// It has made a connection for somebody.
    Guest(UnixStream, Peer),
    /// The users that have a token that is good are these.
    Tokens(BTreeSet<u32>),
}

/// The gateway, and the connections that it makes.
pub(crate) struct Http {
    settings: holdall_http::Settings,
    /// The name of its socket.
    name: String,
    line: Arc<Line>,
    said: mpsc::UnboundedReceiver<Said>,
    gateway: Option<Gateway>,
    beside: Option<Beside>,
    /// The doors that could not be opened, and why.
    missing: Vec<(Missing, String)>,
}

/// What is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Unix,
    Tcp,
    Gateway,
}

impl Http {
    /// Opens the doors and starts the gateway. An address that was asked for must be had; but an agent that
    /// has taken the place of another, or was started by a command as it was before, serves those who hold something
    /// in any case, and tries again.
    pub(crate) fn start(
        settings: &Settings,
        socket: &Socket,
        happened: Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let (line, said) = mpsc::unbounded_channel();
        let config = settings.config.http.clone();
        let mut http = Self {
            settings: holdall_http::Settings {
                data: settings.data.clone(),
                config,
                unread_bytes: settings.config.limits.unread_bytes,
                everybodys_past: settings.config.history.everybody,
            },
            name: name(&settings.socket),
            line: Arc::new(Line { says: line, happened }),
            said,
            gateway: None,
            beside: None,
            missing: Vec::new(),
        };
        if is_handed_over() || settings.background {
            http.open_what_can_be(socket);
        } else {
            let tcp = http.settings.config.open()?;
            http.open(socket, tcp)?;
            http.tell_missing(&[]);
        }
        Ok(http)
    }

    /// Why some doors are not open, if they are not.
    pub(crate) fn missing(&self) -> Option<String> {
        let whys: Vec<&str> = self.missing.iter().map(|(_, why)| why.as_str()).collect();
        (!whys.is_empty()).then(|| whys.join("; "))
    }

    /// Tells what is missing now, and was not before.
    fn tell_missing(&self, before: &[(Missing, String)]) {
        for (_, why) in self.missing.iter().filter(|one| !before.contains(one)) {
            error!("{why}; trying again");
        }
    }

    fn open(&mut self, socket: &Socket, tcp: Option<Tcp>) -> anyhow::Result<()> {
        let unix = match socket.listen_beside(&self.name) {
            Ok((listener, beside)) => {
                self.beside = Some(beside);
                Some(listener)
            }
            Err(error) => {
                let why = format!("no HTTP over a Unix socket: {error:#}");
                self.missing.push((Missing::Unix, why));
                None
            }
        };
        if let Some(at) = tcp.as_ref().and_then(|tcp| tcp.at().ok()) {
            info!(%at, tls = self.settings.config.certificate.is_some(), "serving HTTP");
        }
        let line = self.line.clone();
        self.gateway = Some(holdall_http::start(&self.settings, Doors { unix, tcp }, line)?);
        Ok(())
    }

    /// Opens the doors that can be had, anew if some are open: whoever is connected comes again.
    fn open_what_can_be(&mut self, socket: &Socket) {
        (self.gateway, self.beside) = (None, None);
        let before = std::mem::take(&mut self.missing);
        let tcp = self.settings.config.open().unwrap_or_else(|error| {
            self.missing.push((Missing::Tcp, format!("no HTTP over TCP: {error:#}")));
            None
        });
        if let Err(error) = self.open(socket, tcp) {
            self.missing.push((Missing::Gateway, format!("no HTTP: {error:#}")));
        }
        self.tell_missing(&before);
    }

    /// If something of it is missing that can be had, begins anew.
    pub(crate) fn restore(&mut self, socket: &Socket) {
        let in_place = self.beside.as_ref().is_none_or(Beside::in_place);
        let runs = self.gateway.as_ref().is_some_and(|gateway| !gateway.has_ended());
        if in_place && runs && (self.missing.is_empty() || !self.more_can_be(socket)) {
            return;
        }
        if !in_place {
            warn!("the socket for HTTP was removed; binding it again");
        }
        self.open_what_can_be(socket);
    }

    /// Whether a door that is missing can be opened now: those who use the other are not disturbed before.
    fn more_can_be(&self, socket: &Socket) -> bool {
        self.missing.iter().any(|(missing, _)| match missing {
            Missing::Unix => socket.listen_beside(&self.name).is_ok(),
            Missing::Tcp => self.settings.config.open().is_ok(),
            Missing::Gateway => true,
        })
    }

    /// What the gateway says next.
    pub(crate) async fn said(&mut self) -> Said {
        match self.said.recv().await {
            Some(said) => said,
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
struct Line {
    says: mpsc::UnboundedSender<Said>,
    happened: Arc<AtomicU64>,
}

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
        let sent = self.says.send(Said::Guest(there, peer.clone()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::NotConnected, "it is ending"))?;
        Ok(here)
    }

    fn tokens(&self, good: BTreeSet<u32>) {
        // If nobody hears it, the agent is ending.
        let _ = self.says.send(Said::Tokens(good));
    }

    fn boottime(&self) -> u64 {
        boottime()
    }

    fn happened(&self) -> u64 {
        self.happened.load(Ordering::Relaxed)
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
