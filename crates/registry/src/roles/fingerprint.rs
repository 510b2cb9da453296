//! Fingerprints of the parts of a state, plain and up to a shift of their stamps.
//!
//! A stamp shows itself in its hash by a `write_u128` (see [`holdall_core::Stamp`]). Everything
//! else goes into the fingerprint as it is; stamps go in once with their value (plain) and once
//! with their distance from the least of their family in this part (relative), and that least
//! value, the *origin*, is kept beside it. A whole state is then fingerprinted from the relative
//! fingerprints and the distances between its parts' origins and the least origins of all: the same for
//! all states that differ only by a shift, without computing the shifted states.

use std::hash::{Hash, Hasher};

/// The fingerprint of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// As it is.
    pub plain: u64,
    /// Up to a shift of its stamps.
    pub relative: u64,
    /// The least stamp of each family in the part, by family.
    origins: Box<[(Family, u64)]>,
}

/// A family of stamps, in 64 bits like everything else here.
type Family = u64;

impl Fingerprint {
    /// That of a value.
    pub fn of(value: &impl Hash) -> Self {
        let mut hasher = StampHasher::default();
        value.hash(&mut hasher);
        hasher.fingerprint()
    }

    /// That of the duplicate of a message, which is told apart from the message.
    pub fn duplicate(&self) -> Self {
        let Self { plain, relative, origins } = self;
        Self { plain: mix(!plain), relative: mix(!relative), origins: origins.clone() }
    }
}

/// Takes a hash apart into stamps and the rest.
#[derive(Default)]
struct StampHasher {
    rest: u64,
    family: Option<Family>,
    stamps: Vec<(Family, u64)>,
}

impl StampHasher {
    fn absorb(&mut self, word: u64) {
        self.rest = mix(self.rest ^ word);
    }

    fn fingerprint(self) -> Fingerprint {
        let mut origins = Vec::new();
        for (family, value) in &self.stamps {
            lower(&mut origins, *family, *value);
        }
        origins.sort_unstable();
        let (mut plain, mut relative) = (self.rest, self.rest);
        for (family, value) in &self.stamps {
            plain = mix(plain ^ value);
            relative = mix(relative ^ (value - origin(&origins, *family)));
        }
        Fingerprint { plain, relative, origins: origins.into() }
    }
}

impl Hasher for StampHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.absorb(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.absorb(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.absorb(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        match self.family.take() {
            Some(family) => self.stamps.push((family, n)),
            None => self.absorb(n),
        }
    }

    /// Only a stamp does this; its value follows.
    fn write_u128(&mut self, family: u128) {
        let (low, high) = (family as u64, (family >> 64) as u64);
        self.absorb(low ^ high);
        self.family = Some(low ^ mix(high));
    }

    fn write_usize(&mut self, n: usize) {
        self.absorb(n as u64);
    }

    fn finish(&self) -> u64 {
        self.rest
    }
}

/// Gathers the parts of a state into its fingerprint. The order of the parts does not matter;
/// their places do.
#[derive(Debug, Default)]
pub struct StateFingerprint {
    /// The least stamp of each family.
    origins: Vec<(Family, u64)>,
    /// The place of each part, its relative fingerprint, and where its stamps end.
    parts: Vec<(u64, u64, usize)>,
    /// The least stamps of one part after another, each with the place of its family among the
    /// origins.
    stamps: Vec<(usize, u64)>,
}

impl StateFingerprint {
    /// The fingerprint of a state as it is.
    pub fn plain<'a>(parts: impl Iterator<Item = (u64, &'a Fingerprint)>) -> u64 {
        parts.fold(0, |total, (place, fingerprint)| {
            total.wrapping_add(mix(fingerprint.plain ^ mix(place)))
        })
    }

    /// The fingerprint of a state up to a shift of its stamps. The buffers are reused, and families
    /// are looked for once: half of a search is spent here.
    pub fn relative<'a>(&mut self, parts: impl Iterator<Item = (u64, &'a Fingerprint)>) -> u64 {
        self.origins.clear();
        self.parts.clear();
        self.stamps.clear();
        for (place, fingerprint) in parts {
            for (family, value) in &fingerprint.origins {
                self.stamps.push((lower(&mut self.origins, *family, *value), *value));
            }
            self.parts.push((place, fingerprint.relative, self.stamps.len()));
        }
        let (mut total, mut from) = (0u64, 0);
        for (place, relative, to) in &self.parts {
            let offsets = self.stamps[from..*to]
                .iter()
                .fold(mix(*place), |acc, (at, value)| mix(acc ^ (value - self.origins[*at].1)));
            total = total.wrapping_add(mix(relative ^ offsets));
            from = *to;
        }
        total
    }
}

/// How far the stamps of one family are apart in a state, at most: the least of one part from the
/// least of another.
pub fn gap<'a>(parts: &(impl Iterator<Item = (u64, &'a Fingerprint)> + Clone)) -> u64 {
    let mut least = Vec::new();
    let stamps = || parts.clone().flat_map(|(_, fingerprint)| fingerprint.origins.iter().copied());
    for (family, value) in stamps() {
        lower(&mut least, family, value);
    }
    stamps().map(|(family, value)| value - origin(&least, family)).max().unwrap_or(0)
}

/// A strong mixing of 64 bits (the finalizer of SplitMix64).
#[inline]
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Notes a stamp, and returns the place of its family.
#[inline]
fn lower(origins: &mut Vec<(Family, u64)>, family: Family, value: u64) -> usize {
    if let Some(at) = origins.iter().position(|(known, _)| *known == family) {
        origins[at].1 = value.min(origins[at].1);
        return at;
    }
    origins.push((family, value));
    origins.len() - 1
}

fn origin(origins: &[(Family, u64)], family: Family) -> u64 {
    origins.iter().find(|(known, _)| *known == family).map_or(0, |(_, least)| *least)
}
