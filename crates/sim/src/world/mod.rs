//! The loop: takes the next event from the queue, lets a role handle it, carries out what follows.
//!
//! # Invariants
//! - A run is a function of the settings, the graph's number and the protocol: every random number
//!   comes from a seeded stream, and events come out of the queue in one order.
//! - An event in the queue names the request or the life it belongs to, and is void once that is
//!   over. Nothing is ever searched for in the queue.
//! - A lane's role is called to ask only while no request of it is under way.

mod clients;
mod roles;
#[cfg(test)]
mod tests;
mod who;

use std::hint::black_box;

use hashbrown::HashMap;
use holdall_core::{
    About, Addr, Home, ManagerId, Needs, NodeId, Order, Outbox, Protocol, RequestId, Role, UserId,
};
use rustc_hash::FxBuildHasher;

use self::who::Who;
use super::clients::Clients;
use super::contender::Knows;
use super::faults::{Copies, Delays, FaultPlan};
use super::pools::Pools;
use super::random::Stream;
use super::settings::{FaultKind, Settings, Stage};
use super::stats::{ResponseTimes, RunStats, Tallies, jain};
use super::telling::Telling;
use super::timers::Timers;
use super::wheel::Wheel;
use super::workload::{Generator, Plan, mean_degree};

/// With how many events or more it is worthwhile to look ahead.
const WORTHWHILE: usize = 8;

type UserTimer<P> = <<P as Protocol>::User as Role>::Timer;
type ManagerTimer<P> = <<P as Protocol>::Manager as Role>::Timer;

/// What is due some time.
#[derive(Debug)]
enum Item<P: Protocol> {
    /// A client does something.
    Client(RequestId, Action),
    /// The detector tells a manager that a user is gone.
    Gone(ManagerId, UserId),
    /// A timer rings, if it is still of this arming.
    ManagerRing(ManagerId, ManagerTimer<P>, u64),
    /// A message arrives.
    ToManager { to: Who, from: Who, msg: P::ToManager },
    /// A message arrives.
    ToUser { to: Who, from: Who, msg: P::ToUser },
    /// Something that had to wait for its turn, because its role handles one event a tick.
    Turn(Box<Self>),
    /// A timer rings, if it is still of this arming.
    UserRing(UserId, UserTimer<P>, u64),
    /// Clients that decide themselves what they do wanted to be told this time.
    Wake,
}

/// What a client does, or what is done to it.
#[derive(Clone, Copy, Debug)]
enum Action {
    Ask,
    /// What it was granted has been handed over.
    Begin,
    /// The detector notices that it has stopped.
    Detected,
    Done,
    Fail(FaultKind, Stage),
}

/// A place from which users come and go one after another.
///
/// Laid out by cache lines: what nearly every event of it needs, then its role, then what few need. In a large system
/// each line that is looked at is a wait for memory.
#[derive(Debug)]
#[repr(C, align(64))]
struct Lane<P: Protocol> {
    /// How many users it had before the present one.
    generation: u64,
    /// The present request, or the next while the client thinks.
    seq: u64,
    /// Since when it is in its state.
    since: u64,
    needs: Needs,
    service: u64,
    grants: u64,
    number: u32,
    state: State,
    role: P::User,
    /// What it was granted last, with every unit of listed pools, if that is not just what it needs.
    uses: Option<Box<Needs>>,
    stream: Stream,
    /// How long uses like the present one take on average.
    expected: u64,
    /// When the last message of the present user arrives, of those sent so far; kept only where users fail.
    last_arrival: u64,
    /// The first tick at which no event is taken on yet; kept only if a role handles one event a tick.
    free_at: u64,
}

/// What the client of a lane is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Thinking,
    Waiting,
    Using,
    /// The use is over, the request not yet.
    Ending,
    /// It was called to leave.
    Leaving,
    /// It has stopped, and nobody knows yet.
    Stopped,
}

/// A manager, at the beginning of a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Manager<P: Protocol> {
    node: NodeId,
    role: P::Manager,
    free_at: u64,
}

