//! What one user does, for worlds in which time is real: the same rounds that the simulator draws.

use std::collections::BTreeSet;

use holdall_core::{Needs, PoolId};

use super::faults::{FaultPlan, PlannedFault};
use super::random::Stream;
use super::settings::{FaultKind, Settings, Stage};
use super::workload::{Generator, pools_of_users};

/// The rounds of the user of one lane, one after another, for ever: as in graph 0 of a simulation
/// with the same settings.
#[derive(Debug)]
pub struct Course<'a> {
    lane: u32,
    generator: Generator<'a>,
    faults: FaultPlan<'a>,
    stream: Stream,
    needs: Option<Needs>,
}

/// A request to come.
#[derive(Clone, Debug)]
pub struct Round {
    /// How many ticks before it is made.
    pub think: u64,
    /// What is asked for.
    pub needs: Needs,
    /// How many ticks the use takes.
    pub service: u64,
    /// What happens to the client, if it lives to see it.
    pub fault: Option<Mishap>,
}

/// A client leaves or stops.
#[derive(Clone, Copy, Debug)]
pub struct Mishap(PlannedFault);

impl Mishap {
    /// How it goes.
    pub const fn kind(&self) -> FaultKind {
        self.0.kind
    }

    /// In which stage of the request.
    pub const fn stage(&self) -> Stage {
        self.0.stage
    }

    /// How far into a stage of this length.
    pub fn after(&self, length: u64) -> u64 {
        self.0.after(length)
    }
}

impl<'a> Course<'a> {
    /// The course of the user of this lane.
    pub fn new(settings: &'a Settings, lane: u32) -> Self {
        let generator = Generator::new(settings, 0);
        let stream = generator.stream(lane);
        Self { lane, generator, faults: FaultPlan::new(settings, 0), stream, needs: None }
    }

    /// The pools that each user may ever ask for.
    pub fn pools_of_users(settings: &Settings) -> Vec<BTreeSet<PoolId>> {
        pools_of_users(settings, 0)
    }
}

impl Iterator for Course<'_> {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        let kept = self.needs.take().filter(|_| !self.generator.fresh());
        let needs = kept.unwrap_or_else(|| self.generator.needs(self.lane, &mut self.stream));
        self.needs = Some(needs.clone());
        let plan = self.generator.plan(&mut self.stream, &needs);
        self.faults.decide(self.lane);
        let fault = self.faults.of(self.lane).map(Mishap);
        Some(Round { think: plan.think, needs, service: plan.service, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sets;

    #[test]
    fn sets_are_fixed_or_fresh_and_lie_within_what_is_announced() {
        let fixed = Settings::default();
        let rounds: Vec<_> = Course::new(&fixed, 3).take(50).collect();
        assert!(rounds.iter().all(|round| round.needs == rounds[0].needs));
        assert!(rounds.iter().any(|round| round.service != rounds[0].service));
        let announced = &Course::pools_of_users(&fixed)[3];
        assert!(rounds[0].needs.iter().all(|need| announced.contains(&need.pool)));
        let fresh = Settings { sets: Sets::Fresh, ..Settings::default() };
        let rounds: Vec<_> = Course::new(&fresh, 3).take(50).collect();
        assert!(rounds.iter().any(|round| round.needs != rounds[0].needs));
    }
}
