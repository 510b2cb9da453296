//! A small agent that knows sessions and locks, loses connections whenever it is told to, and looks that
//! every call is done once.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use holdall_client::wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_client::wire::{
    AgentView, Answer, Attach, Body, Call, FIRST_QUERY, Fault, Name, Refusal, Reply, RequestNo,
    Status, Taken,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// What goes wrong, each once in so many times; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) cut: u64,
    pub(crate) twice: u64,
    pub(crate) turned_away: u64,
    /// What is given back takes a while.
    pub(crate) slow: u64,
}

/// How many outcomes are kept of a session that were not heard of; as those of a real agent.
const UNHEARD_MAX: usize = 4096;

/// A request that waits or holds.
#[derive(Debug)]
struct Request {
    session: u128,
    call: u64,
    lock: Name,
}

#[derive(Debug, Default)]
struct Known {
    secret: u128,
    conn: Option<u64>,
    last: u64,
    heard: u64,
    outcomes: BTreeMap<u64, Outcome>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Open(u64),
    Pending,
    Replied(Box<Reply>),
}

#[derive(Debug, Default)]
pub(crate) struct World {
    trouble: Trouble,
    random: u64,
    sessions: BTreeMap<u128, Known>,
    requests: BTreeMap<u64, Request>,
    queues: BTreeMap<Name, VecDeque<u64>>,
    last: u64,
    conns: BTreeMap<u64, mpsc::UnboundedSender<Answer>>,
    last_conn: u64,
    /// The names of the requests that were taken, each once.
    pub(crate) asked: BTreeSet<String>,
    /// How many grants there were, and how many were given back.
    pub(crate) granted: usize,
    pub(crate) ended: usize,
    /// How many connections there were.
    pub(crate) connections: usize,
    pub(crate) cuts: usize,
    pub(crate) heard: usize,
    pub(crate) left: usize,
    /// How many calls were turned away because too many were not heard of.
    pub(crate) too_many: usize,
    /// What is being given back, by session and call: soon, and when that is said.
    soon: Vec<(u128, u64, RequestNo)>,
    later: Vec<(u128, u64, RequestNo)>,
    /// Whoever comes is greeted, and that is all.
    pub(crate) hangs_up: bool,
    /// The next that is given back is kept back until it is finished.
    pub(crate) keep_back: bool,
    /// How many who come, or come back, are told that there is no room.
    pub(crate) no_room: usize,
    /// What its clock says, if it is on another machine.
    pub(crate) clock: Option<u64>,
}

impl World {
    fn draw(&mut self, one_in: u64) -> bool {
        // The generator of Knuth's MMIX.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        one_in > 0 && (self.random >> 33).is_multiple_of(one_in)
    }

    fn cut(&mut self) -> bool {
        let cut = self.draw(self.trouble.cut);
        self.cuts += usize::from(cut);
        cut
    }