/// Where and how a protocol went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) tick: u64,
    pub(super) who: Addr,
    pub(super) what: String,
}

type Step = Result<(), Box<Failure>>;

/// What messages travel on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    /// Whether messages take no time and do not count.
    instant: bool,
    /// Whether what is handed over takes the time of messages all the same.
    hands_over: bool,
    /// In which order they arrive on a link.
    order: Order,
}

impl Network {
    pub(super) fn new(about: &About, knows: Knows) -> Self {
        Self {
            instant: knows != Knows::ByMessage,
            hands_over: knows == Knows::AllButHandOver,
            order: about.assumes.order,
        }
    }
}

/// One run of one protocol.
#[derive(Debug)]
pub(super) struct World<'a, P: Protocol> {
    cfg: P,
    settings: &'a Settings,
    network: Network,
    now: u64,
    wheel: Wheel<Item<P>>,
    lanes: Vec<Lane<P>>,
    managers: Vec<Manager<P>>,
    /// Users that were called to leave and are not idle yet.
    leaving: HashMap<UserId, P::User, FxBuildHasher>,
    user_out: Outbox<P, UserTimer<P>>,
    manager_out: Outbox<P, ManagerTimer<P>>,
    user_timers: Timers<UserId, UserTimer<P>>,
    manager_timers: Timers<ManagerId, ManagerTimer<P>>,
    /// When the last message on a link arrives; kept only if links must keep order.
    links: HashMap<(Addr, Addr), u64, FxBuildHasher>,
    generator: Generator<'a>,
    /// Those who decide what is asked for, if the generator does not.
    clients: Option<&'a mut dyn Clients>,
    /// When all is over.
    end: u64,
    delays: Delays,
    copies: Copies,
    faults: FaultPlan<'a>,
    telling: Telling,
    pools: Pools,
    /// By pool, when the word of its last release arrives; kept only where such words are handed over.
    back_at: Vec<u64>,
    times: ResponseTimes,
    tallies: Tallies,
    degree: f64,
    messages: u64,
    events: u64,
}

impl<'a, P: Protocol> World<'a, P> {
    pub(super) fn new(cfg: P, settings: &'a Settings, graph: u32, network: Network) -> Self {
        let mut generator = Generator::new(settings, graph);
        let mut wheel = Wheel::new();
        let mut faults = FaultPlan::new(settings, graph);
        let lanes: Vec<_> = (0..settings.users)
            .map(|lane| {
                let mut stream = generator.stream(lane);
                let needs = generator.needs(lane, &mut stream);
                let plan = generator.plan(&mut stream, &needs);
                faults.decide(lane);
                let lane = Lane::new(&cfg, UserId::first(lane), stream, needs, plan);
                wheel.push(plan.think, Item::Client(lane.request(), Action::Ask));
                lane
            })
            .collect();
        let widest = (0..).zip(&lanes).map(|(n, lane)| generator.maximum(n).unwrap_or(&lane.needs));
        let degree = mean_degree(&widest.collect::<Vec<_>>(), settings.resources);
        let pools =
            Pools::new(settings.resources, settings.units, settings.users, settings.warm_up());
        Self {
            degree,
            faults,
            ..Self::with(cfg, settings, graph, network, wheel, lanes, generator, pools)
        }
    }

    /// A world whose clients decide themselves what they do.
    pub(super) fn played(
        cfg: P,
        settings: &'a Settings,
        network: Network,
        clients: &'a mut dyn Clients,
    ) -> Self {
        let generator = Generator::new(settings, 0);
        let lane = |(number, needs): (u32, &Needs)| {
            let stream = generator.stream(number);
            Lane::new(&cfg, UserId::first(number), stream, needs.clone(), Plan::default())
        };
        let lanes = (0..).zip(clients.needs()).map(lane).collect();
        let mut wheel = Wheel::new();
        wheel.push(0, Item::Wake);
        // Pools differ in size here, and who has decided what is asked for sees to exclusion.
        let pools = Pools::new(settings.resources, u32::MAX, settings.users, 0);
        let world = Self::with(cfg, settings, 0, network, wheel, lanes, generator, pools);
        Self { clients: Some(clients), ..world }
    }

