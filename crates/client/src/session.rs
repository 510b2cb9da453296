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
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use holdall_wire::frame;
use holdall_wire::{AgentView, Answer, Ask, Body, Fault, Reply, RequestNo, Shutdown};
use tokio::sync::{Notify, watch};

use crate::calls::{Calls, Identity, Replies};
use crate::link::{Link, Reader};
use crate::{Error, Presence, locked};

/// The first version with sessions.
const SESSIONS: u32 = 6;
/// How long to wait before the agent is looked for again: after the first attempt, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// How it stands between this session and the agent at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The agent knows no sessions; it is of this version.
    Without(u32),
    /// The agent does not know of it.
    Unknown,
    /// The agent was told of it, in the call of this number, for the first time. Calls may follow.
    Coming(u64),
    /// The same, perhaps not for the first time. The agent says first which calls it has.
    Returning(u64),
    /// The agent knows it.
    Attached,
}

#[derive(Debug)]
struct State {
    calls: Calls,
    link: Option<Arc<Link>>,
    stage: Stage,
    /// The calls up to this number were sent over this connection, or need not be.
    sent: u64,
    /// Nobody uses the session any more.
    is_left: bool,
}

impl State {
    /// Sends all calls that may be sent now and have not been.
    fn send(&mut self, lease: Option<u64>) -> Option<Arc<Link>> {
        let link = self.link.clone()?;
        for (id, body) in self.calls.new_queries() {
            self.push(&link, id, &body);
        }
        if self.stage == Stage::Unknown && self.calls.any_made() {
            let (id, attach) = self.calls.attach(lease);
            self.push(&link, id, &attach);
            self.stage = Stage::Coming(id);
        }
        if matches!(self.stage, Stage::Coming(_) | Stage::Attached) {
            if let Some((id, heard)) = self.calls.news() {
                self.push(&link, id, &heard);
            }
            let new = self.calls.after(self.sent);
            let refused: Vec<_> = new
                .filter_map(|(number, body)| Some((number, link.push(number, body).err()?)))
                .collect();
            for (number, bad) in refused {
                self.calls.answer(number, unsendable(&bad));
            }
            self.sent = self.calls.last();
        }
        Some(link)
    }

    /// Ends the connection. Whoever reads from it notices.
    fn close(&self) {
        if let Some(link) = &self.link {
            link.close();
        }
    }

    fn push(&mut self, link: &Link, id: u64, body: &Body) {
        if let Err(bad) = link.push(id, body) {
            self.calls.answer(id, unsendable(&bad));
        }
    }
}

fn unsendable(bad: &frame::Bad) -> Reply {
    Reply::Failed(Fault::Wrong(format!("the call cannot be sent: {bad}")))
}