    /// Whether nothing is held and nobody waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.queues.values().all(VecDeque::is_empty)
    }

    /// How many sessions there are.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The memory is lost.
    pub(crate) fn forget(&mut self) {
        self.sessions.clear();
        self.requests.clear();
        self.queues.clear();
    }

    /// The memory is an older one, as after a restore from a backup: sessions are known, and none of
    /// their calls.
    pub(crate) fn go_back(&mut self) {
        self.requests.clear();
        self.queues.clear();
        for known in self.sessions.values_mut() {
            (known.last, known.heard) = (0, 0);
            known.outcomes.clear();
        }
    }

    /// Whoever comes back is somebody else.
    pub(crate) fn change_secrets(&mut self) {
        self.sessions.values_mut().for_each(|known| known.secret = known.secret.wrapping_add(1));
    }

    /// What was kept back is given back.
    pub(crate) fn finish_kept_back(&mut self) {
        for (session, call, request) in std::mem::take(&mut self.later) {
            self.give_back(session, call, request);
        }
    }

    /// A grant is taken away.
    pub(crate) fn take_away(&mut self, request: RequestNo) {
        self.end(request.0, Some(Reply::Lost(request)));
    }

    /// A grant is lent until then.
    pub(crate) fn lend(&self, request: RequestNo, boottime: i64) {
        let boottime_millis = u64::try_from(boottime).expect("after the boot");
        let Request { session, call, .. } = self.requests[&request.0];
        self.tell_session(session, call, Reply::Until { request, boottime_millis });
    }

    fn tell(&self, conn: u64, id: u64, reply: Reply) {
        if let Some(sender) = self.conns.get(&conn) {
            let _ = sender.send(Answer { id, reply });
        }
    }

    fn tell_session(&self, session: u128, call: u64, reply: Reply) {
        if let Some(conn) = self.sessions.get(&session).and_then(|known| known.conn) {
            self.tell(conn, call, reply);
        }
    }

    fn take(&mut self, conn: u64, Call { id, body }: Call) {
        match body {
            Body::Agent => {
                let boottime_millis = self.clock;
                let view = AgentView { boottime_millis, ..AgentView::default() };
                self.tell(conn, id, Reply::Agent(Box::new(view)));
            }
            Body::Status { .. } => {
                self.tell(conn, id, Reply::Status { page: Status::default(), more: false });
            }
            Body::Attach(attach) => self.attach(conn, id, &attach),
            Body::Heard(upto) => {
                self.heard += 1;
                if let Some(known) = self.sessions.values_mut().find(|k| k.conn == Some(conn)) {
                    known.hear(upto);
                }
            }
            body => {
                assert!(body.is_numbered() && id < FIRST_QUERY, "{id}: {body:?}");
                let all = &mut self.sessions;
                let own = all.iter().find(|(_, known)| known.conn == Some(conn));
                match own.map(|(session, _)| *session) {
                    Some(session) => self.numbered(session, id, body),
                    None => {
                        let fault = Fault::Wrong("this connection has no session".into());
                        self.tell(conn, id, Reply::Failed(fault));
                    }
                }
            }
        }
    }

    fn attach(&mut self, conn: u64, id: u64, attach: &Attach) {
        let Attach { session, secret, returns, heard, .. } = *attach;
        if self.no_room > 0 {
            self.no_room -= 1;
            let fault = Fault::Conflict("too many connections".into());
            return self.tell(conn, id, Reply::Failed(fault));
        }
        let is_known = self.sessions.contains_key(&session);
        if returns && !is_known {
            return self.tell(conn, id, Reply::Failed(Fault::Forgotten));
        }
        let known = self.sessions.entry(session).or_default();
        if is_known && known.secret != secret {
            let fault = Fault::Denied("the secret is another".into());
            return self.tell(conn, id, Reply::Failed(fault));
        }
        known.secret = secret;
        let displaced = known.conn.replace(conn).filter(|before| *before != conn);
        known.hear(heard);
        let (last, outcomes) = (known.last, known.outcomes.clone());
        if let Some(displaced) = displaced {
            self.conns.remove(&displaced);
        }
        let answers = outcomes.into_iter().map(|(call, outcome)| match outcome {
            Outcome::Open(request) => (call, Some(self.stands(request))),
            Outcome::Pending => (call, None),
            Outcome::Replied(reply) => (call, Some(*reply)),
        });
        let answers = answers.collect();
        self.tell(conn, id, Reply::Attached { life: 1, last, answers });
    }

    fn stands(&self, request: u64) -> Reply {
        let lock = &self.requests[&request].lock;
        let number = RequestNo(request);
        if self.queues[lock].front() != Some(&request) {
            return Reply::Queued(number);
        }
        let taken = [Taken { name: lock.clone(), units: vec![(lock.clone(), request)] }];
        let (place, variables, limit) = (None, Vec::new(), None);
        Reply::Granted { request: number, taken: taken.into(), place, variables, limit }
    }

    fn numbered(&mut self, session: u128, call: u64, body: Body) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        let is_known = call <= known.heard || known.outcomes.contains_key(&call);
        assert!(!is_known, "{call} is made again though it was told to have been taken: {body:?}");
        let is_open = |outcome: &&Outcome| matches!(outcome, Outcome::Open(_));
        let unheard = known.outcomes.len() - known.outcomes.values().filter(is_open).count();
        if unheard >= UNHEARD_MAX {
            self.too_many += 1;
            let fault = Fault::Conflict("too many calls are not acknowledged".into());
            return self.tell_session(session, call, Reply::Failed(fault));
        }
        let is_ask = matches!(body, Body::Ask(_));
        if is_ask && self.draw(self.trouble.turned_away) {
            let why = Refusal::Closed("turned away".into());
            return self.tell_session(session, call, Reply::Refused(why));
        }
        let known = self.sessions.entry(session).or_default();
        known.last = known.last.max(call);
        match body {
            Body::Ask(ask) => {
                let name = ask.from.name.expect("each has a name");
                assert!(self.asked.insert(name.clone()), "{name} is asked for twice");
                self.last += 1;
                let (request, lock) = (self.last, ask.needs[0].name.clone());
                known.outcomes.insert(call, Outcome::Open(request));
                self.requests.insert(request, Request { session, call, lock: lock.clone() });
                let queue = self.queues.entry(lock).or_default();
                queue.push_back(request);
                self.granted += usize::from(queue.len() == 1);
                let reply = self.stands(request);
                self.tell_session(session, call, reply);
            }
            Body::End { request, .. } => {
                known.outcomes.insert(call, Outcome::Pending);
                if std::mem::take(&mut self.keep_back) {
                    self.later.push((session, call, request));
                } else if self.draw(self.trouble.slow) {
                    self.soon.push((session, call, request));
                } else {
                    self.give_back(session, call, request);
                }
            }
            Body::Withdraw(asked) => {
                if let Some(Outcome::Open(request)) = known.outcomes.get(&asked) {
                    let request = *request;
                    self.end(request, Some(Reply::Refused(Refusal::Withdrawn)));
                }
                self.reply(session, call, Reply::Done);
            }
            Body::Leave => {
                self.left += 1;
                self.reply(session, call, Reply::Done);
                let open = self.requests.iter().filter(|(_, open)| open.session == session);
                for request in open.map(|(request, _)| *request).collect::<Vec<_>>().iter().rev() {
                    self.end(*request, None);
                }
                self.sessions.remove(&session);
            }
            other => panic!("{other:?}"),
        }
    }

    fn give_back(&mut self, session: u128, call: u64, request: RequestNo) {
        let own = self.requests.get(&request.0).filter(|own| own.session == session);
        let reply = match own {
            Some(own) if self.queues[&own.lock].front() == Some(&request.0) => {
                self.end(request.0, None);
                Reply::Done
            }
            _ => Reply::Failed(Fault::Conflict(format!("there is no {request}"))),
        };
        if self.sessions.contains_key(&session) {
            self.reply(session, call, reply);
        }
    }

    fn reply(&mut self, session: u128, call: u64, reply: Reply) {
        let known = self.sessions.entry(session).or_default();
        known.outcomes.insert(call, Outcome::Replied(Box::new(reply.clone())));
        self.tell_session(session, call, reply);
    }

    /// A request is over; whoever comes next holds.
    fn end(&mut self, request: u64, last_words: Option<Reply>) {
        let Some(Request { session, call, lock }) = self.requests.remove(&request) else { return };
        let queue = self.queues.entry(lock).or_default();
        let held = queue.front() == Some(&request);
        queue.retain(|waiting| *waiting != request);
        let next = queue.front().copied().filter(|_| held);
        self.ended += usize::from(held);
        let known = self.sessions.entry(session).or_default();
        known.outcomes.remove(&call);
        if let Some(reply) = last_words {
            if call > known.heard {
                known.outcomes.insert(call, Outcome::Replied(Box::new(reply.clone())));
            }
            self.tell_session(session, call, reply);
        }
        if let Some(next) = next {
            self.granted += 1;
            let (reply, next) = (self.stands(next), &self.requests[&next]);
            self.tell_session(next.session, next.call, reply);
        }
    }
}

