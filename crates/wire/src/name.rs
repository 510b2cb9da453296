//! Names and needs as people write them.
//!
//! Everything here is checked when it is made, also when it is read from a frame: whoever has a
//! [`Name`] has a valid one.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The longest name.
pub const NAME_MAX: usize = 200;
/// The most needs one request may have.
pub const NEEDS_MAX: usize = 1000;
/// The most units one pool may have.
pub const UNITS_MAX: u32 = 65_536;

/// The longest name of a cell.
pub const CELL_NAME_MAX: usize = 60;

/// The name of a pool, a lock or a unit: letters, digits, `_ - . /`; and after an `@`, if it is not of the own cell, the
/// name of the cell: letters, digits, `_ - .`. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The cell that it names, if it does.
    pub fn cell(&self) -> Option<&str> {
        split(&self.0, b'@').map(|(_, cell)| cell)
    }

    /// The name as its own cell knows it.
    #[must_use]
    pub fn here(&self) -> Self {
        match split(&self.0, b'@') {
            Some((name, _)) => Self(name.into()),
            None => self.clone(),
        }
    }

    /// The name as other cells know it.
    #[must_use]
    pub fn at(&self, cell: &str) -> Self {
        Self(format!("{}@{cell}", self.here()).into())
    }

    /// The part of an environment variable's name that stands for this name.
    pub fn variable(&self) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        self.0.chars().map(letter).collect()
    }
}

/// Whether a variable of an environment speaks of a grant inside which somebody is.
pub fn speaks_of_a_grant(variable: &OsStr) -> bool {
    let of_a_grant: [&[u8]; 5] = [
        b"HOLDALL_GRANT",
        b"HOLDALL_NEEDS",
        b"HOLDALL_UNTIL",
        b"HOLDALL_UNITS_",
        b"HOLDALL_FENCE_",
    ];
    of_a_grant.iter().any(|begin| variable.as_encoded_bytes().starts_with(begin))
}

/// A name compares and hashes as its text does.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadNeed;

    fn from_str(text: &str) -> Result<Self, BadNeed> {
        match split(text, b'@') {
            None => check(text)?,
            Some((name, cell)) => {
                check(name)?;
                check_cell(cell)?;
            }
        }
        Ok(Self(text.into()))
    }
}

/// What is before and behind the first of some letter of ASCII. Names are short: a search that is made for long texts takes more.
fn split(text: &str, letter: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == letter)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Whether a text can be the name of something in a cell.
fn check(text: &str) -> Result<(), BadNeed> {
    if text.is_empty() {
        return Err(BadNeed::NoName);
    }
    if text.len() > NAME_MAX {
        return Err(BadNeed::LongName(text.chars().take(20).collect(), text.len()));
    }
    let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
    if text.bytes().any(|byte| odd(byte.into()))
        && let Some(c) = text.chars().find(|c| odd(*c))
    {
        return Err(BadNeed::BadName(text.into(), c));
    }
    Ok(())
}

/// Whether a text can be the name of a cell.
///
/// # Errors
/// If it cannot.
pub fn check_cell(text: &str) -> Result<(), BadNeed> {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if text.is_empty() || text.len() > CELL_NAME_MAX || text.chars().any(odd) {
        return Err(BadNeed::Cell(short(text)));
    }
    Ok(())
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

/// What is sent as people write it.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err = BadNeed>>(from: D) -> Result<T, D::Error> {
    from.deserialize_str(Text(PhantomData))
}

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err = BadNeed>> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text like gpu:2")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How much of a pool or lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    /// One unit of a pool, or a lock exclusively: nothing stood after the name.
    One,
    /// So many units of a pool.
    Units(u32),
    /// All units of a pool.
    All,
    /// A lock, shared with others who share it.
    Shared,
}

/// One need of a request: `gpu`, `gpu:2`, `gpu:all`, `gpu/3`, `db:shared`. That is also how it is sent.
///
/// The whole notation is `POOL[/UNIT][@CELL][:AMOUNT]`. Which slash is the one before a unit only the agent
/// can tell, who knows the pools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Need {
    /// Of what: a pool, a lock, or one unit of a pool.
    pub name: Name,
    /// How much.
    pub amount: Amount,
}

