//! Clients over connections that break, processes that end, and a host that is killed; and what the
//! clients have been told, which is all that counts.

mod client;
pub(crate) mod disk;
pub(crate) mod host;
mod moves;
mod play;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::client::Client;
use self::host::Host;
pub(crate) use self::moves::{Move, moves};
use holdall_cell::engine::TimerNo;
use holdall_cell::session::{CallNo, ConnNo, SessionId, Turned};
use holdall_cell::{Effect, Input, Wish};
use holdall_log::Store;
use holdall_wire::holder::{CgroupId, ProcessId, Record};
use holdall_wire::{Amount, From, Lasting, Name, Need, Reply, RequestNo, Taken, Who};

pub(crate) const BOOT: &str = "boot";
const CLIENTS: usize = 4;

pub(crate) struct World<'a> {
    store: &'a dyn Fn() -> Box<dyn Store>,
    pub(crate) host: Option<Host>,
    pub(crate) at: u64,
    logic: u32,
    clients: Vec<Client>,
    drawn: u64,
    /// To be done by the host's surroundings.
    prepare: BTreeSet<RequestNo>,
    holders: BTreeSet<RequestNo>,
    timers: BTreeSet<TimerNo>,
    /// The sessions whose processes are dead.
    dead: BTreeSet<SessionId>,
    /// Who uses each unit, as far as anybody was told, with what fence, and whether it is shared.
    used: BTreeMap<(Name, Name), BTreeMap<RequestNo, bool>>,
    fences: BTreeMap<(Name, Name), u64>,
    /// The grants under which children run.
    running: BTreeSet<RequestNo>,
    /// The boot of the machine.
    boots: u32,
    /// Which configuration the next start has.
    pub(crate) config: u8,
    /// The ids of sessions that were.
    former: Vec<u64>,
    /// Whether each start is that of another version.
    pub(crate) upgrades: bool,
}

fn who(uid: u32) -> Arc<Who> {
    let from = From { command: "job".into(), ..From::default() };
    Arc::new(Who { uid, user: "me".into(), host: "here".into(), pid: 2, from })
}

fn need(which: u8, amount: u8) -> Need {
    let text = match (which, amount) {
        (0..3, 0) => format!("lock{which}:shared"),
        (0..3, _) => format!("lock{which}"),
        (3, 0) => "cpu:all".into(),
        (3, _) => format!("cpu:{amount}"),
        (4, 0) => "board/red".into(),
        (4, 1) => "board".into(),
        (4, _) => format!("cpu/{amount}"),
        (_, 0) => "gpu:all".into(),
        (_, _) => format!("gpu:{amount}"),
    };
    text.parse().expect("a need")
}

fn boot(boots: u32) -> String {
    format!("{BOOT}{boots}")
}

fn holder(boots: u32, pid: u32) -> Box<Record> {
    let leader = Some((ProcessId { pid, start: 7 }, true));
    Box::new(Record { boot: boot(boots), leader, ..Record::default() })
}

fn cgroup(boots: u32, inode: u64) -> Box<Record> {
    let cgroup = CgroupId { path: "grant".into(), inode, root: 1 };
    Box::new(Record { boot: boot(boots), cgroup: Some(cgroup), ..Record::default() })
}

impl<'a> World<'a> {
    pub(crate) fn new(store: &'a dyn Fn() -> Box<dyn Store>, logic: u32) -> Self {
        let mut world = Self {
            store,
            host: None,
            at: 1000,
            logic,
            clients: Vec::new(),
            drawn: 0,
            prepare: BTreeSet::new(),
            holders: BTreeSet::new(),
            timers: BTreeSet::new(),
            dead: BTreeSet::new(),
            used: BTreeMap::new(),
            fences: BTreeMap::new(),
            running: BTreeSet::new(),
            boots: 0,
            config: 0,
            former: Vec::new(),
            upgrades: false,
        };
        for _ in 0..CLIENTS {
            let client = world.new_client();
            world.clients.push(client);
        }
        world.start();
        world
    }

    fn new_client(&mut self) -> Client {
        self.drawn += 1;
        let means = self.drawn as u8;
        // Some take the id of one that was: only its secret made it another's. A process has its own.
        let former = if means % 8 < 2 { self.former.pop() } else { None };
        Client::new(self.drawn, former.unwrap_or(self.drawn), means)
    }

