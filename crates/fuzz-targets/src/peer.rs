//! A cell among others that say anything: whatever they do, it breaks no invariant, and comes back from its log as it was.
//!
//! The bytes are a script: what happens to the cell, one thing after the other, and what its peers say as they would
//! send it. Its own clients are honest.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use holdall_cell::engine::{Member, TimerNo};
use holdall_cell::greeting::{First, Presence};
use holdall_cell::peer::PeerMessage;
use holdall_cell::replay::{LOGIC, Recorded, Replay};
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_cell::{Cell, Cluster, Declared, Effect, Input, Limits, Start, Wish};
use holdall_core::CellId;
use holdall_wire::{Ask, From, Kind, Lasting, Reply, RequestNo, Who};

/// Who there is. The first one is tried; the others say what the script says.
const CELLS: u8 = 3;
/// How others greet: it was looked at before.
const PRESENCE: Presence = Presence { life: 7, epoch: 1, nonce: 1, began: 1, length: 1 };
/// The longest script that is played.
const STEPS: usize = 200;
const NEEDS: [&[&str]; 6] = [
    &["board"],
    &["board:2", "scope"],
    &["board@c1"],
    &["scope", "board@c1"],
    &["board@c1:2", "scope@c2", "slow@c0"],
    &["scope@c1:shared"],
];

/// What happens in a script.
#[derive(Clone, Debug)]
enum Step {
    Linked(u8),
    Unlinked(u8),
    Said(u8, Box<PeerMessage>),
    Asks(u8),
    GivesBack(u8),
    Timers,
    Suspected(u8),
    Lapsed(u8),
    LeaseOver(u8),
    Later(u8),
    Restarted,
}

fn id(index: u8) -> CellId {
    CellId(100 + u64::from(index % CELLS))
}

fn member(index: u8) -> Member {
    Member { name: format!("c{index}").parse().expect("a name"), cell: id(index) }
}

/// A cell with its log, and a client.
struct Host {
    index: u8,
    cell: Cell,
    log: Vec<Vec<u8>>,
    now: u64,
    epoch: u32,
    timers: BTreeSet<TimerNo>,
    calls: u64,
    granted: Vec<RequestNo>,
    /// What it has said that was not looked at yet.
    sent: VecDeque<(CellId, Box<PeerMessage>)>,
}

impl Host {
    fn new(index: u8) -> Self {
        let (log, timers, granted, sent) = Default::default();
        let cell = Cell::new().expect("an engine");
        let mut host =
            Self { index, cell, log, now: 1000, epoch: 0, timers, calls: 0, granted, sent };
        host.start(false);
        host.attach(false);
        host
    }

    fn start(&mut self, rebuilt: bool) {
        self.epoch += 1;
        let pool =
            |name: &str, kind| Declared { name: name.parse().expect("a name"), kind, limit: None };
        let others = (0..CELLS).filter(|other| *other != self.index).map(member).collect();
        let start = Start {
            epoch: self.epoch,
            life: 7,
            boot: "boot".into(),
            boottime: self.now,
            wall: self.now,
            rebuilt,
            ephemeral: true,
            pools: vec![
                pool("board", Kind::Numbered(2)),
                pool("scope", Kind::Lock),
                pool("slow", Kind::Lock),
            ],
            limits: Limits::default(),
            cluster: Some(Cluster {
                own: member(self.index),
                members: others,
                forgotten: Vec::new(),
                stopping: 1000,
            }),
            patience: 5000,
            waits: vec!["slow".parse().expect("a name")],
            ..Start::default()
        };
        self.input(Input::Started(Box::new(start)));
    }

    fn attach(&mut self, returns: bool) {
        let (session, secret, means) = (SessionId(5), Secret(6), Means::Lease(u64::MAX / 4));
        let hello = Hello { session, secret, uid: 1000, means, returns, heard: CallNo(0) };
        self.input(Input::Attach { conn: ConnNo(1), hello });
    }

