//! What members know of each other, and how they come to know the same. Pure.
//!
//! Of every cell there are up to three records: that it is a member or was removed, what it says about itself,
//! and that its grants are forgotten. Records of one kind and cell have a total order, and of two the greater one
//! stays, wherever it came from: merging commutes, is idempotent, and everybody who has heard the same has the same.
//!
//! - **Removed is greater than member**, whatever the versions: nobody comes back under an id that was removed.
//! - **A cell has the last word about itself.** If others have a greater record of it than it said (its directory
//!   was put back from an old copy), it says its own again under a greater version. Not so if it was removed.
//! - **Of a member that was removed nobody says a word of giving it up that is shorter than the one that it knows.**
//! - Everything is bounded: cells, addresses, texts. What is beyond is refused before it is merged.

use std::collections::BTreeMap;

use hmac_sha256::Hash;
use serde::{Deserialize, Serialize};

use crate::cell::{CellId, CellName};

/// The most cells that are known, removed ones among them.
pub const CELLS_MAX: usize = 1024;
/// The most a cell may say about itself.
pub const ABOUT_MAX: usize = 64 << 10;
/// The most that may be said when a cell is forgotten.
pub const WORD_MAX: usize = 1024;
const ADDRESSES_MAX: usize = 8;
const ADDRESS_MAX: usize = 260;
/// So high no honest version counts. Who is brought there by others stays there: see [`next`].
const VERSION_MAX: u64 = u64::MAX / 2;

/// That a cell is a member, or was removed. The order of fields is the order of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Whether it was removed.
    pub removed: bool,
    /// Grows with everything that the cell says.
    pub version: u64,
    /// When it became a member or was removed, in milliseconds since 1970.
    pub since: u64,
    /// Its name.
    pub name: CellName,
    /// Where it can be reached: `host:port`.
    pub addresses: Vec<String>,
    /// Whether it has the key of the authority: signs certificates and lets others join.
    pub signs: bool,
}

/// What a cell says about itself; means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct About {
    /// Grows with everything that the cell says.
    pub version: u64,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// That somebody said: what this cell holds is forgotten. What that means is decided above.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Forgotten {
    /// How often it was said.
    pub version: u64,
    /// What was said with it.
    pub word: Vec<u8>,
}

/// One of the three.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// It is a member, or was removed.
    Member(Member),
    /// What it says about itself.
    About(About),
    /// What it holds is forgotten.
    Forgotten(Forgotten),
}

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// It is a member, or was removed.
    Member,
    /// What it says about itself.
    About,
    /// What it holds is forgotten.
    Forgotten,
}

/// Something known of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of which cell.
    pub cell: CellId,
    /// What.
    pub part: Part,
}

/// A record in short: somebody who has another one lacks this, or has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Of which cell.
    pub cell: CellId,
    /// Which record.
    pub kind: Kind,
    /// A checksum of its content.
    pub sum: u64,
}

/// A record that no honest member sends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of cell {0} is beyond all bounds")]
pub struct Unsound(CellId);

impl Part {
    fn kind(&self) -> Kind {
        match self {
            Self::Member(_) => Kind::Member,
            Self::About(_) => Kind::About,
            Self::Forgotten(_) => Kind::Forgotten,
        }
    }

    fn version(&self) -> u64 {
        match self {
            Self::Member(it) => it.version,
            Self::About(it) => it.version,
            Self::Forgotten(it) => it.version,
        }
    }

    fn set_version(&mut self, version: u64) {
        match self {
            Self::Member(it) => it.version = version,
            Self::About(it) => it.version = version,
            Self::Forgotten(it) => it.version = version,
        }
    }
}

impl Record {
    /// Whether it is within the bounds.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self) -> Result<(), Unsound> {
        let fits = match &self.part {
            Part::Member(it) => are_addresses(&it.addresses),
            Part::About(it) => it.bytes.len() <= ABOUT_MAX,
            Part::Forgotten(it) => it.word.len() <= WORD_MAX,
        };
        let sound = fits && self.part.version() <= VERSION_MAX;
        if sound { Ok(()) } else { Err(Unsound(self.cell)) }
    }
}

