//! What a configuration says of the history: `history = "anonymous"`, or a table with more.

use holdall_history::Retention;
use holdall_wire::Right;
use serde::{Deserialize, Deserializer};

/// Whether a history is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// With users, names and commands.
    #[default]
    On,
    /// Without them.
    Anonymous,
    /// None, and no estimates either.
    Off,
}

/// What is kept, for how long, and who may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Whether one is kept.
    pub keep: Keep,
    /// For so many days, if there is room.
    pub days: u64,
    /// At most so many bytes.
    pub bytes: u64,
    /// The right that one needs to read everybody's; for one's own it is `view`.
    pub everybody: Right,
}

impl Default for History {
    fn default() -> Self {
        Table::default().into()
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Table {
    keep: Keep,
    days: u64,
    bytes: u64,
    everybody: Right,
}

impl Default for Table {
    fn default() -> Self {
        Self { keep: Keep::On, days: 90, bytes: 64 << 20, everybody: Right::Admin }
    }
}

impl From<Table> for History {
    fn from(Table { keep, days, bytes, everybody }: Table) -> Self {
        Self { keep, days, bytes, everybody }
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = toml::Value::deserialize(deserializer)?;
        let read = match said {
            toml::Value::String(_) => {
                Keep::deserialize(said).map(|keep| Self { keep, ..Self::default() })
            }
            toml::Value::Table(_) => Table::deserialize(said).map(Into::into),
            other => {
                let other = other.type_str();
                let wanted = "it is \"on\", \"anonymous\" or \"off\", or a table";
                return Err(serde::de::Error::custom(format!("history is no {other}: {wanted}")));
            }
        };
        read.map_err(serde::de::Error::custom)
    }
}

/// With less a file would be begun anew for every few lines.
const LEAST_BYTES: u64 = 1 << 16;
/// With more it would be more than is read of a history at once (1 GiB, five million requests of 120 bytes each at least).
const MOST_BYTES: u64 = 512 << 20;

impl History {
    /// How much is kept, if anything is.
    pub(super) fn retention(&self) -> Option<Retention> {
        let millis = self.days.saturating_mul(24 * 3_600_000);
        let anonymous = self.is_anonymous();
        (self.keep != Keep::Off).then_some(Retention { bytes: self.bytes, millis, anonymous })
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.keep == Keep::Anonymous
    }

    /// Whether an agent could do anything with it.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.days > 0, "history.days is 0; `history = \"off\"` keeps none");
        let bytes = self.bytes;
        anyhow::ensure!(
            (LEAST_BYTES..=MOST_BYTES).contains(&bytes),
            "history.bytes is {bytes}; it is {LEAST_BYTES} at least and {MOST_BYTES} at most"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        history: History,
    }

    fn read(text: &str) -> Result<History, String> {
        toml::from_str::<File>(text).map(|file| file.history).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_or_a_table_says_what_is_kept() {
        let said = History::default();
        assert_eq!(read(""), Ok(said.clone()));
        assert_eq!(
            read("history = 'anonymous'"),
            Ok(History { keep: Keep::Anonymous, ..said.clone() })
        );
        let off = History { keep: Keep::Off, days: 7, everybody: Right::View, ..said };
        assert_eq!(read("[history]\nkeep = 'off'\ndays = 7\neverybody = 'view'"), Ok(off));
        for bad in ["history = 'sometimes'", "[history]\nhours = 3", "history = 1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let wrong = read("history = 'sometimes'").expect_err("no such word");
        assert!(wrong.contains("anonymous"), "{wrong}");
        let wrong = read("history = true").expect_err("no such thing");
        assert!(wrong.contains("history is no boolean: it is \"on\""), "{wrong}");
        for (bytes, fits) in [(5, false), (1 << 16, true), (512 << 20, true), (1 << 30, false)] {
            let said = read(&format!("history = {{bytes = {bytes}}}")).expect("a table");
            assert_eq!(said.check().is_ok(), fits, "{bytes}");
        }
    }
}
