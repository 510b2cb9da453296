//! A line of a history: something happened to a request, or to a pool. `docs/history.md` describes the format.

use std::collections::BTreeMap;

use holdall_wire::{Name, Need, RequestNo};
use serde::{Deserialize, Deserializer, Serialize, de};

/// The version of the format. It grows when older programs would misunderstand a file.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When, in milliseconds since 1970 by the clock on the wall.
    #[serde(rename = "t", deserialize_with = "in_the_calendar")]
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// The last time that there is: the end of the year 9999.
const LATEST: u64 = 253_402_300_799_999;

/// A time that calendars have: with others nobody could count.
pub(crate) fn in_the_calendar<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match u64::deserialize(from)? {
        at if at <= LATEST => Ok(at),
        at => Err(de::Error::custom(format!("{at} is no time that calendars have"))),
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "lowercase")]
pub enum What {
    /// A file begins.
    Begin {
        /// Its version.
        v: u32,
    },
    /// Somebody asked.
    Ask(Ask),
    /// It was granted.
    Grant(Grant),
    /// It ended, granted or not.
    End {
        /// The request.
        r: RequestNo,
        /// How.
        how: How,
        /// Whose it is.
        #[serde(rename = "u", skip_serializing_if = "Option::is_none", default)]
        user: Option<String>,
    },
    /// A pool is there, or has changed.
    Pool {
        /// Its name.
        pool: Name,
        /// How many units it has: 0 if it is gone, nothing if it is a lock.
        units: Option<u32>,
    },
    /// Lines were left out.
    Gap {
        /// How many at least; 0 if that is not known.
        lines: u64,
    },
    /// The clock was set; this line has the time that it said then.
    Clock {
        /// By how many milliseconds: less than none if it was set back.
        by: i64,
    },
    /// When somebody who waits was told to expect its grant.
    Expect(Expect),
    /// Everything is here up to a record of the agent's log.
    Mark(Mark),
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// Somebody asked for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The request; one that was turned away at the door has no number.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub r: Option<RequestNo>,
    /// The user.
    #[serde(rename = "u", skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
    /// The name of the request.
    #[serde(rename = "n", skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// The command or program.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
    /// What is needed.
    pub needs: Vec<Need>,
    /// It would not wait.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub now: bool,
    /// The grant of which it wants a part.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none", default)]
    pub part_of: Option<RequestNo>,
    /// For how many milliseconds it is going to be used, in a workload that is made up.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none", default)]
    pub service: Option<u64>,
}

/// A request was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The request.
    pub r: RequestNo,
    /// The units of each pool; of a lock, the lock itself.
    pub got: BTreeMap<Name, Vec<Name>>,
    /// How many more units of a pool, if there are too many to be named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub more: BTreeMap<Name, u32>,
    /// Until when it is reserved, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<u64>,
    /// When its time is over, if it is used for longer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u64>,
    /// Whose it is.
    #[serde(rename = "u", skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
}

/// When a request was expected to be granted, in milliseconds from then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// The request.
    pub r: RequestNo,
    /// In half of the cases.
    pub half: (u64, u64),
    /// In nine of ten.
    pub nine: (u64, u64),
    /// Whose it is.
    #[serde(rename = "u", skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
}

/// How far into the log of an agent a history goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Up to this record.
    pub upto: u64,
    /// Of this log.
    pub of: String,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum How {
    /// It was given back.
    Released,
    /// Its client ended without a word, and nothing of it was left.
    Left,
    /// Its processes were ended.
    Killed,
    /// The time of a reservation was over.
    Expired,
    /// Somebody with the right to do so took it away.
    Forced,
    /// Its time limit was over.
    Overrun,
    /// It could not be kept.
    Lost,
    /// It was given up before it was granted.
    Withdrawn,
    /// It could not be granted, or not at once.
    Refused,
    /// In a way that this version does not know, or that is not recorded.
    Unknown,
}

impl How {
    const ALL: [(Self, &'static str); 10] = [
        (Self::Released, "released"),
        (Self::Left, "left"),
        (Self::Killed, "killed"),
        (Self::Expired, "expired"),
        (Self::Forced, "forced"),
        (Self::Overrun, "overrun"),
        (Self::Lost, "lost"),
        (Self::Withdrawn, "withdrawn"),
        (Self::Refused, "refused"),
        (Self::Unknown, "unknown"),
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(how, _)| *how == self).map_or("unknown", |(_, word)| word)
    }

