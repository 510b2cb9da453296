//! Time, and what happens next.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use holdall_cell::greeting::Presence;
use holdall_cell::lease::Verdict;
use holdall_cell::peer::{Assertion, PeerMessage};
use holdall_cell::session::{CallNo, ConnNo, SessionId};
use holdall_cell::{Effect, Input, Wish};
use holdall_core::CellId;
use holdall_wire::holder::{CgroupId, Record};
use holdall_wire::{Need, Reply, RequestNo, Taken};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::bystander::{Bystander, Violation};
use crate::client::{COMMAND, Client, State, units};
use crate::net::{Body, Net};
use crate::node::Node;
use crate::{Mutant, Settings, TERMS};

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often something was granted.
    pub grants: u64,
    /// Of these, how often other cells guarded some of it.
    pub spanning: u64,
    /// How often a grant was taken away.
    pub lost: u64,
    /// How often somebody was refused.
    pub refused: u64,
    /// What went wrong.
    pub faults: u64,
    /// What happened.
    pub events: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.spanning += other.spanning;
        self.lost += other.lost;
        self.refused += other.refused;
        self.faults += other.faults;
        self.events += other.events;
    }
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    Tick(usize),
    Client(usize),
    Arrive { from: usize, to: usize, number: u64, body: Body },
    Linked { node: usize, other: usize, number: u64, presence: Presence },
    Unlinked { node: usize, other: usize, number: u64 },
    Prepared { node: usize, request: RequestNo },
    HolderEnded { node: usize, request: RequestNo },
    Start { node: usize, upgrade: bool },
    Forget(usize),
    Notice { one: usize, other: usize },
    Fault,
}

/// How often a machine looks at the time.
const TICK: u64 = 50;
/// How long it may take until everything is well again.
const HEALING: u64 = 90_000;

pub(crate) struct World<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) rng: Pcg64,
    pub(crate) at: u64,
    drawn: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Box<Queued>)>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) net: Net,
    pub(crate) clients: Vec<Client>,
    pub(crate) bystander: Bystander,
    /// Sessions whose processes are dead.
    pub(crate) dead: BTreeSet<SessionId>,
    pub(crate) report: Report,
    /// Until when a machine stands still.
    pub(crate) stopped_until: Vec<u64>,
    /// Whether there are pools of which others keep what they have.
    waits: bool,
}

/// An event in the queue. The order is that of time and number alone.
#[derive(Debug)]
struct Queued(Event);

