//! One run: a system of roles, and chance that decides what happens next.
//!
//! # Invariants
//! - The world keeps the contract (`holdall_core::contract`): chance decides only among what it allows.
//! - A run is a function of the protocol, the mode and the seed; keeping a trace changes nothing.

mod clients;
mod detector;
mod network;
mod roles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdall_core::{
    About, Addr, Gone, ManagerId, Party, PoolId, Property, Request, RequestId, Rung, Unit, UserId,
};

use self::network::Network;
use crate::forge::Samples;
use crate::plan::Plan;
use crate::random::Random;
use crate::roles::{Input, Message, Roles, Timer};
use crate::{Mode, Problem, Summary};

/// How many steps healing may take.
const PATIENCE: u64 = 300_000;

type Step = Result<(), Problem>;

/// One run.
pub(crate) struct World {
    /// The managers, and everybody whose role is there: the present users of the lanes, and those
    /// who have left and are not idle yet.
    roles: Box<dyn Roles>,
    promises: Vec<Property>,
    plan: Plan,
    mode: Mode,
    random: Random,
    /// Steps so far.
    now: u64,
    /// Everybody whose role is there.
    users: BTreeMap<UserId, User>,
    /// The present user of each lane.
    lanes: Vec<UserId>,
    network: Network,
    /// What the detector is about to tell.
    reports: Vec<Report>,
    user_timers: Vec<Armed<UserId>>,
    manager_timers: Vec<Armed<ManagerId>>,
    /// Units in use, by pool.
    used: Vec<u32>,
    /// Those of listed pools, one by one.
    units_used: BTreeSet<(PoolId, Unit)>,
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
struct User {
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
struct Armed<R> {
    who: R,
    timer: Timer,
    rung: Rung,
}

impl World {
    pub(crate) fn new(
        mut roles: Box<dyn Roles>,
        about: &About,
        plan: Plan,
        mode: Mode,
        mut random: Random,
        shown: usize,
    ) -> Self {
        let managers = 0..roles.managers() as u64;
        let lanes: Vec<_> = (0..plan.lanes.len())
            .map(|lane| UserId::first_at(plan.home(lane), lane as u32))
            .collect();
        lanes.iter().for_each(|id| roles.add_user(*id));
        let dishonest = (mode == Mode::Forged).then(|| {
            if !managers.is_empty() && random.per_mille(400) {
                Addr::Manager(ManagerId(random.below(managers.end as usize) as u64))
            } else {
                Addr::User(lanes[random.below(lanes.len())])
            }
        });
        Self {
            promises: about.promises.clone(),
            users: lanes.iter().map(|id| (*id, User::new())).collect(),
            network: Network::new(about.assumes.order),
            reports: Vec::new(),
            user_timers: Vec::new(),
            manager_timers: Vec::new(),
            used: vec![0; plan.topology.pools.len()],
            units_used: BTreeSet::new(),
            dishonest,
            to_users: Samples::default(),
            to_managers: vec![Samples::default(); managers.end as usize],
            healing: false,
            summary: Summary::default(),
            trace: VecDeque::new(),
            shown,
            now: 0,
            roles,
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
        self.go_on()?;
        self.heal()?;
        if self.plan.leave_later > 0 {
            self.healing = false;
            self.plan.faults.leave = self.plan.leave_later;
            self.go_on()?;
            self.heal()?;
        }
        Ok(self.summary)
    }

    fn go_on(&mut self) -> Step {
        for _ in 0..self.plan.steps {
            self.move_on()?;
            self.check_system()?;
            for _ in 0..self.plan.arrivals {
                self.deliver()?;
                self.check_system()?;
            }
        }
        Ok(())
    }

    /// Lets chance decide what happens next. What it picks may be impossible; then nothing happens.
    fn move_on(&mut self) -> Step {
        self.now += 1;
        let faults = self.plan.faults;
        let forging = if self.mode == Mode::Forged { 200 } else { 0 };
        let weights = [
            400,
            80,
            self.plan.acts,
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
        let managers = (0..self.roles.managers() as u64).map(|id| Addr::Manager(ManagerId(id)));
        let users = self.users.keys().map(|id| Addr::User(*id));
        managers.chain(users).find(|who| !self.roles.is_idle(*who))
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
        self.check_idleness()?;
        let to_managers: Vec<&Message> = self.network.to_managers().collect();
        let to_users: Vec<(Addr, &Message)> = self.network.to_users().collect();
        self.roles.check_system(&to_managers, &to_users).map_err(|broken| Problem::System(broken.0))
    }

    /// Whoever acts for a client is not idle, and while something is used, some manager is not either.
    fn check_idleness(&self) -> Step {
        let mut used = false;
        for (id, user) in &self.users {
            let who = Addr::User(*id);
            let busy = !matches!(user.client, Client::Idle | Client::Left);
            if busy && self.roles.is_idle(who) {
                return Err(Problem::Idle(who));
            }
            used |= matches!(user.client, Client::Using(_));
        }
        let mut managers = (0..self.roles.managers() as u64).map(ManagerId).map(Addr::Manager);
        match managers.next() {
            Some(first) if used && self.roles.is_idle(first) => {
                let all = managers.all(|other| self.roles.is_idle(other));
                if all { Err(Problem::Idle(first)) } else { Ok(()) }
            }
            _ => Ok(()),
        }
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

    fn note_event(&mut self, who: Addr, input: &Input) {
        self.note(|| match input {
            Input::Call(call) => format!("{who:?} is called: {call:?}"),
            Input::Gone(gone) => format!("{who:?} is told: {gone:?}"),
            Input::Message { from, msg } => format!("{from:?} -> {who:?}: {msg:?}"),
            Input::Timer(timer) => format!("{who:?} rings: {timer:?}"),
        });
    }

    fn is_honest(&self, who: Addr) -> bool {
        self.dishonest != Some(who)
    }
}

impl User {
    fn new() -> Self {
        Self { client: Client::Idle, seq: 0, suspected: false }
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