    /// What a word stands for, if it is one.
    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(how, _)| *how)
    }
}

impl From<String> for How {
    fn from(word: String) -> Self {
        Self::of(&word).unwrap_or(Self::Unknown)
    }
}

impl From<How> for &'static str {
    fn from(how: How) -> Self {
        how.as_str()
    }
}

impl Line {
    /// The same without what tells people apart: user, name and command.
    #[must_use]
    pub fn anonymous(mut self) -> Self {
        match &mut self.what {
            What::Ask(ask) => (ask.user, ask.name, ask.command) = (None, None, None),
            What::Grant(Grant { user, .. })
            | What::Expect(Expect { user, .. })
            | What::End { user, .. } => *user = None,
            What::Begin { .. }
            | What::Pool { .. }
            | What::Gap { .. }
            | What::Mark(_)
            | What::Clock { .. }
            | What::Other => {}
        }
        self
    }

    /// As it stands in a file, with the end of the line.
    ///
    /// # Errors
    /// Never, as far as we know: all of it can be written as JSON.
    pub fn to_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|text| text + "\n")
    }

    /// Adds it to a text.
    pub(crate) fn write_to(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *text, self)?;
        text.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        for text in [
            r#"{"t":1,"k":"begin","v":1}"#,
            r#"{"t":2,"k":"ask","r":"3-17","u":"anna","n":"nightly","c":"make","needs":["gpu:2","db"]}"#,
            r#"{"t":2,"k":"ask","needs":["gpu"]}"#,
            r#"{"t":2,"k":"ask","r":"3-17","needs":["gpu"],"now":true}"#,
            r#"{"t":3,"k":"grant","r":"3-17","got":{"db":["db"],"gpu":["gpu/0","gpu/1"]}}"#,
            r#"{"t":4,"k":"end","r":"3-17","how":"released"}"#,
            r#"{"t":5,"k":"pool","pool":"gpu","units":4}"#,
            r#"{"t":5,"k":"pool","pool":"db","units":null}"#,
            r#"{"t":6,"k":"gap","lines":12}"#,
            r#"{"t":3,"k":"grant","r":"3-17","got":{"db":["db"]},"more":{"db":2},"until":9,"limit":8,"u":"anna"}"#,
            r#"{"t":6,"k":"expect","r":"3-17","half":[5,9],"nine":[1,20],"u":"anna"}"#,
            r#"{"t":6,"k":"mark","upto":12,"of":"0123456789abcdef"}"#,
        ] {
            let line: Line = serde_json::from_str(text).expect("a line");
            assert_eq!(line.to_text().expect("JSON"), format!("{text}\n"));
        }
    }

    #[test]
    fn what_later_versions_add_is_passed_over() {
        let never = r#"{"t":18446744073709551615,"k":"when"}"#;
        assert!(serde_json::from_str::<Line>(never).is_err(), "no calendar has that");
        let line: Line = serde_json::from_str(r#"{"t":1,"k":"when","r":"1-1"}"#).expect("a line");
        assert_eq!(line.what, What::Other);
        let text = r#"{"t":4,"k":"end","r":"3-17","how":"evaporated","why":"heat"}"#;
        let line: Line = serde_json::from_str(text).expect("a line");
        assert!(matches!(line.what, What::End { how: How::Unknown, .. }));
    }

    #[test]
    fn anonymous_lines_tell_nobody_apart() {
        let ask = Ask {
            r: Some(RequestNo(1)),
            user: Some("anna".into()),
            name: Some("secret".into()),
            command: Some("make secret".into()),
            needs: vec!["gpu".parse().expect("a need")],
            now: false,
            part_of: None,
            service: None,
        };
        let text = Line { at: 1, what: What::Ask(ask) }.anonymous().to_text().expect("JSON");
        assert_eq!(text, "{\"t\":1,\"k\":\"ask\",\"r\":\"0-1\",\"needs\":[\"gpu\"]}\n");
        for text in [
            r#"{"t":3,"k":"grant","r":"3-17","got":{"db":["db"]},"u":"anna"}"#,
            r#"{"t":4,"k":"end","r":"3-17","how":"released","u":"anna"}"#,
            r#"{"t":6,"k":"expect","r":"3-17","half":[5,9],"nine":[1,20],"u":"anna"}"#,
        ] {
            let line: Line = serde_json::from_str(text).expect("a line");
            assert!(!line.anonymous().to_text().expect("JSON").contains("anna"));
        }
    }
}
