//! What happens, move by move.

use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_cell::{Input, Rest, Wish};
use holdall_core::Length;
use holdall_wire::{Ask, Change, Drained, Kind, Lasting, Leftovers, Name, Need, Part, RequestNo};
use proptest::sample::Index;

use super::client::{Client, LEASE};
use super::host::Host;
use super::{CLIENTS, Move, World, cgroup, holder, need, who};

impl World<'_> {
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
            Move::Ask { client, needs, lasting, now, inside } => {
                self.ask(*client, needs, *lasting, *now, inside.as_ref());
            }
            Move::Child(client, index) => {
                // Also of what it was not told that it holds.
                let asked = self.clients[*client].asked.keys().copied();
                if let Some(request) = Self::pick(asked, index) {
                    let holder = holder(self.boots, 100 + request.0 as u32);
                    self.call(*client, Wish::Child { request, holder });
                }
            }
            Move::End(client, index, left) => self.end(*client, index, *left),
            Move::Withdraw(client, index, left) => self.withdraw(*client, index, *left),
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
            Move::Prepare(index, in_cgroup) => {
                if let Some(request) = Self::pick(self.prepare.iter().copied(), index) {
                    self.prepare.remove(&request);
                    let holder = in_cgroup.then(|| cgroup(self.boots, request.0));
                    self.input(Input::Prepared { request, holder, place: None });
                }
            }
            Move::HolderEnds(index) => {
                if let Some(request) = Self::pick(self.holders.iter().copied(), index) {
                    self.holders.remove(&request);
                    self.running.remove(&request);
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
            Move::Intrude(client, kind) => self.intrude(*client, *kind),
            Move::Reboot => self.reboot(),
            Move::Configure(config) => {
                self.config = *config;
                self.start();
            }
            Move::Back(millis) => {
                let before = self.at.saturating_sub(u64::from(*millis));
                self.input_at(before, Input::Due);
            }
        }
    }

    /// Somebody tries to get at a session that is not its own, or to have two over one connection.
    fn intrude(&mut self, client: usize, kind: u8) {
        let own = self.clients[client].hello;
        self.drawn += 1;
        let (conn, hello) = match (kind, self.clients[client].conn) {
            (0, Some(conn)) => {
                let session = SessionId(u128::from(self.drawn) << 64);
                (conn, Hello { session, returns: false, ..own })
            }
            (1, _) => (ConnNo(self.drawn), Hello { uid: own.uid + 1, returns: true, ..own }),
            _ => (ConnNo(self.drawn), Hello { secret: Secret(1 << 99), returns: true, ..own }),
        };
        self.input(Input::Attach { conn, hello });
    }

    fn connect(&mut self, client: usize) {
        self.drawn += 1;
        let conn = ConnNo(self.drawn);
        if self.clients[client].comes_once() && self.clients[client].hello.returns {
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

    fn ask(
        &mut self,
        client: usize,
        needs: &[(u8, u8)],
        lasting: u8,
        now: bool,
        inside: Option<&(Index, u8)>,
    ) {
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
        let grants = self.clients[client].grants.iter().copied();
        let outer = inside.and_then(|(index, how)| Some((Self::pick(grants, index)?, *how)));
        let within = outer.filter(|(_, how)| *how > 1).map(|(of, _)| of);
        let part = outer.filter(|(_, how)| *how < 2);
        let part = part.map(|(of, how)| Part { of, outlasts: how == 1 });
        let ask = Ask { needs: asked, now, lasting, from, within, limit: None, part };
        // Some know how long it takes, and some do not.
        let length = u8::try_from(client).ok().and_then(|number| Length::try_from(number).ok());
        self.call(client, Wish::Ask { who, ask: ask.into(), length });
    }

    /// What a call asked for is not wanted any more; perhaps its command leaves something behind.
    fn withdraw(&mut self, client: usize, index: &Index, left: bool) {
        let asked = self.clients[client].asked.clone();
        let Some(request) = Self::pick(asked.keys().copied(), index) else { return };
        if self.clients[client].conn.is_none() {
            return;
        }
        let rest = self.rest(client, request, left);
        self.clients[client].grants.remove(&request);
        self.call(client, Wish::Withdraw { asked: asked[&request], rest });
    }

    /// What is left behind by whoever gives something back; what is not is used no more.
    fn rest(&mut self, client: usize, request: RequestNo, left: bool) -> Option<Rest> {
        let left = left && self.clients[client].children.contains(&request);
        let holder = holder(self.boots, 100 + request.0 as u32);
        let rest = left.then(|| Rest { holder, pids: vec![100] });
        let lasting = self.clients[client].ask(request).lasting;
        if rest.is_none() || lasting == Lasting::Command(Leftovers::Warn) {
            // What is being killed is used until it is, whatever its client says.
            if !self.holders.contains(&request) {
                self.running.remove(&request);
                self.stop_using(request);
            }
        }
        rest
    }

    /// A grant is given back. Whoever leaves something behind goes on using it.
    fn end(&mut self, client: usize, index: &Index, left: bool) {
        let grants = self.clients[client].grants.iter().copied();
        let Some(request) = Self::pick(grants, index) else { return };
        if self.clients[client].conn.is_none() {
            return;
        }
        let rest = self.rest(client, request, left);
        self.clients[client].grants.remove(&request);
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
        let (session, is_process) =
            (self.clients[client].hello.session, self.clients[client].is_process());
        let comes_once = self.clients[client].comes_once();
        if comes_once {
            self.lose_all(client);
        }
        self.input(Input::Detach(conn));
        if comes_once && is_process {
            self.dead.insert(session);
            self.input(Input::Over(session)); // As its host sees to it.
        }
    }

    fn die(&mut self, client: usize) {
        let (session, conn) = (self.clients[client].hello.session, self.clients[client].conn);
        let is_process = self.clients[client].is_process();
        self.lose_all(client);
        if let Some(conn) = conn {
            self.input(Input::Detach(conn));
        }
        if is_process {
            self.dead.insert(session);
            self.input(Input::Over(session));
        }
    }

    fn pass(&mut self, millis: u64) {
        self.at += millis;
        for client in 0..self.clients.len() {
            let Client { hello, conn, alone_since, .. } = &self.clients[client];
            let is_alone = conn.is_none() && self.at - alone_since >= LEASE;
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
                self.running.remove(&next);
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
