//! Clients over connections that break, processes that end, and a host that is killed; and what the
//! clients have been told, which is all that counts.

mod client;
pub(crate) mod disk;
pub(crate) mod host;
mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::client::Client;
use self::host::Host;
pub(crate) use self::moves::{Move, moves};
use holdall_cell::engine::TimerNo;
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, SessionId};
use holdall_cell::{Effect, Input, Rest, Wish};
use holdall_log::Store;
use holdall_wire::holder::{ProcessId, Record};
use holdall_wire::{
    Amount, Ask, Change, Drained, From, Kind, Lasting, Leftovers, Name, Need, Reply, RequestNo,
    Taken, Who,
};
use proptest::sample::Index;

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
        (4, _) => format!("cpu/{amount}"),
        (_, 0) => "gpu:all".into(),
        (_, _) => format!("gpu:{amount}"),
    };
    text.parse().expect("a need")
}

fn holder(pid: u32) -> Record {
    let leader = Some((ProcessId { pid, start: 7 }, true));
    Record { boot: BOOT.into(), leader, ..Record::default() }
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
        Client::new(self.drawn, self.drawn as u8)
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
        self.host = Host::start(&*(self.store)(), self.logic, self.at, BOOT);
        self.flush();
    }

    /// A client is no more. What its processes hold they go on using until they are killed.
    fn lose_all(&mut self, client: usize) {
        let fresh = self.new_client();
        let gone = std::mem::replace(&mut self.clients[client], fresh);
        for request in gone.grants.difference(&gone.children) {
            self.stop_using(*request);
        }
    }

    pub(crate) fn input(&mut self, input: Input) {
        if let Some(host) = &mut self.host {
            host.input(self.at, input);
            if host.failed {
                self.host = None;
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
            Effect::Unused(_) | Effect::Unfit(..) => {}
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
            Wish::Child { request, .. } if *reply == Reply::Done => {
                client.children.insert(*request);
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
                let alone = users.is_empty() || (shared && users.values().all(|shared| *shared));
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
        if let Wish::Release { request, force: true, .. } = wish {
            let entry = self.host.as_ref().and_then(|host| host.cell.books().get(request));
            if entry.is_some_and(|entry| entry.holder.is_none()) {
                self.stop_using(request); // Only its fence keeps its user from it.
            }
        }
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

    fn pick<T: Copy>(all: impl Iterator<Item = T>, index: &Index) -> Option<T> {
        let all: Vec<T> = all.collect();
        if all.is_empty() { None } else { Some(*index.get(&all)) }
    }

    pub(crate) fn play(&mut self, one: &Move) {
        if self.host.is_none() {
            self.start();
        }
        match one {
            Move::Connect(client) => self.connect(*client),
            Move::Ask { client, needs, lasting, now } => {
                self.ask(*client, needs, *lasting, *now);
            }
            Move::Child(client, index) => {
                let grants = self.clients[*client].grants.iter().copied();
                if let Some(request) = Self::pick(grants, index) {
                    let holder = holder(100 + request.0 as u32);
                    self.call(*client, Wish::Child { request, holder });
                }
            }
            Move::End(client, index, left) => self.end(*client, index, *left),
            Move::Withdraw(client, index) => {
                let asked = self.clients[*client].asked.clone();
                if let Some(request) = Self::pick(asked.keys().copied(), index) {
                    let has_child = self.clients[*client].children.contains(&request);
                    if self.clients[*client].conn.is_some() && !has_child {
                        self.clients[*client].grants.remove(&request);
                        self.stop_using(request);
                        let asked = asked[&request];
                        self.call(*client, Wish::Withdraw { asked, rest: None });
                    }
                }
            }
            Move::Repeat(client, index) => {
                let made = self.clients[*client].calls.len();
                if made > 0 {
                    self.send(*client, CallNo(index.index(made) as u64 + 1));
                }
            }
            Move::Hear(client) => {
                let (conn, upto) = (self.clients[*client].conn, self.clients[*client].heard());
                if let Some(conn) = conn {
                    self.input(Input::Heard { conn, upto });
                }
            }
            Move::Release(client, index, force) => {
                if let Some(request) = self.any_grant(index) {
                    let (force, may, by, unseen, beyond) = (*force, true, who(0), false, None);
                    self.call(*client, Wish::Release { request, force, may, by, unseen, beyond });
                }
            }
            Move::Renew(client, index) => {
                if let Some(request) = self.any_grant(index) {
                    let (millis, by, may) = (9000, who(0), false);
                    self.call(*client, Wish::Renew { request, millis, by, may });
                }
            }
            Move::Change(what, units) => self.change(*what, *units),
            Move::Disconnect(client) => self.disconnect(*client),
            Move::Die(client) => self.die(*client),
            Move::Prepare(index) => {
                if let Some(request) = Self::pick(self.prepare.iter().copied(), index) {
                    self.prepare.remove(&request);
                    self.input(Input::Prepared { request, holder: None, place: None });
                }
            }
            Move::HolderEnds(index) => {
                if let Some(request) = Self::pick(self.holders.iter().copied(), index) {
                    self.holders.remove(&request);
                    self.stop_using(request);
                    self.input(Input::HolderEnded(request));
                }
            }
            Move::Ring(index) => {
                if let Some(timer) = Self::pick(self.timers.iter().copied(), index) {
                    self.timers.remove(&timer);
                    self.input(Input::Timer(timer));
                }
            }
            Move::Pass(millis) => self.pass(u64::from(*millis)),
            Move::Flush => self.flush(),
            Move::Kill => self.start(),
            Move::Snapshot => {
                if let Some(host) = &mut self.host {
                    host.snapshot();
                }
            }
            Move::Dismiss => self.input(Input::Dismiss),
        }
    }

    fn connect(&mut self, client: usize) {
        self.drawn += 1;
        let conn = ConnNo(self.drawn);
        if self.clients[client].is_connection() && self.clients[client].hello.returns {
            return; // It has no other.
        }
        let heard = self.clients[client].heard();
        self.clients[client].conn = Some(conn);
        let hello = Hello { heard, ..self.clients[client].hello };
        self.input(Input::Attach { conn, hello });
        // It can come back when it knows that it was here.
        self.flush();
        if self.clients[client].conn == Some(conn) {
            self.clients[client].hello.returns = true;
        }
    }

    fn ask(&mut self, client: usize, needs: &[(u8, u8)], lasting: u8, now: bool) {
        let mut asked: Vec<Need> = Vec::new();
        for (which, amount) in needs {
            let need = need(*which, *amount);
            if asked.iter().all(|other| other.name != need.name) {
                asked.push(need);
            }
        }
        let lasting = match lasting {
            0 => Lasting::Reservation(3000),
            1 => Lasting::Command(Leftovers::Wait),
            2 => Lasting::Command(Leftovers::Warn),
            3 => Lasting::Command(Leftovers::Kill),
            _ => Lasting::Connection,
        };
        let who = who(self.clients[client].hello.uid);
        let from = who.from.clone();
        let ask = Ask { needs: asked, now, lasting, from, within: None, limit: None, part: None };
        self.call(client, Wish::Ask { who, ask });
    }

    /// A grant is given back. Whoever leaves something behind goes on using it.
    fn end(&mut self, client: usize, index: &Index, left: bool) {
        let grants = self.clients[client].grants.iter().copied();
        let Some(request) = Self::pick(grants, index) else { return };
        if self.clients[client].conn.is_none() {
            return;
        }
        self.clients[client].grants.remove(&request);
        let left = left && self.clients[client].children.contains(&request);
        let rest = left.then(|| Rest { holder: holder(100 + request.0 as u32), pids: vec![100] });
        let lasting = self.clients[client].ask(request).lasting;
        if rest.is_none() || lasting == Lasting::Command(Leftovers::Warn) {
            self.stop_using(request);
        }
        self.call(client, Wish::End { request, rest });
    }

    fn any_grant(&self, index: &Index) -> Option<RequestNo> {
        let host = self.host.as_ref()?;
        Self::pick(host.cell.books().grants().map(|(request, ..)| request), index)
    }

    fn change(&mut self, what: u8, units: u8) {
        let name: Name = "gpu".parse().expect("a name");
        let drained = |until| Drained { reason: "hot".into(), by: "me".into(), until };
        let unit = || format!("cpu/{}", units % 3).parse::<Name>().expect("a name");
        let change = match what {
            4 => Change::Drain { name: unit(), drained: drained(Some(self.at + 4000)) },
            5 => Change::Drain { name: unit(), drained: drained(None) },
            6 => Change::Undrain { name: "cpu".parse().expect("a name") },
            0 | 1 => Change::Add { name, kind: Kind::Numbered(units.into()) },
            2 => Change::Resize { name, units: units.into() },
            _ => Change::Remove { name, force: units > 2 },
        };
        self.call(0, Wish::Change { by: who(0), change });
    }

    fn disconnect(&mut self, client: usize) {
        let Some(conn) = self.clients[client].conn.take() else { return };
        self.clients[client].alone_since = self.at;
        if self.clients[client].is_connection() {
            self.lose_all(client);
        }
        self.input(Input::Detach(conn));
    }

    fn die(&mut self, client: usize) {
        let (session, conn) = (self.clients[client].hello.session, self.clients[client].conn);
        let means = self.clients[client].hello.means;
        self.lose_all(client);
        if let Some(conn) = conn {
            self.input(Input::Detach(conn));
        }
        if matches!(means, Means::Process { .. }) {
            self.dead.insert(session);
            self.input(Input::Over(session));
        }
    }

    fn pass(&mut self, millis: u64) {
        self.at += millis;
        for client in 0..self.clients.len() {
            let Client { hello, conn, alone_since, .. } = &self.clients[client];
            let is_alone = conn.is_none() && self.at - alone_since >= client::LEASE;
            if matches!(hello.means, Means::Lease(_)) && is_alone && hello.returns {
                self.lose_all(client); // It knows when its lease is over.
            }
        }
        let due = self.host.as_ref().and_then(|host| host.cell.next_due());
        if due.is_some_and(|due| due <= self.at) {
            self.input(Input::Due);
        }
    }

    /// Everybody goes, and everything is seen to: nothing may be left but what was reserved.
    pub(crate) fn end_all(&mut self) {
        if self.host.is_none() {
            self.start();
        }
        for client in 0..CLIENTS {
            self.die(client);
        }
        self.pass(100_000);
        for _ in 0..1000 {
            self.flush();
            while let Some(next) = self.holders.pop_first() {
                self.stop_using(next);
                self.input(Input::HolderEnded(next));
            }
            self.pass(100_000);
            if self.holders.is_empty() && self.host.as_ref().is_some_and(Host::is_idle) {
                break;
            }
        }
        let host = self.host.as_ref().expect("it runs");
        let left: Vec<_> = host.cell.books().grants().map(|(request, ..)| request).collect();
        assert!(left.is_empty(), "{left:?} is left");
        assert_eq!(host.cell.engine().load(), (0, 0));
        assert_eq!(host.cell.books().sessions().means().count(), 0, "sessions are left");
    }
}
