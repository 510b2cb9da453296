//! A session: what outlasts connections, and agents.
//!
//! Calls are numbered and kept until the agent has them. When the connection is lost, a task makes
//! another one, as long as there is something that only the agent can bring to its end; it says who it is,
//! hears how its calls stand, and makes those again that the agent does not have. Whoever waits for a
//! reply notices nothing of it.
//!
//! The agent comes to know of the session with its first call that changes something; whoever only
//! looks has none.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use holdall_holders::boottime;
use holdall_wire::{AgentView, Ask, Body, Reply, RequestNo, frame};
use tokio::sync::{Notify, watch};

use crate::at::At;
use crate::attend::attend;
use crate::calls::{Calls, Identity, Replies};
use crate::lease::Until;
use crate::link::greeted;
use crate::state::{Stage, State};
use crate::{Error, Presence, locked};

/// What the users of a session and its task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) at: At,
    /// The agent ties the session to this process: a fork of it has none.
    pid: u32,
    pub(crate) lease: Option<Duration>,
    pub(crate) state: Mutex<State>,
    pub(crate) presence: watch::Sender<Presence>,
    /// Until when what is held is its own.
    pub(crate) until: watch::Sender<Until>,
    /// There is something to do for the task.
    pub(crate) wake: Notify,
}

/// A session, as long as somebody uses it.
#[derive(Debug)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    agent: OnceLock<AgentView>,
    looking: tokio::sync::Mutex<()>,
}

impl Session {
    /// Connects to an agent. The session lasts as long as this process, or, with a lease, as it is not away
    /// from the agent for longer.
    pub(crate) async fn open(at: At, lease: Option<Duration>) -> Result<Arc<Self>, Error> {
        Self::open_asking(at, lease, None).await.map(|(session, _)| session)
    }

    /// The same, and asks for something in the same breath: not if the agent is of a version without sessions.
    pub(crate) async fn open_asking(
        at: At,
        lease: Option<Duration>,
        ask: Option<Ask>,
    ) -> Result<(Arc<Self>, Option<(Asked, Replies)>), Error> {
        let shown = || at.to_string();
        let unreachable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NoAgent(shown()),
            _ => Error::Unreachable(shown(), error),
        };
        let identity = Identity::random().map_err(unreachable)?;
        let mut state = State::new(Calls::new(identity));
        let mut view = state.calls.query(Body::Agent);
        let mut asked = ask.map(|ask| state.calls.make(Body::Ask(ask)));
        let sent = at.is_remote().then(boottime);
        let greeting = greeted(&at, &state.begin(millis(lease))).await;
        let (link, reader, version) = greeting.map_err(unreachable)?;
        if frame::common(version) != Some(version) {
            return Err(Error::Version { agent: version });
        }
        if !state.meet(link, version) {
            asked = None;
        }
        let shared = Arc::new(Shared {
            at: at.clone(),
            pid: std::process::id(),
            lease,
            state: Mutex::new(state),
            presence: watch::Sender::new(Presence::Here),
            until: watch::Sender::new(Until::HERE),
            wake: Notify::new(),
        });
        tokio::spawn(attend(shared.clone(), reader));
        let session =
            Self { shared, agent: OnceLock::new(), looking: tokio::sync::Mutex::default() };
        match view.recv().await {
            Some(Reply::Agent(view)) => {
                if let (Some(lease), Some(sent)) = (lease, sent) {
                    session.shared.until.send_replace(Until::counted(sent, lease, &view));
                }
                drop(session.agent.set(*view));
            }
            _ => {
                let why = "it closed the connection; perhaps this user has too many";
                return Err(unreachable(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
            }
        }
        let session = Arc::new(session);
        let asked = asked.map(|(number, replies)| {
            (Asked { session: session.clone(), number, generation: 0 }, replies)
        });
        Ok((session, asked))
    }

    pub(crate) fn at(&self) -> &At {
        &self.shared.at
    }

    pub(crate) fn lease(&self) -> Option<Duration> {
        self.shared.lease
    }

    pub(crate) fn agent(&self) -> &AgentView {
        static NONE: OnceLock<AgentView> = OnceLock::new();
        self.agent.get().unwrap_or_else(|| NONE.get_or_init(AgentView::default))
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Presence> {
        self.shared.presence.subscribe()
    }

    pub(crate) fn until(&self) -> watch::Receiver<Until> {
        self.shared.until.subscribe()
    }

    /// Whoever goes through pages does so alone.
    pub(crate) async fn look(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.looking.lock().await
    }

    /// Asks for something.
    pub(crate) fn ask(self: &Arc<Self>, ask: Ask) -> Result<(Asked, Replies), Error> {
        let (number, generation, replies) = self.shared.call(Body::Ask(ask), None)?;
        Ok((Asked { session: self.clone(), number, generation }, replies))
    }

    /// Makes a call that changes something. It is made until it is answered, or its replies are dropped.
    pub(crate) fn call(&self, body: Body) -> Result<Replies, Error> {
        self.shared.call(body, None).map(|(_, _, replies)| replies)
    }

    /// Makes a query, which belongs to a connection: if that is lost, no reply comes. An agent without sessions
    /// understands those that it knows.
    pub(crate) fn query(&self, body: Body) -> Result<Replies, Error> {
        self.shared.check_process()?;
        let mut state = locked(&self.shared.state);
        if state.is_over {
            return Err(Error::Ended);
        }
        let body = match (state.stage, body) {
            // Those who hold would end with it: it ends after them.
            (Stage::Without(_), Body::Shutdown(_)) => Body::Stop { now: false },
            (Stage::Without(agent), Body::Restart { .. }) => return Err(Error::Version { agent }),
            (_, body) => body,
        };
        let replies = state.calls.query(body);
        self.shared.send(state);
        Ok(replies)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            return;
        }
        let mut state = locked(&self.shared.state);
        state.is_left = true;
        if state.calls.is_tried() && !state.is_over {
            state.calls.oblige(Body::Leave);
        }
        self.shared.send(state);
        self.shared.wake.notify_one();
    }
}

/// A request of a session.
#[derive(Debug)]
pub(crate) struct Asked {
    session: Arc<Session>,
    number: u64,
    generation: u64,
}

impl Asked {
    /// When the lease of the session is over, if it has one that is counted so.
    pub(crate) fn until(&self) -> watch::Receiver<Until> {
        self.session.until()
    }

