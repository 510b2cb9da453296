//! Whether a cell that greets is the one that was known.
//!
//! A cell is what its log says. Whoever starts it from a copy of its directory, on the same machine after a restore or on
//! another one beside it, has a cell that has forgotten what it gave away, and does not know it. So a cell tells in its
//! greeting which start of which life it is, how long its log was then, and is; and others remember that. A log never gets shorter, a later start
//! has a higher epoch, and no two starts have the same nonce. What does not fit is refused, until it declares its
//! memory lost: then it has a new life, and what it gave away is asserted by those who hold it.
//!
//! With everything that a cell says to others it tells how long its log is ([`Presence::has_come_to`]). So a copy that is let in knows at
//! least what it has said to whoever lets it in. What was granted to its own clients since the copy was made is known to nobody else:
//! that is on whoever has started it from one. What was heard is kept in the log with whatever follows from it, so whoever restarts
//! knows it still.
//!
//! Who is refused so learns from it that its log is not all that there was ([`Stranger::told`], [`Presence::is_outdone`]), whether the one
//! that it asks next knows that or not.
//!
//! A greeting says where the present start began, and a copy that was started several times may have grown beyond all that others know of
//! it. So cells also tell each other what they know of each other ([`Known`]), and whoever hears that looks whether it is in its own log
//! ([`Met`]).

use serde::{Deserialize, Serialize};

/// A start of a cell, and how far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// New whenever memory may have been lost.
    pub life: u128,
    /// The epoch of the start.
    pub epoch: u32,
    /// Drawn at random at the start.
    pub nonce: u128,
    /// How many records its log had ever had when it started.
    pub began: u64,
    /// How many records its log has ever had.
    pub length: u64,
}

/// What a cell knows of another one: of a start of it how far its log had come, as it was last heard to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its life; 0 if nothing is known.
    pub life: u128,
    /// The nonce of the start.
    pub nonce: u128,
    /// How many records its log had ever had.
    pub length: u64,
}

/// What a cell says first over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// What it knows of the other one.
    pub known: Known,
    /// The epoch of the start since which it remembers everything: what it asked for before it may know nothing of.
    pub since: u32,
}

/// What a cell can say of its own log to another one that it was linked with: all that this one may know.
///
/// A link is in the log before anything is said over it that tells how long that is. So when another cell has said what it knows and the link is
/// in the log, it knows that, or something of the start over whose link it will hear more; until the next link, whatever starts there are. That
/// is why one start is enough, and nobody is taken for somebody who knows more because this cell was started often, or the other one has
/// forgotten something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// What it knew at most whenever there was a link: up to there the log was found to be what it knew. All that there can be, if it was given
    /// up since.
    upto: u64,
    /// The start in which that was.
    nonce: u128,
    /// How long the log was when the start after that began.
    end: Option<u64>,
}

impl Met {
    /// There is a link, in this start, to somebody who knew as much of this life.
    pub(crate) fn now(upto: u64, nonce: u128) -> Self {
        Self { upto, nonce, end: None }
    }

    /// Somebody was given up: whatever it knows is not to be found in the log, until there is a link to it again.
    pub(crate) fn excused(nonce: u128) -> Self {
        Self::now(u64::MAX, nonce)
    }

    /// Up to where the log was found to be what it knew.
    pub(crate) fn found(&self) -> u64 {
        if self.upto == u64::MAX { 0 } else { self.upto }
    }

    /// Another start has begun, with as many records.
    pub(crate) fn starts(&mut self, nonce: u128, began: u64) {
        if self.nonce != nonce {
            self.end.get_or_insert(began);
        }
    }

    /// Whether a log that is so long is all that somebody knows of it in this life.
    ///
    /// # Errors
    /// Says what is missing.
    pub(crate) fn check(met: Option<&Self>, known: &Known, length: u64) -> Result<(), Stranger> {
        let parted = Stranger::Parted { known: known.length };
        let Self { upto, nonce, end } = *met.ok_or(parted)?;
        if known.length <= upto {
            return Ok(());
        }
        let length = end.unwrap_or(length);
        match known.nonce == nonce {
            false => Err(parted),
            true if known.length > length => Err(Stranger::Shorter { length, known: known.length }),
            true => Ok(()),
        }
    }
}

/// Why a cell is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Stranger {
    /// Another start of it is linked and alive.
    #[error("another start of this cell is connected; one directory, one agent")]
    Second,
    /// It is an earlier start than one that was known.
    #[error(
        "epoch {epoch} of this cell, and {known} was known: it was started from a copy of its directory"
    )]
    Earlier {
        /// That of the greeting.
        epoch: u32,
        /// That which was known.
        known: u32,
    },
    /// Its log is shorter than it was.
    #[error(
        "the log of this cell has {length} records, and had {known}: it was started from a copy of its directory"
    )]
    Shorter {
        /// That of the greeting.
        length: u64,
        /// That which was known.
        known: u64,
    },
    /// Its log has no such start as was known, or it is another one. It finds that itself, and nobody else says it.
    #[error(
        "{known} records were known of the log of this cell, in a start that it does not tell of: it was started from a copy of its directory"
    )]
    Parted {
        /// That which was known.
        known: u64,
    },
}