    #[allow(clippy::too_many_arguments, reason = "what both kinds of world are made of")]
    fn with(
        cfg: P,
        settings: &'a Settings,
        graph: u32,
        network: Network,
        wheel: Wheel<Item<P>>,
        lanes: Vec<Lane<P>>,
        generator: Generator<'a>,
        pools: Pools,
    ) -> Self {
        let managers = cfg.managers().into_iter().zip(0..).map(|(node, id)| Manager {
            role: cfg.manager(ManagerId(id)),
            node,
            free_at: 0,
        });
        let mean_delay = match network {
            Network { instant: true, hands_over: false, .. } => 0,
            _ => settings.delay,
        };
        Self {
            settings,
            network,
            now: 0,
            wheel,
            degree: 0.0,
            managers: managers.collect(),
            lanes,
            leaving: HashMap::default(),
            user_out: Outbox::default(),
            manager_out: Outbox::default(),
            user_timers: Timers::default(),
            manager_timers: Timers::default(),
            links: HashMap::default(),
            generator,
            clients: None,
            end: settings.ticks,
            delays: Delays::new(settings, graph, mean_delay),
            copies: Copies::new(settings, graph),
            faults: FaultPlan::new(settings, graph),
            telling: Telling::new(settings, graph),
            pools,
            back_at: vec![0; if network.hands_over { settings.resources as usize } else { 0 }],
            times: ResponseTimes::new(settings.warm_up(), settings.ticks),
            tallies: Tallies::default(),
            messages: 0,
            events: 0,
            cfg,
        }
    }

    /// Runs to the end. `progress` is told now and then how many ticks went by since last time.
    pub(super) fn run(mut self, progress: impl Fn(u64)) -> Result<RunStats, Box<Failure>> {
        let part = self.end.div_ceil(100);
        let mut told = 0;
        while let Some((now, mut batch)) = self.wheel.take_before(self.end) {
            self.now = now;
            if now - told >= part {
                progress(now - told);
                told = now;
            }
            self.look_ahead(&batch);
            for item in batch.drain(..) {
                self.take(item)?;
                // Those who decide themselves what they do may have done all they wanted.
                if self.now >= self.end {
                    break;
                }
            }
            self.wheel.give_back(batch);
        }
        progress(self.end - told);
        let end = self.end;
        Ok(self.finish(end))
    }

    /// Reads a little of the roles whose turn comes next. In a large system each of them is far away in memory; read
    /// one after another without a use in between, they are fetched at the same time: first the roles, then what they
    /// and the clients refer to, then the pools that are meant. What it brings is in `docs/simulation.md`, Speed.
    fn look_ahead(&self, next: &[Item<P>]) {
        if next.len() < WORTHWHILE {
            return;
        }
        for item in next {
            if let Some(lane) = self.lane_of(item) {
                // One of each line; the last only where the client is about to draw its next request.
                let draws = matches!(item, Item::Client(_, Action::Done));
                let last = if draws { lane.expected } else { 0 };
                black_box(lane.seq + last + u64::from(lane.uses.is_some()));
            } else if let Some(manager) = self.manager_of(item) {
                black_box(manager.node.0 + manager.free_at);
            }
        }
        for item in next {
            if let Some(lane) = self.lane_of(item) {
                black_box(lane.needs.last().map(|need| need.units));
                black_box(lane.role.touch());
            } else if let Some(manager) = self.manager_of(item) {
                black_box(manager.role.touch());
            }
        }
        for lane in next.iter().filter_map(|item| self.lane_of(item)) {
            black_box(self.pools.touch(lane.number as usize, &lane.needs));
        }
    }

    /// The lane whose turn it is at an event, if any.
    fn lane_of(&self, item: &Item<P>) -> Option<&Lane<P>> {
        match item {
            Item::Client(RequestId { user, .. }, _) => self.lanes.get(user.lane().index()),
            Item::ToUser { to, .. } => self.lanes.get(to.index()),
            _ => None,
        }
    }

