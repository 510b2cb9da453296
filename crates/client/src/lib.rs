//! The asynchronous Rust client of holdall.
//!
//! ```no_run
//! # async fn example() -> Result<(), holdall_client::Error> {
//! let client = holdall_client::Client::connect("/run/holdall/agent.sock").await?;
//! let grant = client.request(&["gpu:2", "license"]).await?;
//! for (unit, fence) in grant.units() {
//!     println!("{unit} with fence {fence}");
//! }
//! grant.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Many requests share a connection. Dropping a [`Grant`] releases it; dropping the future of a
//! request withdraws it.
//!
//! A client is a session, which outlasts its connection and the agent itself: while the agent is away,
//! nobody is granted anything, so what is held is held, and what waits keeps its place; when one is back,
//! everything goes on as if nothing had happened. [`Client::presence`] tells whether it is there, for those who
//! want to know. A session lasts as long as the process, so nothing is left when that is killed; a fork of
//! the process has none. Only an agent that has lost its memory ends it: [`Grant::lost`] says so.

#![forbid(unsafe_code)]

mod at;
mod attend;
mod calls;
mod grant;
mod lease;
mod link;
mod session;
mod state;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use holdall_wire as wire;
use holdall_wire::frame::{OLDEST, VERSION};
use holdall_wire::{
    AgentView, Ask, Body, Fault, From as About, Lasting, Name, Need, Refusal, Reply, Status,
};

use tokio::sync::watch;

use self::at::At;
pub use self::at::{BadRemote, Remote, heard_out};
pub use self::grant::{Grant, News, Waiting};
use self::session::Session;

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No agent listens there.
    #[error("no agent listens at {0}")]
    NoAgent(String),
    /// The agent cannot be reached, for another reason.
    #[error("cannot reach the agent at {0}: {1}")]
    Unreachable(String, std::io::Error),
    /// The agent is of another version.
    #[error(
        "the agent speaks version {agent} of the protocol, this program version {VERSION}; {}",
        remedy(*agent)
    )]
    Version {
        /// Which one it speaks.
        agent: u32,
    },
    /// What it was about is over: the agent has forgotten the session, or the connection of a query ended.
    #[error("the agent was lost")]
    Lost,
    /// The grant was taken away before it could be used.
    #[error("the grant was taken away before it could be used")]
    TakenAway,
    /// The runtime on which the client was made has ended.
    #[error("the runtime of this client has ended; connect anew")]
    Ended,
    /// This process is a fork of the one that connected.
    #[error("a fork cannot use the connection of the process it comes from; connect anew")]
    Forked,
    /// The request is not granted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The agent did not do it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A need that cannot be read.
    #[error(transparent)]
    Need(#[from] wire::BadNeed),
    /// The call is too large for a frame, or the reply makes no sense.
    #[error("{0}")]
    Protocol(String),
}

/// What to do about an agent of another version.
fn remedy(agent: u32) -> &'static str {
    if (OLDEST..VERSION).contains(&agent) {
        "`holdall agent stop` ends it when nothing is held any more, and the next one is of this version"
    } else {
        "use programs of one release"
    }
}

/// Whether an agent is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Here,
    /// It is not, or does not answer yet. It is looked for as long as something is held, asked or waited for.
    Away,
    /// It was stopped on purpose. It is waited for until somebody else starts it.
    Stopped,
}

/// Whether the agent of a socket was stopped on purpose, and none has started since: a file beside the
/// socket says so, `agent.sock.stopped`. A new command brings an agent back then, and not those who were
/// there before; they do not even connect, since a supervisor that listens would start one.
pub fn is_stopped(socket: &Path) -> bool {
    let mut mark = socket.as_os_str().to_owned();
    mark.push(".stopped");
    Path::new(&mark).exists()
}

/// Nothing panics while it has one of our locks; if it did, the data would still be sound.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session with an agent. Cloning shares it; when the last clone, request and grant are dropped, the
/// agent is told that it is over.
#[derive(Clone, Debug)]
pub struct Client {
    session: Arc<Session>,
}