impl Stranger {
    /// What is meant by the words with which one is refused, if it is that others have known a later state of its log. Words are all that
    /// cells of any version tell of a refusal, so these stay as they are.
    pub fn told(words: &str) -> Option<Self> {
        const SINCE: &str = ": it was started from a copy of its directory";
        if let Some(words) = words.strip_prefix("the log of this cell has ") {
            let (length, known) = words.split_once(" records, and had ")?;
            let known = known.split_once(SINCE)?.0;
            return Some(Self::Shorter {
                length: length.parse().ok()?,
                known: known.parse().ok()?,
            });
        }
        let (epoch, known) = words.strip_prefix("epoch ")?.split_once(" of this cell, and ")?;
        let known = known.split_once(SINCE)?.0.strip_suffix(" was known")?;
        Some(Self::Earlier { epoch: epoch.parse().ok()?, known: known.parse().ok()? })
    }

    /// The remedy, for people.
    pub fn remedy(&self) -> String {
        let epoch = match self {
            Self::Second => return "stop one of the two".into(),
            Self::Shorter { .. } | Self::Parted { .. } => String::new(),
            // Its next start would be in an epoch that was, too.
            Self::Earlier { known, .. } => {
                let beyond = Presence::epoch_beyond(*known);
                format!(", and raise the number in the file `epoch` there to {beyond}")
            }
        };
        format!(
            "if that is meant, stop its agent and move segment-* and snapshot-* in its data directory away{epoch}: \
             it then has lost its memory, and begins a new life"
        )
    }
}

impl Presence {
    /// Whether a cell that greets can be the one that was known; and whether that is linked and alive at this moment.
    ///
    /// # Errors
    /// Says why it is refused.
    pub fn check(&self, known: Option<&Self>, is_linked: bool) -> Result<(), Stranger> {
        let Some(known) = known else { return Ok(()) };
        let is_same_start = self.life == known.life && self.nonce == known.nonce;
        if is_linked && !is_same_start {
            return Err(Stranger::Second);
        }
        let (epoch, length) = (self.epoch, self.length);
        // Fences are above the epoch, so that no life may begin below one that was. (A start on a full disk goes on in the epoch before it.)
        if epoch < known.epoch || epoch == known.epoch && self.life != known.life {
            return Err(Stranger::Earlier { epoch, known: known.epoch });
        }
        // The log of a copy grows, too: what counts is where it went on.
        let length = if is_same_start { length } else { self.began };
        if self.life == known.life && length < known.length {
            return Err(Stranger::Shorter { length, known: known.length });
        }
        Ok(())
    }

    /// Whether somebody who refuses this start has known a later state of its log than is in it.
    ///
    /// A greeting may also be refused since something that was said later has overtaken it. Then the length of that greeting is told, and not
    /// with how many records this start began: if each of its greetings told more than that (`distinct`), the two are not confused.
    pub fn is_outdone(&self, why: &Stranger, distinct: bool) -> bool {
        match *why {
            Stranger::Second | Stranger::Parted { .. } => false,
            Stranger::Earlier { epoch, known } => epoch == self.epoch && known >= epoch,
            Stranger::Shorter { length, known } => {
                known > self.length || distinct && length == self.began && known > length
            }
        }
    }

    /// The epoch below which no life of a cell may begin that was declared to have lost its memory. Others know the epoch of the last
    /// start that they had a link to; there may have been some since.
    pub fn epoch_beyond(known: u32) -> u32 {
        const LEAP: u32 = 1 << 10;
        known.saturating_add(LEAP)
    }

