//! The service around the engine: it turns calls into inputs and effects into replies, and looks
//! after what the engine does not know: connections, processes, disk, time.
//!
//! Everything runs on one thread. A call is handled from its frame to its replies without waiting
//! for anything; they leave at the end of a round (`round`).

mod calls;
mod clients;
mod commands;
mod connection;
mod ending;
mod former;
mod history;
mod limits;
mod names;
mod outbox;
mod quota;
mod rights;
mod round;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use holdall_core::Rung;
use holdall_holders::Holder;
use holdall_protocols::house::{House, Place};
use holdall_wire::{Leftovers, Part, Reply, RequestNo, Taken, Who};
use rustc_hash::FxHashMap;
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};
use tracing::{debug, error, warn};

use self::clients::Lock;
use self::connection::VISITORS;
pub(crate) use self::connection::serve;
use self::history::REMEMBERED;
use self::names::Names;
use self::outbox::Outbox;
use self::quota::Quota;
use self::round::Round;
pub(crate) use self::round::end_rounds;
use crate::audit::Audit;
use crate::clock::{Anchor, Clock};
use crate::config::Config;
use crate::containment::Containment;
use crate::data::{Data, Kept};
use crate::engine::{Effect, Engine, Input, TimerNo, Walk};
use crate::journal::Journal;
use crate::metrics;
use crate::rights::{Rights, Table};

/// The protocol that the service runs.
pub(crate) type Served = House;
pub(crate) const PROTOCOL: &str = "house";

/// A connection that has no requests keeps room for so many.
const ROOM_KEPT: usize = 64;

/// A connection; numbers are not used twice.
type ConnNo = u64;

/// What is known of a connection.
struct Peer {
    who: Who,
    /// What it may do.
    rights: Rights,
    /// The same with what it said of itself when it last asked.
    asker: Option<Asker>,
    outbox: Rc<Outbox>,
    /// By the number of the call that asked.
    requests: HashMap<u64, RequestNo>,
    /// Which of its user's connections is being served.
    turn: Rc<Semaphore>,
    /// Whether it is one too many, and may look but not ask.
    visitor: bool,
    /// How many bytes a long call has that is under way.
    expected: usize,
    /// The file on which its program keeps a lock, if it does.
    lock: Option<Rc<Lock>>,
    /// How far it has looked.
    walk: Option<Box<Walk<Place>>>,
}

/// Who has asked for something. Most ask again and again, and say the same of themselves.
struct Asker {
    who: Arc<Who>,
    /// The same in words, as they are kept.
    words: Box<RawValue>,
}

/// What the service knows of a request, beyond the engine.
struct Known {
    who: Arc<Who>,
    /// About how many bytes it takes.
    size: usize,
    /// And how many files.
    files: usize,
    /// The connection that asked, while it lasts, and the number of its call.
    asked: Option<(ConnNo, u64)>,
    /// When, to measure how long it waits.
    at: Instant,
    reserved: bool,
    /// What becomes of what a command leaves behind; none if this is for no command.
    leftovers: Option<Leftovers>,
    /// The processes that use it, if they are known.
    holder: Option<Rc<Holder>>,
    /// Its client has ended, its processes have not.
    ending: bool,
    /// Whether it counts among those that wait.
    waits: bool,
    /// The grant that it uses a part of.
    part: Option<Part>,
    /// For how many milliseconds its client wants it at most.
    limit: Option<u64>,
    /// When it is over, in steady time, and who sees to it.
    over: Option<(u64, tokio::task::AbortHandle)>,
}

impl Known {
    /// Whether it is of a former agent. (Whoever asks and leaves before it is granted is forgotten.)
    fn is_restored(&self) -> bool {
        self.asked.is_none() && (self.reserved || self.ending)
    }

    /// Whether it needs no agent to last.
    fn is_on_disk(&self) -> bool {
        self.reserved || (self.ending && self.holder.is_some())
    }
}

