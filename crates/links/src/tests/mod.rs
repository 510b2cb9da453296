//! Members on loopback, each with its directory, its port and its links.

mod clients;
mod faults;
mod hostile;
mod joining;
mod linking;
mod proxy;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::member::Member;
use crate::peer::{Peer, PeerView, Unsent};
use crate::token::For;
use crate::{Above, Cell, CellId, Config, Event, Events, Home, Links, join};

/// Long enough for anything on loopback: who waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Those above: they greet with a word and refuse another one.
#[derive(Default)]
pub(crate) struct Words {
    greeting: Mutex<String>,
    refused: Mutex<Option<String>>,
}

impl Above for Words {
    fn greeting(&self, peer: &Cell) -> Vec<u8> {
        format!("{} to {peer}", self.greeting.lock().expect("whole")).into_bytes()
    }

    fn welcome(&self, _: &Cell, greeting: &[u8]) -> Result<(), String> {
        let refused = self.refused.lock().expect("whole");
        match refused.as_ref().filter(|word| greeting.starts_with(word.as_bytes())) {
            Some(word) => Err(format!("{word} is not wanted")),
            None => Ok(()),
        }
    }

    fn client(&self, token: &str) -> Option<String> {
        token.strip_prefix("hat_").map(str::to_owned)
    }
}

impl Links {
    /// Sends something over whichever link there is.
    fn send(&self, to: CellId, bytes: Vec<u8>) -> Result<(), Unsent> {
        let way = self.hub.peers(|peers| peers.get(&to).and_then(Peer::way));
        way.map_or(Err(Unsent::Down), |way| way.send(bytes))
    }
}

/// A member that is started.
pub(crate) struct Node {
    dir: tempfile::TempDir,
    address: String,
    pub(crate) words: Arc<Words>,
    config: Config,
    links: Links,
    events: Events,
}

pub(crate) fn quick() -> Config {
    Config {
        ping: Duration::from_millis(100),
        dead: Duration::from_secs(2),
        handshake: Duration::from_secs(5),
        retry_min: Duration::from_millis(20),
        retry_max: Duration::from_millis(200),
        compare: Duration::from_millis(200),
        renewal: Duration::from_millis(200),
        ..Config::default()
    }
}

fn cell(id: u128, name: &str) -> Cell {
    Cell { id: CellId(id), name: name.parse().expect("a name") }
}

fn home_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("cluster")
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

/// An address that was listened at, as soon as it is free again.
async fn rebind(address: &str) -> TcpListener {
    let bound = async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(PATIENCE, bound).await.expect("it is free again")
}

/// The first member of a cluster.
pub(crate) async fn first(id: u128, name: &str, config: Config) -> Node {
    let dir = tempfile::tempdir().expect("a directory");
    let (listener, address) = listen().await;
    Home::init(&home_in(&dir), &cell(id, name), std::slice::from_ref(&address)).expect("made");
    Node::start(dir, listener, address, config)
}

/// A further member, reachable at an address of its own or, through a proxy, at another.
async fn further(at: &Node, id: u128, name: &str, config: Config) -> Node {
    let (listener, address) = listen().await;
    let dir = joined(at, id, name, &address).await;
    Node::start(dir, listener, address, config)
}

/// The directory of a cell that has just joined and is not started.
pub(crate) async fn joined(at: &Node, id: u128, name: &str, address: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let token = at.home().add_token(HOUR, For::New(1)).expect("a token");
    let addresses = [address.to_owned()];
    join(&home_in(&dir), &cell(id, name), &addresses, &at.address, &token).await.expect("joined");
    dir
}

impl Node {
    fn start(
        dir: tempfile::TempDir,
        listener: TcpListener,
        address: String,
        config: Config,
    ) -> Self {
        let home = Home::open(&home_in(&dir)).expect("whole");
        let words = Arc::new(Words::default());
        *words.greeting.lock().expect("whole") = home.cell().to_string();
        let (links, events) =
            Links::start(home, Some(listener), config.clone(), words.clone()).expect("started");
        Self { dir, address, words, config, links, events }
    }

    /// Ends its links, as if its process were killed, and starts them again at the same address.
    async fn restart(self) -> Self {
        let Self { dir, address, links, config, .. } = self;
        drop(links);
        let listener = rebind(&address).await;
        Self::start(dir, listener, address, config)
    }

    fn id(&self) -> CellId {
        self.links.own().id
    }

    pub(crate) fn home(&self) -> Home {
        Home::open(&home_in(&self.dir)).expect("whole")
    }

    /// The first event that says what is wanted; those before are passed over.
    async fn until<T>(&mut self, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        let found = async {
            loop {
                let event = self.events.next().await.expect("it runs");
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
        };
        timeout(PATIENCE, found).await.expect("it happens")
    }

    async fn up(&mut self, with: CellId) -> Vec<u8> {
        self.until(|event| match event {
            Event::Up { peer, greeting, .. } if peer.id == with => Some(greeting),
            _ => None,
        })
        .await
    }

    async fn down(&mut self, with: CellId) -> String {
        self.until(|event| match event {
            Event::Down { peer, why } if peer.id == with => Some(why),
            _ => None,
        })
        .await
    }

    async fn message(&mut self) -> (CellId, Vec<u8>) {
        self.until(|event| match event {
            Event::Message { peer, bytes } => Some((peer, bytes)),
            _ => None,
        })
        .await
    }

    async fn members(&mut self, wanted: impl Fn(&[(CellId, Member)]) -> bool) {
        if wanted(&self.links.members()) {
            return;
        }
        self.until(|event| match event {
            Event::Members(members) if wanted(&members) => Some(()),
            _ => None,
        })
        .await;
    }

    fn peer(&self, id: CellId) -> PeerView {
        self.links.peers().into_iter().find(|peer| peer.id == id).expect("a peer")
    }

    /// Looks again and again until it is so, and passes over events meanwhile.
    async fn sees(&mut self, wanted: impl Fn(&Self) -> bool) {
        let seen = async {
            while !wanted(self) {
                drop(timeout(Duration::from_millis(10), self.events.next()).await);
            }
        };
        timeout(PATIENCE, seen).await.expect("it happens");
    }
}

/// Two members with a link between them.
async fn pair(config: Config) -> (Node, Node) {
    let mut a = first(1, "a", config.clone()).await;
    let mut b = further(&a, 2, "b", config).await;
    a.up(b.id()).await;
    b.up(a.id()).await;
    (a, b)
}