impl PartialEq for Queued {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

type Done = Result<(), Violation>;

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, settings: &'a Settings) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let nodes: Vec<_> =
            (0..settings.cells).map(|index| Node::new(index, rng.random_range(-50..=50))).collect();
        let count = settings.cells * settings.clients;
        let clients = (0..count)
            .map(|index| Client::new(index % settings.cells, index as u128 + 1))
            .collect();
        let stopped_until = vec![0; settings.cells];
        let mut world = Self {
            settings,
            rng,
            at: 0,
            drawn: 1 << 20,
            queue: BinaryHeap::new(),
            nodes,
            net: Net::default(),
            clients,
            bystander: Bystander::default(),
            dead: BTreeSet::new(),
            report: Report::default(),
            stopped_until,
            waits: seed.is_multiple_of(2),
        };
        for node in 0..settings.cells {
            world.after(node as u64, Event::Start { node, upgrade: false });
            world.after(TICK + node as u64, Event::Tick(node));
        }
        for client in 0..count {
            world.after(100 + client as u64, Event::Client(client));
        }
        world.after(1500, Event::Fault);
        world
    }

    pub(crate) fn play(mut self) -> Result<Report, Violation> {
        let end = self.settings.faulty + HEALING;
        while let Some(Reverse((at, _, queued))) = self.queue.pop() {
            if at > end || at > self.settings.faulty && self.is_well() {
                break;
            }
            self.at = at;
            self.report.events += 1;
            self.happen(queued.0)?;
        }
        self.check_end()?;
        Ok(self.report)
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.at < self.settings.faulty
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    pub(crate) fn chance(&mut self, percent: f64) -> bool {
        self.rng.random_bool(percent / 100.0)
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        let number = self.draw();
        self.queue.push(Reverse((self.at + delay, number, Box::new(Queued(event)))));
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.settings.told {
            eprintln!("{:>7} {}", self.at, what());
        }
    }

    /// The machine that something happens to, if it does to one.
    fn machine(event: &Event) -> Option<usize> {
        match event {
            Event::Tick(node)
            | Event::Linked { node, .. }
            | Event::Unlinked { node, .. }
            | Event::Prepared { node, .. }
            | Event::Arrive { to: node, .. } => Some(*node),
            _ => None,
        }
    }

    fn happen(&mut self, event: Event) -> Done {
        if let Some(until) = Self::machine(&event).map(|node| self.stopped_until[node])
            && until > self.at
        {
            self.after(until - self.at, event);
            return Ok(());
        }
        match event {
            Event::Tick(node) => {
                self.after(TICK, Event::Tick(node));
                self.tick(node)
            }
            Event::Client(client) => {
                let pause = self.rng.random_range(20..120);
                self.after(pause, Event::Client(client));
                self.act(client)
            }
            Event::Arrive { from, to, number, body } => self.arrive(from, to, number, body),
            Event::Linked { node, other, number, presence } => {
                if !self.net.delivers(other, node, number) {
                    return Ok(());
                }
                let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
                running.links.insert(other, number);
                let cell = self.nodes[other].member.cell;
                self.tell(|| format!("c{node} is linked to c{other} ({number})"));
                self.input(node, Input::Linked { cell, presence })
            }
            Event::Unlinked { node, other, number } => {
                let cell = self.nodes[other].member.cell;
                let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
                if running.links.get(&other) != Some(&number) {
                    return Ok(());
                }
                running.links.remove(&other);
                self.input(node, Input::Unlinked(cell))
            }
            Event::Prepared { node, request } => self.prepared(node, request),
            Event::HolderEnded { node, request } => self.input(node, Input::HolderEnded(request)),
            Event::Start { node, upgrade } => self.start(node, upgrade),
            Event::Forget(node) => self.forget(node),
            Event::Notice { one, other } => {
                self.cut(one, other);
                Ok(())
            }
            Event::Fault => {
                if self.is_faulty() {
                    let pause = self.rng.random_range(50..900);
                    self.after(pause, Event::Fault);
                    self.report.faults += 1;
                    self.go_wrong()
                } else {
                    self.heal();
                    Ok(())
                }
            }
        }
    }

    pub(crate) fn others(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|other| *other != node).collect()
    }

    fn start(&mut self, node: usize, upgrade: bool) -> Done {
        if self.nodes[node].running.is_some() || self.nodes[node].dead {
            return Ok(());
        }
        let others = self.others(node).into_iter().filter(|other| !self.nodes[*other].forgotten);
        let members = others.map(|other| self.nodes[other].member.clone()).collect();
        let life: u128 = self.rng.random_range(1..u128::MAX);
        let at = self.at;
        let (waits, mutant) = (self.waits, self.settings.mutant);
        let effects = self.nodes[node].start(at, members, (life, upgrade), waits, mutant);
        self.tell(|| format!("c{node} starts, another version: {upgrade}, with {effects:?}"));
        self.carry_out(node, effects)
    }

    /// A machine takes an input, and what follows leaves.
    pub(crate) fn input(&mut self, node: usize, input: Input) -> Done {
        self.tell(|| format!("c{node} <- {input:?}"));
        let effects = self.nodes[node].input(self.at, input);
        self.carry_out(node, effects)
    }

    fn carry_out(&mut self, node: usize, effects: Result<Vec<Effect>, String>) -> Done {
        let broken = |what| Violation::Broken { at: self.at, cell: format!("c{node}"), what };
        for effect in effects.map_err(broken)? {
            if self.is_faulty() && self.chance(0.1) {
                self.crash(node); // Between any two.
                return Ok(());
            }
            self.take(node, effect)?;
        }
        Ok(())
    }

    fn take(&mut self, node: usize, effect: Effect) -> Done {
        self.tell(|| format!("c{node} -> {effect:?}"));
        match effect {
            Effect::Send(cell, message) => self.send(node, cell, Body::Peer(message)),
            Effect::Unlink(_, what) => {
                let (at, cell, what) = (self.at, format!("c{node}"), what.into());
                return Err(Violation::Broken { at, cell, what });
            }
            Effect::Reply { conn, call, reply } => {
                if let Some(client) = self.client_of(node, conn) {
                    self.hear(client, call, reply)?;
                }
            }
            Effect::Welcome { conn, answers, .. } => {
                if let Some(client) = self.client_of(node, conn) {
                    self.welcome(client, answers)?;
                }
            }
            Effect::TurnedAway(conn, _) => {
                if let Some(client) = self.client_of(node, conn) {
                    self.lose_all(client);
                }
            }
            Effect::NotTaken(conn, ..) | Effect::Close(conn) => {
                if let Some(client) = self.client_of(node, conn) {
                    self.clients[client].conn = None;
                }
            }
            Effect::WatchSession(session, _) => {
                if self.dead.contains(&session) {
                    self.input(node, Input::Over(session))?;
                }
            }
            Effect::Prepare(request) => {
                let delay = self.rng.random_range(1..60);
                self.after(delay, Event::Prepared { node, request });
            }
            Effect::Watch(request, _) | Effect::End(request, _) | Effect::Kill(request, _) => {
                self.stop_processes(node, request);
                let delay = self.rng.random_range(1..200);
                self.after(delay, Event::HolderEnded { node, request });
            }
            Effect::Forget(session, _) => {
                let client = self.clients.iter().position(|client| client.session() == session);
                if let Some(client) = client {
                    self.lose_all(client);
                }
            }
            Effect::Arm(..) | Effect::Disarm(_) | Effect::Unused(_) => {}
            Effect::Unfit(..) | Effect::LeftOut(..) => {}
        }
        Ok(())
    }

    fn send(&mut self, from: usize, cell: CellId, body: Body) {
        let Some(to) = self.nodes.iter().position(|node| node.member.cell == cell) else { return };
        let links = self.nodes[from].running.as_ref().map(|running| &running.links);
        let Some(number) = links.and_then(|links| links.get(&to)).copied() else { return };
        let delay = match self.rng.random_range(0..50) {
            0 if self.is_faulty() => self.rng.random_range(700..4000),
            0..4 => self.rng.random_range(50..700),
            _ => self.rng.random_range(1..30),
        };
        if let Some(arrival) = self.net.arrives(from, to, number, self.at, delay) {
            self.after(arrival - self.at, Event::Arrive { from, to, number, body });
        }
    }

    fn arrive(&mut self, from: usize, to: usize, number: u64, body: Body) -> Done {
        let old = self.settings.mutant == Some(Mutant::OldConnections);
        if !self.net.delivers(from, to, number) && !old {
            return Ok(());
        }
        let (cell, clock) = (self.nodes[from].member.cell, self.nodes[to].clock(self.at));
        let Some(running) = &mut self.nodes[to].running else { return Ok(()) };
        if running.links.get(&from) != Some(&number) && !old {
            return Ok(());
        }
        match body {
            Body::Beat(sent) => {
                running.leases.heard(clock, cell);
                self.send(to, cell, Body::Beaten(sent));
                Ok(())
            }
            Body::Beaten(sent) => {
                let receipt = self.settings.mutant == Some(Mutant::LeaseFromReceipt);
                running.leases.confirmed(if receipt { clock } else { sent }, cell);
                Ok(())
            }
            Body::Peer(mut message) => {
                if let (Some(Mutant::AssertionsIgnored), PeerMessage::Assert(all)) =
                    (self.settings.mutant, &mut *message)
                {
                    *all = Assertion { last: all.last, ..Assertion::default() };
                }
                self.input(to, Input::Said { cell, message })
            }
        }
    }

    fn tick(&mut self, node: usize) -> Done {
        let clock = self.nodes[node].clock(self.at);
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        let beats = clock >= running.last_beat + TERMS.beat();
        if beats {
            running.last_beat = clock;
        }
        let verdicts = running.leases.look(clock);
        let due = running.cell.next_due().is_some_and(|due| due <= clock);
        for other in self.others(node) {
            if beats {
                let cell = self.nodes[other].member.cell;
                self.send(node, cell, Body::Beat(clock));
            }
            if node < other {
                self.connect(node, other);
            }
        }
        for verdict in verdicts {
            self.input(
                node,
                match verdict {
                    Verdict::Suspected(cell) => Input::Suspected(cell),
                    Verdict::Lapsed(cell) => Input::Lapsed(cell),
                    Verdict::LeaseOver(cell) => Input::LeaseOver(cell),
                },
            )?;
        }
        if due {
            self.input(node, Input::Due)?;
        }
        let ringing = self.nodes[node].ringing(self.at);
        for timer in ringing {
            if self.settings.mutant != Some(Mutant::NoResend) {
                self.input(node, Input::Timer(timer))?;
            }
        }
        Ok(())
    }

    fn connect(&mut self, one: usize, other: usize) {
        let both = [one, other].iter().all(|node| self.nodes[*node].running.is_some());
        if !both || self.net.is_open(one, other) || self.net.is_blocked(one, other, self.at) {
            return;
        }
        let delays = [self.rng.random_range(1..40), self.rng.random_range(1..40)];
        let number = self.net.connect(one, other, [self.at + delays[1], self.at + delays[0]]);
        for (node, other, delay) in [(one, other, delays[0]), (other, one, delays[1])] {
            let presence = self.nodes[other].presence();
            self.after(delay, Event::Linked { node, other, number, presence });
        }
    }

    /// A grant is about to be told: not before it is known until when it may be used, nor when that is too late.
    fn prepared(&mut self, node: usize, request: RequestNo) -> Done {
        let clock = self.nodes[node].clock(self.at);
        let Some(running) = &self.nodes[node].running else { return Ok(()) };
        for cell in running.cell.engine().leased_by(request) {
            match running.leases.deadline(cell) {
                None => {
                    self.after(TICK, Event::Prepared { node, request });
                    return Ok(());
                }
                Some(deadline) if deadline <= clock + TERMS.stopping => {
                    return self.input(node, Input::LeaseOver(cell));
                }
                Some(_) => {}
            }
        }
        let cgroup = CgroupId { path: "grant".into(), inode: request.0, root: 1 };
        let boot = running.cell.clock().boot.to_string();
        let holder = Some(Record { boot, cgroup: Some(cgroup), ..Record::default() });
        self.input(node, Input::Prepared { request, holder, place: None })
    }

    fn forget(&mut self, gone: usize) -> Done {
        let cell = self.nodes[gone].member.cell;
        self.nodes[gone].forgotten = true;
        let others = self.others(gone);
        if others.iter().any(|node| self.nodes[*node].running.is_none()) {
            self.after(500, Event::Forget(gone)); // It is said again.
        }
        for node in others {
            if let Some(running) = &mut self.nodes[node].running {
                running.leases.remove(cell);
                self.input(node, Input::Forget(cell))?;
            }
        }
        Ok(())
    }

    fn client_of(&self, node: usize, conn: ConnNo) -> Option<usize> {
        let is_it = |client: &Client| client.home == node && client.conn == Some(conn);
        self.clients.iter().position(is_it)
    }

    /// Its processes end.
    fn stop_processes(&mut self, node: usize, request: RequestNo) {
        let uses = |client: &Client| {
            client.home == node
                && matches!(&client.state, State::Using { request: used, .. } if *used == request)
        };
        if let Some(client) = self.clients.iter().position(uses) {
            self.bystander.end(client);
            self.clients[client].state = State::Leaving(request, None);
        }
    }

    /// A client has lost its session, and all it had.
    pub(crate) fn lose_all(&mut self, client: usize) {
        self.bystander.end(client);
        let (session, at) = (u128::from(self.draw()), self.at + 200);
        self.clients[client].begin_anew(session, at);
    }

    fn call(&mut self, client: usize, call: CallNo) -> Done {
        let one = &self.clients[client];
        let Some(conn) = one.conn else { return Ok(()) };
        let (wish, heard, node) = (one.calls[call.0 as usize - 1].clone(), one.heard(), one.home);
        self.input(node, Input::Call { conn, call, heard, wish })
    }

    fn welcome(&mut self, client: usize, answers: Vec<(CallNo, Option<Reply>)>) -> Done {
        let told: BTreeSet<CallNo> = answers.iter().map(|(call, _)| *call).collect();
        for (call, reply) in answers {
            if let Some(reply) = reply {
                self.hear(client, call, reply)?;
            }
        }
        let one = &self.clients[client];
        let made = (1..=one.calls.len() as u64).map(CallNo);
        let again = made.filter(|call| !told.contains(call) && !one.answered.contains(call));
        for call in again.collect::<Vec<_>>() {
            self.call(client, call)?;
        }
        Ok(())
    }

    fn hear(&mut self, client: usize, call: CallNo, reply: Reply) -> Done {
        self.tell(|| format!("client {client} hears {reply:?}"));
        let state = self.clients[client].state.clone();
        match reply {
            Reply::Granted { request, taken, .. } if state == State::Asking(call) => {
                return self.begin_use(client, call, request, &taken);
            }
            Reply::Lost(request) => match state {
                State::Using { request: used, .. } if used == request => {
                    self.report.lost += 1;
                    self.bystander.end(client);
                    self.clients[client].state = State::Leaving(request, None);
                }
                State::Asking(asked) if asked == call => self.rest(client),
                _ => {}
            },
            Reply::Refused(_) if state == State::Asking(call) => {
                self.report.refused += 1;
                self.rest(client);
            }
            Reply::Done | Reply::Failed(_) | Reply::Leftovers(_) => {
                if matches!(state, State::Leaving(_, Some(end)) if end == call) {
                    self.rest(client);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// It has nothing, and wants nothing for a while.
    fn rest(&mut self, client: usize) {
        let until = self.at + self.rng.random_range(20..600);
        let one = &mut self.clients[client];
        one.answered = (1..=one.calls.len() as u64).map(CallNo).collect();
        (one.state, one.deadline) = (State::Idle(until), None);
    }

    fn begin_use(
        &mut self,
        client: usize,
        call: CallNo,
        request: RequestNo,
        taken: &[Taken],
    ) -> Done {
        let node = self.clients[client].home;
        let clock = self.nodes[node].clock(self.at);
        let running = self.nodes[node].running.as_ref();
        let may = running.is_some_and(|running| {
            let guards = running.cell.engine().leased_by(request);
            let deadlines = guards.iter().map(|guard| running.leases.deadline(*guard));
            deadlines.into_iter().all(|at| at.is_some_and(|at| at > clock + TERMS.stopping))
        });
        if !may {
            // It hears of it too late, or nobody knows until when it may use it.
            self.clients[client].state = State::Leaving(request, None);
            return Ok(());
        }
        let home = self.nodes[node].member.name.clone();
        let needs = self.clients[client].asked(call).map(|ask| ask.needs.clone());
        let needs = needs.unwrap_or_default();
        let paused: Vec<bool> =
            self.clients.iter().map(|client| client.paused_until > self.at).collect();
        let mine = self.settings.mutant == Some(Mutant::FencesAtHome);
        for (unit, fence, shared) in units(taken, &needs, home.as_str()) {
            let fence = if mine { request.0 } else { fence };
            let unit = (unit.as_str(), fence, shared);
            self.bystander.begin(self.at, client, unit, |other| paused[other])?;
        }
        self.report.grants += 1;
        self.report.spanning += u64::from(taken.iter().any(|taken| taken.name.cell().is_some()));
        let long = self.chance(20.0);
        let until = self.at + self.rng.random_range(if long { 2500..15_000 } else { 30..2500 });
        let one = &mut self.clients[client];
        one.state = State::Using { request, until };
        self.push_deadline(client);
        Ok(())
    }

    /// Whoever uses something is told until when it may.
    fn push_deadline(&mut self, client: usize) {
        let one = &self.clients[client];
        let State::Using { request, .. } = one.state else { return };
        let Some(running) = self.nodes[one.home].running.as_ref().filter(|_| one.conn.is_some())
        else {
            return;
        };
        let guards = running.cell.engine().leased_by(request);
        let deadlines: Option<Vec<u64>> =
            guards.iter().map(|guard| running.leases.deadline(*guard)).collect();
        if let Some(deadline) = deadlines.and_then(|all| all.into_iter().min()) {
            let one = &mut self.clients[client];
            one.deadline = one.deadline.max(Some(deadline));
        }
    }

    fn act(&mut self, client: usize) -> Done {
        let (node, paused_until) = (self.clients[client].home, self.clients[client].paused_until);
        if self.nodes[node].dead || paused_until > self.at {
            return Ok(());
        }
        let stands = self.stopped_until[node] > self.at;
        if self.clients[client].conn.is_none() && self.nodes[node].running.is_some() && !stands {
            let conn = ConnNo(self.draw());
            let hello = self.clients[client].hello(conn);
            return self.input(node, Input::Attach { conn, hello });
        }
        if !stands {
            self.push_deadline(client);
        }
        match self.clients[client].state.clone() {
            State::Using { request, until } => {
                let clock = self.nodes[node].clock(self.at);
                let is_over = self.clients[client].deadline.is_some_and(|at| clock + 150 >= at);
                if is_over || until <= self.at {
                    self.bystander.end(client);
                    self.clients[client].state = State::Leaving(request, None);
                }
                Ok(())
            }
            State::Idle(until) if until <= self.at && self.is_faulty() && !stands => {
                if self.clients[client].conn.is_none() {
                    return Ok(());
                }
                let (needs, now) = (self.needs(), self.chance(5.0));
                let call = self.clients[client].ask(needs, COMMAND, now);
                self.call(client, call)
            }
            State::Leaving(request, None) if !stands && self.clients[client].conn.is_some() => {
                let call = self.clients[client].call(Wish::End { request, rest: None });
                self.clients[client].state = State::Leaving(request, Some(call));
                self.call(client, call)
            }
            _ => Ok(()),
        }
    }

    fn needs(&mut self) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let cell = self.rng.random_range(0..self.nodes.len());
            let what = match self.rng.random_range(0..8) {
                0..3 => format!("board@c{cell}"),
                3 => format!("board@c{cell}:2"),
                4 => format!("board/{}@c{cell}", self.rng.random_range(0..2)),
                5 => format!("scope@c{cell}"),
                6 => format!("scope@c{cell}:shared"),
                _ => format!("slow@c{cell}"),
            };
            let need: Need = what.parse().expect("a need");
            let (name, cell) = (need.name.here(), need.name.cell().map(str::to_owned));
            let pool = name.as_str().split('/').next().map(str::to_owned);
            let same = |other: &Need| {
                let name = other.name.here();
                other.name.cell().map(str::to_owned) == cell
                    && name.as_str().split('/').next().map(str::to_owned) == pool
            };
            if !needs.iter().any(same) {
                needs.push(need);
            }
        }
        needs
    }

    /// Whether nobody wants anything any more.
    fn is_well(&self) -> bool {
        let idle = |client: &Client| {
            matches!(client.state, State::Idle(_)) || self.nodes[client.home].dead
        };
        self.clients.iter().all(idle) && self.residue().is_none()
    }

    fn residue(&self) -> Option<(usize, String)> {
        self.nodes.iter().enumerate().filter(|(_, node)| !node.dead).find_map(|(index, node)| {
            let Some(running) = &node.running else { return Some((index, "nothing".into())) };
            let load = running.cell.engine().load();
            let idle = running.cell.engine().is_idle() && !running.cell.is_recovering();
            (load != (0, 0) || !idle)
                .then(|| (index, format!("{load:?}, {:?}", running.cell.engine().waiting())))
        })
    }

    fn check_end(&self) -> Done {
        for (index, client) in self.clients.iter().enumerate() {
            if !matches!(client.state, State::Idle(_)) && !self.nodes[client.home].dead {
                let asked = match client.state {
                    State::Asking(call) => client.asked(call),
                    _ => None,
                };
                let asked =
                    asked.map(|ask| ask.needs.iter().map(ToString::to_string).collect::<Vec<_>>());
                let recovering = self.nodes.iter().filter_map(|node| node.running.as_ref());
                let recovering =
                    recovering.map(|running| &running.cell.books().ties().recovery().missing);
                let recovering: Vec<_> = recovering.collect();
                let what = format!("{:?} {asked:?}; missing: {recovering:?}", client.state);
                return Err(Violation::Starved {
                    client: index,
                    cell: format!("c{}", client.home),
                    what,
                });
            }
        }
        match self.residue() {
            Some((node, what)) => Err(Violation::Residue { cell: format!("c{node}"), what }),
            None => Ok(()),
        }
    }
}