impl Known {
    fn hear(&mut self, upto: u64) {
        self.heard = self.heard.max(upto);
        let heard = self.heard;
        self.outcomes.retain(|call, outcome| *call > heard || matches!(outcome, Outcome::Open(_)));
    }
}

/// The agent: on tasks of this thread, until it is dropped.
pub(crate) struct StandIn {
    dir: tempfile::TempDir,
    pub(crate) world: Rc<RefCell<World>>,
    listening: Option<JoinHandle<()>>,
    /// Whoever changes it ends all connections.
    killed: watch::Sender<u32>,
    /// Whether something was done that may not be.
    broken: Rc<Cell<bool>>,
}

impl StandIn {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        let world = World { random: seed, trouble, ..World::default() };
        let mut agent = Self {
            dir: tempfile::tempdir().expect("a directory"),
            world: Rc::new(RefCell::new(world)),
            listening: None,
            killed: watch::Sender::new(0),
            broken: Rc::default(),
        };
        agent.start();
        agent
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    pub(crate) fn mark(&self) -> PathBuf {
        self.dir.path().join("agent.sock.stopped")
    }

    /// Listens again.
    pub(crate) fn start(&mut self) {
        let listener = listen(&self.socket());
        let (world, killed) = (self.world.clone(), self.killed.subscribe());
        let broken = self.broken.clone();
        self.listening = Some(tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                world.borrow_mut().connections += 1;
                let watched = Watched(broken.clone());
                let serve = serve(world.clone(), stream, killed.clone());
                tokio::task::spawn_local(async move {
                    let _watched = watched;
                    serve.await;
                });
            }
        }));
    }

    /// Ends all connections, and lets nobody in.
    pub(crate) async fn kill(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
            let _ = listening.await;
        }
        self.cut_all();
        while !self.world.borrow().conns.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Ends all connections.
    pub(crate) fn cut_all(&self) {
        self.killed.send_modify(|times| *times += 1);
    }
}