    /// A host starts: connections are gone, and it is told again what it has to see to.
    pub(crate) fn start(&mut self) {
        self.host = None;
        self.logic += u32::from(self.upgrades);
        for client in self.clients.iter_mut().filter(|client| client.conn.is_some()) {
            (client.conn, client.alone_since) = (None, self.at);
        }
        self.prepare.clear();
        self.holders.clear();
        self.timers.clear();
        for client in 0..self.clients.len() {
            if self.clients[client].is_connection() {
                self.lose_all(client); // It ends with its connection, and knows it.
            }
        }
        let boot = boot(self.boots);
        let start = host::start(self.at, &boot, self.config);
        self.host = Host::start(&*(self.store)(), self.logic, start);
        self.flush();
    }

    /// A client is no more. What its processes hold they go on using until they are killed.
    fn lose_all(&mut self, client: usize) {
        let fresh = self.new_client();
        let gone = std::mem::replace(&mut self.clients[client], fresh);
        if !gone.is_process() {
            self.former.push(gone.hello.session.0 as u64);
        }
        for request in gone.grants.difference(&gone.children) {
            self.stop_using(*request);
        }
    }

    /// The machine is started again: all processes are gone.
    fn reboot(&mut self) {
        self.boots += 1;
        self.host = None;
        for client in 0..self.clients.len() {
            if self.clients[client].is_process() {
                self.lose_all(client);
            } else {
                self.clients[client].children.clear();
            }
        }
        for request in std::mem::take(&mut self.running) {
            self.stop_using(request);
        }
        self.start();
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.input_at(self.at, input);
    }

    fn input_at(&mut self, at: u64, input: Input) {
        if let Some(host) = &mut self.host {
            let lost = host.input(at, input);
            if host.failed {
                self.host = None;
            }
            for request in lost {
                // Only its fence keeps its user from it, unless there are processes to be killed.
                if !self.running.contains(&request) {
                    self.stop_using(request);
                }
            }
        }
        self.let_out();
    }

    /// Hands over what was logged, and lets out what may leave.
    pub(crate) fn flush(&mut self) {
        let Some(host) = &mut self.host else { return };
        if host.flush().is_err() {
            self.host = None;
        }
        self.let_out();
    }

