//! A history as a trace for the simulator: the same requests at the same times, for the same things, used for as long.
//!
//! A tick is a millisecond. What was held when the period begins is asked for first and granted at once, what waited then
//! comes next; the waits of these are not compared with what was recorded.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_core::{Options, Protocol};
use holdall_protocols::house::House;
use holdall_sim::{Asked, Contender, Fate, Settings, Trace, draws};
use holdall_wire::Name;

use self::world::World;
use crate::history::{History, Period, Use};
use crate::line::How;
use crate::note::Note;

/// What is to be different.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// Pools that have another number of units.
    pub units: BTreeMap<Name, u32>,
    /// Units, pools and locks that are not there.
    pub remove: BTreeSet<Name>,
    /// How many requests there are for each that was recorded.
    pub load: f64,
    /// Where the chance comes from by which requests come again, or do not come.
    pub seed: u64,
}

impl Default for Changes {
    fn default() -> Self {
        Self { units: BTreeMap::new(), remove: BTreeSet::new(), load: 1.0, seed: 1 }
    }
}

/// A change that cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadChange {
    /// There is no such pool.
    #[error("the history knows no pool '{0}'; it knows {1}")]
    NoPool(Name, String),
    /// A lock has no units.
    #[error("'{0}' is a lock: there is one of it")]
    Lock(Name),
    /// There is nothing of that name.
    #[error("the history knows no pool, lock or unit '{0}'")]
    Nothing(Name),
    /// How many units a pool has is said, and that it has fewer.
    #[error(
        "how many units '{0}' has is said or searched for, and --remove takes '{1}' away: give one"
    )]
    Twice(Name, Name),
    /// A pool without units.
    #[error("'{0}' with 0 units: leave it out with --remove")]
    Zero(Name),
    /// A load that is none.
    #[error("a load of {0:?}: let it be from {LEAST_LOAD} to {MOST_LOAD}")]
    Load(f64),
    /// It would take days to play.
    #[error(
        "that would be {0} requests, and at most {MOST_REQUESTS} are played: take a shorter time (--since), or less load"
    )]
    TooMany(usize),
    /// There is nothing to play.
    #[error("the history has no requests that can be played in this time")]
    Empty,
    /// All of it is removed.
    #[error("nothing is left to play: all that the requests need is removed")]
    AllRemoved,
}

/// The smallest and the largest load.
const LEAST_LOAD: f64 = 0.001;
pub(crate) const MOST_LOAD: f64 = 100.0;
/// The most requests that are played.
pub(crate) const MOST_REQUESTS: usize = 2_000_000;
/// A request that comes again does so at most so much earlier or later.
const MOVED: u64 = 30 * 60 * 1000;

/// Whose a request is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The user.
    pub user: Option<Arc<str>>,
    /// The name of the request.
    pub name: Option<Arc<str>>,
    /// The command.
    pub command: Option<Arc<str>>,
}

/// Requests to be played.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The trace. Its pools and users are numbered as here.
    pub trace: Trace,
    /// The pools.
    pub pools: Vec<Name>,
    /// Which of them are locks.
    pub locks: BTreeSet<usize>,
    /// The number of each request in its history.
    pub of: Vec<usize>,
    /// Whose each request is.
    pub askers: Vec<Asker>,
    /// What became of each request, as recorded; nothing for one that comes again.
    pub recorded: Vec<Option<Fate>>,
    /// Whether each request was made within the period, so that its wait counts.
    pub counted: Vec<bool>,
    /// When tick 0 was, in milliseconds since 1970.
    pub begin: u64,
    /// How many ticks there are.
    pub length: u64,
    /// What is odd about it.
    pub notes: Vec<Note>,
}

/// The protocol that agents run.
pub fn served() -> Contender {
    Contender::of::<House>(House::FAMILY, Options::default()).expect("it has no variant to choose")
}