    /// It is known to have come further: with everything that it says.
    pub fn has_come_to(&mut self, length: u64) {
        self.length = self.length.max(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Presence = Presence { life: 1, epoch: 5, nonce: 50, began: 700, length: 1000 };

    fn check(presence: Presence) -> Result<(), Stranger> {
        presence.check(Some(&KNOWN), false)
    }

    #[test]
    fn whoever_goes_on_is_let_in() {
        assert_eq!(KNOWN.check(None, false), Ok(()));
        assert_eq!(check(KNOWN), Ok(()), "the same over another connection");
        assert_eq!(
            KNOWN.check(Some(&KNOWN), true),
            Ok(()),
            "before the old one is seen to be gone"
        );
        assert_eq!(check(Presence { length: 1001, ..KNOWN }), Ok(()));
        let next = Presence { epoch: 6, nonce: 60, began: 1000, length: 1001, ..KNOWN };
        assert_eq!(check(next), Ok(()), "it was started again");
        let lost = Presence { life: 2, epoch: 6, nonce: 60, began: 2, length: 3 };
        assert_eq!(check(lost), Ok(()), "it says that it has lost its memory");
    }

    /// Who does what it is told is let in.
    #[test]
    fn the_remedy_helps() {
        let begun = |epoch| Presence { life: 2, epoch, nonce: 60, began: 2, length: 3 };
        let copy = Presence { epoch: 3, nonce: 30, ..KNOWN };
        let earlier = check(copy).expect_err("it is of before");
        assert!(check(begun(copy.epoch + 1)).is_err(), "its fences would go back");
        let told = earlier.remedy();
        let mut numbers = told.split(|c: char| !c.is_ascii_digit());
        let raised =
            numbers.find_map(|number| number.parse::<u32>().ok()).expect("it says to what");
        assert_eq!(check(begun(raised + 1)), Ok(()));
        let shorter = check(Presence { epoch: 6, nonce: 60, began: 900, ..KNOWN });
        let told = shorter.expect_err("it has forgotten something").remedy();
        assert!(told.contains("segment-*") && !told.contains("`epoch`"), "{told}");
        assert_eq!(check(begun(7)), Ok(()));
        assert!(!Stranger::Second.remedy().contains("segment-*"), "as long as the other runs");
    }

    /// Also by the words of versions before, which are the same.
    #[test]
    fn whoever_is_refused_knows_why() {
        let shorter = Stranger::Shorter { length: 700, known: 1000 };
        let earlier = Stranger::Earlier { epoch: 4, known: 5 };
        for why in [shorter, earlier] {
            assert_eq!(Stranger::told(&format!("{why}; {}", why.remedy())), Some(why));
        }
        let said = "the log of this cell has 700 records, and had 1000: it was started from a copy of its directory; if";
        assert_eq!(Stranger::told(said), Some(shorter));
        let said =
            "epoch 4 of this cell, and 5 was known: it was started from a copy of its directory";
        assert_eq!(Stranger::told(said), Some(earlier));
        for words in [&*Stranger::Second.to_string(), "", "epoch ", "epoch 4 of this cell, and x"] {
            assert_eq!(Stranger::told(words), None, "{words}");
        }
        for distinct in [false, true] {
            assert!(Presence { epoch: 4, ..KNOWN }.is_outdone(&earlier, distinct));
            assert!(!KNOWN.is_outdone(&earlier, distinct), "of another start");
            assert!(!KNOWN.is_outdone(&Stranger::Second, distinct));
            let more = Stranger::Shorter { length: 900, known: 1001 };
            assert!(KNOWN.is_outdone(&more, distinct), "nobody was told that by this start");
        }
    }

    /// A copy grows, too; and what was said later may overtake a greeting.
    #[test]
    fn what_has_overtaken_a_greeting_is_no_later_state_of_the_log() {
        let began = Presence { length: 700, ..KNOWN };
        let first = Presence { length: 701, ..KNOWN };
        let refused = |greeting: Presence| check(greeting).expect_err("more is known by now");
        assert!(!KNOWN.is_outdone(&refused(first), true));
        assert!(!KNOWN.is_outdone(&refused(began), false));
        let copy = Presence { epoch: 6, nonce: 60, began: 900, length: 2000, ..KNOWN };
        assert!(copy.is_outdone(&refused(copy), true));
        let fresh = Presence { length: 900, ..copy };
        assert!(fresh.is_outdone(&refused(fresh), false), "it has told nobody anything yet");
    }

    #[test]
    fn a_copy_is_refused() {
        let copy = Presence { epoch: 6, nonce: 60, began: 900, length: 2000, ..KNOWN };
        assert_eq!(check(copy), Err(Stranger::Shorter { length: 900, known: 1000 }));
        let older = Presence { epoch: 4, nonce: 60, length: 2000, ..KNOWN };
        assert_eq!(check(older), Err(Stranger::Earlier { epoch: 4, known: 5 }));
        let twin = Presence { nonce: 60, length: 2000, ..KNOWN };
        assert_eq!(check(twin), Err(Stranger::Shorter { length: 700, known: 1000 }));
        let full = Presence { nonce: 60, began: 1000, length: 1000, ..KNOWN };
        assert_eq!(
            check(full),
            Ok(()),
            "it was started on a full disk, and could not raise its epoch"
        );
        let lost = Presence { life: 2, epoch: 5, nonce: 60, began: 2, length: 3 };
        assert!(check(lost).is_err(), "its fences would go back");
        let beside = Presence { epoch: 6, nonce: 60, began: 1000, ..KNOWN };
        assert_eq!(beside.check(Some(&KNOWN), true), Err(Stranger::Second));
        let mut known = KNOWN;
        known.has_come_to(1500);
        known.has_come_to(1200);
        assert_eq!(known.length, 1500);
        let stale = Presence { epoch: 6, nonce: 60, began: 1400, length: 9999, ..KNOWN };
        assert!(stale.check(Some(&known), false).is_err());
    }
}