/// What the users of a session and its task share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// The agent ties the session to this process: a fork of it has none.
    pid: u32,
    lease: Option<Duration>,
    state: Mutex<State>,
    presence: watch::Sender<Presence>,
    /// There is something to do for the task.
    wake: Notify,
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
    pub(crate) async fn open(path: &Path, lease: Option<Duration>) -> Result<Arc<Self>, Error> {
        let shown = || path.display().to_string();
        let unreachable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NoAgent(shown()),
            _ => Error::Unreachable(shown(), error),
        };
        let identity = Identity::random().map_err(unreachable)?;
        let link = Arc::new(Link::connect(path).await.map_err(unreachable)?);
        let mut reader = Reader::new(link.clone());
        let mut calls = Calls::new(identity);
        let mut view = calls.query(Body::Agent);
        for (id, body) in calls.new_queries() {
            link.push(id, &body).map_err(|bad| unreachable(bad.into()))?;
        }
        link.flush();
        // An agent that is just ending closes the connection instead of greeting.
        let version = reader.version().await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => unreachable(error),
            _ => unreachable(io::Error::new(io::ErrorKind::ConnectionAborted, "it is just ending")),
        })?;
        let stage = stage(version).ok_or(Error::Version { agent: version })?;
        let state = State { calls, link: Some(link), stage, sent: 0, is_left: false };
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            pid: std::process::id(),
            lease,
            state: Mutex::new(state),
            presence: watch::Sender::new(Presence::Here),
            wake: Notify::new(),
        });
        tokio::spawn(attend(shared.clone(), reader));
        let session =
            Self { shared, agent: OnceLock::new(), looking: tokio::sync::Mutex::default() };
        match view.recv().await {
            Some(Reply::Agent(view)) => drop(session.agent.set(view)),
            _ => {
                let why = "it closed the connection; perhaps this user has too many";
                return Err(unreachable(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
            }
        }
        Ok(Arc::new(session))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shared.path
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

    /// Makes a query, which belongs to a connection: if that is lost, no reply comes.
    pub(crate) fn query(&self, body: Body) -> Result<Replies, Error> {
        self.shared.check_process()?;
        let mut state = locked(&self.shared.state);
        let body = match (state.stage, body) {
            (Stage::Without(_), Body::Shutdown(how)) => Body::Stop { now: how != Shutdown::Drain },
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
        if state.calls.is_tried() {
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
    /// Makes a call about the request.
    pub(crate) fn call(&self, body: Body) -> Result<Replies, Error> {
        let made = self.session.shared.call(body, Some(self.generation));
        made.map(|(_, _, replies)| replies)
    }

    /// What becomes of the request is of no interest any more.
    pub(crate) fn forget(&self) {
        self.finish(None);
    }

    /// The same, and the agent is told to give it up, granted or not.
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
        if let Some(body) = last_words {
            state.calls.oblige(body);
            shared.send(state);
        }
    }
}

impl Shared {
    /// In a fork of the process that connected, nothing may be sent: the other one would not know.
    fn check_process(&self) -> Result<(), Error> {
        if std::process::id() == self.pid { Ok(()) } else { Err(Error::Forked) }
    }

    fn lease(&self) -> Option<u64> {
        self.lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))
    }

    /// Makes a call, if the session is still the one that is meant.
    fn call(&self, body: Body, generation: Option<u64>) -> Result<(u64, u64, Replies), Error> {
        self.check_process()?;
        let mut state = locked(&self.state);
        if let Stage::Without(agent) = state.stage {
            return Err(Error::Version { agent });
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
    fn send(&self, mut state: MutexGuard<'_, State>) {
        let link = state.send(self.lease());
        drop(state);
        match link {
            Some(link) => link.flush(),
            None => self.wake.notify_one(),
        }
    }

    fn set_presence(&self, presence: Presence) {
        let change = |now: &mut Presence| std::mem::replace(now, presence) != presence;
        self.presence.send_if_modified(change);
    }

    /// Whether nobody uses the session any more, and the agent knows.
    fn is_done(&self, state: &State) -> bool {
        state.is_left && !(state.calls.is_tried() && state.calls.any_made())
    }

    /// Sorts replies until the connection ends, or nobody wants it any more. Returns whether the agent was
    /// in order.
    async fn sort_all(&self, reader: &mut Reader) -> bool {
        loop {
            tokio::select! {
                answer = reader.next() => match answer {
                    Ok(answer) => self.sort(answer),
                    Err(_) => break, // Why it ended makes no difference to those who wait.
                },
                () = self.wake.notified() => {}
            }
            let state = locked(&self.state);
            if state.is_left && self.is_done(&state) {
                break;
            }
        }
        !matches!(locked(&self.state).stage, Stage::Coming(_) | Stage::Returning(_))
    }

    fn sort(&self, Answer { id, reply }: Answer) {
        let mut state = locked(&self.state);
        match state.stage {
            Stage::Coming(attach) | Stage::Returning(attach) if attach == id => {}
            _ => return state.calls.answer(id, reply),
        }
        let is_known = state.calls.is_known();
        match reply {
            Reply::Attached { answers, .. } => {
                state.calls.attached(answers);
                state.stage = Stage::Attached;
                self.send(state);
                return self.set_presence(Presence::Here);
            }
            Reply::Failed(Fault::Forgotten) if is_known => {
                state.calls.begin_anew();
                state.stage = Stage::Unknown;
            }
            // What is held is held: it may have room for us later.
            Reply::Failed(_) if is_known => {}
            Reply::Failed(fault) => {
                state.calls.fail_all(&fault);
                state.calls.begin_anew();
                state.stage = Stage::Unknown;
            }
            _ => {}
        }
        state.close();
    }

    /// The connection is lost.
    fn unlink(&self) {
        let mut state = locked(&self.state);
        state.close();
        state.link = None;
        state.stage = Stage::Unknown;
        state.calls.lose_connection();
        drop(state);
        self.set_presence(Presence::Away);
    }

    /// Connects again as soon as somebody needs the agent, and it is there; none if nobody will.
    async fn come_back(&self, pause: &mut Duration) -> Option<Reader> {
        loop {
            loop {
                let woken = self.wake.notified();
                let is_needed = {
                    let mut state = locked(&self.state);
                    state.calls.give_up_unwanted();
                    if self.is_done(&state) {
                        return None;
                    }
                    state.calls.need_the_agent()
                };
                if is_needed {
                    break;
                }
                woken.await;
            }
            tokio::time::sleep(*pause).await;
            // Half as long as it is away by then: so it is not missed for much longer than it was away.
            *pause = (*pause * 3 / 2).clamp(PAUSE.0, PAUSE.1);
            if is_stopped(&self.path) {
                self.set_presence(Presence::Stopped);
                continue;
            }
            self.set_presence(Presence::Away);
            if let Ok(reader) = self.link_again().await {
                return Some(reader);
            }
        }
    }

    async fn link_again(&self) -> io::Result<Reader> {
        let link = Arc::new(Link::connect(&self.path).await?);
        let mut reader = Reader::new(link.clone());
        let (attach, generation) = {
            let calls = &mut locked(&self.state).calls;
            (calls.is_tried().then(|| calls.attach(self.lease())), calls.generation())
        };
        if let Some((id, body)) = &attach {
            link.push(*id, body)?;
        }
        link.flush();
        let version = reader.version().await?;
        let mut state = locked(&self.state);
        if state.calls.generation() != generation {
            return Err(io::Error::other("the session is another by now"));
        }
        let stage = stage(version).unwrap_or(Stage::Without(version));
        state.stage = match (stage, attach) {
            (Stage::Unknown, Some((id, _))) => Stage::Returning(id),
            (Stage::Unknown, None) => Stage::Unknown,
            (without, _) => {
                state.calls.begin_anew();
                without
            }
        };
        state.link = Some(link);
        state.sent = 0;
        if !matches!(state.stage, Stage::Returning(_)) {
            self.set_presence(Presence::Here);
        }
        self.send(state);
        Ok(reader)
    }

    /// Watches the lease: what is held is lost before the agent takes it for free.
    async fn lapse(&self) {
        let Some(lease) = self.lease else { return std::future::pending().await };
        let mut presence = self.presence.subscribe();
        loop {
            let is_here = |presence: &Presence| *presence == Presence::Here;
            // The sender is ours: it does not go away.
            let _ = presence.wait_for(|presence| !is_here(presence)).await;
            if tokio::time::timeout(lease / 10 * 9, presence.wait_for(is_here)).await.is_ok() {
                continue;
            }
            {
                let mut state = locked(&self.state);
                state.calls.begin_anew();
                state.close();
            }
            let _ = presence.wait_for(is_here).await;
        }
    }
}

/// Serves a session to its end.
async fn attend(shared: Arc<Shared>, mut reader: Reader) {
    let mut pause = Duration::ZERO;
    let served = async {
        loop {
            if shared.sort_all(&mut reader).await {
                pause = Duration::ZERO;
            }
            shared.unlink();
            match shared.come_back(&mut pause).await {
                Some(next) => reader = next,
                None => return,
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = shared.lapse() => {}
    }
}

/// How it stands at first with an agent of a version.
fn stage(version: u32) -> Option<Stage> {
    let spoken = frame::common(version).filter(|spoken| *spoken == version)?;
    Some(if spoken < SESSIONS { Stage::Without(spoken) } else { Stage::Unknown })
}

/// Whether the agent of a socket was stopped on purpose, and none has started since: a file beside the
/// socket says so, `agent.sock.stopped`. A new command brings an agent back then, and not those who were
/// there before; they do not even connect, since a supervisor that listens would start one.
pub fn is_stopped(socket: &Path) -> bool {
    let mut mark = socket.as_os_str().to_owned();
    mark.push(".stopped");
    Path::new(&mark).exists()
}
