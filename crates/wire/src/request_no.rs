//! Numbers of requests, as programs and people have them.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a request, and of the grant it becomes: unique on its node for ever. The upper
/// half counts the starts of the agent; people see `3-17`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNo(pub u64);

/// The longest that a number is in words.
const WORDS_MAX: usize = 2 * 10 + 1;

impl RequestNo {
    /// As people see it. Each request is written down some times, and formatting would be most of that.
    fn in_words(self, room: &mut [u8; WORDS_MAX]) -> &str {
        let dash = digits(self.0 & 0xffff_ffff, room) - 1;
        room[dash] = b'-';
        let start = digits(self.0 >> 32, &mut room[..dash]);
        // There is nothing but digits.
        std::str::from_utf8(&room[start..]).unwrap_or_default()
    }
}

/// Puts a number at the end of some room, and tells where it begins.
fn digits(mut number: u64, room: &mut [u8]) -> usize {
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

impl Serialize for RequestNo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(self.in_words(&mut [0; WORDS_MAX]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_in_json_as_for_people() {
        for number in [0, 7, 10, 0xffff_ffff, 3 << 32 | 17, 1 << 32, u64::MAX] {
            let request = RequestNo(number);
            assert_eq!(request.in_words(&mut [0; WORDS_MAX]), request.to_string());
            assert_eq!(request.to_string().parse(), Ok(request));
        }
    }
}