    /// Takes an input, and logs what came of it.
    fn input(&mut self, input: Input) {
        let writing = Recorded::begin(self.now, &input).expect("it can be written");
        let shown = format!("{input:?}");
        let out = self.cell.step(self.now, input);
        let out = out.unwrap_or_else(|defect| panic!("{shown} breaks an invariant: {defect}"));
        self.cell.books().check().unwrap_or_else(|wrong| panic!("{shown} leads to {wrong}"));
        if out.is_new {
            let written = writing.end(&out.facts).expect("it can be written");
            let kept = written.append(|payload| {
                self.log.push(payload.to_vec());
                Ok::<_, std::convert::Infallible>(())
            });
            let Ok(()) = kept;
        }
        for effect in out.effects {
            self.effect(effect);
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Arm(timer, ..) => drop(self.timers.insert(timer)),
            Effect::Disarm(timer) => drop(self.timers.remove(&timer)),
            Effect::Reply { reply: Reply::Granted { request, .. }, .. } => {
                self.granted.push(request);
            }
            Effect::Reply { reply: Reply::Lost(request), .. } => {
                self.granted.retain(|granted| *granted != request);
            }
            Effect::Send(to, message) => self.sent.push_back((to, message)),
            _ => {}
        }
    }

    fn call(&mut self, wish: Wish) {
        self.calls += 1;
        let (conn, call, heard) = (ConnNo(1), CallNo(self.calls), CallNo(0));
        self.input(Input::Call { conn, call, heard, wish });
    }

    fn ask(&mut self, which: u8) {
        let needs = NEEDS[usize::from(which) % NEEDS.len()];
        let needs = needs.iter().map(|need| need.parse().expect("a need")).collect();
        let (lasting, from) = (Lasting::Connection, From::default());
        let ask = Ask { needs, now: false, lasting, from, within: None, limit: None, part: None };
        self.call(Wish::Ask { who: Arc::new(Who::default()), ask: Arc::new(ask), length: None });
    }

    fn give_back(&mut self, which: u8) {
        if !self.granted.is_empty() {
            let request = self.granted.remove(usize::from(which) % self.granted.len());
            self.call(Wish::End { request, rest: None });
        }
    }

    fn ring(&mut self) {
        for timer in std::mem::take(&mut self.timers) {
            self.input(Input::Timer(timer));
        }
    }

    /// Killed, and started again from its log.
    fn restart(&mut self) {
        let mut replay = Replay::new(LOGIC, None).expect("an engine");
        for record in &self.log {
            replay.take(LOGIC, record).expect("its own record");
        }
        let replayed = replay.finish().expect("an engine");
        assert_eq!(replayed.diverged, None, "the log leads elsewhere");
        self.cell = replayed.cell;
        self.timers.clear();
        self.start(replayed.from_facts);
        self.attach(true);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Linked(other) => {
                let first = Some(First::default());
                self.input(Input::Linked { cell: id(other), presence: PRESENCE, first });
            }
            Step::Unlinked(other) => self.input(Input::Unlinked(id(other))),
            Step::Said(other, message) => {
                let length = self.log.len() as u64;
                self.input(Input::Said { cell: id(other), message, length });
            }
            Step::Asks(which) => self.ask(which),
            Step::GivesBack(which) => self.give_back(which),
            Step::Timers => self.ring(),
            Step::Suspected(other) => self.input(Input::Suspected(id(other))),
            Step::Lapsed(other) => self.input(Input::Lapsed(id(other))),
            Step::LeaseOver(other) => self.input(Input::LeaseOver(id(other))),
            Step::Later(by) => {
                self.now += u64::from(by) * 100;
                self.input(Input::Due);
            }
            Step::Restarted => self.restart(),
        }
    }
}

pub(crate) fn run(bytes: &[u8]) -> bool {
    let mut host = Host::new(0);
    let (mut rest, mut said) = (bytes, false);
    for _ in 0..STEPS {
        let Some(step) = read(&mut rest) else { break };
        said |= matches!(step, Step::Said(..));
        host.step(step);
    }
    host.restart();
    said
}

