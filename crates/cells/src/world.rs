//! Time, and what happens next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use holdall_cell::Input;
use holdall_cell::greeting::Presence;
use holdall_cell::lease::Verdict;
use holdall_cell::peer::PeerMessage;
use holdall_cell::session::SessionId;
use holdall_wire::RequestNo;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::bystander::{Bystander, Violation};
use crate::client::{Client, State};
use crate::lost::Heir;
use crate::net::{Body, Frame, Net};
use crate::node::{Node, Starting};
use crate::report::Report;
use crate::{Mutant, Settings, TERMS};

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    Tick(usize),
    Client(usize),
    Arrive {
        from: usize,
        to: usize,
        number: u64,
        frame: Frame,
    },
    Linked {
        node: usize,
        other: usize,
        number: u64,
        presence: Presence,
    },
    Unlinked {
        node: usize,
        other: usize,
        number: u64,
    },
    Prepared {
        node: usize,
        request: RequestNo,
    },
    HolderEnded {
        node: usize,
        request: RequestNo,
    },
    Start {
        node: usize,
        upgrade: bool,
    },
    Forget(usize),
    Notice {
        one: usize,
        other: usize,
    },
    Declare(usize),
    Join(usize),
    /// The log of a machine is written up to here, if that is late, and the machine was not started again since.
    Written {
        node: usize,
        nonce: u128,
        length: u64,
    },
    Fault,
}

/// How often a machine looks at the time.
pub(crate) const TICK: u64 = 50;
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
    /// What is left of commands, with who uses what they held, and until when it may.
    pub(crate) ghosts: BTreeMap<(usize, RequestNo), (usize, Option<u64>)>,
    /// Whether logs are put back so that their machines cannot see it. In such worlds alone, so that others stay what they were.
    pub(crate) puts_back: bool,
    /// Whether logs are lost, in such worlds alone.
    pub(crate) loses_logs: bool,
    /// What is used of reservations whose homes have lost their logs.
    pub(crate) heirs: Vec<Heir>,
    /// Whether machines say what they know of each other; those of a version before do not.
    pub(crate) says_what_is_known: bool,
    /// What the machine has heard that says what it likes.
    pub(crate) overheard: Vec<PeerMessage>,
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

