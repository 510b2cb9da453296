//! One run: a system of roles, and chance that decides what happens next.
//!
//! # Invariants
//! - The world keeps the contract (`holdall_core::contract`): chance decides only among what it allows.
//! - A run is a function of the protocol, the mode and the seed; keeping a trace changes nothing.

mod clients;
mod detector;
mod network;
mod roles;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use holdall_core::{
    About, Addr, Event, Gone, ManagerId, Party, Property, Protocol, Request, RequestId, Role, Rung,
    System, UserId,
};

use self::network::Network;
use crate::forge::Samples;
use crate::plan::Plan;
use crate::random::Random;
use crate::{Mode, Problem, Summary};

/// How many steps healing may take.
const PATIENCE: u64 = 300_000;

type UserTimer<P> = <<P as Protocol>::User as Role>::Timer;
type ManagerTimer<P> = <<P as Protocol>::Manager as Role>::Timer;
type Step = Result<(), Problem>;

/// One run.
#[derive(Debug)]
pub(crate) struct World<P: Protocol> {
    cfg: P,
    promises: Vec<Property>,
    plan: Plan,
    mode: Mode,
    random: Random,
    /// Steps so far.
    now: u64,
    managers: Vec<P::Manager>,
    /// Everybody whose role is there: the present users of the lanes, and those who have left and
    /// are not idle yet.
    users: BTreeMap<UserId, User<P>>,
    /// The present user of each lane.
    lanes: Vec<UserId>,
    network: Network<P>,
    /// What the detector is about to tell.
    reports: Vec<Report>,
    user_timers: Vec<Armed<UserId, UserTimer<P>>>,
    manager_timers: Vec<Armed<ManagerId, ManagerTimer<P>>>,
    /// Units in use, by pool.
    used: Vec<u32>,
    /// The one who is not honest.
    dishonest: Option<Addr>,
    /// Real messages to copy from: those to users, and those to each manager.
    to_users: Samples,
    to_managers: Vec<Samples>,
    healing: bool,
    summary: Summary,
    /// The latest events, oldest first, and how many are kept.
    trace: VecDeque<String>,
    shown: usize,
}

/// A user and its client.
#[derive(Debug)]
struct User<P: Protocol> {
    role: P::User,
    client: Client,
    /// The number of its last request.
    seq: u64,
    /// Whether managers have been told, or will be, that it may be gone.
    suspected: bool,
}

/// What a client is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Client {
    Idle,
    Waiting(Request),
    Using(Request),
    /// The use is over, the request not yet.
    Ending(RequestId),
    /// It was called to leave, or has lost its request.
    Left,
}

/// Something that the detector will tell a manager.
#[derive(Clone, Copy, Debug)]
struct Report {
    to: ManagerId,
    gone: Gone,
    ready: u64,
}

/// A timer that may ring.
#[derive(Clone, Debug)]
struct Armed<R, T> {
    who: R,
    timer: T,
    rung: Rung,
}