/// The next step of a script; what cannot be said is not.
fn read(rest: &mut &[u8]) -> Option<Step> {
    let (&[kind, which], behind) = rest.split_first_chunk::<2>()?;
    *rest = behind;
    let other = 1 + which % (CELLS - 1);
    Some(match kind % 11 {
        0 => Step::Linked(other),
        1 => Step::Unlinked(other),
        2 => {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
            let (message, behind) = behind.split_at(length);
            *rest = behind;
            Step::Said(other, postcard::from_bytes(message).ok()?)
        }
        3 => Step::Asks(which),
        4 => Step::GivesBack(which),
        5 => Step::Timers,
        6 => Step::Suspected(other),
        7 => Step::Lapsed(other),
        8 => Step::LeaseOver(other),
        9 => Step::Later(which),
        _ => Step::Restarted,
    })
}

fn write(step: &Step) -> Vec<u8> {
    match step {
        Step::Linked(other) => vec![0, other - 1],
        Step::Unlinked(other) => vec![1, other - 1],
        Step::Said(other, message) => {
            let message = postcard::to_allocvec(message).expect("it can be written");
            let length = u16::try_from(message.len()).expect("it is short").to_le_bytes();
            [&[2, other - 1][..], &length, &message].concat()
        }
        Step::Asks(which) => vec![3, *which],
        Step::GivesBack(which) => vec![4, *which],
        Step::Timers => vec![5, 0],
        Step::Suspected(other) => vec![6, other - 1],
        Step::Lapsed(other) => vec![7, other - 1],
        Step::LeaseOver(other) => vec![8, other - 1],
        Step::Later(by) => vec![9, *by],
        Step::Restarted => vec![10, 0],
    }
}

/// What the first of some honest cells is told when their clients ask these, each at a cell.
fn conversation(asks: &[(u8, u8)]) -> Vec<u8> {
    let mut hosts: Vec<_> = (0..CELLS).map(Host::new).collect();
    let mut script = Vec::new();
    let mut tell = |hosts: &mut Vec<Host>, at: u8, step: Step| {
        if at == 0 {
            script.extend(write(&step));
        }
        hosts[usize::from(at)].step(step);
    };
    for at in 0..CELLS {
        for other in (0..CELLS).filter(|other| *other != at) {
            tell(&mut hosts, at, Step::Linked(other));
        }
    }
    let rounds = asks.iter().map(|(at, which)| (*at, Step::Asks(*which)));
    let ends = asks.iter().map(|(at, _)| (*at, Step::GivesBack(0)));
    for (at, step) in rounds.chain(ends) {
        tell(&mut hosts, at, step);
        for _ in 0..100 {
            let Some(from) = (0..CELLS).find(|at| !hosts[usize::from(*at)].sent.is_empty()) else {
                break;
            };
            let (to, message) = hosts[usize::from(from)].sent.pop_front().expect("one");
            tell(&mut hosts, (to.0 - 100) as u8, Step::Said(from, message));
        }
    }
    script
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let faults = [Step::Timers, Step::Suspected(1), Step::Lapsed(1), Step::LeaseOver(1)];
    let faults = faults.into_iter().chain([Step::Later(9), Step::Restarted, Step::Unlinked(2)]);
    let faults: Vec<u8> = faults.flat_map(|step| write(&step)).collect();
    let mut seeds = vec![
        conversation(&[(0, 2)]),
        conversation(&[(0, 0), (0, 3), (0, 4)]),
        conversation(&[(1, 4), (2, 4)]),
        conversation(&[(0, 4), (1, 4), (2, 4), (1, 2)]),
    ];
    let faulty: Vec<_> = seeds.iter().map(|seed| [&seed[..], &faults].concat()).collect();
    seeds.extend(faulty);
    seeds
}
