//! "Actions of agents" and "actions of tasks".

use std::collections::BTreeSet;

use holdall_core::{Addr, Broken, Call, Event, Need, Outbox, Request, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::manager::units;
use super::{Claim, Form, Kind, Number, PrintedWinkowski, Situation, Version};

type Out = Outbox<PrintedWinkowski, Timer>;

/// The user's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// The alarm clock.
    Alarm,
}

/// An agent with at most one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    task: Option<Task>,
}

/// The local state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Task {
    request: Request,
    status: Status,
    /// What is known of the pools of its interest.
    pools: Vec<About>,
    /// Whether the alarm clock is set.
    alarm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Status {
    Registering,
    Admitted,
    Trying,
    Advancing,
    Ordering,
    Winning,
    Accessing,
    Releasing,
}

/// What a task knows of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct About {
    need: Need,
    /// Whether it is in Destinations.
    destination: bool,
    /// The latest form sent there.
    sent: Number,
    /// The latest form that the manager had received, as far as is known.
    heard: Option<Number>,
    version: Option<Version>,
    predecessors: BTreeSet<RequestId>,
    registered: bool,
    requests: Vec<Claim>,
    orders: BTreeSet<RequestId>,
    uses: Vec<Claim>,
    blocking: Vec<RequestId>,
}

impl About {
    fn new(task: RequestId, need: Need) -> Self {
        Self {
            destination: true,
            sent: Number::first(task.user, PrintedWinkowski::manager_of(need.pool)),
            need,
            heard: None,
            version: None,
            predecessors: BTreeSet::new(),
            registered: false,
            requests: Vec::new(),
            orders: BTreeSet::new(),
            uses: Vec::new(),
            blocking: Vec::new(),
        }
    }

    /// Whether what is known is what the manager knew after the latest form.
    fn is_up_to_date(&self) -> bool {
        self.heard == Some(self.sent)
    }

    /// The requests before that of the task: all if it has none here.
    fn before(&self, task: RequestId) -> impl Iterator<Item = &Claim> {
        self.requests.iter().take_while(move |claim| claim.task != task)
    }

    fn has_room(&self, cfg: &PrintedWinkowski, beside: u64) -> bool {
        let all = units(&self.uses) + beside + u64::from(self.need.units);
        all <= cfg.capacity(self.need.pool)
    }

    /// Condition (p3) for this pool.
    fn is_open(&self, cfg: &PrintedWinkowski, me: Claim) -> bool {
        let counts =
            |claim: &&Claim| claim.ticket() <= me.ticket() || self.orders.contains(&claim.task);
        self.has_room(cfg, units(self.before(me.task).filter(counts)))
    }

    /// Whether the request is preceded by fewer than the accessible resources.
    fn is_within_reach(&self, cfg: &PrintedWinkowski, task: RequestId) -> bool {
        self.has_room(cfg, units(self.before(task)))
    }

    fn is_requested(&self, task: RequestId) -> bool {
        self.requests.iter().any(|claim| claim.task == task)
    }

    /// The predecessors in the queue: all, or those without an order form.
    fn blockers(&self, task: RequestId, all: bool) -> Vec<RequestId> {
        let counts = |id: &RequestId| all || !self.orders.contains(id);
        self.before(task).map(|claim| claim.task).filter(counts).collect()
    }
}

impl Task {
    fn new(request: Request) -> Self {
        let pools = request.needs.iter().map(|need| About::new(request.id, need.clone())).collect();
        Self { request, status: Status::Registering, pools, alarm: false }
    }

    const fn id(&self) -> RequestId {
        self.request.id
    }

    fn send(&mut self, at: usize, kind: Kind, out: &mut Out) {
        let task = self.id();
        let pool = &mut self.pools[at];
        pool.sent = pool.sent.next();
        let form = Form { kind, task, units: pool.need.units, number: pool.sent };
        out.to_manager(PrintedWinkowski::manager_of(pool.need.pool), form);
    }

    /// Sends a form to all destinations, which then are none.
    fn send_to_destinations(&mut self, kind: Kind, out: &mut Out) {
        for at in 0..self.pools.len() {
            if self.pools[at].destination {
                self.pools[at].destination = false;
                self.send(at, kind, out);
            }
        }
    }

    fn enter(&mut self, status: Status) {
        self.status = status;
        for pool in &mut self.pools {
            pool.destination = true;
        }
    }

    fn all(&self, holds: impl Fn(&About) -> bool) -> bool {
        self.pools.iter().all(holds)
    }

    /// Whether it may rely on what it knows.
    fn is_up_to_date(&self, cfg: &PrintedWinkowski) -> bool {
        !cfg.repairs.d11 || self.all(About::is_up_to_date)
    }