/// Messages take no time and timers ring as they do in an agent, where everything is in one place.
pub fn agent_settings() -> Settings {
    Settings { nodes: Some(1), colocated: true, delay: 25, ..Settings::default() }
}

/// A request on its way into the trace.
struct Draft {
    at: u64,
    /// What was held when the period begins comes before all others.
    late: bool,
    of: usize,
    service: u64,
    patience: Option<u64>,
    again: bool,
}

impl Replay {
    /// The requests of a period of a history, with some things changed.
    ///
    /// # Errors
    /// If a change cannot be made, or there is nothing to play.
    pub fn of(history: &History, period: Period, changes: &Changes) -> Result<Self, BadChange> {
        let mut notes = Vec::new();
        let world = World::of(history, changes)?;
        let mut drafts = drafts(history, period, &mut notes);
        thin_or_thicken(&mut drafts, changes, period.length())?;
        drafts.sort_by_key(|draft| (draft.at, draft.late, draft.of));
        let mut replay = Self {
            trace: Trace { pools: Vec::new(), requests: Vec::new(), watched: None },
            pools: world.names.clone(),
            locks: world.locks.clone(),
            of: Vec::new(),
            askers: Vec::new(),
            recorded: Vec::new(),
            counted: Vec::new(),
            begin: history.wall(period.from),
            length: period.length(),
            notes,
        };
        replay.add(history, period, &world, drafts)?;
        replay.trace.pools = world.pools(&replay.trace.requests);
        Ok(replay)
    }

    /// Adds requests, as far as anything is left of what they need.
    fn add(
        &mut self,
        history: &History,
        period: Period,
        world: &World,
        drafts: Vec<Draft>,
    ) -> Result<(), BadChange> {
        let mut numbers: BTreeMap<Option<Arc<str>>, u32> = BTreeMap::new();
        let (mut clamped, mut nothing) = (BTreeMap::<usize, usize>::new(), 0);
        for Draft { at, of, service, patience, again, .. } in drafts {
            let one = &history.uses[of];
            let Some(needs) = world.needs(history, one, &mut clamped) else {
                nothing += 1;
                continue;
            };
            let next = numbers.len() as u32;
            let user = *numbers.entry(one.user.clone()).or_insert(next);
            self.trace.requests.push(Asked { at, needs, service, patience, user });
            self.of.push(of);
            let Use { user, name, command, .. } = one.clone();
            self.askers.push(Asker { user, name, command });
            let relative = |time: Option<u64>| time.map(|time| time.saturating_sub(period.from));
            let fate = Fate { granted: relative(one.granted), ended: relative(one.ended) };
            self.recorded.push((!again).then_some(fate));
            self.counted.push(one.asked.is_some_and(|asked| period.has(asked)));
        }
        if self.trace.requests.is_empty() {
            return Err(if nothing > 0 { BadChange::AllRemoved } else { BadChange::Empty });
        }
        self.notes.extend(clamped.into_iter().map(|(pool, requests)| Note::Clamped {
            pool: world.names[pool].clone(),
            units: world.capacities[pool],
            requests,
        }));
        if nothing > 0 {
            let why = "all they need is removed";
            self.notes.push(Note::LeftOut { requests: nothing, why });
        }
        Ok(())
    }

    /// The wait of a request with this fate, if it counts.
    pub fn wait(&self, request: usize, fate: &Fate) -> Option<u64> {
        let counts = self.counted[request];
        fate.granted.filter(|_| counts).map(|at| at.saturating_sub(self.trace.requests[request].at))
    }
}

