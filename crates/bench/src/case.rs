//! Cases: how many clients want how much of what, and for how long.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sets {
    /// Any, each as often as any other.
    Uniform,
    /// Client i wants i, i+1 and so on, around a ring.
    Ring,
    /// The n-th as often as 1/n to this power.
    Zipf(f64),
    /// The first is wanted with this probability; the others, and without it all, are uniform.
    Hot(f64),
    /// So many clients want everything, the others one.
    Wide(usize),
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) clients: usize,
    /// Over which the clients are dealt.
    pub(crate) connections: usize,
    pub(crate) resources: usize,
    pub(crate) per_request: usize,
    pub(crate) sets: Sets,
    /// How many requests wait beside all the while.
    pub(crate) waiting: usize,
    /// Whether these need nothing but what all of them wait for.
    pub(crate) alike: bool,
    pub(crate) hold: Duration,
}

/// Named cases, or groups of them.
pub(crate) const NAMES: [&str; 9] =
    ["scale", "peers", "wide", "moderate", "heavy", "ring", "hot", "zipf", "mixed"];

/// The rows of `scale`: clients and resources.
const SCALE: [(usize, usize); 6] =
    [(16, 10_000), (64, 32), (256, 128), (1024, 512), (3000, 1500), (10_000, 5000)];

/// The cases of a name.
pub(crate) fn named(name: &str) -> Option<Vec<Case>> {
    let milli = Duration::from_millis(1);
    let case = |clients, resources, per_request, sets, hold| Case {
        name: name.into(),
        clients,
        connections: clients,
        resources,
        per_request,
        sets,
        waiting: 0,
        alike: false,
        hold,
    };
    Some(match name {
        "scale" => {
            let row = |(clients, resources)| {
                let name = format!("{clients}x{resources}");
                Case { name, ..case(clients, resources, 2, Sets::Uniform, Duration::ZERO) }
            };
            SCALE.into_iter().map(row).collect()
        }
        "peers" => NAMES[2..].iter().filter_map(|name| named(name)).flatten().collect(),
        "wide" => vec![case(16, 10_000, 2, Sets::Uniform, Duration::ZERO)],
        "moderate" => vec![case(64, 64, 2, Sets::Uniform, Duration::ZERO)],
        "heavy" => vec![case(64, 8, 4, Sets::Uniform, milli)],
        "ring" => vec![case(64, 64, 2, Sets::Ring, milli)],
        "hot" => vec![case(64, 64, 2, Sets::Hot(0.5), milli)],
        "zipf" => vec![case(64, 64, 2, Sets::Zipf(1.1), milli)],
        "mixed" => vec![case(64, 8, 1, Sets::Wide(4), milli)],
        _ => return None,
    })
}

/// Draws what one client asks for next.
#[derive(Debug)]
pub(crate) struct Draw {
    case: Case,
    client: usize,
    random: Pcg64Mcg,
    /// For Zipf, the sums of the weights.
    sums: std::rc::Rc<[f64]>,
}

/// The sums that [`Draw`] needs.
pub(crate) fn sums(case: &Case) -> std::rc::Rc<[f64]> {
    let Sets::Zipf(power) = case.sets else { return [].into() };
    let mut sum = 0.0;
    let weights = (1..=case.resources).map(|n| {
        sum += (n as f64).powf(-power);
        sum
    });
    weights.collect()
}

impl Draw {
    pub(crate) fn new(case: &Case, client: usize, seed: u64, sums: std::rc::Rc<[f64]>) -> Self {
        let random =
            Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9).wrapping_add(client as u64));
        Self { case: case.clone(), client, random, sums }
    }

    /// Whether this client wants everything.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.case.sets, Sets::Wide(wide) if self.client < wide)
    }

    /// Puts other numbers of resources into `wants`, without repetition.
    pub(crate) fn next(&mut self, wants: &mut Vec<usize>) {
        let (all, count) = (self.case.resources, self.case.per_request);
        wants.clear();
        match self.case.sets {
            _ if self.is_wide() => wants.extend(0..all),
            Sets::Ring => wants.extend((0..count).map(|i| (self.client + i) % all)),
            Sets::Hot(share) if self.random.random_bool(share) => wants.push(0),
            _ => {}
        }
        while wants.len() < count {
            let mut one = self.one();
            while wants.contains(&one) {
                one = if self.random.random_bool(0.5) { self.one() } else { (one + 1) % all };
            }
            wants.push(one);
        }
    }

    fn one(&mut self) -> usize {
        match self.sums.last() {
            Some(sum) => {
                let at = self.random.random::<f64>() * sum;
                self.sums.partition_point(|sum| *sum <= at).min(self.sums.len() - 1)
            }
            None => (self.random.next_u64() % self.case.resources as u64) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_case_draws_what_it_says() {
        for case in NAMES.iter().filter_map(|name| named(name)).flatten() {
            let sums = sums(&case);
            for client in [0, case.clients - 1] {
                let mut draw = Draw::new(&case, client, 1, sums.clone());
                let mut wants = Vec::new();
                for _ in 0..100 {
                    draw.next(&mut wants);
                    let count = if draw.is_wide() { case.resources } else { case.per_request };
                    let mut sorted = wants.clone();
                    sorted.sort_unstable();
                    sorted.dedup();
                    assert_eq!((sorted.len(), wants.len()), (count, count), "{case:?}");
                    assert!(wants.iter().all(|one| *one < case.resources), "{case:?}");
                }
            }
        }
    }

    #[test]
    fn skewed_sets_are_skewed() {
        let share_of_first = |name: &str| {
            let case = named(name).expect("a case").remove(0);
            let mut draw = Draw::new(&case, 9, 7, sums(&case));
            let mut wants = Vec::new();
            let mut hits = 0;
            for _ in 0..10_000 {
                draw.next(&mut wants);
                hits += usize::from(wants.contains(&0));
            }
            hits as f64 / 10_000.0
        };
        // Of 64, two at a time.
        assert!((0.02..0.045).contains(&share_of_first("moderate")));
        assert!((0.48..0.54).contains(&share_of_first("hot")));
        assert!((0.3..0.55).contains(&share_of_first("zipf")));
    }
}
