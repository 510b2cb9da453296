//! Frames on a stream: a length of four bytes, then a postcard value.

use std::io::{self, ErrorKind, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// No frame is longer.
const MOST: usize = 64 << 20;
const HEAD: usize = 4;

/// A stream that does not block, and what is half read or half written.
#[derive(Debug)]
pub(crate) struct Channel<S> {
    stream: S,
    most: usize,
    incoming: Vec<u8>,
    /// How much of `incoming` was taken.
    taken: usize,
    outgoing: Vec<u8>,
}

/// What no honest peer sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame that cannot be read: {0}")]
    Undecodable(#[from] postcard::Error),
}

impl<S> Channel<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, most: MOST, incoming: Vec::new(), taken: 0, outgoing: Vec::new() }
    }

    /// Takes no frame that is longer, until told otherwise.
    pub(crate) fn limit(&mut self, most: Option<usize>) {
        self.most = most.unwrap_or(MOST);
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Puts a value behind what is still to be written.
    pub(crate) fn push(&mut self, value: &impl Serialize) -> Result<(), BadFrame> {
        let start = self.outgoing.len();
        self.outgoing.extend([0; HEAD]);
        self.outgoing = postcard::to_extend(value, std::mem::take(&mut self.outgoing))?;
        let length = self.outgoing.len() - start - HEAD;
        let head = u32::try_from(length).ok().filter(|_| length <= MOST);
        let head = head.ok_or(BadFrame::TooLong(length))?;
        self.outgoing[start..start + HEAD].copy_from_slice(&head.to_le_bytes());
        Ok(())
    }

    /// The next value that has arrived whole.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BadFrame> {
        let rest = &self.incoming[self.taken..];
        let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.most {
            return Err(BadFrame::TooLong(length));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.taken += HEAD + length;
        Ok(Some(postcard::from_bytes(frame)?))
    }
}

impl<S: Read> Channel<S> {
    /// Reads what has arrived; false at the end of the stream.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        self.incoming.drain(..self.taken);
        self.taken = 0;
        let mut chunk = [0; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    self.incoming.extend_from_slice(&chunk[..read]);
                    if read < chunk.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl<S: Write> Channel<S> {
    /// Writes what there is room for; true if nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let mut written = 0;
        let done = loop {
            if written == self.outgoing.len() {
                break Ok(true);
            }
            match self.stream.write(&self.outgoing[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.outgoing.drain(..written);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn values_go_through_in_any_pieces() {
        let mut sender = Channel::new(Vec::new());
        sender.push(&(1u8, "one")).expect("short");
        sender.push(&(2u8, "two")).expect("short");
        assert!(sender.flush().expect("memory"));
        let bytes = sender.stream;
        for cut in 0..=bytes.len() {
            let mut receiver = Channel::new(Cursor::new(bytes[..cut].to_vec()));
            while receiver.fill().expect("memory") {}
            let mut whole = 0;
            while let Some((n, _)) = receiver.take::<(u8, String)>().expect("honest") {
                whole += 1;
                assert_eq!(n, whole);
            }
            assert_eq!(whole, u8::from(cut >= bytes.len() / 2) + u8::from(cut == bytes.len()));
        }
    }

    #[test]
    fn what_is_too_long_or_makes_no_sense_is_an_error() {
        let mut receiver = Channel::new(Cursor::new(vec![0xff; 100]));
        receiver.fill().expect("memory");
        assert_eq!(receiver.take::<u8>(), Err(BadFrame::TooLong(u32::MAX as usize)));
        let mut receiver = Channel::new(Cursor::new(vec![1, 0, 0, 0, 2]));
        receiver.fill().expect("memory");
        assert!(matches!(receiver.take::<bool>(), Err(BadFrame::Undecodable(_))));
    }
}