    /// Condition (p3).
    fn may_go_on(&self, cfg: &PrintedWinkowski) -> bool {
        self.all(|pool| {
            let me = Claim { task: self.id(), units: pool.need.units };
            pool.is_open(cfg, me)
        })
    }

    fn has_requested(&self) -> bool {
        self.all(|pool| !pool.destination && pool.is_requested(self.id()))
    }

    /// Carries out every action that is possible.
    fn act(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        loop {
            let before = self.status;
            match self.status {
                Status::Registering => self.register(cfg),
                Status::Admitted => {
                    self.send_to_destinations(Kind::Admission, out);
                    self.enter(Status::Trying);
                }
                Status::Trying | Status::Advancing | Status::Ordering => self.compete(cfg, out),
                Status::Winning => self.win(cfg, out),
                Status::Accessing | Status::Releasing => {}
            }
            if self.status == before {
                return self.watch(cfg, out);
            }
        }
    }

    fn register(&mut self, cfg: &PrintedWinkowski) {
        let sent = self.all(|pool| !pool.destination);
        let alone = self.all(|pool| pool.predecessors.is_empty());
        let answered = !cfg.repairs.d2 || self.all(|pool| pool.registered);
        if sent && alone && answered {
            self.enter(Status::Admitted);
        }
    }

    fn compete(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        if !self.is_up_to_date(cfg) {
            return;
        }
        if !self.may_go_on(cfg) {
            return self.withdraw(cfg, out);
        }
        match self.status {
            Status::Trying => {
                self.send_to_destinations(Kind::Request, out);
                let within = |pool: &About| pool.is_within_reach(cfg, self.id());
                if self.has_requested() && (!cfg.repairs.d5 || self.all(within)) {
                    self.enter(Status::Ordering);
                }
            }
            Status::Advancing if self.pools.iter().all(|pool| pool.is_requested(self.id())) => {
                self.send_to_destinations(Kind::Advancing, out);
                if cfg.repairs.d8 {
                    self.status = Status::Trying;
                }
            }
            Status::Ordering if self.pools.iter().all(|pool| pool.is_requested(self.id())) => {
                self.order(cfg, out);
            }
            _ => {}
        }
    }

    fn order(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        let sent = self.all(|pool| !pool.destination);
        self.send_to_destinations(Kind::Order, out);
        let seen = self.all(|pool| pool.orders.contains(&self.id()));
        if seen || !cfg.repairs.d6 {
            return self.enter(Status::Winning);
        }
        let refusals = cfg.repairs.d3 && cfg.repairs.d11 && cfg.repairs.d15;
        if sent && self.is_up_to_date(cfg) && refusals {
            self.withdraw(cfg, out); // An order was not accepted.
        }
    }

    /// The regressive behaviour. As printed, it withdraws only where nothing was sent, which
    /// changes nothing.
    fn withdraw(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        if cfg.repairs.d7 {
            for at in 0..self.pools.len() {
                let pool = &self.pools[at];
                let sent = match self.status {
                    Status::Trying => !pool.destination,
                    _ => pool.is_requested(self.id()),
                };
                if sent {
                    self.pools[at].destination = true;
                    self.send(at, Kind::Withdrawal, out);
                }
            }
        }
        if cfg.repairs.d8 {
            self.status = Status::Trying;
        }
    }

    fn win(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        self.send_to_destinations(Kind::Winning, out);
        let uses = |pool: &About| pool.uses.iter().any(|claim| claim.task == self.id());
        if cfg.repairs.d18 && self.all(uses) {
            out.granted(self.request.clone());
            self.enter(Status::Accessing);
        }
    }

    /// Sets the alarm clock, or takes it back.
    fn watch(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        let blocked = self.status == Status::Trying
            && self.is_up_to_date(cfg)
            && self.has_requested()
            && self.may_go_on(cfg);
        if blocked && !self.alarm {
            self.note_blockers(!cfg.repairs.d13);
            if !cfg.repairs.d4 && self.all(About::is_up_to_date) {
                self.enter(Status::Advancing); // It rings at once.
                return self.act(cfg, out);
            }
            self.alarm = true;
            out.arm(Timer::Alarm, 0);
        } else if self.alarm && !blocked {
            self.alarm = false;
            out.disarm(Timer::Alarm);
        }
    }

    fn note_blockers(&mut self, all: bool) {
        let task = self.id();
        for pool in &mut self.pools {
            pool.blocking = pool.blockers(task, all);
        }
    }

