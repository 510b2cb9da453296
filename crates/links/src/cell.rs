//! Who is who: a cell has a name, which people use, and 128 random bits, which nobody else ever has.
//!
//! Both are in the cell's certificate. The name is one label of a host name in lower case, so that it can stand
//! behind the `@` of a need and in any file name; whoever has a [`CellName`] has a valid one, also if it came
//! from the network.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, de};

/// The longest name.
const NAME_MAX: usize = 60;

/// The bits that tell a cell from all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellId(pub u128);

/// The name of a cell: lower-case letters, digits and hyphens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CellName(Arc<str>);

/// The identity of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// What tells it from all others.
    pub id: CellId,
    /// What people call it.
    pub name: CellName,
}

/// A text that is no name of a cell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no name for a cell: 1 to {NAME_MAX} lower-case letters, digits and hyphens, no hyphen at an end"
)]
pub struct BadName(String);

/// A text that is no id of a cell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no id of a cell: 32 hexadecimal digits")]
pub struct BadId(String);

impl CellId {
    /// An id that nobody has yet.
    ///
    /// # Errors
    /// If the machine has no random bits.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

impl CellName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CellName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let inside = !text.starts_with('-') && !text.ends_with('-');
        if text.is_empty() || text.len() > NAME_MAX || !inside || !text.bytes().all(plain) {
            return Err(BadName(text.chars().take(80).collect()));
        }
        Ok(Self(text.into()))
    }
}

impl FromStr for CellId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let bad = || BadId(text.chars().take(80).collect());
        if text.len() != 32 || !text.bytes().all(digit) {
            return Err(bad());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| bad())
    }
}

impl<'de> Deserialize<'de> for CellName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels() {
        for good in ["lab1", "a", "7", "gpu-box-3", &"x".repeat(60)] {
            assert_eq!(good.parse::<CellName>().expect("a name").as_str(), good);
        }
        for bad in ["", "Lab", "-a", "a-", "a.b", "a/b", "a b", "ä", &"x".repeat(61)] {
            assert!(bad.parse::<CellName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_come_back_from_their_text() {
        let id = CellId(0xfe);
        assert_eq!(id.to_string(), "000000000000000000000000000000fe");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "fe", "+00000000000000000000000000000fe", &"F".repeat(32)] {
            assert!(bad.parse::<CellId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_from_elsewhere_is_checked() {
        let bytes = postcard::to_stdvec("Not A Name").expect("written");
        assert!(postcard::from_bytes::<CellName>(&bytes).is_err());
    }
}