impl Serialize for Need {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.amount {
            Amount::One => self.name.serialize(serializer),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Need {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl FromStr for Need {
    type Err = BadNeed;

    fn from_str(text: &str) -> Result<Self, BadNeed> {
        let (name, amount) = match split(text, b':') {
            None => (text, Amount::One),
            Some((name, "all")) => (name, Amount::All),
            Some((name, "shared")) => (name, Amount::Shared),
            Some((name, units)) => (name, Amount::Units(number(text, units)?)),
        };
        Ok(Self { name: name.parse()?, amount })
    }
}

fn number(need: &str, units: &str) -> Result<u32, BadNeed> {
    if units.is_empty() || !units.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadNeed::BadAmount(short(need)));
    }
    match units.parse() {
        Ok(0) => Err(BadNeed::Zero(short(need))),
        Ok(n) if n <= UNITS_MAX => Ok(n),
        _ => Err(BadNeed::TooMany(short(need))),
    }
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Amount::One => write!(f, "{}", self.name),
            Amount::Units(n) => write!(f, "{}:{n}", self.name),
            Amount::All => write!(f, "{}:all", self.name),
            Amount::Shared => write!(f, "{}:shared", self.name),
        }
    }
}

/// What makes a need unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNeed {
    /// Something else than a number, `all` or `shared` after the colon.
    #[error("'{0}': after the colon comes a number of units, 'all' or 'shared'")]
    BadAmount(String),
    /// A character that names may not have.
    #[error("{1:?} cannot be part of the name '{0}'; use letters, digits, _ - . /")]
    BadName(String, char),
    /// What stands after the `@` is no name of a cell.
    #[error(
        "'{0}' cannot be the name of a cell, which has 1 to {CELL_NAME_MAX} letters, digits, _ - ."
    )]
    Cell(String),
    /// A name beyond [`NAME_MAX`].
    #[error("the name '{0}...' has {1} characters; at most {NAME_MAX} are allowed")]
    LongName(String, usize),
    /// An empty name.
    #[error("a name is empty; use letters, digits, _ - . /")]
    NoName,
    /// More units than a pool can have.
    #[error("'{0}': no pool has more than {UNITS_MAX} units")]
    TooMany(String),
    /// Zero units.
    #[error("'{0}': zero units; ask for at least 1")]
    Zero(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_and_written_alike() {
        let all = ["gpu", "gpu:2", "gpu:all", "gpu/3", "db:shared", "license/maya", "a.b_c-d/0"];
        for text in all {
            assert_eq!(text.parse::<Need>().expect("a need").to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long = "x".repeat(10_000);
        let bad = [
            "",
            ":",
            "gpu:",
            "gpu:0",
            "gpu:-1",
            "gpu:99999999999",
            "gpu:+1",
            "gpu:two",
            "a b",
            "ä",
            "a:1:2",
            "a,b",
            &long,
        ];
        for text in bad {
            assert!(text.parse::<Need>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_may_have_a_cell() {
        for (text, here, cell) in [
            ("gpu", "gpu", None),
            ("gpu/2@lab-1:2", "gpu/2", Some("lab-1")),
            ("a@b:all", "a", Some("b")),
        ] {
            let need: Need = text.parse().expect("a need");
            assert_eq!((need.name.here().as_str(), need.name.cell()), (here, cell));
            assert_eq!(need.to_string(), text);
        }
        for text in ["gpu@", "@lab", "gpu@lab/1", "gpu@lab@lab", &format!("a@{}", "x".repeat(61))] {
            assert!(text.parse::<Need>().is_err(), "{text}");
        }
        let name: Name = "gpu/0".parse().expect("a name");
        assert_eq!(name.at("lab").as_str(), "gpu/0@lab");
    }

    #[test]
    fn variables_of_a_grant_are_known() {
        let of_a_grant = ["GRANT", "GRANT_AGENT", "NEEDS", "UNTIL", "UNITS_DB", "FENCE_DB"];
        let speaks = |name: &&str| speaks_of_a_grant(format!("HOLDALL_{name}").as_ref());
        assert!(of_a_grant.iter().all(speaks));
        assert!(!["AGENT", "DATA", "LOG", "LEASE"].iter().any(speaks));
    }

    #[test]
    fn variables_are_upper_case() {
        assert_eq!("lic/maya-7.x".parse::<Name>().expect("a name").variable(), "LIC_MAYA_7_X");
    }
}
