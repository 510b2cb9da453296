//! What users ask for, how long they use it, and how long they think in between.
//!
//! The n-th request of a user is drawn from that user's own stream, whole, before it is made, so
//! it is the same whatever the protocol does.

use std::collections::BTreeSet;

use holdall_core::{Need, Needs, PoolId, Unit};
use rustc_hash::FxHashMap;

use super::random::{Purpose, Stream};
use super::settings::{Sets, Settings, Workload};

/// How many pools a wide user of the mix asks for.
pub(super) const WIDE: u32 = 8;
/// One user in so many is wide.
pub(super) const WIDE_EVERY: u32 = 16;

/// How a request to come goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    /// How long before it is made.
    pub(super) think: u64,
    /// How long the use takes.
    pub(super) service: u64,
    /// How long such uses take on average.
    pub(super) expected: u64,
}

/// Draws requests.
#[derive(Debug)]
pub(super) struct Generator<'a> {
    settings: &'a Settings,
    graph: u32,
    /// What each user may ask for, if its requests are drawn from a set of its own.
    maxima: Vec<Needs>,
    /// Where a place in the list of all pools no longer has its own number; kept for its memory.
    moved: FxHashMap<u32, u32>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(settings: &'a Settings, graph: u32) -> Self {
        let mut generator =
            Self { settings, graph, maxima: Vec::new(), moved: FxHashMap::default() };
        if let Some(of) = settings.of {
            generator.maxima =
                (0..settings.users).map(|lane| generator.draw_maximum(lane, of)).collect();
        }
        generator
    }

    /// Where everything that a user does comes from.
    pub(super) fn stream(&self, lane: u32) -> Stream {
        Stream::new(self.settings.seed, self.graph, Purpose::User(lane))
    }

    /// Whether a user asks for something else each time.
    pub(super) fn fresh(&self) -> bool {
        self.settings.sets == Sets::Fresh || self.settings.of.is_some()
    }

    /// All that a user may ask for, if its requests are drawn from a set of its own.
    pub(super) fn maximum(&self, lane: u32) -> Option<&Needs> {
        self.maxima.get(lane as usize)
    }

    fn draw_maximum(&mut self, lane: u32, of: u32) -> Needs {
        let mut stream = Stream::new(self.settings.seed, self.graph, Purpose::Maximum(lane));
        one_of_each(self.sample(&mut stream, 0, of, self.settings.resources))
    }

    pub(super) fn plan(&self, stream: &mut Stream, needs: &Needs) -> Plan {
        let think = stream.below(2 * u64::from(self.settings.think) + 1);
        let per_pool = 2 * u64::from(self.settings.service) + 1;
        let pools = match self.settings.apart {
            true => 1 + stream.below(2 * u64::from(self.settings.per_request) - 1),
            false => needs.len() as u64,
        };
        let service = (0..pools).map(|_| stream.below(per_pool)).sum();
        Plan { think, service, expected: pools * u64::from(self.settings.service) }
    }

    pub(super) fn needs(&mut self, lane: u32, stream: &mut Stream) -> Needs {
        let all = self.settings.resources;
        let pools = match self.settings.workload {
            Workload::Uniform if self.settings.of.is_some() => self.some_of(lane, stream),
            Workload::Uniform => {
                let size = self.size(stream);
                self.sample(stream, 0, size, all)
            }
            Workload::Hot => self.hot(stream),
            Workload::Mix => {
                let size = if lane.is_multiple_of(WIDE_EVERY) { WIDE.min(all) } else { 1 };
                self.sample(stream, 0, size, all)
            }
            Workload::Ring if all == 1 => vec![0],
            Workload::Ring => vec![lane % all, (lane + 1) % all],
        };
        if !self.settings.is_listed() {
            return one_of_each(pools);
        }
        let need = |pool: u32| {
            let names = stream.chance(self.settings.named);
            let unit = names.then(|| stream.below(self.settings.units.into()) as Unit);
            Need { named: unit.into_iter().collect(), ..Need::any(PoolId(pool.into()), 1) }
        };
        needs_of(pools.into_iter().map(need))
    }

    /// Some of the pools that a user may ask for at all.
    fn some_of(&mut self, lane: u32, stream: &mut Stream) -> Vec<u32> {
        let size = self.size(stream);
        let places = self.sample(stream, 0, size, self.settings.widest());
        let maximum = &self.maxima[lane as usize];
        places.into_iter().map(|place| maximum[place as usize].pool.index() as u32).collect()
    }

    fn size(&self, stream: &mut Stream) -> u32 {
        let mean = self.settings.per_request;
        if !self.settings.unequal {
            return mean;
        }
        let size = 1 + stream.below(2 * u64::from(mean) - 1) as u32;
        size.min(self.settings.widest())
    }

    /// Pool 0 with probability 1/2, at any place; always if everything is asked for.
    fn hot(&mut self, stream: &mut Stream) -> Vec<u32> {
        let size = self.size(stream);
        let included = stream.below(2) == 0 || size == self.settings.resources;
        if !included {
            return self.sample(stream, 1, size, self.settings.resources);
        }
        let mut pools = self.sample(stream, 1, size - 1, self.settings.resources);
        pools.insert(stream.below(u64::from(size)) as usize, 0);
        pools
    }

    /// So many different numbers from `first` on and below `all`, in random order: the start of a
    /// shuffle of which only the places touched are written down.
    fn sample(&mut self, stream: &mut Stream, first: u32, size: u32, all: u32) -> Vec<u32> {
        self.moved.clear();
        (first..first + size)
            .map(|place| {
                let other = place + stream.below(u64::from(all - place)) as u32;
                let here = self.moved.get(&place).copied().unwrap_or(place);
                self.moved.insert(other, here).unwrap_or(other)
            })
            .collect()
    }
}

