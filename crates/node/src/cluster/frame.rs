//! What the agents of two cells say to each other over a link.
//!
//! The version is that of the greeting: members of neighbouring versions talk, so new frames are added at the end and said
//! only to those who know them.

use holdall_cell::greeting::First;
use holdall_cell::peer::PeerMessage;
use holdall_wire::{Body, Fault, Reply};
use serde::{Deserialize, Serialize};

/// What this version says.
pub(crate) const VERSION: u32 = 3;
/// The first version that is told something about replicated cells: questions of [`Frame::Asks`] that change something.
pub(crate) const REPLICATED: u32 = 2;
/// The first version that says what it knows ([`Frame::First`]).
pub(crate) const KNOWS: u32 = 3;
/// The oldest version that it understands, too.
pub(crate) const OLDEST: u32 = 1;

/// Something that an agent says to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// A home is there. What it was given is its own for a lease from when it sent this, if it comes back.
    Beat {
        /// When, by the clock of the home.
        sent: u64,
        /// How many records its log has had.
        length: u64,
    },
    /// A guard sends a beat back, after all that it has taken from that home.
    Beaten {
        /// What the beat said.
        sent: u64,
    },
    /// A cell says something to the other.
    Said {
        /// How many records its log has had.
        length: u64,
        /// What.
        message: Box<PeerMessage>,
    },
    /// Somebody asks a question that the other cell answers.
    Asks {
        /// The answer has the same number.
        number: u64,
        /// Who: pages follow on the last one of the same.
        asker: u64,
        /// What.
        question: Box<Body>,
    },
    /// The answer.
    Answers {
        /// The number of the question.
        number: u64,
        /// What.
        reply: Box<Reply>,
    },
    /// What a cell knows of the other, and since when of itself: first of all over a link, from both. Whoever knows that more is known of it
    /// than its log tells makes no use of the link.
    First(First),
}

impl Frame {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_stdvec(self)
    }

    /// Reads a frame. Answers of a later version may have more at their end, or be such that only their number is understood: then
    /// whoever asked is told so, and the link stays.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        let read = postcard::take_from_bytes(bytes);
        match (read, postcard::take_from_bytes::<(u32, u64)>(bytes)) {
            (Ok((frame, [])), _) | (Ok((frame @ Self::Answers { .. }, _)), _) => Ok(frame),
            (Err(_), Ok(((ANSWERS, number), _))) => {
                let why = "it answers what this version does not understand; upgrade this cell";
                Ok(Self::Answers {
                    number,
                    reply: Box::new(Reply::Failed(Fault::Failed(why.into()))),
                })
            }
            (Ok(_), _) => Err(postcard::Error::DeserializeBadEncoding),
            (Err(error), _) => Err(error),
        }
    }
}

/// The number of [`Frame::Answers`] among the frames.
const ANSWERS: u32 = 4;

#[cfg(test)]
mod tests {
    use holdall_cell::greeting::Known;
    use holdall_cell::peer::Assertion;
    use holdall_wire::RequestNo;

    use super::*;

    fn golden(frame: &Frame, bytes: &str) {
        let written = frame.encode().expect("written");
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, bytes, "{frame:?}");
        assert_eq!(Frame::decode(&written).expect("read"), *frame);
    }

    /// New frames are added at the end, and keep their bytes from then on.
    #[test]
    fn version_1_keeps_its_bytes() {
        golden(&Frame::Beat { sent: 300, length: 7 }, "00ac0207");
        golden(&Frame::Beaten { sent: 300 }, "01ac02");
        let last = Assertion { last: true, ..Assertion::default() };
        let message = Box::new(PeerMessage::Assert(last));
        golden(&Frame::Said { length: 300, message }, "02ac0204000001");
        let question = Box::new(Body::Explain { request: RequestNo(5), most: 3 });
        golden(&Frame::Asks { number: 300, asker: 2, question }, "03ac0202050503");
        golden(&Frame::Answers { number: 300, reply: Box::new(Reply::Done) }, "04ac0201");
    }

    #[test]
    fn version_3_keeps_its_bytes() {
        let first = First { known: Known { life: 300, nonce: 7, length: 301 }, since: 302 };
        golden(&Frame::First(first), "05ac0207ad02ae02");
        golden(&Frame::First(First::default()), "0500000000");
    }

    /// What a member says that was upgraded before this one.
    #[test]
    fn answers_of_a_later_version_may_be_longer_or_others() {
        let done = Frame::Answers { number: 300, reply: Box::new(Reply::Done) };
        assert_eq!(Frame::decode(&[4, 0xac, 2, 1, 7, 7]).expect("longer"), done);
        let unknown = Frame::decode(&[4, 0xac, 2, 0xff, 0x7f, 7]).expect("of a new kind");
        let Frame::Answers { number: 300, reply } = unknown else { panic!("{unknown:?}") };
        assert!(matches!(*reply, Reply::Failed(_)), "{reply:?}");
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in
            [&[][..], &[9], &[5, 1], &[0], &[1, 5, 5], &[2, 77], &[4], &[4, 0xff], &[3, 1, 2, 0xff]]
        {
            assert!(Frame::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