    /// Whether the agent is there.
    pub(crate) fn presence(&self) -> watch::Receiver<Presence> {
        self.session.presence()
    }

    /// Makes a call about the request.
    pub(crate) fn call(&self, body: Body) -> Result<Replies, Error> {
        let made = self.session.shared.call(body, Some(self.generation));
        made.map(|(_, _, replies)| replies)
    }

    /// What becomes of the request is of no interest any more.
    pub(crate) fn forget(&self) {
        self.finish(None);
    }

    /// The same, and the agent is told to give it up, granted or not, if it may have heard of it.
    pub(crate) fn withdraw(&self) {
        self.finish(Some(Body::Withdraw(self.number)));
    }

    /// The same, and the agent is told to take the grant back.
    pub(crate) fn give_back(&self, request: RequestNo) {
        self.finish(Some(Body::End { request, left: false }));
    }

    fn finish(&self, last_words: Option<Body>) {
        let shared = &self.session.shared;
        if shared.check_process().is_err() {
            return;
        }
        let mut state = locked(&shared.state);
        if state.calls.generation() != self.generation {
            return; // It is over.
        }
        state.calls.forget(self.number);
        if let Some(body) = last_words.filter(|_| state.calls.was_sent(self.number)) {
            state.calls.oblige(body);
            shared.send(state);
        }
    }
}

impl Shared {
    /// In a fork of the process that connected, nothing may be sent: the other one would not know.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if std::process::id() == self.pid { Ok(()) } else { Err(Error::Forked) }
    }

    pub(crate) fn lease(&self) -> Option<u64> {
        millis(self.lease)
    }

    /// Makes a call, if the session is still the one that is meant.
    fn call(&self, body: Body, generation: Option<u64>) -> Result<(u64, u64, Replies), Error> {
        self.check_process()?;
        let mut state = locked(&self.state);
        if let Stage::Without(agent) = state.stage {
            return Err(Error::Version { agent });
        }
        if state.is_over {
            return Err(Error::Ended);
        }
        let now = state.calls.generation();
        if generation.is_some_and(|generation| generation != now) {
            return Err(Error::Lost);
        }
        let (number, replies) = state.calls.make(body);
        self.send(state);
        Ok((number, now, replies))
    }

    /// Sends what there is to send.
    pub(crate) fn send(&self, mut state: MutexGuard<'_, State>) {
        let link = state.send(self.lease());
        drop(state);
        match link {
            Some(link) => link.flush(),
            None => self.wake.notify_one(),
        }
    }
}

fn millis(lease: Option<Duration>) -> Option<u64> {
    lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))
}
