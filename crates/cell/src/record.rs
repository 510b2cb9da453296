//! What is logged of an input: when it came, the input, and the facts that came of it.
//!
//! Another version understands the facts, and perhaps not the input; so that stands by itself, with its
//! length. What is too long for a record of a log is logged in parts, one after the other; a beginning
//! that has no end was never told to anybody, and is passed over.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | which part it is |
//! | 8 | when, least byte first (in the first part, as all that follows) |
//! | 4 | how long the input is |
//! | | the input, then the facts, as postcard writes them |

use holdall_wire::append;

use crate::facts::Fact;
use crate::input::Input;
use crate::replay::Unreadable;

/// How long a part is at most, with its first byte.
pub const PART_MAX: usize = 1 << 20;

/// Before the input: the kind of part, the time, and the length.
const HEAD: usize = 1 + 8 + 4;

/// How much room is kept for the next record at most, and how much a record begins with.
const ROOM: usize = 1 << 16;
const FIRST_ROOM: usize = 512;

const WHOLE: u8 = 0;
const FIRST: u8 = 1;
const MORE: u8 = 2;
const LAST: u8 = 3;

/// What was logged of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it came.
    pub at: u64,
    /// What came of it.
    pub facts: Vec<Fact>,
    /// The input, as its version wrote it.
    pub input: Vec<u8>,
}

/// Where records are written, one after the other. There is nothing in it, and not much room.
#[derive(Debug, Default)]
pub struct Room(Vec<u8>);

impl Room {
    fn of(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.shrink_to(ROOM);
        Self(bytes)
    }
}

/// A record that is being written: its input is there, before that is used up.
pub struct Writing(Vec<u8>);

/// A record that is written.
pub struct Written {
    bytes: Vec<u8>,
}

impl Recorded {
    /// Begins to write a record.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(at: u64, input: &Input) -> Result<Writing, Unreadable> {
        Self::begin_in(Room::default(), at, input)
    }

    /// The same, where another one was written before.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin_in(room: Room, at: u64, input: &Input) -> Result<Writing, Unreadable> {
        let Room(mut bytes) = room;
        bytes.reserve(FIRST_ROOM);
        bytes.push(WHOLE);
        bytes.extend(at.to_le_bytes());
        bytes.extend([0; 4]);
        append(input, &mut bytes).map_err(Unreadable::Form)?;
        let length = u32::try_from(bytes.len() - HEAD).map_err(|_| Unreadable::TooLong)?;
        bytes[HEAD - 4..HEAD].copy_from_slice(&length.to_le_bytes());
        Ok(Writing(bytes))
    }

    /// The input, if this version understands it.
    ///
    /// # Errors
    /// If it does not.
    pub fn input(&self) -> Result<Input, Unreadable> {
        postcard::from_bytes(&self.input).map_err(Unreadable::Form)
    }
}

/// A record as it is in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) at: u64,
    pub(crate) input: &'a [u8],
    pub(crate) facts: &'a [u8],
}

impl<'a> Raw<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let cut = || Unreadable::Form(postcard::Error::DeserializeUnexpectedEnd);
        let (at, rest) = bytes.split_first_chunk::<8>().ok_or_else(cut)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let (at, length) = (u64::from_le_bytes(*at), u32::from_le_bytes(*length) as usize);
        let (input, facts) = rest.split_at_checked(length).ok_or_else(cut)?;
        Ok(Self { at, input, facts })
    }

    pub(crate) fn facts(&self) -> Result<Vec<Fact>, Unreadable> {
        postcard::from_bytes(self.facts).map_err(Unreadable::Form)
    }
}

impl Writing {
    /// The record with what came of its input.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(self, facts: &[Fact]) -> Result<Written, Unreadable> {
        let Self(mut bytes) = self;
        append(facts, &mut bytes).map_err(Unreadable::Form)?;
        Ok(Written { bytes })
    }

    /// Its room, for the next one: nothing came of its input.
    pub fn into_room(self) -> Room {
        Room::of(self.0)
    }
}

impl Written {
    /// Appends it to a log, mostly at once, otherwise in parts. What the last one returns counts: effects
    /// wait for its index.
    ///
    /// # Errors
    /// The first of `append`. What is appended by then is no record.
    pub fn append<T, E>(&self, mut append: impl FnMut(&[u8]) -> Result<T, E>) -> Result<T, E> {
        if self.bytes.len() <= PART_MAX {
            return append(&self.bytes);
        }
        let mut pieces = self.bytes[1..].chunks(PART_MAX - 1).peekable();
        let (mut part, mut kind) = (Vec::with_capacity(PART_MAX), FIRST);
        loop {
            let piece = pieces.next().unwrap_or_default();
            let is_last = pieces.peek().is_none();
            part.clear();
            part.push(if is_last { LAST } else { kind });
            part.extend_from_slice(piece);
            let appended = append(&part)?;
            if is_last {
                return Ok(appended);
            }
            kind = MORE;
        }
    }

    /// Its room, for the next one.
    pub fn into_room(self) -> Room {
        Room::of(self.bytes)
    }
}

/// Puts parts together.
#[derive(Debug, Default)]
pub struct Parts {
    /// What has begun, and has no end yet.
    begun: Option<Vec<u8>>,
    whole: Vec<u8>,
}

impl Parts {
    /// Takes what is in the next record of a log. Returns what it completes.
    ///
    /// # Errors
    /// If it is no record, nor a part of one.
    pub fn take(&mut self, payload: &[u8]) -> Result<Option<Recorded>, Unreadable> {
        let Some(raw) = self.raw(payload)? else { return Ok(None) };
        Ok(Some(Recorded { at: raw.at, facts: raw.facts()?, input: raw.input.to_vec() }))
    }

    /// The same, not read yet.
    pub(crate) fn raw<'a>(&'a mut self, payload: &'a [u8]) -> Result<Option<Raw<'a>>, Unreadable> {
        let (kind, rest) = payload.split_first().ok_or(Unreadable::Parts)?;
        match (*kind, &mut self.begun) {
            (WHOLE, _) => {
                self.begun = None;
                Raw::read(rest).map(Some)
            }
            (FIRST, _) => {
                self.begun = Some(rest.to_vec());
                Ok(None)
            }
            (MORE, Some(begun)) => {
                begun.extend_from_slice(rest);
                Ok(None)
            }
            (LAST, Some(begun)) => {
                begun.extend_from_slice(rest);
                self.whole = std::mem::take(begun);
                self.begun = None;
                Raw::read(&self.whole).map(Some)
            }
            _ => Err(Unreadable::Parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_but_not_all_that_a_large_record_took() {
        let usual = Writing(Vec::with_capacity(ROOM)).into_room();
        assert_eq!(usual.0.capacity(), ROOM);
        let large = || vec![7; 16 * ROOM];
        for Room(left) in [Writing(large()).into_room(), Written { bytes: large() }.into_room()] {
            assert!(left.is_empty() && left.capacity() < 2 * ROOM, "{}", left.capacity());
        }
    }
}
