//! The agent as a member of a cluster: its directory, its links, what it says first.
//!
//! The links (`holdall-links`) run on a thread of their own; what they tell comes to the one thread of the service as
//! events, and what the service says goes to their queues without waiting for anything.
//!
//! | module | what |
//! |---|---|
//! | `place` | the directory: who this member is, where it listens; making and joining a cluster |
//! | `greeting`, `greeter` | the first words, and who is not wanted |
//! | `frame` | what is said after them |
//! | `behind` | that another member has known more of this one than its log tells |
//! | `forgotten` | which members an operator has given up |
//! | `identity` | who this agent was, if it is no member any more, or has lost its directory |

pub(crate) mod behind;
pub(crate) mod forgotten;
pub(crate) mod frame;
pub(crate) mod greeter;
pub(crate) mod greeting;
pub(crate) mod identity;
mod place;

use std::net::{TcpListener, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_cell::engine;
use holdall_cell::lease::Terms;
use holdall_core::CellId;
use holdall_links as links;
use holdall_links::{Above, Events, Home, Links};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::error;

pub(crate) use self::place::{Known, directory, join_as};
pub use self::place::{Made, Refused, TOKEN_HOURS, init, join, listens_at};
use crate::handover::is_handed_over;

/// The thread of the links.
const THREAD: &str = "links";
/// How long it is tried to listen at an address that somebody has just left.
const BIND: Duration = Duration::from_secs(5);

/// What a cell is for the protocol: the first half of its id.
pub(crate) fn number(id: links::CellId) -> CellId {
    CellId((id.0 >> 64) as u64)
}

/// A member as the cell knows it. The name of one that was removed is free for another.
pub(crate) fn as_member(id: links::CellId, it: &links::member::Member) -> Option<engine::Member> {
    let name = match it.removed {
        true => format!("{}.removed.{:04x}", it.name, id.0 & 0xffff),
        false => it.name.to_string(),
    };
    Some(engine::Member { name: name.parse().ok()?, cell: number(id) })
}

/// The links of this member. They end with this.
pub(crate) struct Running {
    pub(crate) links: Arc<Links>,
    pub(crate) home: Home,
    pub(crate) listens: String,
    /// Why nobody reaches it there, if it could not listen.
    pub(crate) deaf: Option<String>,
    /// Where they run.
    pub(crate) runtime: Handle,
    _end: oneshot::Sender<()>,
}

/// Starts the links of a member: it has connected to others, and greets nobody before they are opened.
///
/// # Errors
/// If its address cannot be listened at, or something in its directory is missing or damaged.
pub(crate) fn prepare(known: &Known, above: Arc<dyn Above>) -> anyhow::Result<(Running, Events)> {
    let (listener, deaf) = match listen(&known.listen) {
        Ok(listener) => (Some(listener), None),
        // Whoever holds something is served in any case, and others can be reached.
        Err(error) if is_handed_over() => {
            error!("members and clients cannot connect: {error:#}");
            (None, Some(format!("{error:#}")))
        }
        Err(error) => return Err(error),
    };
    let (home, config) = (known.home.clone(), links_config(&known.terms));
    let (started, result) = mpsc::channel();
    let (end, ended) = oneshot::channel();
    std::thread::Builder::new().name(THREAD.into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error.into()))),
        };
        runtime.block_on(async move {
            let listener = listener.map(tokio::net::TcpListener::from_std).transpose();
            let links = listener
                .map_err(anyhow::Error::from)
                .and_then(|listener| Ok(Links::prepare(home, listener, config, above)?));
            let _ = started.send(links.map(|links| (links, Handle::current())));
            let _: Result<(), _> = ended.await;
        });
        runtime.shutdown_background();
    })?;
    let ((links, events), runtime) = result.recv().context("the links did not start")??;
    if links
        .members()
        .iter()
        .any(|(id, own)| *id == known.home.cell().id && own.addresses != known.addresses)
    {
        links.set_addresses(&known.addresses)?;
    }
    let (home, listens) = (known.home.clone(), known.listen.clone());
    Ok((Running { links: Arc::new(links), home, listens, deaf, runtime, _end: end }, events))
}

/// Listens at an address that somebody may just have left.
fn listen(at: &str) -> anyhow::Result<TcpListener> {
    let deadline = Instant::now() + BIND;
    loop {
        let addresses: Vec<_> = at
            .to_socket_addrs()
            .with_context(|| format!("there is no address '{at}' to listen at"))?
            .collect();
        match TcpListener::bind(&addresses[..]) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok(listener);
            }
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| {
                    format!("cannot listen at {at} for the cluster (`listen` under [cluster])")
                });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Links notice that a peer is gone well before leases run out.
fn links_config(terms: &Terms) -> links::Config {
    let default = links::Config::default();
    let quarter = Duration::from_millis(terms.lease / 4);
    let dead = default.dead.min(quarter).max(Duration::from_millis(300));
    let retry_max = Duration::from_millis(terms.lease / 12).max(default.retry_min);
    links::Config { ping: dead / 3, dead, retry_max, ..default }
}
