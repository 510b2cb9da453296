//! How long a use will probably take.

use core::fmt;

use serde::{Deserialize, Serialize};

/// How long a use will probably take, as whoever asks knows it: from experience, or because somebody says
/// so. Nothing but waiting times may depend on it, since it may be wrong.
///
/// Protocols know no clock, so it is a multiple: a [typical](Self::TYPICAL) use is so many, and nobody can
/// say that a use takes more than [`Self::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Length(u8);

/// A length that nobody honest tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the length of a use is a number from 1 to {most}, not {0}", most = Length::MAX)]
pub struct NoLength(pub u8);

impl Length {
    /// The shortest.
    pub const ONE: Self = Self(1);
    /// That of a typical use.
    pub const TYPICAL: u8 = 4;
    /// The longest, and anything beyond.
    pub const MAX: u8 = 16;

    /// The length of a use that will take so much time where a typical one takes so much, in whatever unit.
    pub fn of(takes: u64, typical: u64) -> Self {
        let (takes, typical) = (u128::from(takes), u128::from(typical.max(1)));
        let nearest = (2 * u128::from(Self::TYPICAL) * takes + typical) / (2 * typical);
        Self(u8::try_from(nearest).unwrap_or(Self::MAX).clamp(1, Self::MAX))
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Length {
    type Error = NoLength;

    fn try_from(number: u8) -> Result<Self, NoLength> {
        if (1..=Self::MAX).contains(&number) { Ok(Self(number)) } else { Err(NoLength(number)) }
    }
}

impl From<Length> for u8 {
    fn from(length: Length) -> Self {
        length.0
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_nearest_multiple_within_bounds() {
        let of = |takes, typical| Length::of(takes, typical).get();
        assert_eq!(of(100, 100), Length::TYPICAL);
        assert_eq!((of(87, 100), of(88, 100)), (3, 4), "the nearest");
        assert_eq!((of(0, 100), of(401, 100), of(u64::MAX, 1)), (1, 16, 16));
        assert_eq!(of(u64::MAX, u64::MAX), Length::TYPICAL);
        assert_eq!((of(0, 0), of(3, 0)), (1, 12), "a typical use takes some time");
    }

    #[test]
    fn a_strangers_word_is_bounded() {
        for number in 0..=u8::MAX {
            let read = Length::try_from(number);
            assert_eq!(read.map(Length::get).ok(), Some(number).filter(|n| (1..=16).contains(n)));
        }
    }
}