pub(crate) type Done = Result<(), Violation>;

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, settings: &'a Settings) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let waits = seed.is_multiple_of(2);
        let new = |index| Node::new(index, rng.random_range(-65..=65), waits);
        let mut nodes: Vec<_> = (0..settings.cells).map(new).collect();
        nodes[0].is_late = settings.late;
        let joins_late = settings.cells > 2 && rng.random_bool(0.2);
        if let Some(last) = nodes.last_mut().filter(|_| settings.cells > 2) {
            last.is_absent = joins_late;
            last.is_hostile = !joins_late && rng.random_bool(0.1);
        }
        let count = settings.cells * settings.clients;
        let client = |index: usize| {
            let is_operator = index >= count;
            Client::new(index % settings.cells, index as u128 + 1, is_operator)
        };
        let clients: Vec<_> = (0..count + settings.cells).map(client).collect();
        let count = clients.len();
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
            ghosts: BTreeMap::new(),
            puts_back: seed % 8 == 5,
            loses_logs: seed % 8 == 7,
            heirs: Vec::new(),
            says_what_is_known: matches!(seed % 8, 3 | 5 | 7),
            overheard: Vec::new(),
        };
        if joins_late {
            let delay = world.rng.random_range(2000..20_000);
            world.after(delay, Event::Join(settings.cells - 1));
        }
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
        while let Some(Reverse((at, number, queued))) = self.queue.pop() {
            if at > end || at > self.settings.faulty && self.is_well() {
                break;
            }
            self.at = at;
            self.report.events += 1;
            self.happen(number, queued.0)?;
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

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
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
            | Event::Written { node, .. }
            | Event::Arrive { to: node, .. } => Some(*node),
            _ => None,
        }
    }

    fn happen(&mut self, number: u64, event: Event) -> Done {
        if let Some(until) = Self::machine(&event).map(|node| self.stopped_until[node])
            && until > self.at
        {
            // In the same order as without standing still.
            self.queue.push(Reverse((until, number, Box::new(Queued(event)))));
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
            Event::Arrive { from, to, number, frame } => self.arrive(from, to, number, frame),
            Event::Linked { node, other, number, presence } => {
                if !self.net.delivers(other, node, number) {
                    return Ok(());
                }
                self.meet(node, other, number, presence)
            }
            Event::Unlinked { node, other, number } => {
                let cell = self.nodes[other].member.cell;
                let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
                running.meetings.retain(|_, (met, _)| *met != number);
                if running.links.get(&other) != Some(&number) {
                    return Ok(());
                }
                running.links.remove(&other);
                self.input(node, Input::Unlinked(cell))
            }
            Event::Prepared { node, request } => self.prepared(node, request),
            Event::HolderEnded { node, request } => {
                if let Some((ghost, _)) = self.ghosts.remove(&(node, request)) {
                    self.bystander.end(ghost);
                }
                self.input(node, Input::HolderEnded(request))
            }
            Event::Start { node, upgrade } => self.start(node, upgrade),
            Event::Written { node, nonce, length } => self.written(node, nonce, length),
            Event::Forget(node) => self.forget(node),
            Event::Declare(node) => {
                self.declare(node);
                Ok(())
            }
            Event::Join(node) => self.join(node),
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
                    self.forget_the_hostile()
                }
            }
        }
    }

    pub(crate) fn others(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|other| *other != node).collect()
    }

    pub(crate) fn start(&mut self, node: usize, upgrade: bool) -> Done {
        let one = &self.nodes[node];
        if one.running.is_some() || one.dead || one.is_absent {
            return Ok(());
        }
        let starting = self.starting(node, upgrade);
        let effects = self.nodes[node].start(self.at, starting, self.settings.mutant);
        self.tell(|| format!("c{node} starts, another version: {upgrade}, with {effects:?}"));
        self.carry_out(node, effects)
    }

    /// How a machine starts.
    pub(crate) fn starting(&mut self, node: usize, upgrade: bool) -> Starting {
        let there = |other: &usize| !self.nodes[*other].forgotten && !self.nodes[*other].is_absent;
        let others = self.others(node).into_iter().filter(there);
        let others: Vec<_> =
            others.map(|other| (other, self.nodes[other].member.clone())).collect();
        let (life, nonce) =
            (self.rng.random_range(1..u128::MAX), self.rng.random_range(1..u128::MAX));
        if self.is_faulty() && self.chance(15.0) && !self.loses_logs {
            self.nodes[node].waits ^= true; // Its configuration has changed.
        }
        // How far the others have come since the last greeting this one has forgotten: an older copy of one could be let in now.
        if !self.puts_back {
            self.others(node).into_iter().for_each(|other| self.nodes[other].lose_copy());
        }
        let boards = if self.is_faulty() && self.chance(10.0) { 3 } else { 2 };
        let limit = (self.is_faulty() && self.chance(5.0)).then_some(4000);
        let forgotten = self.nodes.iter().filter(|node| node.forgotten);
        let forgotten = forgotten.map(|node| node.member.cell).collect();
        Starting { others, forgotten, life, nonce, upgrade, boards, limit }
    }

    /// A machine joins the others.
    fn join(&mut self, node: usize) -> Done {
        self.nodes[node].is_absent = false;
        let member = self.nodes[node].member.clone();
        for other in self.others(node) {
            let clock = self.nodes[other].clock(self.at);
            if let Some(running) = &mut self.nodes[other].running {
                running.leases.add(clock, member.cell);
                self.input(other, Input::Members(vec![member.clone()]))?;
            }
        }
        self.start(node, false)
    }

    fn tick(&mut self, node: usize) -> Done {
        let clock = self.nodes[node].clock(self.at);
        if self.nodes[node].is_hostile {
            self.say_anything(node);
        }
        self.stop_what_is_left_in_time(node);
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
                self.say(node, cell, Body::Beat(clock));
            }
            if node < other {
                self.connect(node, other)?;
            }
        }
        for verdict in verdicts {
            let lapsed = matches!(verdict, Verdict::Lapsed(_));
            let (Verdict::Suspected(cell) | Verdict::Lapsed(cell) | Verdict::LeaseOver(cell)) =
                verdict;
            self.input(
                node,
                match verdict {
                    Verdict::Suspected(cell) => Input::Suspected(cell),
                    Verdict::Lapsed(cell) => Input::Lapsed(cell),
                    Verdict::LeaseOver(cell) => Input::LeaseOver(cell),
                },
            )?;
            let other = self.nodes.iter().position(|node| node.member.cell == cell);
            if let Some(other) = other.filter(|_| lapsed) {
                self.settle(node, other, false);
            }
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

    pub(crate) fn forget(&mut self, gone: usize) -> Done {
        let cell = self.nodes[gone].member.cell;
        self.nodes[gone].forgotten = true;
        self.end_what_was_left_by(gone);
        let others = self.others(gone);
        if others.iter().any(|node| self.nodes[*node].running.is_none()) {
            self.after(500, Event::Forget(gone)); // It is said again.
        }
        for node in others {
            if let Some(running) = &mut self.nodes[node].running {
                running.leases.remove(cell);
                running.known.remove(&gone);
                let (life, word) = (None, Vec::new());
                self.input(node, Input::Forget { cell, life, word })?;
            }
        }
        Ok(())
    }

    /// Whether nobody wants anything any more.
    fn is_well(&self) -> bool {
        let idle = |client: &Client| {
            matches!(client.state, State::Idle(_)) || self.nodes[client.home].dead
        };
        self.clients.iter().all(idle) && self.residue().is_none()
    }

    fn residue(&self) -> Option<(usize, String)> {
        let in_use =
            self.nodes.iter().enumerate().filter(|(_, node)| !node.dead && !node.is_hostile);
        in_use.into_iter().find_map(|(index, node)| {
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
