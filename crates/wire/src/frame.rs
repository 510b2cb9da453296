//! Frames: a length in four bytes, little end first, then so many bytes of postcard.
//!
//! The length is looked at before anything is allocated for it, so a peer cannot make us allocate
//! more than the bound. The first frame of each side is a greeting with a fixed form that no
//! version may change, so that peers of any two versions understand each other's greeting.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::append;

/// The version of everything after the greeting.
pub const VERSION: u32 = 6;
/// The oldest version that is understood, too. It knows no sessions.
pub const OLDEST: u32 = 5;
/// The largest frame a client may send.
pub const FROM_CLIENT_MAX: usize = 1 << 20;
/// The largest frame a node may send.
pub const FROM_NODE_MAX: usize = 1 << 26;

const MAGIC: &[u8; 8] = b"holdall\n";
const HEAD: usize = 4;
/// How much is read at once, at least.
const ROOM: usize = 8192;

/// Something that is no frame of ours.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// It is longer than allowed.
    #[error("a frame of {0} bytes is longer than allowed")]
    Long(usize),
    /// Its content is not what this version says.
    #[error("a frame cannot be read: {0}")]
    Content(#[from] postcard::Error),
    /// The first frame is no greeting.
    #[error("whoever is at the other end does not speak holdall")]
    Magic,
}

impl From<Bad> for io::Error {
    fn from(bad: Bad) -> Self {
        Self::new(io::ErrorKind::InvalidData, bad)
    }
}

/// Appends the greeting. A client says the newest version that it speaks, and then the agent the one
/// that follows ([`common`]).
pub fn greet(out: &mut Vec<u8>, version: u32) {
    out.extend((MAGIC.len() as u32 + 4).to_le_bytes());
    out.extend(MAGIC);
    out.extend(version.to_le_bytes());
}

/// The version that is spoken with somebody whose newest is this, if there is one. If there is none, an
/// agent greets with its own version, which tells the client why it is not served.
pub fn common(theirs: u32) -> Option<u32> {
    Some(theirs.min(VERSION)).filter(|version| *version >= OLDEST)
}

/// The version a greeting announces.
///
/// # Errors
/// If it is no greeting.
pub fn version(greeting: &[u8]) -> Result<u32, Bad> {
    let version = greeting.strip_prefix(MAGIC).and_then(|rest| rest.try_into().ok());
    version.map(u32::from_le_bytes).ok_or(Bad::Magic)
}

/// Appends a frame.
///
/// # Errors
/// If the value is too large for a frame, or for postcard.
pub fn write<T: Serialize>(value: &T, max: usize, out: &mut Vec<u8>) -> Result<(), Bad> {
    let start = out.len();
    out.extend([0; HEAD]);
    let written = append(value, out);
    let length = out.len() - start - HEAD;
    let written = written.map_err(Bad::from);
    let fits = if length > max { Err(Bad::Long(length)) } else { Ok(()) };
    if let Err(bad) = written.and(fits) {
        out.truncate(start);
        return Err(bad);
    }
    out[start..start + HEAD].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Reads the content of a frame.
///
/// # Errors
/// If it is not what this version says.
pub fn read<T: DeserializeOwned>(content: &[u8]) -> Result<T, Bad> {
    Ok(postcard::from_bytes(content)?)
}

/// Bytes that have come in, cut into frames.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    max: usize,
}

impl Incoming {
    /// For frames up to this length.
    pub fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, max }
    }

    /// Where to put the next bytes. What was cut off before is given up here.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.start = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(ROOM);
        }
        self.bytes.reserve(ROOM);
        &mut self.bytes
    }

    /// The length of the next frame as it was announced, if it is more than is read at once.
    pub fn large(&self) -> usize {
        let head = self.bytes[self.start..].first_chunk::<HEAD>();
        let length = head.map_or(0, |head| u32::from_le_bytes(*head) as usize);
        if length > ROOM && length <= self.max { length } else { 0 }
    }

    /// Whether the next frame is all there, or known to be too long.
    pub fn ready(&self) -> bool {
        let rest = &self.bytes[self.start..];
        rest.first_chunk::<HEAD>().is_some_and(|head| {
            let length = u32::from_le_bytes(*head) as usize;
            length > self.max || rest.len() >= HEAD + length
        })
    }

    /// The content of the next frame, if all of it is there.
    ///
    /// # Errors
    /// If it is announced to be longer than allowed.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, Bad> {
        let rest = &self.bytes[self.start..];
        let Some(head) = rest.first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.max {
            return Err(Bad::Long(length));
        }
        if rest.len() < HEAD + length {
            return Ok(None);
        }
        let start = self.start + HEAD;
        self.start = start + length;
        Ok(Some(&self.bytes[start..self.start]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_cut() {
        let mut sent = Vec::new();
        greet(&mut sent, VERSION);
        write(&(7u64, "seven"), 100, &mut sent).expect("small");
        let mut incoming = Incoming::new(100);
        let mut frames = Vec::new();
        for byte in sent {
            incoming.buffer().push(byte);
            while let Some(frame) = incoming.next_frame().expect("short") {
                frames.push(frame.to_vec());
            }
        }
        assert_eq!(version(&frames[0]).expect("a greeting"), VERSION);
        assert_eq!(read::<(u64, String)>(&frames[1]).expect("ours"), (7, "seven".into()));
        assert_eq!(frames.len(), 2);
    }

    #[test]
    fn what_is_too_long_is_neither_sent_nor_awaited() {
        let mut out = vec![1, 2];
        assert!(matches!(write(&vec![0u8; 50], 20, &mut out), Err(Bad::Long(51))));
        assert_eq!(out, [1, 2]);
        let mut incoming = Incoming::new(20);
        incoming.buffer().extend(u32::MAX.to_le_bytes());
        assert!(incoming.ready() && incoming.large() == 0);
        assert!(matches!(incoming.next_frame(), Err(Bad::Long(_))));
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        struct Unwritable;
        impl Serialize for Unwritable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("never"))
            }
        }
        let mut out = vec![1, 2];
        assert!(write(&(7u8, Unwritable), 20, &mut out).is_err());
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn what_is_large_is_known_before_it_is_there() {
        let mut incoming = Incoming::new(1 << 20);
        assert!(!incoming.ready() && incoming.large() == 0);
        incoming.buffer().extend(100_000u32.to_le_bytes());
        assert!(!incoming.ready() && incoming.large() == 100_000);
        incoming.buffer().extend([0; 100_000]);
        assert!(incoming.ready());
        incoming.next_frame().expect("short enough").expect("it is there");
        assert!(!incoming.ready() && incoming.large() == 0);
    }

    #[test]
    fn the_newest_version_that_both_know_is_spoken() {
        assert_eq!(
            [OLDEST, VERSION, VERSION + 7].map(common),
            [OLDEST, VERSION, VERSION].map(Some)
        );
        assert_eq!(common(OLDEST - 1), None);
    }

    #[test]
    fn strangers_are_recognised() {
        assert!(matches!(version(b"GET / HTTP/1.1"), Err(Bad::Magic)));
        assert!(read::<(u64, String)>(&[255; 40]).is_err());
    }
}
