//! How many rounds a request takes.

use holdall_core::{Length, Needs};
use serde::{Deserialize, Serialize};

use super::{House, Round};

/// A number of rounds that follow each other, at least one.
///
/// A round stands for the time of a use. Whoever knows how long a use will probably take tells, and of
/// others it is supposed that who asks for more uses it for longer. If everybody took one, a stretch of
/// rounds in which there is no room for a large request would be a stretch of idle time for everything it
/// needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Span(u8);

/// A span that nobody honest has.
#[derive(Debug, thiserror::Error)]
#[error("a request takes from 1 to {most} rounds, not {0}", most = Span::MAX)]
pub struct NoSpan(u8);

impl Span {
    /// A single round.
    pub const ONE: Self = Self(1);
    /// As many as a request may take: managers of former versions take no more for honest, either.
    pub const MAX: u8 = 16;

    /// How many a request takes, and no more than `span=`: its length, if that is known; else one, and one
    /// more for each two pools it needs.
    pub(super) fn of(cfg: &House, needs: &Needs, length: Option<Length>) -> Self {
        let by_size = || u32::try_from(1 + needs.len() / 2).unwrap_or(u32::MAX);
        let rounds = length.map_or_else(by_size, |length| length.get().into());
        let most = cfg.span.clamp(1, Self::MAX.into());
        Self(u8::try_from(rounds.min(most)).unwrap_or(Self::MAX))
    }

    /// The last of its rounds, from one on.
    pub(super) fn last(self, first: Round) -> Round {
        first.plus(u64::from(self.0) - 1)
    }

    /// Its rounds, from one on.
    pub(super) fn rounds(self, first: Round) -> impl Iterator<Item = Round> {
        (0..u64::from(self.0)).map(move |n| first.plus(n))
    }
}

const _: () = assert!(Length::MAX <= Span::MAX, "whatever can be told can be asked for");

impl TryFrom<u8> for Span {
    type Error = NoSpan;

    fn try_from(rounds: u8) -> Result<Self, NoSpan> {
        if (1..=Self::MAX).contains(&rounds) { Ok(Self(rounds)) } else { Err(NoSpan(rounds)) }
    }
}

impl From<Span> for u8 {
    fn from(span: Span) -> Self {
        span.0
    }
}
