//! A service with one pool, `gpu` of two units; every other name is a lock. First come, first served.

mod shown;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use holdall_http::{NO_CALL, Peer, Service};
use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{
    AgentView, Amount, Answer, Attach, Body, Call, Fault, Refusal, Reply, RequestNo, Right, Taken,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[derive(Default)]
pub(crate) struct Fake {
    model: Arc<Mutex<Model>>,
}

#[derive(Default)]
pub(crate) struct Model {
    /// What is asked for, in order, and what of it is held.
    pub(crate) requests: Vec<Request>,
    sessions: HashMap<u128, Session>,
    writers: HashMap<u64, UnixStream>,
    last: u64,
    /// How many requests were asked for.
    pub(crate) asked: usize,
    /// How often a session was taken over from a connection that was still there.
    pub(crate) displaced: usize,
    /// What users of the Unix socket may do.
    pub(crate) denied: bool,
    /// Whether it takes its time to end a session.
    pub(crate) dawdles: bool,
    /// How often something has happened.
    happened: u64,
    /// How many wait beside those who have asked.
    pub(crate) crowd: u64,
    /// What it has not enough of.
    pub(crate) lacks: Lacks,
    /// Whether it is about to end.
    pub(crate) stopping: bool,
    /// The users that have a good token, each time that this was told.
    pub(crate) tokens: Vec<BTreeSet<u32>>,
    /// What its clock says.
    pub(crate) boottime: u64,
    /// Whether other cells guard what there is.
    pub(crate) lent: Lent,
    /// Where it does not serve HTTP.
    pub(crate) no_http: Option<String>,
}

/// Whether other cells guard what there is.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Lent {
    #[default]
    Not,
    /// They do, and have not confirmed it yet.
    Unconfirmed,
    /// Until then, by the clock of the service.
    Until(u64),
}

/// What a service has not enough of for one more.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Lacks {
    #[default]
    Nothing,
    Connections,
    Sessions,
    Requests,
}

pub(crate) struct Request {
    pub(crate) number: RequestNo,
    session: u128,
    call: u64,
    uid: u32,
    needs: Vec<holdall_wire::Need>,
    pub(crate) taken: Option<Arc<[Taken]>>,
    pub(crate) from: holdall_wire::From,
}

struct Session {
    secret: u128,
    attached: Option<u64>,
    last: u64,
    answers: BTreeMap<u64, Option<Reply>>,
}

impl Fake {
    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().expect("unpoisoned")
    }

    /// All leases of those who are not here run out.
    pub(crate) fn lapse(&self) {
        let mut model = self.model();
        let over = model.sessions.iter().filter(|(_, session)| session.attached.is_none());
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        for id in over {
            model.close(id);
        }
        model.serve();
    }

    /// Waits until nobody is attached.
    pub(crate) fn until_alone(&self) {
        while self.model().sessions.values().any(|session| session.attached.is_some()) {
            std::thread::yield_now();
        }
    }

    /// Waits until somebody is attached.
    pub(crate) fn until_attached(&self) {
        while self.model().sessions.values().all(|session| session.attached.is_none()) {
            std::thread::yield_now();
        }
    }

    /// Waits until so many wait or hold.
    pub(crate) fn until_there_are(&self, requests: usize) {
        while self.model().requests.len() != requests {
            std::thread::yield_now();
        }
    }

    /// Waits until so many were asked for.
    pub(crate) fn until_there_have_been(&self, requests: usize) {
        while self.model().asked < requests {
            std::thread::yield_now();
        }
    }

    /// Hangs up on everybody.
    pub(crate) fn hang_up(&self) {
        for writer in self.model().writers.values() {
            // One that has hung up itself is gone.
            let _ = writer.shutdown(std::net::Shutdown::Both);
        }
        self.until_alone();
    }

    /// Other cells confirm what they guard, until then.
    pub(crate) fn confirm(&self, until: u64) {
        let mut model = self.model();
        let before = std::mem::replace(&mut model.lent, Lent::Until(until));
        let held = model.requests.iter().filter(|it| it.taken.is_some());
        for (session, call) in held.map(|it| (it.session, it.call)).collect::<Vec<_>>() {
            let Some(Session { attached: Some(conn), answers, .. }) = model.sessions.get(&session)
            else {
                continue;
            };
            let (conn, granted) = (*conn, answers[&call].clone().expect("it is held"));
            match before {
                Lent::Unconfirmed => model.send_granted(conn, call, granted),
                _ => model.send_until(conn, call, until),
            }
        }
    }

    /// Takes away the first grant.
    pub(crate) fn take_away(&self) {
        let mut model = self.model();
        let request = model.requests.remove(0);
        model.tell(request.session, request.call, Reply::Lost(request.number));
        model.serve();
    }
}