/// Nobody waits for the tasks that serve connections: what they find wrong is noted.
struct Watched(Rc<Cell<bool>>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(true);
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        assert!(
            !self.broken.get() || std::thread::panicking(),
            "the agent has seen what may not be"
        );
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }
}

fn listen(path: &Path) -> UnixListener {
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).expect("it listens")
}

async fn serve(world: Rc<RefCell<World>>, stream: UnixStream, killed: watch::Receiver<u32>) {
    let conn = {
        let mut world = world.borrow_mut();
        world.last_conn += 1;
        world.last_conn
    };
    talk(&world, stream, killed, conn).await;
    let mut world = world.borrow_mut();
    world.conns.remove(&conn);
    for known in world.sessions.values_mut().filter(|known| known.conn == Some(conn)) {
        known.conn = None;
    }
}

/// Talks until the connection is cut; none if it ends.
async fn talk(
    world: &Rc<RefCell<World>>,
    mut stream: UnixStream,
    mut killed: watch::Receiver<u32>,
    conn: u64,
) -> Option<()> {
    killed.mark_unchanged();
    let cut = |_at: &str| (!world.borrow_mut().cut()).then_some(());
    let mut incoming = Incoming::new(FROM_CLIENT_MAX);
    let greeting = loop {
        if let Some(content) = incoming.next_frame().ok()? {
            break content.to_vec();
        }
        tokio::select! {
            read = stream.read_buf(incoming.buffer()) => { read.ok().filter(|read| *read > 0)?; }
            _ = killed.changed() => return None,
        }
    };
    cut("before the greeting")?;
    let mut out = Vec::new();
    frame::greet(&mut out, frame::common(frame::version(&greeting).ok()?)?);
    stream.write_all(&out).await.ok()?;
    cut("after the greeting")?;
    if world.borrow().hangs_up {
        return None;
    }
    let (sender, mut answers) = mpsc::unbounded_channel();
    world.borrow_mut().conns.insert(conn, sender);
    loop {
        while let Some(content) = incoming.next_frame().ok()? {
            cut("before a call is taken")?;
            let call = frame::read(content).expect("a call");
            world.borrow_mut().take(conn, call);
            finish_soon(world);
            cut("after a call was taken")?;
        }
        tokio::select! {
            read = stream.read_buf(incoming.buffer()) => { read.ok().filter(|read| *read > 0)?; }
            answer = answers.recv() => {
                let answer = answer?;
                cut("before a reply")?;
                let mut out = Vec::new();
                frame::write(&answer, FROM_NODE_MAX, &mut out).expect("short");
                let again = world.borrow_mut().trouble.twice;
                if world.borrow_mut().draw(again) && !matches!(answer.reply, Reply::Attached { .. }) {
                    out.extend(out.clone());
                }
                stream.write_all(&out).await.ok()?;
                cut("after a reply")?;
            }
            _ = killed.changed() => return None,
        }
    }
}

/// Gives back what takes a while.
fn finish_soon(world: &Rc<RefCell<World>>) {
    let soon = std::mem::take(&mut world.borrow_mut().soon);
    for (session, call, request) in soon {
        let world = world.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            world.borrow_mut().give_back(session, call, request);
        });
    }
}
