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
//! request withdraws it. If the agent is gone, [`Grant::lost`] says so, and until the grant is
//! dropped no new agent grants what it held: the client keeps a lock that the agent has handed over.

#![forbid(unsafe_code)]

mod connection;
mod grant;

use std::path::Path;
use std::sync::Arc;

pub use holdall_wire as wire;
use holdall_wire::{
    AgentView, Ask, Body, Fault, From as About, Lasting, Name, Need, Refusal, Reply, Status,
};

use self::connection::Connection;
pub use self::grant::{Grant, Waiting};

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
        "the agent speaks version {agent} of the protocol, this program version {}; \
         restart the agent with `holdall agent stop`, or use programs of one release",
        holdall_wire::frame::VERSION
    )]
    Version {
        /// Which one it speaks.
        agent: u32,
    },
    /// The connection ended.
    #[error("the connection to the agent was lost")]
    Lost,
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

/// A connection to an agent. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Connection>,
}

impl Client {
    /// Connects to the agent that listens at a path.
    ///
    /// # Errors
    /// If there is none, or it does not speak our version.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { connection: Connection::open(path.as_ref(), None).await? })
    }

    /// Connects to the same agent once more. Connections of one program that are made in this way
    /// need one descriptor each, and one for all of them: the lock by which an agent that comes after
    /// this one knows that what they were granted is still used. For that agent all of it is, as long
    /// as any is.
    ///
    /// # Errors
    /// If it no longer listens.
    pub async fn another(&self) -> Result<Self, Error> {
        Ok(Self { connection: self.connection.another().await? })
    }

    /// Asks for everything named, waits for it, and holds it: `["gpu:2", "db:shared"]`.
    ///
    /// # Errors
    /// If it can never be granted, or the agent is lost.
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
    /// If it is refused, or the agent is lost.
    pub async fn ask(&self, ask: Ask) -> Result<Grant, Error> {
        if ask.lasting == Lasting::Connection {
            self.connection.lock().await?;
        }
        self.enqueue(ask)?.granted().await
    }

    /// Asks without a lock by which later agents know this program: for commands, which the agent
    /// knows otherwise, and for reservations.
    ///
    /// # Errors
    /// If it is too large for a frame.
    pub fn enqueue(&self, ask: Ask) -> Result<Waiting, Error> {
        Waiting::ask(self.connection.clone(), ask)
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
        let _alone = self.connection.look().await;
        let (mut all, mut first) = (Status::default(), true);
        loop {
            let names = if first { names.to_vec() } else { Vec::new() };
            let body = Body::Status { names, more: !std::mem::take(&mut first) };
            let (page, more) = match self.call(body).await? {
                Reply::Status { page, more } => (page, more),
                other => return Err(Error::Protocol(format!("unexpected reply: {other:?}"))),
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

    /// Makes any other call and waits for its reply.
    ///
    /// # Errors
    /// If the agent did not do it, or is lost.
    pub async fn call(&self, body: Body) -> Result<Reply, Error> {
        let (_, mut replies) = self.connection.call(body)?;
        match replies.recv().await {
            Some(Reply::Failed(fault)) => Err(fault.into()),
            Some(reply) => Ok(reply),
            None => Err(Error::Lost),
        }
    }

    /// About the agent, as it was when we connected.
    pub fn agent(&self) -> &AgentView {
        self.connection.agent()
    }

    /// Waits until the connection is lost.
    pub async fn lost(&self) {
        self.connection.lost().await;
    }
}