    fn on_alarm(&mut self, cfg: &PrintedWinkowski, out: &mut Out) {
        let task = self.id();
        let same = |pool: &About| pool.blocking == pool.blockers(task, !cfg.repairs.d13);
        self.alarm = false;
        if self.all(same) {
            for pool in &mut self.pools {
                pool.blocking.clear();
            }
            self.enter(Status::Advancing);
            return self.act(cfg, out);
        }
        self.note_blockers(false);
        self.alarm = true;
        out.arm(Timer::Alarm, 0);
    }

    /// The next releasing form, if the one before is confirmed.
    fn release(&mut self, out: &mut Out) {
        let confirmed = |pool: &About| pool.destination || !pool.registered;
        if self.all(confirmed)
            && let Some(at) = self.pools.iter().position(|pool| pool.destination)
        {
            self.pools[at].destination = false;
            self.send(at, Kind::Releasing, out);
        }
    }

    /// Receiving a message from a manager.
    fn learn(&mut self, cfg: &PrintedWinkowski, at: usize, news: Situation) {
        let pool = &mut self.pools[at];
        if self.status == Status::Registering && !pool.registered && news.registered {
            pool.predecessors = news.admissions;
        } else {
            pool.predecessors.retain(|task| news.admissions.contains(task));
        }
        (pool.heard, pool.version) = (Some(news.heard), Some(news.version));
        (pool.registered, pool.requests, pool.uses) = (news.registered, news.requests, news.uses);
        if cfg.repairs.d3 {
            pool.orders = news.orders;
        }
    }

    fn pool_of(&self, manager: Addr) -> Option<usize> {
        let guards =
            |pool: &About| Addr::Manager(PrintedWinkowski::manager_of(pool.need.pool)) == manager;
        self.pools.iter().position(guards)
    }

    /// Whether a situation is overtaken by a newer one.
    fn is_old(&self, cfg: &PrintedWinkowski, at: usize, news: &Situation) -> bool {
        cfg.repairs.d12 && Some(news.version) <= self.pools[at].version
    }
}

impl User {
    fn ask(&mut self, cfg: &PrintedWinkowski, request: Request, out: &mut Out) {
        let mut task = Task::new(request);
        for at in 0..task.pools.len() {
            task.pools[at].destination = !cfg.repairs.d1;
            task.send(at, Kind::Registration, out);
        }
        task.act(cfg, out);
        self.task = Some(task);
    }

    fn on_message(&mut self, cfg: &PrintedWinkowski, from: Addr, news: Situation, out: &mut Out) {
        let Some(task) = self.task.as_mut().filter(|task| task.id() == news.task) else { return };
        let Some(at) = task.pool_of(from) else {
            return out.misbehaved(from, "news of a pool that is of no interest");
        };
        if task.is_old(cfg, at, &news) {
            return;
        }
        let leaves = task.pools[at].registered && !news.registered;
        task.learn(cfg, at, news);
        if task.status != Status::Releasing {
            return task.act(cfg, out);
        }
        let released = |pool: &About| !pool.destination && !pool.registered;
        if leaves && (!cfg.repairs.d10 || task.all(released)) {
            out.released(task.id());
            self.task = None;
        } else {
            task.release(out);
        }
    }
}

impl Role for User {
    type P = PrintedWinkowski;
    type Call = Call;
    type Msg = Situation;
    type Timer = Timer;

    fn step(&mut self, cfg: &PrintedWinkowski, event: Event<Self>, out: &mut Out) {
        match (event, &mut self.task) {
            (Event::Call(Call::Ask(request, _)), _) => self.ask(cfg, request, out),
            (Event::Call(Call::Done), Some(task)) if cfg.repairs.d16 => {
                task.enter(Status::Releasing);
                task.release(out);
            }
            (Event::Message { from, msg }, _) => self.on_message(cfg, from, msg, out),
            (Event::Timer(Timer::Alarm), Some(task)) => task.on_alarm(cfg, out),
            _ => {}
        }
    }

    fn check(&self, _: &PrintedWinkowski) -> Result<(), Broken> {
        Ok(())
    }

    fn is_stale(&self, cfg: &PrintedWinkowski, from: Addr, msg: &Situation) -> bool {
        let Some(task) = self.task.as_ref().filter(|task| task.id() == msg.task) else {
            return true;
        };
        task.pool_of(from).is_some_and(|at| task.is_old(cfg, at, msg))
    }

    fn stage(&self) -> &'static str {
        match self.task.as_ref().map(|task| task.status) {
            None => "",
            Some(Status::Registering) => "registering",
            Some(Status::Admitted) => "admitted",
            Some(Status::Trying) => "trying",
            Some(Status::Advancing) => "advancing",
            Some(Status::Ordering) => "ordering",
            Some(Status::Winning) => "winning",
            Some(Status::Accessing) => "accessing",
            Some(Status::Releasing) => "releasing",
        }
    }

    fn is_idle(&self) -> bool {
        self.task.is_none()
    }
}
