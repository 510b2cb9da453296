//! Users that fail, and messages that take long.

use super::random::{Purpose, Stream};
use super::settings::{Fault, FaultKind, Settings, Spikes, Stage};

/// A failure that will happen to a request if it lives to see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedFault {
    pub(super) kind: FaultKind,
    pub(super) stage: Stage,
    /// When within the stage, from 0 to 1.
    moment: f64,
}

impl PlannedFault {
    /// The time until it happens, for a stage of this length.
    pub(super) fn after(&self, length: u64) -> u64 {
        (self.moment * (length as f64 + 1.0)) as u64
    }
}

/// The faults of all users. Like what they ask for, they do not depend on the protocol.
#[derive(Debug)]
pub(super) struct FaultPlan<'a> {
    faults: &'a [Fault],
    /// By lane; empty if nobody ever fails.
    lanes: Vec<(Stream, Option<PlannedFault>)>,
}

impl<'a> FaultPlan<'a> {
    pub(super) fn new(settings: &'a Settings, graph: u32) -> Self {
        let lanes = if settings.faults.is_empty() { 0 } else { settings.users };
        let lane = |lane| (Stream::new(settings.seed, graph, Purpose::Failures(lane)), None);
        Self { faults: &settings.faults, lanes: (0..lanes).map(lane).collect() }
    }

    /// Decides what happens to the next request of a user: of the faults, the first that hits.
    pub(super) fn decide(&mut self, lane: u32) {
        let Some((stream, fault)) = self.lanes.get_mut(lane as usize) else { return };
        *fault = None;
        for Fault { kind, rate } in self.faults {
            let hit = stream.chance(rate.probability);
            let moment = stream.fraction();
            if hit && fault.is_none() {
                *fault = Some(PlannedFault { kind: *kind, stage: rate.stage, moment });
            }
        }
    }

    /// What happens to the present request of a user.
    pub(super) fn of(&self, lane: u32) -> Option<PlannedFault> {
        self.lanes.get(lane as usize).and_then(|(_, fault)| *fault)
    }
}

/// How long messages take.
#[derive(Debug)]
pub(super) struct Delays {
    mean: u32,
    spikes: Option<Spikes>,
    stream: Stream,
}

impl Delays {
    pub(super) fn new(settings: &Settings, graph: u32, mean: u32) -> Self {
        let stream = Stream::new(settings.seed, graph, Purpose::Delays);
        Self { mean, spikes: settings.spikes, stream }
    }

    pub(super) fn draw(&mut self) -> u64 {
        if self.mean == 0 {
            return 0;
        }
        let delay = 1 + self.stream.below(2 * u64::from(self.mean) - 1);
        match self.spikes {
            Some(spikes) if self.stream.chance(spikes.probability) => {
                delay.saturating_mul(spikes.factor.into())
            }
            _ => delay,
        }
    }
}

/// How often messages arrive.
#[derive(Debug)]
pub(super) struct Copies {
    loss: f64,
    duplicates: f64,
    stream: Stream,
}

impl Copies {
    pub(super) fn new(settings: &Settings, graph: u32) -> Self {
        let stream = Stream::new(settings.seed, graph, Purpose::Copies);
        Self { loss: settings.loss, duplicates: settings.duplicates, stream }
    }

    /// How many of a message arrive.
    pub(super) fn draw(&mut self) -> usize {
        match () {
            () if self.loss > 0.0 && self.stream.chance(self.loss) => 0,
            () if self.duplicates > 0.0 && self.stream.chance(self.duplicates) => 2,
            () => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_uniform_about_their_mean() {
        let mut delays = Delays::new(&Settings::default(), 0, 50);
        let drawn: Vec<_> = (0..20_000).map(|_| delays.draw()).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&1), Some(&99)));
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        assert!((49.0..51.0).contains(&mean), "{mean}");
    }

    #[test]
    fn as_many_are_lost_or_doubled_as_said() {
        let settings = Settings { loss: 0.2, duplicates: 0.5, ..Settings::default() };
        let mut copies = Copies::new(&settings, 0);
        let drawn: Vec<_> = (0..20_000).map(|_| copies.draw()).collect();
        let share = |n| drawn.iter().filter(|copies| **copies == n).count() as f64 / 20_000.0;
        assert!((0.19..0.21).contains(&share(0)), "{}", share(0));
        assert!((0.38..0.42).contains(&share(2)), "{}", share(2));
    }

    #[test]
    fn spikes_multiply() {
        let spikes = Some(Spikes { probability: 1.0, factor: 1000 });
        let mut delays = Delays::new(&Settings { spikes, ..Settings::default() }, 0, 1);
        assert_eq!(delays.draw(), 1000);
    }
}