impl Service for Fake {
    fn peer(&self, _: &UnixStream) -> io::Result<Peer> {
        let may = if self.model().denied { vec![] } else { Right::ALL.to_vec() };
        Ok(Peer { uid: 1000, pid: 77, may: Some(may), ..Peer::default() })
    }

    fn connect(&self, peer: &Peer) -> io::Result<UnixStream> {
        let (here, there) = UnixStream::pair()?;
        let (model, peer) = (self.model.clone(), peer.clone());
        std::thread::spawn(move || {
            let mut conn = 0;
            let _ = talk(&model, &peer, there, &mut conn);
            let mut model = model.lock().expect("unpoisoned");
            model.writers.remove(&conn);
            for session in model.sessions.values_mut().filter(|it| it.attached == Some(conn)) {
                session.attached = None;
            }
        });
        Ok(here)
    }

    fn tokens(&self, good: BTreeSet<u32>) {
        self.model().tokens.push(good);
    }

    fn boottime(&self) -> u64 {
        self.model().boottime
    }

    fn happened(&self) -> u64 {
        self.model().happened
    }
}

fn talk(
    model: &Mutex<Model>,
    peer: &Peer,
    mut stream: UnixStream,
    conn: &mut u64,
) -> io::Result<()> {
    let mut greeting = Vec::new();
    frame::greet(&mut greeting, frame::VERSION);
    stream.write_all(&greeting)?;
    {
        let mut model = model.lock().expect("unpoisoned");
        model.last += 1;
        *conn = model.last;
        model.writers.insert(*conn, stream.try_clone()?);
        if model.lacks == Lacks::Connections {
            let fault = Fault::Conflict("there are too many".into());
            model.send(*conn, NO_CALL, Reply::Failed(fault));
            return Ok(());
        }
    }
    let mut incoming = Incoming::new(FROM_CLIENT_MAX);
    let mut greeted = false;
    loop {
        while let Some(content) = incoming.next_frame()? {
            if !greeted {
                assert_eq!(frame::version(content)?, frame::VERSION);
                greeted = true;
                continue;
            }
            let call: Call = frame::read(content)?;
            let dawdles = model.lock().expect("unpoisoned").dawdles;
            if dawdles && matches!(call.body, Body::Leave) {
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
            model.lock().expect("unpoisoned").call(*conn, peer, call);
        }
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        incoming.buffer().extend(&bytes[..read]);
    }
}

impl Model {
    fn send(&mut self, conn: u64, id: u64, reply: Reply) {
        let mut bytes = Vec::new();
        frame::write(&Answer { id, reply }, FROM_NODE_MAX, &mut bytes).expect("small");
        if let Some(writer) = self.writers.get_mut(&conn) {
            let _ = writer.write_all(&bytes);
        }
    }

    fn session_of(&self, conn: u64) -> u128 {
        let found = self.sessions.iter().find(|(_, session)| session.attached == Some(conn));
        *found.expect("an attached connection").0
    }

    /// What came of a call of a session, to be told again.
    fn tell(&mut self, id: u128, call: u64, reply: Reply) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.answers.insert(call, Some(reply.clone()));
        match (session.attached, &reply) {
            (Some(conn), Reply::Granted { .. }) => self.send_granted(conn, call, reply),
            (Some(conn), _) => self.send(conn, call, reply),
            (None, _) => {}
        }
    }

    /// Tells that something is granted when it is known until when, which is told before.
    fn send_granted(&mut self, conn: u64, call: u64, granted: Reply) {
        if self.lent == Lent::Unconfirmed {
            return;
        }
        if let Lent::Until(until) = self.lent {
            self.send_until(conn, call, until);
        }
        self.send(conn, call, granted);
    }

    fn send_until(&mut self, conn: u64, call: u64, until: u64) {
        let request = RequestNo(1);
        self.send(conn, call, Reply::Until { request, boottime_millis: until });
    }

    fn call(&mut self, conn: u64, peer: &Peer, call: Call) {
        self.happened += u64::from(call.body.is_numbered());
        let id = call.id;
        let may = |right| peer.may.as_ref().is_some_and(|may| may.contains(&right));
        let denied = || Reply::Failed(Fault::Denied("you may not".into()));
        match call.body {
            Body::Attach(attach) => self.attach(conn, id, &attach),
            Body::Agent => {
                let you = peer.name.clone().unwrap_or_else(|| "anna".into());
                let your_rights = peer.may.clone().unwrap_or_default();
                let (stopping, no_http) = (self.stopping, self.no_http.clone());
                let view =
                    AgentView { you, your_rights, stopping, no_http, ..AgentView::default() };
                self.send(conn, id, Reply::Agent(Box::new(view)));
            }
            Body::Ask(_) if self.lacks == Lacks::Requests => {
                let why = Refusal::Closed("it takes no more requests".into());
                let session = self.session_of(conn);
                self.tell(session, id, Reply::Refused(why));
            }
            Body::Ask(ask) => {
                let session = self.session_of(conn);
                let known = self.sessions.get_mut(&session).expect("attached");
                assert!(id > known.last, "numbers grow");
                known.last = id;
                known.answers.insert(id, None);
                self.asked += 1;
                self.last += 1;
                let number = RequestNo((3 << 32) | self.last);
                let amount = |need: &holdall_wire::Need| match need.amount {
                    Amount::Units(units) => units,
                    _ => 1,
                };
                if !may(Right::Ask) {
                    let why = Refusal::Denied("you may not".into());
                    return self.tell(session, id, Reply::Refused(why));
                }
                if ask.needs.iter().any(|need| amount(need) > 2) {
                    let why = Refusal::Never("gpu has 2 units".into());
                    return self.tell(session, id, Reply::Refused(why));
                }
                self.requests.push(Request {
                    number,
                    session,
                    call: id,
                    uid: peer.uid,
                    needs: ask.needs,
                    taken: None,
                    from: ask.from,
                });
                self.serve();
                if self.requests.iter().any(|it| it.number == number && it.taken.is_none()) {
                    if ask.now {
                        self.requests.retain(|it| it.number != number);
                        let why = Refusal::Busy("held by 3-1".into());
                        self.tell(session, id, Reply::Refused(why));
                    } else {
                        self.tell(session, id, Reply::Queued(number));
                    }
                }
            }
            Body::Withdraw(asked) => {
                let session = self.session_of(conn);
                self.sessions.get_mut(&session).expect("attached").last = id;
                let at =
                    self.requests.iter().position(|it| (it.session, it.call) == (session, asked));
                if let Some(request) = at.map(|at| self.requests.remove(at))
                    && request.taken.is_none()
                {
                    self.tell(session, asked, Reply::Refused(Refusal::Withdrawn));
                }
                self.tell(session, id, Reply::Done);
                self.serve();
            }
            // Another connection has taken its place.
            Body::Leave if !self.writers.contains_key(&conn) => {}
            Body::Leave => {
                let session = self.session_of(conn);
                self.send(conn, id, Reply::Done);
                self.close(session);
                self.serve();
            }
            Body::Status { .. } if !may(Right::View) => self.send(conn, id, denied()),
            Body::Status { .. } => {
                let page = self.status();
                self.send(conn, id, Reply::Status { page, more: false });
            }
            Body::Explain { request, .. } => {
                let fault = Fault::Conflict(format!("there is no request {request}"));
                self.send(conn, id, Reply::Failed(fault));
            }
            Body::Change(_) | Body::Drain { .. } | Body::Shutdown(_) if !may(Right::Pools) => {
                self.send(conn, id, denied());
            }
            _ => self.send(conn, id, Reply::Done),
        }
    }

    fn attach(&mut self, conn: u64, id: u64, attach: &Attach) {
        assert!(attach.lease.is_some_and(|lease| lease >= 1000));
        if self.lacks == Lacks::Sessions {
            let fault = Fault::Conflict("a user has 0 sessions at most".into());
            return self.send(conn, id, Reply::Failed(fault));
        }
        match self.sessions.get(&attach.session) {
            None if attach.returns => {
                return self.send(conn, id, Reply::Failed(Fault::Forgotten));
            }
            Some(known) => assert_eq!(known.secret, attach.secret),
            None => {}
        }
        let session = self.sessions.entry(attach.session).or_insert(Session {
            secret: attach.secret,
            attached: None,
            last: 0,
            answers: BTreeMap::new(),
        });
        if let Some(before) = session.attached.replace(conn)
            && let Some(before) = self.writers.remove(&before)
        {
            self.displaced += usize::from(!has_hung_up(&before));
        }
        let (last, answers) = (session.last, session.answers.clone());
        let is_lent = |reply: &Option<Reply>| {
            self.lent != Lent::Not && matches!(reply, Some(Reply::Granted { .. }))
        };
        let (lent, told): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(_, reply)| is_lent(reply));
        let later = lent.iter().map(|(call, _)| (*call, None));
        let answers = told.into_iter().chain(later).collect();
        self.send(conn, id, Reply::Attached { life: 1, last, answers });
        for (call, granted) in lent {
            granted.into_iter().for_each(|granted| self.send_granted(conn, call, granted));
        }
    }

    fn close(&mut self, session: u128) {
        self.sessions.remove(&session);
        self.requests.retain(|request| request.session != session);
    }

    /// Grants what can be granted, in the order asked.
    fn serve(&mut self) {
        for at in 0..self.requests.len() {
            if self.requests[at].taken.is_some() {
                continue;
            }
            let held: Vec<String> = self
                .requests
                .iter()
                .filter_map(|it| it.taken.as_ref())
                .flat_map(|taken| {
                    taken.iter().flat_map(|one| one.units.iter().map(|(unit, _)| unit.to_string()))
                })
                .collect();
            let mut taken = Vec::new();
            for need in &self.requests[at].needs {
                let name = need.name.to_string();
                let units =
                    if name == "gpu" { vec!["gpu/0".into(), "gpu/1".into()] } else { vec![name] };
                let wanted =
                    if let Amount::Units(units) = need.amount { units as usize } else { 1 };
                let free = units.into_iter().filter(|unit| !held.contains(unit)).take(wanted);
                let units: Vec<_> = free
                    .map(|unit| {
                        self.last += 1;
                        (unit.parse().expect("a name"), u64::MAX - 1_000_000 + self.last)
                    })
                    .collect();
                if units.len() == wanted {
                    taken.push(Taken { name: need.name.clone(), units });
                }
            }
            if taken.len() == self.requests[at].needs.len() {
                let taken: Arc<[Taken]> = taken.into();
                let request = &mut self.requests[at];
                request.taken = Some(taken.clone());
                let (session, call, number) = (request.session, request.call, request.number);
                let (place, variables) = (None, Vec::new());
                let granted =
                    Reply::Granted { request: number, taken, place, variables, limit: None };
                self.tell(session, call, granted);
            }
        }
    }
}

/// Whether the other end is closed, though nobody may have read that yet.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).expect("polled");
    polled[0].revents().contains(PollFlags::HUP)
}
