//! The manager of `house` looks only at what a change can affect. It must do the very same as one
//! that looks at everything (`thorough=1`): both hear the same, side by side, in random schedules.

use std::fmt::Debug;

use holdall_core::{
    About, Addr, Broken, Call, Capacity, Effect, Event, ManagerId, Need, Needs, NodeId, Note,
    Options, Origin, Outbox, Pool, PoolId, Protocol, RequestId, Resize, Role, Topology, Unit,
    Unsupported, UserId,
};
use holdall_fuzz::{Mode, Target};
use holdall_protocols::house::{self, House, Round, Span, Stance, ToManager};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// `house`, with a second opinion at every manager.
#[derive(Debug)]
struct Twins {
    quick: House,
    thorough: House,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct User(house::User);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Manager {
    quick: house::Manager,
    thorough: house::Manager,
    /// What the two did differently.
    differ: Option<String>,
}

impl Protocol for Twins {
    const FAMILY: &'static str = "twins";
    const NAMES: &'static [&'static str] = &["twins"];
    type ToUser = house::ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        House::about(variant)
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let variant = options.variant.as_deref().unwrap_or_default();
        let thorough =
            Options { variant: Some(format!("{variant},thorough=1")), ..options.clone() };
        Ok(Self {
            quick: House::new(topology, options)?,
            thorough: House::new(topology, &thorough)?,
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.quick.managers()
    }

    fn user(&self, id: UserId) -> User {
        User(self.quick.user(id))
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager { quick: self.quick.manager(id), thorough: self.thorough.manager(id), differ: None }
    }
}

fn pass_on<T: Debug>(inner: Outbox<House, T>, out: &mut Outbox<Twins, T>) {
    for note in out.lift(inner, |msg| msg, |msg| msg, |timer| timer) {
        match note {
            Note::Granted(request) => out.granted(request),
            Note::Lost(request) => out.lost(request),
            Note::Released(request) => out.released(request),
        }
    }
}

/// The event as the role inside hears it.
fn inner<Outer: Role, Inner>(event: Event<Outer>) -> Event<Inner>
where
    Inner: Role<Call = Outer::Call, Msg = Outer::Msg, Timer = Outer::Timer>,
{
    match event {
        Event::Call(call) => Event::Call(call),
        Event::Gone(gone) => Event::Gone(gone),
        Event::Message { from, msg } => Event::Message { from, msg },
        Event::Timer(timer) => Event::Timer(timer),
    }
}

impl Role for User {
    type P = Twins;
    type Call = Call;
    type Msg = house::ToUser;
    type Timer = <house::User as Role>::Timer;

    fn step(&mut self, cfg: &Twins, event: Event<Self>, out: &mut Outbox<Twins, Self::Timer>) {
        let mut own = Outbox::default();
        self.0.step(&cfg.quick, inner(event), &mut own);
        pass_on(own, out);
    }