/// Whether these can be the addresses of a member.
pub(crate) fn are_addresses(addresses: &[String]) -> bool {
    let plain =
        |text: &String| text.len() <= ADDRESS_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    addresses.len() <= ADDRESSES_MAX && addresses.iter().all(plain)
}

/// Everything a cell knows of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    own: CellId,
    parts: BTreeMap<(CellId, Kind), Part>,
}

impl Roster {
    /// What the cell `own` knows.
    pub fn new(own: CellId, records: Vec<Record>) -> Self {
        let of = |record: Record| ((record.cell, record.part.kind()), record.part);
        Self { own, parts: records.into_iter().map(of).collect() }
    }

    /// All of it.
    pub fn records(&self) -> Vec<Record> {
        self.parts.iter().map(|((cell, _), part)| record(*cell, part)).collect()
    }

    /// Merges what somebody tells. Returns what is new, which others are to be told.
    ///
    /// # Errors
    /// If a record is out of bounds; nothing is merged then.
    pub fn merge(&mut self, told: Vec<Record>) -> Result<Vec<Record>, Unsound> {
        told.iter().try_for_each(Record::check)?;
        Ok(told.into_iter().filter_map(|record| self.merge_one(record)).collect())
    }

    fn merge_one(&mut self, told: Record) -> Option<Record> {
        let Record { cell, mut part } = told;
        let known = self.parts.get(&(cell, part.kind()));
        if known.is_some_and(|known| *known >= part) || !self.has_room_for(cell) {
            return None;
        }
        if cell == self.own
            && let Some(said) = known
            && is_own_to_say(&part)
        {
            let theirs = std::mem::replace(&mut part, said.clone());
            part.set_version(theirs.version());
            if part != theirs {
                part.set_version(next(theirs.version()));
            }
        }
        Some(self.put(cell, part))
    }

    /// Whether a word about a member that was removed, and so never comes back to be given up anew, tells less of it than what was said before.
    fn says_less(&self, cell: CellId, word: &[u8], said: &Forgotten) -> bool {
        self.is_removed(cell) && word.len() < said.word.len()
    }

    /// What others, who know this, lack or have otherwise.
    pub fn unknown_to(&self, others: &[Known]) -> Vec<Record> {
        let others: BTreeMap<_, _> = others.iter().map(|it| ((it.cell, it.kind), it.sum)).collect();
        let differs = |key, part| others.get(key).is_none_or(|theirs| *theirs != sum(part));
        let differing = self.parts.iter().filter(|(key, part)| differs(key, part));
        differing.map(|((cell, _), part)| record(*cell, part)).collect()
    }

    /// All of it in short.
    pub fn known(&self) -> Vec<Known> {
        let short = |((cell, kind), part): (&(CellId, Kind), &Part)| Known {
            cell: *cell,
            kind: *kind,
            sum: sum(part),
        };
        self.parts.iter().map(short).collect()
    }

    /// Another cell joins, or the own one. Nothing changes for one that was removed.
    pub fn add(
        &mut self,
        cell: CellId,
        name: &CellName,
        addresses: &[String],
        now: u64,
    ) -> Option<Record> {
        let said = self.member(cell);
        if said.is_some_and(|said| said.removed) || !self.has_room_for(cell) {
            return None;
        }
        let member = Member {
            removed: false,
            version: said.map_or(1, |said| next(said.version)),
            since: said.map_or(now, |said| said.since),
            name: name.clone(),
            addresses: addresses.to_vec(),
            signs: said.is_some_and(|said| said.signs),
        };
        Some(self.put(cell, Part::Member(member)))
    }

    /// The own cell says where it is and whether it signs; nothing if that is known.
    pub fn say_member(&mut self, addresses: &[String], signs: bool) -> Option<Record> {
        let said = self.member(self.own)?;
        if said.removed || (said.addresses == addresses && said.signs == signs) {
            return None;
        }
        let (addresses, version) = (addresses.to_vec(), next(said.version));
        let member = Member { addresses, signs, version, ..said.clone() };
        Some(self.put(self.own, Part::Member(member)))
    }