/// The service. Tasks share it; no borrow is kept across a wait.
pub(crate) struct Service {
    me: Weak<RefCell<Self>>,
    pub(crate) engine: Engine<Served>,
    data: Data,
    pub(crate) config: Config,
    clock: Clock,
    /// What the clock was when it was last kept.
    anchor: Anchor,
    /// When the next reservation runs out, or a unit is no longer drained.
    deadline: Option<u64>,
    /// When the next unit is no longer drained.
    undrained: Option<u64>,
    audit: Audit,
    containment: Containment,
    /// None before it is known what a former agent has left.
    journal: Option<Journal>,
    peers: FxHashMap<ConnNo, Peer>,
    /// Which connection is being served, by user.
    turns: BTreeMap<u32, Weak<Semaphore>>,
    user_names: Rc<Names>,
    /// Who may do what.
    rights: Table,
    last_peer: ConnNo,
    connections: Quota,
    visitors: Quota,
    /// Open files, of connections and commands.
    files: Quota,
    /// Requests that wait.
    waiting: Quota,
    /// Bytes of requests.
    requests: Quota,
    /// Bytes of unread replies, and of long calls under way.
    traffic: Quota,
    known: FxHashMap<RequestNo, Known>,
    /// The last requests that have ended: how, and when by the wall.
    ended: VecDeque<(RequestNo, &'static str, u64)>,
    round: Round,
    /// What the engine is to be told, and whether somebody is at it.
    inputs: VecDeque<Input>,
    stepping: bool,
    timers: BTreeMap<TimerNo, tokio::task::AbortHandle>,
    /// The pools of the configuration, which are not kept on disk.
    configured: BTreeSet<holdall_wire::Name>,
    pub(crate) since: u64,
    pub(crate) stopping: bool,
    pub(crate) stop_at_once: bool,
    /// Wakes whoever decides how long the agent lives.
    pub(crate) changed: Rc<Notify>,
    /// When the calls that are being taken came in.
    moment: Option<Instant>,
    touched: Instant,
    host: Arc<str>,
}

pub(crate) type Shared = Rc<RefCell<Service>>;

impl Service {
    /// A service with the pools of its configuration, and everything that was kept.
    pub(crate) fn new(data: Data, config: Config) -> anyhow::Result<Shared> {
        let engine = Engine::new(None, data.epoch(), config.ephemeral)?;
        let (limits, kept) = (config.limits, data.kept()?);
        let rights = Table::new(&config.rights)?;
        let (clock, shift) = Clock::new(&kept.clock);
        let since = clock.now();
        let audit = Audit::open(data.dir().clone(), config.audit_bytes, config.audit_files)?;
        let containment = Containment::find(config.cgroups, data.dir());
        let service = Rc::new_cyclic(|me| {
            RefCell::new(Self {
                me: me.clone(),
                engine,
                data,
                config,
                clock,
                anchor: kept.clock.clone(),
                deadline: None,
                undrained: None,
                audit,
                containment,
                journal: None,
                peers: FxHashMap::default(),
                turns: BTreeMap::new(),
                user_names: Rc::new(Names::new(names::look_up)),
                rights,
                last_peer: 0,
                connections: Quota::new(usize::MAX, limits.connections),
                visitors: Quota::new((files_for_clients() / 32).max(2), VISITORS),
                files: Quota::of_two_thirds(files_for_clients()),
                waiting: Quota::new(usize::MAX, limits.waiting),
                // Apart, so that whoever has asked too much can still see what it has asked.
                requests: Quota::new(limits.memory_bytes / 2, usize::MAX),
                traffic: Quota::new(limits.memory_bytes / 2, usize::MAX),
                known: FxHashMap::default(),
                ended: VecDeque::with_capacity(REMEMBERED),
                round: Round::default(),
                inputs: VecDeque::new(),
                stepping: false,
                timers: BTreeMap::new(),
                configured: BTreeSet::new(),
                since,
                stopping: false,
                stop_at_once: false,
                changed: Rc::new(Notify::new()),
                moment: None,
                touched: Instant::now(),
                host: rustix::system::uname().nodename().to_string_lossy().into(),
            })
        });
        service.borrow_mut().load(kept, shift)?;
        service.borrow().containment.sweep();
        Ok(service)
    }

    /// The time goes on while the machine sleeps, and the clock on the wall may be set: wakes
    /// whoever looks after reservations if one has run out, and keeps what the wall says now.
    pub(crate) fn look_at_clock(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
            self.changed.notify_one();
        }
        let moved = self.anchor.drift(&self.clock.anchor()) > 1000;
        if moved
            && self.deadline.is_some()
            && let Err(error) = self.keep()
        {
            error!("the clock was set, and that is not on disk: {error:#}");
        }
    }

    /// Whether the data directory is still where other agents would look for it.
    pub(crate) fn files_in_place(&self) -> bool {
        self.data.in_place()
    }