    /// The manager that a message is for, if it is one.
    fn manager_of(&self, item: &Item<P>) -> Option<&Manager<P>> {
        match item {
            Item::ToManager { to, .. } => self.managers.get(to.index()),
            _ => None,
        }
    }

    fn take(&mut self, item: Item<P>) -> Step {
        match item {
            Item::Turn(item) => self.handle(*item),
            item if self.settings.one_per_tick => match self.turn_of(&item) {
                turn if turn > self.now => {
                    self.push(turn, Item::Turn(Box::new(item)));
                    Ok(())
                }
                _ => self.handle(item),
            },
            item => self.handle(item),
        }
    }

    /// The tick at which a role handles what comes to it now: the first that is not taken.
    fn turn_of(&mut self, item: &Item<P>) -> u64 {
        let user = |user: &UserId| user.lane().index();
        let free_at = match item {
            Item::Client(_, Action::Detected) | Item::Turn(_) | Item::Wake => return self.now,
            Item::Client(request, _) => &mut self.lanes[user(&request.user)].free_at,
            Item::ToUser { to, .. } => &mut self.lanes[to.index()].free_at,
            Item::UserRing(to, ..) => &mut self.lanes[user(to)].free_at,
            Item::Gone(to, _) | Item::ManagerRing(to, ..) => &mut self.managers[to.index()].free_at,
            Item::ToManager { to, .. } => &mut self.managers[to.index()].free_at,
        };
        let turn = self.now.max(*free_at);
        *free_at = turn + 1;
        turn
    }

    /// Lets something happen at a time, unless all is over by then.
    fn push(&mut self, time: u64, item: Item<P>) {
        if time < self.end {
            self.wheel.push(time, item);
        }
    }

    fn wrong(&self, who: Addr, what: impl Into<String>) -> Box<Failure> {
        Box::new(Failure { tick: self.now, who, what: what.into() })
    }

    fn finish(mut self, end: u64) -> RunStats {
        for lane in self.lanes.iter().filter(|lane| lane.state == State::Using) {
            self.pools.measure(&lane.needs, lane.since, end);
        }
        let waiting = self.lanes.iter().filter(|lane| lane.state == State::Waiting);
        for lane in waiting.clone() {
            self.times.wait(lane.since, end);
        }
        RunStats {
            grants: self.lanes.iter().map(|lane| lane.grants).sum(),
            unfinished: waiting.clone().count() as u64,
            unfinished_longest: waiting.map(|lane| end - lane.since).max(),
            messages: self.messages,
            utilisation: self.pools.utilisation(end),
            degree: self.degree,
            overtaken_max: self.pools.overtaken_max(),
            jain: jain(self.lanes.iter().map(|lane| lane.grants)),
            violations: self.pools.violations(),
            events: self.events,
            times: self.times,
            tallies: self.tallies,
        }
    }
}

impl<P: Protocol> Lane<P> {
    fn new(cfg: &P, id: UserId, stream: Stream, needs: Needs, plan: Plan) -> Self {
        Self {
            generation: id.generation(),
            number: id.lane().number,
            role: cfg.user(id),
            state: State::Thinking,
            seq: 1,
            uses: None,
            needs,
            service: plan.service,
            expected: plan.expected,
            since: 0,
            last_arrival: 0,
            free_at: 0,
            grants: 0,
            stream,
        }
    }

    /// The present user. There is one home for all.
    fn id(&self) -> UserId {
        let lane = holdall_core::Lane { home: Home::default(), number: self.number };
        UserId::after(lane, self.generation)
    }

    /// Whether this user, of this lane, is the present one.
    fn is(&self, user: UserId) -> bool {
        self.generation == user.generation() && user.home() == Home::default()
    }

    /// What is in use, or was last.
    fn uses(&self) -> &Needs {
        self.uses.as_deref().unwrap_or(&self.needs)
    }

    /// Goes on to the next state, and returns when the last one began.
    fn begin(&mut self, state: State, now: u64) -> u64 {
        self.state = state;
        std::mem::replace(&mut self.since, now)
    }

    fn request(&self) -> RequestId {
        RequestId { user: self.id(), seq: self.seq }
    }
}