impl Client {
    /// Connects to the agent that listens at a path. What is held is held as long as this process lives, which
    /// keeps its user all the while.
    ///
    /// # Errors
    /// If there is none, or it does not speak our version.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { session: Session::open(At::Socket(path.as_ref().into()), None).await? })
    }

    /// The same, and asks for something in the same breath, which saves a round trip. It may be granted also if this fails,
    /// until the process ends or has said that it leaves: whoever asks anew may find it held for a moment. Nothing is asked of an agent
    /// without sessions: [`Client::enqueue`] says why.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_asking(
        path: impl AsRef<Path>,
        ask: Ask,
    ) -> Result<(Self, Option<Waiting>), Error> {
        let at = At::Socket(path.as_ref().into());
        let (session, asked) = Session::open_asking(at, None, Some(ask)).await?;
        Ok((Self { session }, asked.map(Waiting::of)))
    }

    /// The same for a process that the agent cannot see, as in a container: what is held is held as long
    /// as there is a connection, and lost when there is none for so long.
    ///
    /// # Errors
    /// If there is no agent, or it does not speak our version.
    pub async fn with_lease(path: impl AsRef<Path>, lease: Duration) -> Result<Self, Error> {
        Ok(Self { session: Session::open(At::Socket(path.as_ref().into()), Some(lease)).await? })
    }

    /// Connects to an agent on another machine. What is held is held as long as the agent answers, which it is asked
    /// again and again, and lost ([`Grant::lost`]) before the agent gives it to others, which it does not do
    /// before a lease has passed: [`Grant::deadline`]. A program that ends says [`heard_out`] first.
    ///
    /// # Errors
    /// If it is not reached, is another than the token is for, or refuses the token.
    pub async fn remote(remote: &Remote, lease: Duration) -> Result<Self, Error> {
        Ok(Self { session: Session::open(At::Remote(remote.clone()), Some(lease)).await? })
    }

    /// Another session with the same agent.
    ///
    /// # Errors
    /// If it does not listen now.
    pub async fn another(&self) -> Result<Self, Error> {
        let (at, lease) = (self.session.at().clone(), self.session.lease());
        Ok(Self { session: Session::open(at, lease).await? })
    }

    /// Asks for everything named, waits for it, and holds it: `["gpu:2", "db:shared"]`.
    ///
    /// # Errors
    /// If it can never be granted, or the agent has lost its memory meanwhile.
    pub async fn request<S: AsRef<str>>(&self, needs: &[S]) -> Result<Grant, Error> {
        let needs: Vec<Need> =
            needs.iter().map(|need| need.as_ref().parse()).collect::<Result<_, _>>()?;
        let command = std::env::args().next().unwrap_or_default();
        let from = About { command, ..About::default() };
        let lasting = Lasting::Connection;
        self.ask(Ask { needs, now: false, lasting, from, within: None, limit: None, part: None })
            .await
    }

    /// Asks, with all there is to say about it, waits, and holds.
    ///
    /// # Errors
    /// If it is refused, or the agent has lost its memory meanwhile.
    pub async fn ask(&self, ask: Ask) -> Result<Grant, Error> {
        self.enqueue(ask)?.granted().await
    }

    /// Asks, and leaves the waiting to the caller.
    ///
    /// # Errors
    /// If the agent is of a version without sessions.
    pub fn enqueue(&self, ask: Ask) -> Result<Waiting, Error> {
        Waiting::ask(&self.session, ask)
    }

    /// Who holds and who waits: all, or what concerns some names. It comes in pages, until that is
    /// all or what there is so far is enough; the second value says whether there is more.
    ///
    /// # Errors
    /// If the agent is lost.
    pub async fn status(
        &self,
        names: &[Name],
        enough: impl Fn(&Status) -> bool,
    ) -> Result<(Status, bool), Error> {
        let _alone = self.session.look().await;
        let (mut all, mut first) = (Status::default(), true);
        loop {
            let names = if first { names.to_vec() } else { Vec::new() };
            let body = Body::Status { names, more: !std::mem::take(&mut first) };
            let (page, more) = match self.once(&body).await {
                Ok(Reply::Status { page, more }) => (page, more),
                Ok(other) => return Err(Error::Protocol(format!("unexpected reply: {other:?}"))),
                // Pages belong to a connection. Another one begins with the first.
                Err(Error::Lost) => {
                    (all, first) = (Status::default(), true);
                    continue;
                }
                Err(error) => return Err(error),
            };
            all.pools.extend(page.pools);
            all.grants.extend(page.grants);
            all.waiting.extend(page.waiting);
            all.left_out = page.left_out;
            if !more || enough(&all) {
                all.pools.sort_by(|one, other| one.name.cmp(&other.name));
                return Ok((all, more));
            }
        }
    }

    /// Makes any other call and waits for its reply, whatever becomes of the connection meanwhile: what
    /// changes something is done once, and questions are asked again.
    ///
    /// # Errors
    /// If the agent did not do it. [`Error::Lost`] if it has forgotten the session, or if it was told
    /// to end and the connection was lost before it has answered. [`Error::Protocol`] for what requests,
    /// grants and sessions say of themselves.
    pub async fn call(&self, body: Body) -> Result<Reply, Error> {
        if matches!(
            body,
            Body::Ask(_) | Body::Withdraw(_) | Body::Attach(_) | Body::Heard(_) | Body::Leave
        ) {
            let text = "requests are made with `enqueue`, and sessions speak for themselves";
            return Err(Error::Protocol(text.into()));
        }
        loop {
            match self.once(&body).await {
                Err(Error::Lost) if matches!(body, Body::Agent | Body::Explain { .. }) => {}
                done => return done,
            }
        }
    }

    async fn once(&self, body: &Body) -> Result<Reply, Error> {
        let made = if body.is_numbered() { Session::call } else { Session::query };
        match made(&self.session, body.clone())?.recv().await {
            Some(Reply::Failed(fault)) => Err(fault.into()),
            Some(reply) => Ok(reply),
            None => Err(Error::Lost),
        }
    }

    /// About the agent, as it was when we connected.
    pub fn agent(&self) -> &AgentView {
        self.session.agent()
    }

    /// Whether the agent is there, and from now on whenever that changes.
    pub fn presence(&self) -> watch::Receiver<Presence> {
        self.session.presence()
    }

    /// Waits until the agent is away.
    pub async fn lost(&self) {
        // An error means that the sender is gone, and the connection with it.
        let _ = self.presence().wait_for(|presence| *presence != Presence::Here).await;
    }
}