    fn check(&self, cfg: &Twins) -> Result<(), Broken> {
        self.0.check(&cfg.quick)
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

impl Role for Manager {
    type P = Twins;
    type Call = <house::Manager as Role>::Call;
    type Msg = ToManager;
    type Timer = <house::Manager as Role>::Timer;

    fn step(&mut self, cfg: &Twins, event: Event<Self>, out: &mut Outbox<Twins, Self::Timer>) {
        let (mut quick, mut thorough) = (Outbox::default(), Outbox::default());
        self.quick.step(&cfg.quick, inner(event.clone()), &mut quick);
        self.thorough.step(&cfg.thorough, inner(event.clone()), &mut thorough);
        let said = (format!("{quick:?}"), format!("{thorough:?}"));
        if said.0 != said.1 || self.quick != self.thorough {
            self.differ.get_or_insert_with(|| {
                format!(
                    "{event:?}: {} {:?} beside {} {:?}",
                    said.0, self.quick, said.1, self.thorough
                )
            });
        }
        pass_on(quick, out);
    }

    fn check(&self, cfg: &Twins) -> Result<(), Broken> {
        // Also compares what the quick one keeps in mind with what follows from its requests.
        self.quick.check(&cfg.thorough)?;
        if let Some(differ) = &self.differ {
            eprintln!("{differ}");
        }
        Broken::unless(self.differ.is_none(), "both do the same")
    }

    fn is_idle(&self) -> bool {
        self.quick.is_idle()
    }
}

#[test]
fn looking_at_everything_changes_nothing_in_whole_systems() {
    let variants = ["", "reserve=1,passes=2", "reserve=0,parks=1", "resend=1,bumps=1,passes=1"];
    for variant in variants {
        let options = Options { variant: Some(variant.into()), ..Options::default() };
        let target = Target::of::<Twins>("twins", options).expect("a variant of house");
        for mode in Mode::ALL {
            for seed in 0..100 {
                if let Err(failure) = target.run(mode, seed) {
                    panic!("{variant}: {failure}");
                }
            }
        }
    }
}

/// What a request needs, whether that is all, and how often it took a stance.
type Standing = (Needs, bool, u32);

/// One manager, with more requests at a time than whole systems of this size have, and users that
/// queue, withdraw, park and come back whenever they like.
struct Crowd {
    random: Pcg64Mcg,
    cfg: Twins,
    manager: Manager,
    rounds: Vec<Round>,
    lanes: Vec<(RequestId, Option<Standing>)>,
    armed: Vec<<Manager as Role>::Timer>,
    /// The last messages, which may come again.
    said: Vec<(Addr, ToManager)>,
}

const POOLS: u64 = 5;

const fn is_listed(pool: u64) -> bool {
    pool.is_multiple_of(2)
}

const LANES: u32 = 24;

impl Crowd {
    fn new(variant: &str, seed: u64) -> Self {
        let pool = |i| Pool { capacity: 1 + i as u32 % 3, node: NodeId(0), listed: is_listed(i) };
        let topology = Topology::of_pools((0..POOLS).map(pool).collect());
        let options = Options { variant: Some(variant.into()), ..Options::default() };
        let cfg = Twins::new(&topology, &options).expect("a variant of house");
        let first = Round::first(Origin::default());
        let request = |lane| RequestId { user: UserId::first(lane), seq: 1 };
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            manager: cfg.manager(ManagerId(0)),
            cfg,
            rounds: std::iter::successors(Some(first), |round| Some(round.next()))
                .take(40)
                .collect(),
            lanes: (0..LANES).map(|lane| (request(lane), None)).collect(),
            armed: Vec::new(),
            said: Vec::new(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn span(&mut self) -> Span {
        Span::try_from(1 + self.below(4) as u8).expect("a span")
    }

    fn step(&mut self, event: Event<Manager>) {
        let mut out = Outbox::default();
        self.manager.step(&self.cfg, event, &mut out);
        self.manager.check(&self.cfg).unwrap_or_else(|broken| panic!("{broken}"));
        for effect in out.drain() {
            match effect {
                Effect::Arm(timer, _) => self.armed.push(timer),
                Effect::Disarm(timer) => self.armed.retain(|armed| *armed != timer),
                _ => {}
            }
        }
    }

    fn say(&mut self, from: Addr, msg: ToManager) {
        self.said.push((from, msg.clone()));
        if self.said.len() > 30 {
            self.said.remove(0);
        }
        self.step(Event::Message { from, msg });
    }

    fn needs(&mut self) -> Needs {
        let pools: std::collections::BTreeSet<u64> =
            (0..=self.below(3)).map(|_| self.random.next_u64() % POOLS).collect();
        let need = |pool| {
            let mut need = Need::any(PoolId(pool), 1 + (self.below(4) == 0) as u32);
            if is_listed(pool) && self.below(2) == 0 {
                need.named = (0..1 + self.below(need.units.into())).map(|_| self.unit()).collect();
            }
            need
        };
        Needs::new(pools.into_iter().map(need).collect()).expect("some pool, none twice")
    }

    fn unit(&mut self) -> Unit {
        self.below(4) as Unit
    }

    /// Some units, some of them away.
    fn capacity(&mut self, pool: u64) -> Capacity {
        if !is_listed(pool) {
            return Capacity::Counted(self.below(4) as u32);
        }
        let (units, away) = (self.below(16), self.below(16) & self.below(16));
        let of = |mask: u64| (0..4).filter(|unit| mask >> unit & 1 == 1).collect();
        Capacity::Listed { units: of(units), away: of(units & away) }
    }

    fn happen(&mut self) {
        let lane = self.below(u64::from(LANES)) as usize;
        let (request, standing) = self.lanes[lane].clone();
        let from = Addr::User(request.user);
        let what = self.below(17);
        match standing {
            _ if what == 0 => {
                let pool = self.below(POOLS);
                let capacity = self.capacity(pool);
                self.step(Event::Call(Resize { pool: PoolId(pool), capacity }));
            }
            _ if what == 16 && !self.said.is_empty() => {
                let again = self.below(self.said.len() as u64) as usize;
                let (from, msg) = self.said[again].clone();
                self.step(Event::Message { from, msg });
            }
            _ if what <= 3 && !self.armed.is_empty() => {
                let timer = self.armed.remove(0);
                self.step(Event::Timer(timer));
            }
            None => {
                let (needs, solo) = (self.needs(), !what.is_multiple_of(4));
                self.lanes[lane].1 = Some((needs.clone(), solo, 0));
                let span = self.span();
                self.say(from, ToManager::Try { request, needs, solo, span });
            }
            Some((needs, false, n)) if what > 8 => {
                self.lanes[lane].1 = Some((needs.clone(), false, n + 1));
                let (a, b) = (self.below(40) as usize, self.below(40) as usize);
                let (base, round) = (self.rounds[a.min(b) / 8], self.rounds[a.max(b)]);
                let (n, parked) = (n + 1, what == 9);
                let span = self.span();
                let stance = Stance { request, n, round, span, base, needs, parked };
                self.say(from, ToManager::Queue(stance));
            }
            Some(_) => {
                self.lanes[lane] = (RequestId { seq: request.seq + 1, ..request }, None);
                self.say(from, ToManager::Release(request));
            }
        }
    }
}

#[test]
fn looking_at_everything_changes_nothing_in_a_crowd() {
    let variants =
        ["", "reserve=0", "reserve=1,passes=2", "reserve=3,parks=1", "resend=1,passes=8,parks=2"];
    for variant in variants {
        for seed in 0..60 {
            let mut crowd = Crowd::new(variant, seed);
            (0..600).for_each(|_| crowd.happen());
        }
    }
}
