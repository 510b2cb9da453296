//! A connection to the service, in the protocol of its socket.

use std::io;
use std::time::Duration;

use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{AgentView, Answer, Body, Call, FIRST_QUERY, Name, Reply, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::caller::{Peer, Service};
use crate::problem::{Kind, Problem};

/// How long the service may take to answer what it can answer at once: it is in the same process.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it may take to turn down what takes long itself.
const BEGUN: Duration = Duration::from_secs(1);

/// The number of the answer to somebody for whose connection there is no room. Calls have higher ones.
pub const NO_CALL: u64 = 0;

/// A connection.
pub(crate) struct Link {
    stream: UnixStream,
    incoming: Incoming,
    last_query: u64,
}

impl Link {
    /// Connects as somebody.
    pub(crate) async fn open(service: &dyn Service, peer: &Peer) -> Result<Self, Problem> {
        let greeted = async {
            let stream = service.connect(peer)?;
            stream.set_nonblocking(true)?;
            let stream = UnixStream::from_std(stream)?;
            let mut link =
                Self { stream, incoming: Incoming::new(FROM_NODE_MAX), last_query: FIRST_QUERY };
            let mut greeting = Vec::new();
            frame::greet(&mut greeting, frame::VERSION);
            let greeted = link.stream.write_all(&greeting).await;
            let version = frame::version(&link.next_frame().await?)?;
            link.told_why(greeted).await?;
            if version != frame::VERSION {
                let why = format!("it speaks version {version} of the protocol");
                return Err(io::Error::other(why));
            }
            Ok(link)
        };
        in_time(greeted).await
    }

    /// Makes a call and waits for its reply. Whatever else comes meanwhile is not wanted.
    pub(crate) async fn call(&mut self, body: Body) -> Result<Reply, Problem> {
        let made = async {
            self.last_query += 1;
            let id = self.last_query;
            self.send(id, body).await?;
            loop {
                let answer = self.answer().await?;
                if answer.id == id {
                    return Ok(answer.reply);
                }
            }
        };
        match in_time(made).await? {
            Reply::Failed(fault) => Err(fault.into()),
            reply => Ok(reply),
        }
    }

    /// Makes a call that is only done.
    pub(crate) async fn done(&mut self, body: Body) -> Result<(), Problem> {
        match self.call(body).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a call that is done in time, or begun: then its reply comes when nobody waits for it.
    pub(crate) async fn begun(&mut self, body: Body) -> Result<(), Problem> {
        let done = self.done(body);
        tokio::time::timeout(BEGUN, done).await.unwrap_or(Ok(()))
    }

    /// About the agent.
    pub(crate) async fn agent(&mut self) -> Result<AgentView, Problem> {
        match self.call(Body::Agent).await? {
            Reply::Agent(view) => Ok(*view),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything, or all that concerns some names.
    pub(crate) async fn status(&mut self, names: &[Name]) -> Result<Status, Problem> {
        let mut all = Status::default();
        let mut following = false;
        loop {
            let body = Body::Status { names: names.to_vec(), more: following };
            let (page, more) = match self.call(body).await? {
                Reply::Status { page, more } => (page, more),
                other => return Err(unexpected(&other)),
            };
            all.pools.extend(page.pools);
            all.grants.extend(page.grants);
            all.waiting.extend(page.waiting);
            if !more {
                all.pools.sort_by(|one, other| one.name.cmp(&other.name));
                return Ok(all);
            }
            following = true;
        }
    }

    /// Sends a call.
    pub(crate) async fn send(&mut self, id: u64, body: Body) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::write(&Call { id, body }, FROM_CLIENT_MAX, &mut bytes)?;
        let written = self.stream.write_all(&bytes).await;
        self.told_why(written).await
    }

    /// Whoever is sent away is told why before the connection ends: if nothing can be written, that can be read.
    async fn told_why(&mut self, written: io::Result<()>) -> io::Result<()> {
        let Err(error) = written else { return Ok(()) };
        Err(self.answer().await.err().unwrap_or(error))
    }

    /// The next answer, to whichever call. Nothing is lost if the caller stops waiting for it.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        match frame::read(&self.next_frame().await?)? {
            // To no call: it is about the connection.
            Answer { id: NO_CALL, reply: Reply::Failed(fault) } => {
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, fault.to_string()))
            }
            answer => Ok(answer),
        }
    }

    async fn next_frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(content) = self.incoming.next_frame()? {
                return Ok(content.to_vec());
            }
            if self.stream.read_buf(self.incoming.buffer()).await? == 0 {
                let why = "it closed the connection";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
        }
    }
}

pub(crate) async fn in_time<T>(done: impl Future<Output = io::Result<T>>) -> Result<T, Problem> {
    match tokio::time::timeout(PATIENCE, done).await {
        Ok(done) => done.map_err(|error| Problem::unreachable(&error)),
        Err(_) => Err(Problem::new(Kind::Unreachable, "the agent does not answer")),
    }
}

/// The service says something that does not belong there.
pub(crate) fn unexpected(reply: &Reply) -> Problem {
    tracing::error!(?reply, "an unexpected reply");
    Problem::new(Kind::Failed, "the agent gave an unexpected reply")
}