    /// The own cell says something about itself; nothing if that is known.
    pub fn say_about(&mut self, bytes: Vec<u8>) -> Option<Record> {
        let said = self.about(self.own);
        if said.is_some_and(|said| said.bytes == bytes) {
            return None;
        }
        let version = said.map_or(1, |said| next(said.version));
        Some(self.put(self.own, Part::About(About { version, bytes })))
    }

    /// Removes a member for good; nothing if it is none.
    pub fn remove(&mut self, cell: CellId, now: u64) -> Option<Record> {
        let said = self.member(cell).filter(|said| !said.removed)?;
        let member = Member { removed: true, since: now, ..said.clone() };
        Some(self.put(cell, Part::Member(member)))
    }

    /// Says that what a cell holds is forgotten.
    pub fn forget(&mut self, cell: CellId, word: Vec<u8>) -> Option<Record> {
        if !self.has_room_for(cell) {
            return None;
        }
        let (version, word) = match self.parts.get(&(cell, Kind::Forgotten)) {
            Some(Part::Forgotten(said)) if self.says_less(cell, &word, said) => {
                (next(said.version), said.word.clone())
            }
            Some(Part::Forgotten(said)) => (next(said.version), word),
            _ => (1, word),
        };
        Some(self.put(cell, Part::Forgotten(Forgotten { version, word })))
    }

    /// Every cell that is or was a member.
    pub fn members(&self) -> impl Iterator<Item = (CellId, &Member)> {
        self.parts.iter().filter_map(|((cell, _), part)| match part {
            Part::Member(member) => Some((*cell, member)),
            _ => None,
        })
    }

    /// What is known of a member.
    pub fn member(&self, cell: CellId) -> Option<&Member> {
        match self.parts.get(&(cell, Kind::Member)) {
            Some(Part::Member(member)) => Some(member),
            _ => None,
        }
    }

    /// What a cell says about itself.
    pub fn about(&self, cell: CellId) -> Option<&About> {
        match self.parts.get(&(cell, Kind::About)) {
            Some(Part::About(about)) => Some(about),
            _ => None,
        }
    }

    /// Every cell of which it was said that what it holds is forgotten, and what was said with it.
    pub fn forgotten(&self) -> impl Iterator<Item = (CellId, &Forgotten)> {
        self.parts.iter().filter_map(|((cell, _), part)| match part {
            Part::Forgotten(forgotten) => Some((*cell, forgotten)),
            _ => None,
        })
    }

    /// The members of this name. There is more than one only if two signers let them join at the same time.
    pub fn named(&self, name: &str) -> impl Iterator<Item = (CellId, &Member)> {
        self.members().filter(move |(_, it)| !it.removed && it.name.as_str() == name)
    }

    /// Whether this cell was removed.
    pub fn is_removed(&self, cell: CellId) -> bool {
        self.member(cell).is_some_and(|member| member.removed)
    }

    /// Whether the cell is known, or another one can be.
    pub(crate) fn has_room_for(&self, cell: CellId) -> bool {
        let is_known =
            self.parts.range((cell, Kind::Member)..=(cell, Kind::Forgotten)).next().is_some();
        is_known || self.parts.len() < CELLS_MAX || self.cells() < CELLS_MAX
    }

    fn cells(&self) -> usize {
        let mut cells: Vec<_> = self.parts.keys().map(|(cell, _)| *cell).collect();
        cells.dedup();
        cells.len()
    }

    fn put(&mut self, cell: CellId, part: Part) -> Record {
        let put = record(cell, &part);
        self.parts.insert((cell, part.kind()), part);
        put
    }
}

/// The version after this one. It stays within the bounds whatever others have said: a cell whose records were
/// brought to the bound loses the last word about itself, not its links.
fn next(version: u64) -> u64 {
    (version + 1).min(VERSION_MAX)
}

/// Whether the cell that a record is about has the last word about it.
fn is_own_to_say(part: &Part) -> bool {
    match part {
        Part::Member(member) => !member.removed,
        Part::About(_) => true,
        Part::Forgotten(_) => false,
    }
}

fn record(cell: CellId, part: &Part) -> Record {
    Record { cell, part: part.clone() }
}

/// Of a cryptographic hash, so that nobody finds two records that pass for the same.
fn sum(part: &Part) -> u64 {
    let hash = Hash::hash(&postcard::to_stdvec(part).unwrap_or_default());
    hash.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