fn one_of_each(pools: Vec<u32>) -> Needs {
    needs_of(pools.into_iter().map(|pool| Need::any(PoolId(pool.into()), 1)))
}

fn needs_of(needs: impl Iterator<Item = Need>) -> Needs {
    Needs::new(needs.collect()).expect("at least one pool, and none twice")
}

/// The pools that each user may ever ask for in a run.
pub(super) fn pools_of_users(settings: &Settings, graph: u32) -> Vec<BTreeSet<PoolId>> {
    let mut generator = Generator::new(settings, graph);
    let pools = |needs: &Needs| needs.iter().map(|need| need.pool).collect();
    let mut pools_of = |lane| match (generator.maximum(lane), settings.sets) {
        (Some(maximum), _) => pools(maximum),
        (None, Sets::Fixed) => {
            let mut stream = generator.stream(lane);
            pools(&generator.needs(lane, &mut stream))
        }
        (None, Sets::Fresh) => (0..settings.resources.into()).map(PoolId).collect(),
    };
    (0..settings.users).map(&mut pools_of).collect()
}

/// The mean number of other users whose needs share a pool with a user's. Over every user up to
/// `ALL`, beyond that over about so many of them, evenly spread.
pub(super) fn mean_degree(sets: &[&Needs], resources: u32) -> f64 {
    const ALL: usize = 10_000;
    let mut by_pool = vec![Vec::new(); resources as usize];
    for (user, needs) in sets.iter().enumerate() {
        for need in needs.iter() {
            by_pool[need.pool.index()].push(user);
        }
    }
    let mut seen_by = vec![usize::MAX; sets.len()];
    let (mut degrees, mut looked_at) = (0u64, 0u64);
    for user in (0..sets.len()).step_by(sets.len().div_ceil(ALL)) {
        seen_by[user] = user;
        looked_at += 1;
        for other in sets[user].iter().flat_map(|need| &by_pool[need.pool.index()]) {
            if seen_by[*other] != user {
                seen_by[*other] = user;
                degrees += 1;
            }
        }
    }
    degrees as f64 / looked_at as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(settings: &Settings, lane: u32, n: usize) -> Vec<Needs> {
        let mut generator = Generator::new(settings, 0);
        let mut stream = generator.stream(lane);
        (0..n).map(|_| generator.needs(lane, &mut stream)).collect()
    }

    #[test]
    fn sizes_are_as_asked_and_all_pools_are_drawn() {
        let settings = Settings { resources: 10, ..Settings::default() };
        for per_request in [1, 3, 10] {
            let drawn = draw(&Settings { per_request, ..settings.clone() }, 0, 500);
            assert!(drawn.iter().all(|needs| needs.len() == per_request as usize));
            let first = |pool| drawn.iter().any(|needs| needs[0].pool == PoolId(pool));
            assert!((0..10).all(first), "every pool comes first some time");
        }
        let unequal = Settings { per_request: 4, unequal: true, ..settings };
        let drawn = draw(&unequal, 0, 500);
        assert!((1..=7).all(|size| drawn.iter().any(|needs| needs.len() == size)));
    }

    #[test]
    fn a_user_asks_for_some_of_its_own_pools() {
        let settings = Settings { users: 3, of: Some(4), ..Settings::default() };
        let own = pools_of_users(&settings, 0);
        assert!(own.iter().all(|pools| pools.len() == 4) && own[0] != own[1]);
        let drawn = draw(&settings, 1, 500);
        assert!(drawn.iter().all(|needs| needs.len() == 2));
        let asked: BTreeSet<_> =
            drawn.iter().flat_map(|needs| needs.iter().map(|n| n.pool)).collect();
        assert_eq!(asked, own[1], "all of them some time, and no others");
    }

    #[test]
    fn the_hot_pool_is_in_half_of_the_requests() {
        let settings = Settings { workload: Workload::Hot, ..Settings::default() };
        let drawn = draw(&settings, 0, 1000);
        let hot = drawn.iter().filter(|needs| needs.iter().any(|n| n.pool.0 == 0)).count();
        assert!((400..600).contains(&hot), "{hot}");
    }

    #[test]
    fn philosophers_have_two_neighbours() {
        let settings =
            Settings { users: 5, resources: 5, workload: Workload::Ring, ..Settings::default() };
        let sets: Vec<_> = (0..5).map(|lane| draw(&settings, lane, 1).remove(0)).collect();
        assert_eq!(mean_degree(&sets.iter().collect::<Vec<_>>(), 5), 2.0);
    }
}
