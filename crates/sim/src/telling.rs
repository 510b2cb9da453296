//! What users say of the time that their uses will take: they know how long such uses take on average.

use holdall_core::Length;

use super::random::{Purpose, Stream};
use super::settings::{Settings, Told};

/// How wrong each user is, each time. Like what is asked for, it does not depend on the protocol, nor does anything
/// else depend on whether users tell.
#[derive(Debug)]
pub(super) struct Telling {
    told: Option<Told>,
    typical: u64,
    /// By lane; empty if nobody tells, or all are equally wrong.
    lanes: Vec<Stream>,
}

impl Telling {
    pub(super) fn new(settings: &Settings, graph: u32) -> Self {
        let told = settings.told;
        let lanes =
            if told.is_some_and(|told| told.one != told.other) { settings.users } else { 0 };
        let lane = |lane| Stream::new(settings.seed, graph, Purpose::Told(lane));
        Self { told, typical: settings.typical_use(), lanes: (0..lanes).map(lane).collect() }
    }

    /// What a user tells of its next use, if such take so long. Nobody asks how long where nobody tells.
    pub(super) fn length(&mut self, lane: u32, expected: impl Fn() -> u64) -> Option<Length> {
        let Told { one, other } = self.told?;
        let stream = self.lanes.get_mut(lane as usize);
        let multiple = if stream.is_some_and(|stream| stream.chance(0.5)) { other } else { one };
        Some(Length::of((expected() as f64 * multiple) as u64, self.typical))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(one: f64, other: f64) -> Vec<u8> {
        let told = Some(Told { one, other });
        let mut telling = Telling::new(&Settings { told, ..Settings::default() }, 0);
        let typical = Settings::default().typical_use();
        (0..100).filter_map(|_| telling.length(3, || 2 * typical)).map(Length::get).collect()
    }

    #[test]
    fn users_tell_a_multiple_or_one_of_two() {
        assert!(Telling::new(&Settings::default(), 0).length(0, || 100).is_none());
        assert_eq!(told(1.0, 1.0), [2 * Length::TYPICAL; 100]);
        assert_eq!(told(0.25, 0.25), [Length::TYPICAL / 2; 100]);
        let either = told(0.5, 2.0);
        let count = |times| either.iter().filter(|told| **told == times * Length::TYPICAL).count();
        assert!(count(1) > 20 && count(1) + count(4) == 100, "{either:?}");
    }
}