/// The requests of a period that can be played.
fn drafts(history: &History, period: Period, notes: &mut Vec<Note>) -> Vec<Draft> {
    let typical = Typical::of(history);
    let (mut drafts, mut still) = (Vec::new(), 0);
    let mut left_out: BTreeMap<&'static str, usize> = BTreeMap::new();
    for (of, one) in history.uses.iter().enumerate() {
        if one.first() >= period.to || one.ended.is_some_and(|end| end < period.from) {
            continue;
        }
        let why = match one.how {
            _ if one.part_of.is_some() => Some("they used parts of what others held"),
            Some(How::Refused) => Some("they were refused"),
            Some(How::Unknown) if one.granted.is_none() => Some("what became of them is not known"),
            _ if one.needs.is_empty() && one.got.is_empty() => {
                Some("what they needed is not known")
            }
            _ => None,
        };
        if let Some(why) = why {
            *left_out.entry(why).or_default() += 1;
            continue;
        }
        let from = one.first().max(period.from);
        let at = from - period.from;
        let held = one.granted.is_some_and(|granted| granted <= period.from);
        let (service, patience) = match (one.granted, one.ended) {
            (Some(granted), end) => {
                still += usize::from(end.is_none());
                (end.unwrap_or(period.to).saturating_sub(granted.max(from)), None)
            }
            (None, end) => {
                let service = one.service.unwrap_or_else(|| typical.service(history, one));
                (service, end.map(|end| end.saturating_sub(from)))
            }
        };
        drafts.push(Draft { at, late: !held, of, service, patience, again: false });
    }
    notes.extend(left_out.into_iter().map(|(why, requests)| Note::LeftOut { requests, why }));
    if still > 0 {
        notes.push(Note::StillHeld(still));
    }
    drafts
}

/// How long uses of certain pools take, for requests that were given up: half of them take less.
struct Typical {
    by_needs: BTreeMap<Vec<Name>, u64>,
    all: u64,
}

impl Typical {
    fn of(history: &History) -> Self {
        let mut times: BTreeMap<Vec<Name>, Vec<u64>> = BTreeMap::new();
        let mut all = Vec::new();
        for one in &history.uses {
            if let Some(held) = one.held() {
                times.entry(one.got.keys().cloned().collect()).or_default().push(held);
                all.push(held);
            }
        }
        let middle = |mut times: Vec<u64>| {
            times.sort_unstable();
            crate::percentile(&times, 50).unwrap_or(0)
        };
        let by_needs = times.into_iter().map(|(pools, times)| (pools, middle(times))).collect();
        Self { by_needs, all: middle(all) }
    }

    fn service(&self, history: &History, one: &Use) -> u64 {
        let mut pools: Vec<Name> = one.needs.iter().map(|need| history.pool_of(need).0).collect();
        pools.sort();
        pools.dedup();
        self.by_needs.get(&pools).copied().unwrap_or(self.all)
    }
}

/// Lets requests come again at about the same time, or leaves some out, so that there is as much load as is wanted.
fn thin_or_thicken(
    drafts: &mut Vec<Draft>,
    changes: &Changes,
    length: u64,
) -> Result<(), BadChange> {
    let load = changes.load;
    if !(LEAST_LOAD..=MOST_LOAD).contains(&load) {
        return Err(BadChange::Load(load));
    }
    let requests = (drafts.len() as f64 * load) as usize;
    if requests > MOST_REQUESTS {
        return Err(BadChange::TooMany(requests));
    }
    if load == 1.0 {
        return Ok(());
    }
    let mut draw = draws(changes.seed, 0);
    let mut chance = |share: f64| (draw(1 << 30) as f64) < share * f64::from(1 << 30);
    if load < 1.0 {
        drafts.retain(|draft| !draft.late || chance(load));
        return Ok(());
    }
    let mut move_by = draws(changes.seed, 1);
    let mut again = Vec::new();
    for draft in drafts.iter().filter(|draft| draft.late) {
        let copies = (load - 1.0).floor() as u32 + u32::from(chance(load.fract()));
        for _ in 0..copies {
            let at = (draft.at + move_by(2 * MOVED + 1)).saturating_sub(MOVED);
            again.push(Draft { at: at.min(length.saturating_sub(1)), again: true, ..*draft });
        }
    }
    drafts.extend(again);
    Ok(())
}
