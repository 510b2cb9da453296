//! The service around a cell: it turns calls into inputs and effects into replies, and looks after
//! what the cell does not know: connections, processes, disk, time.
//!
//! Everything runs on one thread. A call is handled from its frame to its replies without waiting
//! for anything; they leave at the end of a round, when what they rest on is in the log (`host`).
//!
//! | module | what |
//! |---|---|
//! | `host` | the cell and its log |
//! | `start`, `replaying` | how they come back |
//! | `connection`, `outbox`, `round` | frames in, frames out |
//! | `handed` | connections that outlast the program |
//! | `sessions` | which session a connection speaks for, and how its calls are numbered |
//! | `calls`, `looks`, `admission`, `rights`, `limits` | what clients want, and whether they may |
//! | `effects`, `processes`, `commands` | what follows |
//! | `history`, `readers` | the audit log and the history, and who reads that |
//! | `cells`, `members`, `heard`, `leased`, `questions` | other cells: which there are, their links, what they say, what is held there, what they are asked |
//! | `hosting` | replicated cells: that this is one, or that they are hosted here |
//! | `time` | deadlines |
//! | `ending`, `dump` | how the agent ends, and what it leaves if it breaks |

mod admission;
mod away;
mod backlog;
mod calls;
mod cells;
mod commands;
mod connection;
mod dump;
mod effects;
mod ending;
mod handed;
mod heard;
mod history;
mod host;
mod hosting;
mod leased;
mod limits;
mod looks;
mod meeting;
mod members;
mod memory;
mod names;
mod outbox;
mod processes;
mod questions;
mod quota;
mod readers;
mod remote;
mod replaying;
mod rights;
mod round;
mod sessions;
mod snapshots;
mod standing;
mod start;
#[cfg(test)]
mod tests;
mod time;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use holdall_cell::books::Books;
use holdall_cell::engine::{Engine, TimerNo, Walk};
use holdall_cell::facts::Fact;
use holdall_cell::session::{ConnNo, SessionId};
use holdall_cell::{Cell, Input, Out};
use holdall_holders::{Holder, ProcessId};
use holdall_protocols::house::{House, Place};
use holdall_wire::frame::Incoming;
use holdall_wire::{Call, Reply, RequestNo, Who};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, Semaphore};

use self::cells::Cells;
pub(crate) use self::cells::begin_links;
pub(crate) use self::connection::{serve, serve_guest};
pub use self::dump::note_panic;
pub(crate) use self::ending::End;
use self::ending::Restarting;
pub(crate) use self::handed::{HandedOver, ToHandOver, go_on_with};
use self::history::Ended;
pub(crate) use self::host::SnapshotEvery;
use self::host::{Broken, Host, Leaving};
use self::memory::Awaited;
use self::names::Names;
use self::outbox::Outbox;
use self::quota::Quota;
pub(crate) use self::replaying::Replaying;
use self::round::Round;
pub(crate) use self::round::{end_rounds, let_leave};
use self::sessions::{Calls, Session, Watched};
use crate::audit::Audit;
use crate::clock::Clock;
use crate::config::Config;
use crate::containment::Containment;
use crate::data::Data;
use crate::history::History;
use crate::hosted::children::Children;
use crate::hosted::{Hosted, Sighting, Standing};
use crate::metrics;
use crate::rights::{Rights, Table};

/// The protocol that the service runs.
pub(crate) type Served = House;
pub(crate) const PROTOCOL: &str = "house";

/// What is known of a connection.
struct Peer {
    who: Who,
    /// What it may do.
    rights: Rights,
    /// The same with what it said of itself when it last asked.
    asker: Option<Arc<Who>>,
    outbox: Rc<Outbox>,
    /// The version that is spoken, once that is known.
    version: Option<u32>,
    /// What has come in.
    incoming: Rc<RefCell<Incoming>>,
    /// A call that takes its time.
    at_leisure: Option<Call>,
    /// Whose calls come over it.
    calls: Calls,
    /// Which of its user's connections is being served.
    turn: Rc<Semaphore>,
    /// Whether it is one too many, and may look but not ask.
    visitor: bool,
    /// Whether it was made for somebody who comes over HTTP, or from another machine.
    is_guest: bool,
    /// Whether it has come with a session, without a lease, from a process that cannot be seen from here.
    unseen: bool,
    /// How many bytes a long call has that is under way.
    expected: usize,
    /// How far it has looked.
    walk: Option<Box<Walk<Place>>>,
}

/// What the service keeps of a request beside the cell: above all what it costs. The books know the rest.
struct Known {
    /// About how many bytes it takes.
    size: u32,
    /// And how many files.
    files: u8,
    reserved: bool,
    /// Its client has ended, its processes have not.
    left: bool,
}

