//! What one run is made of: drawn from its seed, within what the protocol assumes. Runs differ in
//! which faults there are at all, because some defects show only where others are rare.

use std::collections::BTreeSet;

use holdall_core::{Assumes, CellId, Home, Known, NodeId, Origin, Pool, PoolId, Topology};

use crate::Mode;
use crate::random::Random;

const USERS: usize = 8;
const POOLS: usize = 6;
const UNITS: usize = 3;
const STEPS: usize = 2500;

/// A system and what happens to it. Chances are per mille.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) topology: Topology,
    /// The pools that each lane asks for.
    pub(crate) lanes: Vec<Vec<PoolId>>,
    /// Whether every request is for as many pools as it can be: more wait for each other, in circles too.
    pub(crate) whole: bool,
    /// The most pools in a request.
    pub(crate) needs_max: usize,
    /// Of a need for a listed pool: to name some of the units.
    pub(crate) named: usize,
    /// How many cells the lanes are spread over.
    pub(crate) cells: usize,
    /// How many steps before the system is left to heal.
    pub(crate) steps: usize,
    /// Of a message: to be lost.
    pub(crate) loss: usize,
    /// Of a message: to be delivered once more.
    pub(crate) duplicates: usize,
    /// Of a message: to be held up for up to [`Plan::lag`] steps.
    pub(crate) late: usize,
    pub(crate) lag: usize,
    /// How often clients ask and end their uses, beside other steps.
    pub(crate) acts: usize,
    /// How many messages arrive between two steps, if there are so many. Only where the network is
    /// quick, and clients take their time, does a protocol of many messages do much between two
    /// faults, or during a use.
    pub(crate) arrivals: usize,
    /// How often a timer rings, and faults strike, beside other steps.
    pub(crate) timers: usize,
    pub(crate) faults: Faults,
    /// How often honest clients leave while messages are forged, in a second part of the run.
    pub(crate) leave_later: usize,
    /// How those who stop are noticed.
    pub(crate) detector: Detector,
    /// Whether managers are told of those who have left and are idle.
    pub(crate) tell_of_left: bool,
}

/// How often each fault strikes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) leave: usize,
    pub(crate) stop: usize,
    pub(crate) reboot: usize,
    pub(crate) suspect: usize,
    pub(crate) lapse: usize,
}

/// What managers are told of a user that has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detector {
    /// That it departed.
    Departed,
    /// That it is suspected, then that it is reclaimed.
    Reclaim,
    /// All of these, one after the other.
    All,
}

impl Plan {
    pub(crate) fn draw(assumes: &Assumes, mode: Mode, random: &mut Random) -> Self {
        let users = random.between(2, USERS);
        let mut pools = draw_pools(assumes, random);
        let named = draw_named(assumes, &mut pools, random);
        let wide = random.between(1, pools.len());
        let lanes: Vec<_> = (0..users).map(|_| draw_lane(pools.len(), wide, random)).collect();
        let mut topology = Topology::of_pools(pools);
        topology.origin = Origin::new(if random.per_mille(500) { 0 } else { 1 << 40 });
        if assumes.participants == Known::Known {
            topology.users = lanes.iter().map(|lane| lane.iter().copied().collect()).collect();
        }
        let mut sometimes = |allowed: bool, most: usize| {
            if allowed && random.per_mille(600) { random.between(1, most) } else { 0 }
        };
        let lossy = mode == Mode::Faults && !assumes.no_loss && !assumes.exactly_once;
        let departures = mode == Mode::Faults && assumes.departures;
        let suspicions = departures && assumes.suspicions;
        let faults = Faults {
            leave: sometimes(departures, 40),
            stop: sometimes(departures, 40),
            reboot: sometimes(departures, 10),
            suspect: sometimes(suspicions, 40),
            lapse: sometimes(suspicions, 40),
        };
        let (loss, duplicates) =
            (sometimes(lossy, 200), sometimes(mode == Mode::Faults && !assumes.exactly_once, 200));
        let (late, lag) = (sometimes(true, 300), random.between(10, 400));
        let detectors = [Detector::Departed, Detector::Reclaim, Detector::All];
        let detector = detectors[random.below(if suspicions { detectors.len() } else { 1 })];
        let quick = mode == Mode::Faults && random.per_mille(500);
        let whole = mode == Mode::Faults && random.per_mille(500);
        Self {
            topology,
            lanes,
            whole,
            named,
            needs_max: assumes.needs_max.map_or(usize::MAX, |most| most as usize),
            // Known neighbours know each other by their first homes.
            cells: if assumes.participants == Known::Known { 1 } else { random.between(1, 3) },
            steps: random.between(STEPS / 10, STEPS),
            loss,
            duplicates,
            late,
            lag,
            acts: if quick { 50 } else { 200 },
            arrivals: if quick { 4 } else { 0 },
            timers: random.between(0, 8),
            faults,
            leave_later: if mode == Mode::Forged && assumes.departures { 40 } else { 0 },
            detector,
            tell_of_left: random.per_mille(500),
        }
    }

    /// The first home of a lane.
    pub(crate) fn home(&self, lane: usize) -> Home {
        Home { cell: CellId((lane % self.cells) as u64), ..Home::default() }
    }
}

fn draw_pools(assumes: &Assumes, random: &mut Random) -> Vec<Pool> {
    let nodes = random.between(1, POOLS);
    let most = if assumes.units { UNITS } else { 1 };
    (0..random.between(1, POOLS))
        .map(|pool| Pool {
            capacity: random.between(1, most) as u32,
            node: NodeId((pool % nodes) as u64),
            listed: false,
        })
        .collect()
}

/// Lets some pools be listed, if the protocol takes such. Returns how often their units are named.
fn draw_named(assumes: &Assumes, pools: &mut [Pool], random: &mut Random) -> usize {
    if !assumes.named || random.per_mille(500) {
        return 0;
    }
    for pool in pools {
        pool.listed = random.per_mille(800);
    }
    random.between(100, 900)
}

fn draw_lane(pools: usize, wide: usize, random: &mut Random) -> Vec<PoolId> {
    let mut lane = BTreeSet::new();
    for _ in 0..random.between(1, wide) {
        lane.insert(PoolId(random.below(pools) as u64));
    }
    lane.into_iter().collect()
}
