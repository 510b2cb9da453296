//! Numbers of requests, as programs and people have them.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a request, and of the grant it becomes: unique on its node for ever. The upper
/// half counts the starts of the agent; people see `3-17`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNo(pub u64);

impl Serialize for RequestNo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for RequestNo {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(deserializer).map(Self)
        }
    }
}

impl Display for RequestNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for RequestNo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(epoch, n)| {
            Some((u64::from(epoch.parse::<u32>().ok()?) << 32) | u64::from(n.parse::<u32>().ok()?))
        });
        parts.map(Self).ok_or_else(|| {
            let short: String = text.chars().take(60).collect();
            format!("'{short}' is no request; `holdall status` lists them, like 3-17")
        })
    }
}
