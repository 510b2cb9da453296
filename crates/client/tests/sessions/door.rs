//! A way to a stand-in over TLS: the door of a member of a cluster, behind a network that may fall silent.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use holdall_client::Remote;
use holdall_links::token::ClientToken;
use holdall_links::{Above, Cell, CellId, Config, Event, Home, Links, Pin, carry};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::spawn_local;

use crate::stand_in::StandIn;

/// The secret of the one token that is good.
const GOOD: &str = "hat_good";

struct Strict;

impl Above for Strict {
    fn greeting(&self, _: &Cell) -> Vec<u8> {
        Vec::new()
    }

    fn welcome(&self, _: &Cell, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn client(&self, token: &str) -> Option<String> {
        (token == GOOD).then(|| "laptop".into())
    }
}

pub(crate) struct Door {
    _dir: tempfile::TempDir,
    _links: Rc<Links>,
    pin: Pin,
    id: CellId,
    address: SocketAddr,
    /// Whether nothing is carried any more, and nobody is told.
    silent: watch::Sender<bool>,
}

impl Door {
    pub(crate) async fn to(agent: &StandIn) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let inner = listener.local_addr().expect("an address");
        let cell = Cell { id: CellId(7), name: "lab1".parse().expect("a name") };
        let home = Home::init(&dir.path().join("cluster"), &cell, &[inner.to_string()]);
        let home = home.expect("made");
        let (pin, id) = (home.pin(), cell.id);
        let started = Links::start(home, Some(listener), Config::default(), Arc::new(Strict));
        let (links, mut events) = started.expect("started");
        let socket = agent.socket();
        spawn_local(async move {
            while let Some(event) = events.next().await {
                let Event::Client { stream, .. } = event else { continue };
                if let Ok(near) = UnixStream::connect(&socket).await {
                    spawn_local(carry(stream, near, None));
                }
            }
        });
        let silent = watch::Sender::new(false);
        let address = network(inner, silent.subscribe()).await;
        Self { _dir: dir, _links: Rc::new(links), pin, id, address, silent }
    }

    /// What the client is told who may come in.
    pub(crate) fn remote(&self) -> Remote {
        self.with(self.pin, GOOD)
    }

    pub(crate) fn with(&self, pin: Pin, secret: &str) -> Remote {
        let token = ClientToken::new(pin, self.id, secret).to_string();
        Remote::new(&format!("tls://{}", self.address), &token).expect("an address and a token")
    }

    pub(crate) fn pin(&self) -> Pin {
        self.pin
    }

    /// From now on nothing arrives, and nothing is closed.
    pub(crate) fn fall_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }
}

/// A port that leads to another one as long as it is not silent.
async fn network(to: SocketAddr, silent: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    spawn_local(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(to).await.expect("the door is open");
            let ((client_in, client_out), (server_in, server_out)) = (split(client), split(server));
            spawn_local(lead(client_in, server_out, silent.clone()));
            spawn_local(lead(server_in, client_out, silent.clone()));
        }
    });
    address
}

async fn lead(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut silent: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 4096];
    while let Ok(read) = from.read(&mut bytes).await {
        if silent.wait_for(|silent| !silent).await.is_err() || read == 0 {
            break;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
