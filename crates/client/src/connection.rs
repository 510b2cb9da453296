//! A connection: calls go out, replies are sorted to those who wait for them.
//!
//! Whoever calls writes its frame itself, and only if the socket is full leaves it to the task
//! that also reads; so an uncontended call is one write and one read.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use holdall_holders::Stream;
use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{AgentView, Answer, Body, Call, Reply};
use tokio::sync::{Notify, mpsc, watch};

use crate::Error;

/// The replies to one call.
pub(crate) type Replies = mpsc::UnboundedReceiver<Reply>;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<Stream>,
    unsent: Mutex<Vec<u8>>,
    full: Arc<Notify>,
    /// `None` once the connection is lost.
    calls: Mutex<Option<HashMap<u64, mpsc::UnboundedSender<Reply>>>>,
    last: AtomicU64,
    agent: OnceLock<AgentView>,
    path: PathBuf,
    /// The connection whose lock it shares.
    beside: Option<Arc<Self>>,
    /// With the number that the agent gave it.
    lock: Mutex<Option<(u64, Arc<OwnedFd>)>>,
    locking: tokio::sync::Mutex<()>,
    looking: tokio::sync::Mutex<()>,
    passed: Arc<Passed>,
    open: watch::Sender<bool>,
}

/// A descriptor that comes along with a reply.
#[derive(Debug, Default)]
struct Passed {
    /// Whether one may come.
    expected: AtomicBool,
    handle: Mutex<Option<OwnedFd>>,
}