impl<P: Protocol> World<P> {
    pub(crate) fn new(
        cfg: P,
        about: &About,
        plan: Plan,
        mode: Mode,
        mut random: Random,
        shown: usize,
    ) -> Self {
        let managers = 0..cfg.managers().len() as u64;
        let lanes: Vec<_> = (0..plan.lanes.len())
            .map(|lane| UserId::first_at(plan.home(lane), lane as u32))
            .collect();
        let user = |id: &UserId| (*id, User::new(&cfg, *id));
        let dishonest = (mode == Mode::Forged).then(|| {
            if !managers.is_empty() && random.per_mille(400) {
                Addr::Manager(ManagerId(random.below(managers.end as usize) as u64))
            } else {
                Addr::User(lanes[random.below(lanes.len())])
            }
        });
        Self {
            promises: about.promises.clone(),
            managers: managers.clone().map(|id| cfg.manager(ManagerId(id))).collect(),
            users: lanes.iter().map(user).collect(),
            network: Network::new(about.assumes.order),
            reports: Vec::new(),
            user_timers: Vec::new(),
            manager_timers: Vec::new(),
            used: vec![0; plan.topology.pools.len()],
            dishonest,
            to_users: Samples::default(),
            to_managers: vec![Samples::default(); managers.end as usize],
            healing: false,
            summary: Summary::default(),
            trace: VecDeque::new(),
            shown,
            now: 0,
            cfg,
            plan,
            mode,
            random,
            lanes,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn trace(&mut self) -> Vec<String> {
        self.trace.drain(..).collect()
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<Summary, Problem> {
        for _ in 0..self.plan.steps {
            self.move_on()?;
            self.check_system()?;
        }
        self.heal()?;
        Ok(self.summary)
    }

    /// Lets chance decide what happens next. What it picks may be impossible; then nothing happens.
    fn move_on(&mut self) -> Step {
        self.now += 1;
        let faults = self.plan.faults;
        let forging = if self.mode == Mode::Forged { 200 } else { 0 };
        let weights = [
            400,
            80,
            200,
            10 * self.plan.timers,
            forging,
            faults.leave,
            faults.stop,
            faults.reboot,
            faults.suspect,
            faults.lapse,
        ];
        match self.random.weighted(&weights) {
            0 => self.deliver(),
            1 => self.report(),
            2 => self.act(),
            3 => self.ring(false),
            4 => self.forge(),
            5 => self.leave(),
            6 => self.stop(),
            7 => self.reboot(),
            8 => self.suspect(),
            _ => self.lapse(),
        }
    }

    /// No more faults and no more requests: whatever is under way comes to its end.
    fn heal(&mut self) -> Step {
        self.healing = true;
        self.note(|| "no more faults from here on".into());
        let judged = self.mode == Mode::Faults;
        let end = self.now + if judged { PATIENCE } else { 1000 };
        while self.now < end {
            self.now += 1;
            if self.network.is_empty() && self.reports.is_empty() && self.is_over() {
                return Ok(());
            }
            let before = self.summary.steps;
            match self.random.below(3) {
                0 => self.end_a_use()?,
                1 => self.report()?,
                _ => self.deliver()?,
            }
            if self.summary.steps == before && !self.can_move() && !self.ring_first()? {
                return if judged { self.nothing_moves() } else { Ok(()) };
            }
            self.check_system()?;
        }
        if judged { self.moves_for_ever() } else { Ok(()) }
    }

    fn can_move(&self) -> bool {
        let using = self.users.values().any(|user| matches!(user.client, Client::Using(_)));
        using || !self.network.is_empty() || !self.reports.is_empty()
    }

    /// Whether nobody waits for anything and every role is idle.
    fn is_over(&self) -> bool {
        self.waiting().is_none() && self.residue().is_none()
    }

    fn waiting(&self) -> Option<RequestId> {
        self.users.values().find_map(|user| match &user.client {
            Client::Waiting(request) | Client::Using(request) => Some(request.id),
            Client::Ending(request) => Some(*request),
            Client::Idle | Client::Left => None,
        })
    }

    fn residue(&self) -> Option<Addr> {
        let managers = (0..).map(ManagerId).zip(&self.managers);
        let mut managers = managers.filter(|(_, role)| !role.is_idle()).map(|(id, _)| id);
        let mut users = self.users.iter().filter(|(_, user)| !user.role.is_idle());
        managers.next().map(Addr::Manager).or_else(|| users.next().map(|(id, _)| Addr::User(*id)))
    }

    fn nothing_moves(&self) -> Step {
        match (self.waiting(), self.residue()) {
            (Some(request), _) if self.promises.contains(&Property::NoDeadlock) => {
                Err(Problem::Stuck(request))
            }
            (None, Some(who)) if self.promises.contains(&Property::NoResidue) => {
                Err(Problem::Residue(who))
            }
            _ => Ok(()),
        }
    }

    fn moves_for_ever(&self) -> Step {
        match (self.waiting(), self.residue()) {
            (Some(request), _) => Err(Problem::Waiting(request)),
            (None, Some(who)) => Err(Problem::Residue(who)),
            (None, None) => Err(Problem::Chatter),
        }
    }

    fn check_system(&self) -> Step {
        if self.mode == Mode::Forged {
            return Ok(()); // It speaks of honest systems.
        }
        self.cfg.check_system(&self).map_err(|broken| Problem::System(broken.0))
    }

    /// Writes down what happens, if anybody wants to know.
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.shown == 0 {
            return;
        }
        if self.trace.len() == self.shown {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>6}  {}", self.now, what()));
    }

    fn note_event<R: Role>(&mut self, who: Addr, event: &Event<R>)
    where
        R::Call: Debug,
    {
        self.note(|| match event {
            Event::Call(call) => format!("{who:?} is called: {call:?}"),
            Event::Gone(gone) => format!("{who:?} is told: {gone:?}"),
            Event::Message { from, msg } => format!("{from:?} -> {who:?}: {msg:?}"),
            Event::Timer(timer) => format!("{who:?} rings: {timer:?}"),
        });
    }

    fn is_honest(&self, who: Addr) -> bool {
        self.dishonest != Some(who)
    }
}

impl<P: Protocol> System<P> for &World<P> {
    fn users(&self) -> impl Iterator<Item = &P::User> {
        self.users.values().map(|user| &user.role)
    }

    fn managers(&self) -> impl Iterator<Item = &P::Manager> {
        self.managers.iter()
    }

    fn to_managers(&self) -> impl Iterator<Item = &P::ToManager> {
        self.network.to_managers()
    }
}

impl<P: Protocol> User<P> {
    fn new(cfg: &P, id: UserId) -> Self {
        Self { role: cfg.user(id), client: Client::Idle, seq: 0, suspected: false }
    }
}

/// Whether one of two reports must come before the other: they speak of the same user.
fn overlap(a: Gone, b: Gone) -> bool {
    match (a.who(), b.who()) {
        (Party::User(a), b) => b.includes(a),
        (a, Party::User(b)) => a.includes(b),
        (a, b) => a == b,
    }
}