    fn let_out(&mut self) {
        while let Some(effect) = self.host.as_mut().and_then(Host::next_effect) {
            self.take(effect);
        }
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { conn, call, reply } => {
                if let Some(client) = self.client_of(conn) {
                    self.hears(client, call, reply);
                }
            }
            Effect::Welcome { conn, answers, .. } => self.welcomed(conn, answers),
            Effect::TurnedAway(_, Turned::Attached) => {} // It keeps the one it has.
            Effect::TurnedAway(conn, _) => {
                // Its session is over: what it held is not held any more.
                if let Some(client) = self.client_of(conn) {
                    let held = &self.clients[client].grants;
                    assert!(held.is_empty(), "{held:?} is forgotten");
                    self.lose_all(client);
                }
            }
            Effect::NotTaken(_, _, why) => panic!("{why}"),
            Effect::Close(conn) => {
                if let Some(client) = self.client_of(conn) {
                    self.clients[client].conn = None;
                }
            }
            Effect::WatchSession(session, _) => {
                if self.dead.contains(&session) {
                    self.input(Input::Over(session));
                }
            }
            Effect::Prepare(request) => drop(self.prepare.insert(request)),
            Effect::Watch(request, _) | Effect::Kill(request, _) | Effect::End(request, _) => {
                self.holders.insert(request);
            }
            Effect::Forget(session, conn) => {
                let client = conn.and_then(|conn| self.client_of(conn));
                if let Some(client) =
                    client.filter(|client| self.clients[*client].hello.session == session)
                {
                    self.lose_all(client);
                }
            }
            Effect::Arm(timer, ..) => drop(self.timers.insert(timer)),
            Effect::Disarm(timer) => drop(self.timers.remove(&timer)),
            Effect::Unused(_) | Effect::Unfit(..) | Effect::LeftOut(..) => {}
            Effect::Send(..) | Effect::Unlink(..) => panic!("there are no other cells"),
        }
    }

    fn client_of(&self, conn: ConnNo) -> Option<usize> {
        self.clients.iter().position(|client| client.conn == Some(conn))
    }

    fn welcomed(&mut self, conn: ConnNo, answers: Vec<(CallNo, Option<Reply>)>) {
        let Some(client) = self.client_of(conn) else { return };
        // What it believed to hold and is not told of was ended.
        let told: BTreeSet<RequestNo> = answers
            .iter()
            .filter_map(|(_, reply)| match reply {
                Some(Reply::Granted { request, .. } | Reply::Lost(request)) => Some(*request),
                _ => None,
            })
            .collect();
        for request in &self.clients[client].grants {
            let asked = self.clients[client].asked[request];
            let is_over = answers.iter().any(|(call, _)| *call == asked);
            assert!(is_over || told.contains(request), "{request} was told, and is forgotten");
        }
        let told: BTreeSet<CallNo> = answers.iter().map(|(call, _)| *call).collect();
        for (call, reply) in answers {
            if let Some(reply) = reply {
                self.hears(client, call, reply);
            }
        }
        // What it has no answer of it calls again.
        let made = self.clients[client].calls.len() as u64;
        for call in (1..=made).map(CallNo).filter(|call| !told.contains(call)) {
            if !self.clients[client].answered.contains(&call) {
                self.send(client, call);
            }
        }
    }

    /// A client is told something.
    fn hears(&mut self, client: usize, call: CallNo, reply: Reply) {
        match reply {
            Reply::Queued(request) => drop(self.clients[client].asked.insert(request, call)),
            Reply::Granted { request, taken, .. } => {
                self.clients[client].asked.insert(request, call);
                let is_given_up = self.gives_back(client, request);
                if !is_given_up && self.clients[client].grants.insert(request) {
                    self.use_all(client, request, &taken);
                }
            }
            Reply::Lost(request) => {
                self.running.remove(&request);
                self.clients[client].grants.remove(&request);
                self.clients[client].answered.insert(call);
                self.stop_using(request);
            }
            reply => self.hears_the_end(client, call, &reply),
        }
    }

    /// Whether a client has said that it does not want something any more.
    fn gives_back(&self, client: usize, request: RequestNo) -> bool {
        let client = &self.clients[client];
        let asked = client.asked.get(&request);
        client.calls.iter().any(|wish| match wish {
            Wish::End { request: other, .. } => *other == request,
            Wish::Withdraw { asked: other, .. } => Some(other) == asked,
            _ => false,
        })
    }

    /// A client hears the last reply of a call.
    fn hears_the_end(&mut self, client: usize, call: CallNo, reply: &Reply) {
        let client = &mut self.clients[client];
        client.answered.insert(call);
        match &client.calls[call.0 as usize - 1] {
            Wish::Child { request, .. }
                if *reply == Reply::Done && client.grants.contains(request) =>
            {
                client.children.insert(*request);
                self.running.insert(*request);
            }
            Wish::Ask { .. } => {
                let asked = client.asked.iter().find(|(_, asked)| **asked == call);
                if let Some(request) = asked.map(|(request, _)| *request) {
                    client.grants.remove(&request);
                    self.stop_using(request);
                }
            }
            Wish::End { request, .. } => client.answered.extend(client.asked.get(request)),
            Wish::Withdraw { asked, .. } => drop(client.answered.insert(*asked)),
            _ => {}
        }
    }

    /// Somebody uses what it was granted. Nobody else may.
    fn use_all(&mut self, client: usize, request: RequestNo, taken: &[Taken]) {
        let ask = self.clients[client].ask(request).clone();
        let is_reserved = matches!(ask.lasting, Lasting::Reservation(_));
        for taken in taken {
            let need = ask.needs.iter().find(|need| need.name == taken.name);
            let shared = need.is_some_and(|need| need.amount == Amount::Shared);
            for (unit, fence) in &taken.units {
                let unit = (taken.name.clone(), unit.clone());
                let users = self.used.entry(unit.clone()).or_default();
                // A part uses what its grant has.
                let whole = ask.part.map(|part| part.of);
                let mut others = users.iter().filter(|(other, _)| Some(**other) != whole);
                let alone = others.all(|(_, other)| shared && *other);
                assert!(alone, "{unit:?} is told to {request}, and used by {users:?}");
                let last = self.fences.get(&unit).copied().unwrap_or(0);
                let grows = *fence > last || (*fence == last && shared);
                assert!(grows, "{unit:?}: fence {fence} of {request} after {last}");
                if !is_reserved {
                    users.insert(request, shared); // Whoever reserves something looks at the clock.
                }
                self.fences.insert(unit, *fence);
            }
        }
    }

    fn stop_using(&mut self, request: RequestNo) {
        for users in self.used.values_mut() {
            users.remove(&request);
        }
    }

    /// Makes a call, now or again.
    fn send(&mut self, client: usize, call: CallNo) {
        let sender = &self.clients[client];
        let Some(conn) = sender.conn else { return };
        let (heard, wish) = (sender.heard(), sender.calls[call.0 as usize - 1].clone());
        self.input(Input::Call { conn, call, heard, wish });
    }

    fn call(&mut self, client: usize, wish: Wish) {
        if self.clients[client].conn.is_none() {
            return;
        }
        self.clients[client].calls.push(wish);
        let call = CallNo(self.clients[client].calls.len() as u64);
        self.send(client, call);
    }
}