/// Nothing panics while it has one of our locks; if it did, the data would still be sound.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Connects; `beside` another connection, it shares the lock of that.
    pub(crate) async fn open(path: &Path, beside: Option<Arc<Self>>) -> Result<Arc<Self>, Error> {
        let shown = || path.display().to_string();
        let stream = connected(path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NoAgent(shown()),
            _ => Error::Unreachable(shown(), error),
        })?;
        let connection = Arc::new(Self {
            stream: Arc::new(stream),
            unsent: Mutex::new(Vec::new()),
            full: Arc::new(Notify::new()),
            calls: Mutex::new(Some(HashMap::new())),
            last: AtomicU64::new(0),
            agent: OnceLock::new(),
            path: path.to_owned(),
            beside,
            lock: Mutex::new(None),
            locking: tokio::sync::Mutex::new(()),
            looking: tokio::sync::Mutex::new(()),
            passed: Arc::default(),
            open: watch::Sender::new(true),
        });
        frame::greet(&mut locked(&connection.unsent), frame::OLDEST);
        let (_, mut replies) = connection.call(Body::Agent)?;
        let mut incoming = Incoming::new(FROM_NODE_MAX);
        // An agent that is just ending closes the connection instead of greeting.
        let agent = greeted(&connection.stream, &mut incoming).await.map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                Error::Unreachable(shown(), error)
            } else {
                Error::NoAgent(shown())
            }
        })?;
        if frame::common(agent) != Some(agent) {
            return Err(Error::Version { agent });
        }
        let (stream, full) = (connection.stream.clone(), connection.full.clone());
        let passed = connection.passed.clone();
        tokio::spawn(read(Arc::downgrade(&connection), stream, full, passed, incoming));
        match replies.recv().await {
            Some(Reply::Agent(view)) => drop(connection.agent.set(view)),
            _ => {
                let why = "it closed the connection; perhaps this user has too many";
                return Err(Error::Unreachable(shown(), io::Error::other(why)));
            }
        }
        Ok(connection)
    }

    /// Another connection to the same agent, which shares the lock.
    pub(crate) async fn another(self: &Arc<Self>) -> Result<Arc<Self>, Error> {
        let beside = self.beside.as_ref().unwrap_or(self);
        Self::open(&self.path, Some(beside.clone())).await
    }

    pub(crate) fn agent(&self) -> &AgentView {
        static NONE: OnceLock<AgentView> = OnceLock::new();
        self.agent.get().unwrap_or_else(|| NONE.get_or_init(AgentView::default))
    }

    /// Makes a call.
    pub(crate) fn call(&self, body: Body) -> Result<(u64, Replies), Error> {
        let (id, replies) = self.expect()?;
        self.send(&Call { id, body })?;
        Ok((id, replies))
    }

    /// A new call, and where its replies go.
    fn expect(&self) -> Result<(u64, Replies), Error> {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::unbounded_channel();
        match &mut *locked(&self.calls) {
            Some(calls) => drop(calls.insert(id, sender)),
            None => return Err(Error::Lost),
        }
        Ok((id, replies))
    }

    /// Makes a call whose reply nobody waits for.
    pub(crate) fn tell(&self, body: Body) {
        // If it cannot be sent, the connection is lost, and the agent knows better than we do.
        let _ = self.send(&Call { id: self.last.fetch_add(1, Ordering::Relaxed), body });
    }

    /// No reply to this call is of interest any more.
    pub(crate) fn forget(&self, call: u64) {
        if let Some(calls) = &mut *locked(&self.calls) {
            calls.remove(&call);
        }
    }

    fn send(&self, call: &Call) -> Result<(), Error> {
        let mut unsent = locked(&self.unsent);
        frame::write(call, FROM_CLIENT_MAX, &mut unsent)
            .map_err(|bad| Error::Protocol(format!("the call cannot be sent: {bad}")))?;
        if !flush(&self.stream, &mut unsent) {
            self.full.notify_one();
        }
        Ok(())
    }

    /// Gets a lock from the agent that lasts as long as this connection or one of its grants: an
    /// agent that comes after this one knows by it that they are still used.
    pub(crate) async fn lock(&self) -> Result<(), Error> {
        if locked(&self.lock).is_some() {
            return Ok(());
        }
        let _one_at_a_time = self.locking.lock().await;
        if locked(&self.lock).is_some() {
            return Ok(());
        }
        let fresh = match self.shared_lock().await? {
            Some(shared) => shared,
            None => self.own_lock().await?,
        };
        let mut lock = locked(&self.lock);
        // Closing forgets the calls before the lock: a lost connection does not get it again.
        if locked(&self.calls).is_none() {
            return Err(Error::Lost);
        }
        *lock = Some(fresh);
        Ok(())
    }

    async fn own_lock(&self) -> Result<(u64, Arc<OwnedFd>), Error> {
        self.passed.expected.store(true, Ordering::SeqCst);
        let number = self.call_lock(None).await;
        self.passed.expected.store(false, Ordering::SeqCst);
        let passed = locked(&self.passed.handle).take();
        let number = number?;
        let passed = passed.ok_or_else(|| {
            Error::Protocol("no lock has come along; perhaps too many files are open".into())
        })?;
        Ok((number, Arc::new(passed)))
    }

    /// The lock of the connection beside this one, if the agent takes it for ours.
    async fn shared_lock(&self) -> Result<Option<(u64, Arc<OwnedFd>)>, Error> {
        let Some(beside) = &self.beside else { return Ok(None) };
        // If that one is lost, this one gets a lock of its own.
        if Box::pin(beside.lock()).await.is_err() {
            return Ok(None);
        }
        let Some((number, lock)) = locked(&beside.lock).clone() else { return Ok(None) };
        match self.call_lock(Some(number)).await {
            Ok(number) => Ok(Some((number, lock))),
            Err(Error::Fault(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn call_lock(&self, beside: Option<u64>) -> Result<u64, Error> {
        let (_, mut replies) = self.call(Body::Lock { beside })?;
        match replies.recv().await {
            Some(Reply::Locked(number)) => Ok(number),
            Some(Reply::Failed(fault)) => Err(fault.into()),
            Some(other) => Err(Error::Protocol(format!("unexpected reply: {other:?}"))),
            None => Err(Error::Lost),
        }
    }

    /// Whoever goes through pages does so alone.
    pub(crate) async fn look(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.looking.lock().await
    }

    pub(crate) fn held_lock(&self) -> Option<Arc<OwnedFd>> {
        locked(&self.lock).as_ref().map(|(_, lock)| lock.clone())
    }

    pub(crate) async fn lost(&self) {
        // An error means that the sender is gone, and the connection with it.
        let _ = self.open.subscribe().wait_for(|open| !open).await;
    }

    fn sort(&self, answer: Answer) {
        if let Some(calls) = &mut *locked(&self.calls) {
            let more = matches!(
                answer.reply,
                Reply::Queued(_) | Reply::Granted { .. } | Reply::Warning(_)
            );
            if let Some(sender) = calls.get(&answer.id) {
                // Whoever has gone away does not want it.
                let _ = sender.send(answer.reply);
            }
            if !more {
                calls.remove(&answer.id);
            }
        }
    }

    fn close(&self) {
        *locked(&self.calls) = None;
        *locked(&self.lock) = None;
        self.open.send_replace(false);
    }
}

/// Connects. The kernel has no way to wait until a listener has room for one more but to try again.
async fn connected(path: &Path) -> io::Result<Stream> {
    let mut pause = Duration::from_millis(1);
    loop {
        match Stream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            done => return done,
        }
    }
}

/// Sends as much as the socket takes; false if something is left.
fn flush(stream: &Stream, unsent: &mut Vec<u8>) -> bool {
    while !unsent.is_empty() {
        match stream.write(unsent) {
            Ok(n) => drop(unsent.drain(..n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => unsent.clear(), // The reader notices that the connection is lost.
        }
    }
    true
}

async fn fill(stream: &Stream, incoming: &mut Incoming, passed: &Passed) -> io::Result<()> {
    loop {
        let ready = stream.readable().await?;
        let bytes = incoming.buffer();
        let read = if passed.expected.load(Ordering::SeqCst) {
            ready.receive(bytes, &mut locked(&passed.handle))?
        } else {
            ready.read(bytes)?
        };
        match read {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => return Ok(()),
            None => {}
        }
    }
}

async fn greeted(stream: &Stream, incoming: &mut Incoming) -> io::Result<u32> {
    loop {
        if let Some(content) = incoming.next_frame()? {
            return Ok(frame::version(content)?);
        }
        fill(stream, incoming, &Passed::default()).await?;
    }
}

/// Sorts replies until the connection ends, or nobody wants it any more.
async fn read(
    connection: Weak<Connection>,
    stream: Arc<Stream>,
    full: Arc<Notify>,
    passed: Arc<Passed>,
    mut incoming: Incoming,
) {
    let ended = async {
        // Something is left to send. Reading goes on meanwhile: an agent that cannot get rid of
        // its replies takes no calls either.
        let mut unsent = false;
        loop {
            while let Some(content) = incoming.next_frame()? {
                let answer: Answer = frame::read(content)?;
                let Some(connection) = connection.upgrade() else { return Ok(()) };
                connection.sort(answer);
            }
            tokio::select! {
                filled = fill(&stream, &mut incoming, &passed) => filled?,
                () = full.notified(), if !unsent => unsent = true,
                ready = stream.writable(), if unsent => {
                    ready?;
                    let Some(connection) = connection.upgrade() else { return Ok(()) };
                    unsent = !flush(&stream, &mut locked(&connection.unsent));
                }
            }
        }
    };
    // Why it ended makes no difference to those who wait.
    let _: io::Result<()> = ended.await;
    if let Some(connection) = connection.upgrade() {
        connection.close();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The reading task holds the stream; it would not notice by itself.
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Both);
    }
}