    /// Steps the engine. If it is broken, nothing may follow.
    fn step(&mut self, input: Input) -> Vec<Effect> {
        match self.engine.step(self.clock.now(), input) {
            Ok(effects) => {
                if self.engine.epoch() > self.data.epoch()
                    && let Err(error) = self.data.set_epoch(self.engine.epoch())
                {
                    self.give_up(&format!("fences could go back: {error:#}"));
                }
                effects
            }
            Err(defect) => self.give_up(&defect),
        }
    }

    /// A broken invariant: say so, leave a dump, and end before anybody is told anything.
    fn give_up(&mut self, broken: &dyn fmt::Display) -> ! {
        error!("an invariant is broken, nothing is granted any more: {broken}");
        let status = self.engine.status(&[]);
        let dump = serde_json::json!({ "broken": broken.to_string(), "status": status });
        if let Err(error) = self.data.dump(dump.to_string().as_bytes()) {
            error!("cannot leave a dump: {error:#}");
        }
        self.flush_audit();
        std::process::exit(70)
    }

    /// Steps the engine and carries out what follows. What that makes necessary in its turn comes
    /// after it, not inside it: a full disk ends one grant after the other.
    fn input(&mut self, input: Input) {
        self.inputs.push_back(input);
        if std::mem::replace(&mut self.stepping, true) {
            return; // Whoever is at it comes to it.
        }
        while let Some(input) = self.inputs.pop_front() {
            let effects = self.step(input);
            self.carry_out(effects);
        }
        self.stepping = false;
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Arm(timer, rung) => self.arm(timer, rung),
                Effect::Disarm(timer) => {
                    if let Some(task) = self.timers.remove(&timer) {
                        task.abort();
                    }
                }
                Effect::Changed(_) => {} // Whoever asked for it looks itself.
                Effect::Ended(request) => self.on_ended(request),
                Effect::Granted { request, taken, overtook } => {
                    self.on_granted(request, taken, overtook);
                }
                Effect::Queued(request) => self.on_queued(request),
                Effect::Refused { request, why } => {
                    metrics::refused();
                    if self.known.get(&request).is_some_and(|known| known.asked.is_some()) {
                        let why = self.as_may_be_told(request, why);
                        self.log("refused", request, None, Some(why.to_string()));
                        self.reply(request, Reply::Refused(why));
                    }
                    self.forget(request);
                }
                Effect::Unrestored(request) => {
                    warn!(%request, "what a former agent granted no longer fits the pools");
                    self.log("lost", request, None, Some("it no longer fits the pools".into()));
                    self.forget(request);
                }
            }
        }
    }

    fn on_granted(&mut self, request: RequestNo, taken: Arc<[Taken]>, overtook: u32) {
        let Some(known) = self.known.get_mut(&request) else { return };
        if std::mem::take(&mut known.waits) {
            self.waiting.give(known.who.uid, 1);
        }
        if known.is_restored() {
            // Of how long it was held before the agent nothing is known: the limit of its pools begins anew.
            self.limit(request, &taken);
            return self.log("restored", request, Some(&taken), None);
        }
        let (at, fresh_reservation) = (known.at, known.reserved);
        metrics::granted(self.now().saturating_duration_since(at), overtook);
        debug!(%request, "granted");
        self.log("granted", request, Some(&taken), None);
        if fresh_reservation {
            // A reservation is on disk before anybody is told of it.
            if let Err(error) = self.keep() {
                let why = holdall_wire::Fault::Failed(format!("{error:#}"));
                self.reply(request, Reply::Failed(why));
                return self.input(Input::End(request));
            }
            self.touch(true);
        }
        let place = match self.prepare(request) {
            Ok(place) => place,
            Err(error) => {
                let why = holdall_wire::Fault::Failed(format!("{error:#}"));
                self.reply(request, Reply::Failed(why));
                return self.input(Input::End(request));
            }
        };
        let (variables, limit) = (self.variables(request, &taken), self.limit(request, &taken));
        let granted = Reply::Granted { request, taken, place, variables, limit };
        self.round.add_grant(request, granted);
    }

    fn on_ended(&mut self, request: RequestNo) {
        metrics::ended();
        debug!(%request, "ended");
        let reserved = self.known.get(&request).is_some_and(|known| known.reserved);
        self.forget(request);
        self.no_longer_held(request);
        if reserved && let Err(error) = self.keep() {
            // It has run out: so it does for the next agent.
            error!("a released reservation is still on disk: {error:#}");
        }
    }

    /// Writes what outlives the agent.
    fn keep(&mut self) -> anyhow::Result<()> {
        self.keep_without(None)
    }

    /// Writes what outlives the agent, but for a reservation that is about to end.
    fn keep_without(&mut self, over: Option<RequestNo>) -> anyhow::Result<()> {
        let own = |change: &holdall_wire::Change| match change {
            holdall_wire::Change::Add { name, .. } => !self.configured.contains(name),
            _ => false,
        };
        let pools = self.engine.declared().into_iter().filter(own).collect();
        let reservations = self.engine.reservations();
        // What has ended and is only in use by its parts is not to come back.
        let lasts = |r: &RequestNo| self.known.get(r).is_some_and(|known| !known.ending);
        let known = |r: &crate::engine::Reservation| lasts(&r.request) && Some(r.request) != over;
        let reservations = reservations.into_iter().filter(known).collect();
        let drained = self.engine.drained();
        self.anchor = self.clock.anchor();
        let clock = self.anchor.clone();
        self.data.keep(&Kept { schema: crate::data::SCHEMA, clock, pools, drained, reservations })
    }

    fn forget(&mut self, request: RequestNo) {
        let Some(known) = self.known.remove(&request) else { return };
        self.requests.give(known.who.uid, known.size);
        self.files.give(known.who.uid, known.files);
        if known.waits {
            self.waiting.give(known.who.uid, 1);
        }
        if let Some((_, task)) = known.over {
            task.abort();
        }
        if let Some((conn, call)) = known.asked
            && let Some(peer) = self.peers.get_mut(&conn)
        {
            peer.requests.remove(&call);
            if peer.requests.is_empty() && peer.requests.capacity() > ROOM_KEPT {
                peer.requests.shrink_to_fit();
            }
        }
        self.touch(known.reserved);
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

    /// Something has happened; `soon` if how long the agent lives, or its next deadline, may
    /// depend on it.
    fn touch(&mut self, soon: bool) {
        metrics::observe(&self.engine);
        self.touched = self.now();
        if soon || self.stopping {
            self.changed.notify_one();
        }
    }

    /// Whether everything that a stopping agent waits for is over. Reservations are on disk.
    pub(crate) fn drained(&self) -> bool {
        self.stop_at_once || (self.stopping && self.known.values().all(Known::is_on_disk))
    }

    /// For how long nobody was connected, held, waited or had declared anything.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let idle = self.peers.is_empty()
            && self.known.values().all(|known| known.ending && known.is_on_disk())
            && self.engine.declared().is_empty();
        idle.then(|| self.touched.elapsed())
    }

    /// Replies to the call that asked for a request, if somebody still listens.
    fn reply(&mut self, request: RequestNo, reply: Reply) {
        if let Some((conn, call)) = self.known.get(&request).and_then(|known| known.asked) {
            self.answer(conn, call, reply);
        }
    }

    fn arm(&mut self, timer: TimerNo, rung: Rung) {
        let me = self.me.clone();
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(delay(rung)).await;
            if let Some(service) = me.upgrade() {
                let mut service = service.borrow_mut();
                service.timers.remove(&timer);
                service.input(Input::Timer(timer));
            }
        });
        self.timers.insert(timer, task.abort_handle());
    }
}

/// About how many bytes a request takes here: its names are also those of locks, and its client
/// is told them in the end.
fn size(who: &Who, from: &holdall_wire::From, needs: &[holdall_wire::Need]) -> usize {
    1024 + 2 * (who.size() + from.size()) + 3 * holdall_wire::needs_size(needs)
}

/// How many files may be open for clients; some are for the agent itself.
fn files_for_clients() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files - files / 8).saturating_sub(16).max(16)
}

/// The delays of the rungs: doubling, from a tenth of a second. Whoever has stepped aside fifteen
/// times waits at rung 21, two days; longer than some months nobody waits.
fn delay(rung: Rung) -> Duration {
    Duration::from_millis(100 << rung.min(27))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever steps aside does so with twice the patience each time: at rung 6 at first, and at most
    /// fifteen times more.
    #[test]
    fn patience_doubles_as_often_as_anybody_steps_aside() {
        assert_eq!(delay(6), Duration::from_millis(6400));
        assert!((6..21).all(|rung| delay(rung + 1) == 2 * delay(rung)));
        assert_eq!(delay(Rung::MAX), delay(27), "but nobody waits for years");
    }
}