/// The running agent.
pub(crate) struct Service {
    me: Weak<RefCell<Self>>,
    host: Host,
    data: Data,
    config: Config,
    clock: Clock,
    /// When the cell is to look at its deadlines.
    deadline: Option<u64>,
    audit: Audit,
    /// What is kept of all that happens, if anything is.
    history: Option<History>,
    /// Whoever reads it waits for its turn.
    readers: Arc<Semaphore>,
    containment: Containment,
    peers: FxHashMap<ConnNo, Peer>,
    sessions: FxHashMap<SessionId, Session>,
    /// The processes that these last as long as.
    watched: BTreeMap<ProcessId, Watched>,
    /// The processes that use grants, as far as they are known.
    holders: FxHashMap<RequestNo, Rc<Holder>>,
    known: FxHashMap<RequestNo, Known>,
    /// What processes of a forgotten time have to end before anything is granted.
    awaited: Awaited,
    /// For each user, who serves its connections in turn.
    turns: BTreeMap<u32, Weak<Semaphore>>,
    user_names: Rc<Names>,
    rights: Table,
    last_peer: u64,
    connections: Quota,
    visitors: Quota,
    /// Open files: connections, sessions, and the processes and cgroups of commands.
    files: Quota,
    /// Memory for requests, and for replies and long calls under way.
    requests: Quota,
    traffic: Quota,
    ended: VecDeque<Ended>,
    round: Round,
    /// How many snapshots were begun.
    snapshots: u64,
    /// What the cell is to be told, and whether somebody is at it.
    inputs: VecDeque<Input>,
    stepping: bool,
    /// What was found for the request that is being asked.
    admitted: Option<admission::Admitted>,
    timers: BTreeMap<TimerNo, tokio::task::AbortHandle>,
    pub(crate) since: u64,
    epoch: u32,
    /// Whether what clients say is taken; not while another program takes over.
    listens: bool,
    /// No more requests.
    pub(crate) draining: bool,
    /// Who is told when nothing is held any more.
    drainers: Vec<(ConnNo, u64)>,
    /// Another program is asked whether it can take over.
    restarting: Option<Restarting>,
    /// It ends, and how.
    pub(crate) end: Option<End>,
    /// Wakes whoever decides how long the agent lives.
    pub(crate) changed: Rc<Notify>,
    /// When the calls that are being taken came in.
    moment: Option<Instant>,
    touched: Instant,
    /// Where clients reach it.
    socket: PathBuf,
    /// Where they should over HTTP and do not, and why.
    pub(crate) no_http: Option<String>,
    /// How many events there were, for others who look.
    pub(crate) happened: Arc<AtomicU64>,
    host_name: Arc<str>,
    /// The other cells, if it is a member of a cluster.
    cells: Option<Box<Cells>>,
    /// The replicated cell that this is, if it is not a machine's own.
    hosted: Option<Hosted>,
    /// What was last noted of it.
    noted: Option<(Standing, Sighting)>,
    /// Those that host replicated cells here.
    pub(crate) children: Children,
}

pub(crate) type Shared = Rc<RefCell<Service>>;

impl Service {
    fn cell(&self) -> &Cell {
        self.host.cell()
    }

    fn engine(&self) -> &Engine<Served> {
        self.cell().engine()
    }

    fn books(&self) -> &Books {
        self.cell().books()
    }

    /// Tells the cell what happens, and takes up what follows. What that makes necessary in its turn
    /// comes after it, not inside it.
    fn input(&mut self, input: Input) {
        self.inputs.push_back(input);
        if std::mem::replace(&mut self.stepping, true) {
            return; // Whoever is at it comes to it.
        }
        while let Some(input) = self.inputs.pop_front() {
            self.blame(&input);
            match self.host.step(self.clock.now(), input) {
                Ok(mut out) => {
                    if let Some(Fact::Started { clock, .. }) = out.facts.first() {
                        self.clock.set(clock.base);
                    }
                    let effects = out.effects.drain(..);
                    effects.for_each(|effect| self.take_up(effect, out.sync));
                    if !out.events.is_empty() {
                        self.host.hold_events(&mut out.events);
                    }
                    let Out { facts, ended, .. } = &mut out;
                    facts.drain(..).for_each(|fact| self.note(fact, ended));
                    self.host.reuse(out);
                }
                Err(Broken::Log(why)) => {
                    self.inputs.clear();
                    self.give_up(why.to_string());
                }
                Err(broken) => self.break_off(&broken),
            }
        }
        dump::blame(None);
        self.stepping = false;
        self.round.begin();
    }

    /// If this breaks something, it was that call.
    fn blame(&self, input: &Input) {
        if let Input::Call { conn, call, .. } = input {
            dump::blame(self.books().sessions().of(*conn).map(|session| (session, *call)));
        }
    }

    /// Takes what comes now as of one moment: the clocks are looked at once.
    fn begin_moment(&mut self) {
        self.clock.hold();
        self.moment = Some(Instant::now());
    }

    fn end_moment(&mut self) {
        self.clock.let_go();
        self.moment = None;
    }

    fn now(&self) -> Instant {
        self.moment.unwrap_or_else(Instant::now)
    }

    /// Something has happened; `soon` if how long the agent lives may depend on it.
    fn touch(&mut self, soon: bool) {
        metrics::observe(self.engine());
        self.touched = self.now();
        if soon || self.draining {
            self.changed.notify_one();
        }
    }

    /// Answers a call that changed nothing: when everything that the answer may rest on is in the log.
    fn answer(&mut self, conn: ConnNo, id: u64, reply: Reply) {
        self.hold(Leaving::answer(conn, id, reply), false);
        self.round.begin();
    }

    /// Something leaves when the log says so. Whoever is to be told much is not listened to meanwhile.
    fn hold(&mut self, leaving: Leaving, sync: bool) {
        if let Leaving::Answer(conn, answer) = &leaving
            && let Some(peer) = self.peers.get(conn)
        {
            peer.outbox.await_reply(&answer.reply);
        }
        self.host.hold(leaving, sync);
    }

    /// For how long nobody was connected, held, waited or had declared anything. What was left behind needs
    /// no agent until somebody asks.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let idle = self.cells.is_none()
            && self.peers.is_empty()
            && self.known.values().all(|known| known.left)
            && self.engine().declared().is_empty();
        idle.then(|| self.touched.elapsed())
    }
}

/// How many files may be open for clients; some are for the agent itself.
fn files_for_clients() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files - files / 8).saturating_sub(16).max(16)
}
