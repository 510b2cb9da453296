//! Tokens: what those show who are no members.
//!
//! A [`JoinToken`] makes a machine a member; a [`ClientToken`] lets a program without an agent speak to one. Both
//! say by the digest of the authority and the id of a member whom to believe, so nobody else ever sees the secret: not
//! even another member, which may have been removed without our knowing.
//!
//! Join tokens are kept here, in a file beside the authority's key: only a hash of the secret, until when it is
//! good, and who has used it. Whoever has used one may use it again as long as it is good: the answer may have been
//! lost on the way. A token can be for one cell alone, which may be a member already: that is how one comes back whose
//! certificate has expired. Client tokens are the agent's own ([`crate::Above::client`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac_sha256::Hash;
use serde::{Deserialize, Serialize};

use crate::ca::Pin;
use crate::cell::CellId;
use crate::store;

const JOIN: &str = "H1-";
const CLIENT: &str = "HC1-";
const FILE: &str = "tokens";
pub(crate) const FIRST: &str = "holdall join tokens 1";
/// How long a token that is over is still known as such.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What only the holder of a token knows.
pub(crate) type Secret = [u8; 16];

/// What makes a machine a member. Its text is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub(crate) pin: Pin,
    /// The member that made it: nobody else is shown the secret.
    pub(crate) maker: CellId,
    pub(crate) secret: Secret,
}

/// What lets a program speak to an agent from elsewhere. Its text is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientToken {
    pub(crate) pin: Pin,
    /// The agent that it is for: nobody else is shown the secret.
    pub(crate) agent: CellId,
    pub(crate) secret: String,
}

/// A text that is no token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// It does not look like one.
    #[error("this is no {0}; it begins with {1}")]
    Other(&'static str, &'static str),
    /// It looks like one, but something is missing or mistyped.
    #[error("the token is cut off or mistyped; copy it as it was printed")]
    Mistyped,
}

impl JoinToken {
    /// The digest of the authority that it leads to.
    pub fn pin(&self) -> Pin {
        self.pin
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let maker = self.maker.0.to_be_bytes();
        let mut bytes = [&self.pin.0[..], &maker[..], &self.secret[..]].concat();
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        write!(f, "{JOIN}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

impl FromStr for JoinToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let text = text.trim().strip_prefix(JOIN);
        let text = text.ok_or(BadToken::Other("token to join with", JOIN))?;
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| BadToken::Mistyped)?;
        let parts = bytes.split_last_chunk::<4>();
        let (rest, sum) = parts.ok_or(BadToken::Mistyped)?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*sum) {
            return Err(BadToken::Mistyped);
        }
        let (pin, rest) = rest.split_first_chunk::<32>().ok_or(BadToken::Mistyped)?;
        let (maker, secret) = rest.split_first_chunk::<16>().ok_or(BadToken::Mistyped)?;
        let secret = secret.try_into().map_err(|_| BadToken::Mistyped)?;
        Ok(Self { pin: Pin(*pin), maker: CellId(u128::from_be_bytes(*maker)), secret })
    }
}

impl ClientToken {
    /// A token of an agent together with its id and the digest of its authority.
    pub fn new(pin: Pin, agent: CellId, secret: &str) -> Self {
        Self { pin, agent, secret: secret.into() }
    }
}

impl fmt::Display for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CLIENT}{}.{}.{}", self.pin, self.agent, self.secret)
    }
}

impl FromStr for ClientToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let text = text.trim().strip_prefix(CLIENT);
        let text = text.ok_or(BadToken::Other("token for a client of a cluster", CLIENT))?;
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(BadToken::Mistyped);
        let (pin, agent, secret) = (part()?, part()?, part()?);
        let pin = pin.parse().map_err(|()| BadToken::Mistyped)?;
        let agent = agent.parse().map_err(|_| BadToken::Mistyped)?;
        if secret.is_empty() {
            return Err(BadToken::Mistyped);
        }
        Ok(Self { pin, agent, secret: secret.into() })
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{JOIN}...")
    }
}

impl fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CLIENT}...")
    }
}

/// What is kept of a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    hash: [u8; 32],
    /// When it was made, in milliseconds since 1970.
    pub made: u64,
    /// Until when it is good.
    pub until: u64,
    /// How many may use it.
    pub uses: u32,
    /// Who has used it.
    pub used: Vec<CellId>,
    /// The only one who may.
    pub only: Option<CellId>,
}

/// For whom a join token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// So many machines that are no members yet.
    New(u32),
    /// This cell, also if it is a member already.
    Cell(CellId),
}

/// That a token is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Good {
    /// Whether the cell may be a member already: it became one with this token, or the token is for it alone.
    pub(crate) again: bool,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoGood {
    /// It is not known.
    #[error("the token is not known here, or was revoked")]
    Unknown,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Somebody else has used it.
    #[error("the token was used by another machine")]
    Used,
    /// It is for another cell.
    #[error("the token is for another cell")]
    Other,
}

/// The join tokens of a member that signs.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(PathBuf);

impl Kept {
    /// What it is called in lists; says nothing about the secret.
    pub fn label(&self) -> String {
        HEXLOWER.encode(&self.hash[..4])
    }

    fn good_for(&self, cell: CellId, now: u64) -> Result<Good, NoGood> {
        if now >= self.until {
            return Err(NoGood::Expired);
        }
        if self.only.is_some_and(|only| only != cell) {
            return Err(NoGood::Other);
        }
        let used = self.used.contains(&cell);
        if !used && self.used.len() >= self.uses as usize {
            return Err(NoGood::Used);
        }
        Ok(Good { again: used || self.only.is_some() })
    }
}

impl Tokens {
    pub(crate) fn of(dir: &Path) -> Self {
        Self(dir.join(FILE))
    }

    /// Keeps a new token, good for so long.
    pub(crate) fn add(
        &self,
        secret: &Secret,
        good: Duration,
        whose: For,
        now: u64,
    ) -> Result<(), store::Error> {
        let hash = Hash::hash(secret);
        let (uses, only) = match whose {
            For::New(uses) => (uses, None),
            For::Cell(cell) => (1, Some(cell)),
        };
        let until = now.saturating_add(good.as_millis() as u64);
        self.change(|kept| {
            kept.retain(|it| now < it.until.saturating_add(REMEMBERED.as_millis() as u64));
            kept.push(Kept { hash, made: now, until, uses, used: Vec::new(), only });
        })
    }

    /// All that are known, in the order made.
    pub(crate) fn list(&self) -> Result<Vec<Kept>, store::Error> {
        Ok(store::kept(&self.0, FIRST)?.unwrap_or_default())
    }

    /// Whether there was one of that label, which is good for nothing any more.
    pub(crate) fn revoke(&self, label: &str) -> Result<bool, store::Error> {
        self.change(|kept| {
            let before = kept.len();
            kept.retain(|it| it.label() != label);
            kept.len() < before
        })
    }

    /// Whether a cell may join with this secret. Nothing is kept of the question.
    pub(crate) fn look(
        &self,
        secret: &Secret,
        cell: CellId,
        now: u64,
    ) -> Result<Result<Good, NoGood>, store::Error> {
        let hash = Hash::hash(secret);
        let kept = self.list()?;
        let found = kept.iter().find(|it| it.hash == hash);
        Ok(found.ok_or(NoGood::Unknown).and_then(|found| found.good_for(cell, now)))
    }

    /// Keeps that a cell has used the token, if it may. Whoever has may use it again, so nobody has who was refused.
    pub(crate) fn redeem(
        &self,
        secret: &Secret,
        cell: CellId,
        now: u64,
    ) -> Result<Result<Good, NoGood>, store::Error> {
        let hash = Hash::hash(secret);
        self.change(|kept| {
            let found = kept.iter_mut().find(|it| it.hash == hash).ok_or(NoGood::Unknown)?;
            let good = found.good_for(cell, now)?;
            if !found.used.contains(&cell) {
                found.used.push(cell);
            }
            Ok(good)
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Kept>) -> T) -> Result<T, store::Error> {
        let _lock = store::lock(&self.0.with_added_extension("lock"))?;
        let before = self.list()?;
        let mut kept = before.clone();
        let changed = change(&mut kept);
        if kept != before {
            store::keep(&self.0, FIRST, &kept)?;
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_token_looks_like_this() {
        let token = JoinToken { pin: Pin([1; 32]), maker: CellId(3), secret: [2; 16] };
        let text = "H1-AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEAAAAAAAAAAAAAAAAAAAADAgICAgICAgICAgICAgICAviluds";
        assert_eq!(token.to_string(), text);
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "H1-...", "no log shows it");
        let client = ClientToken::new(Pin([1; 32]), CellId(3), "hat_00ff");
        let text = "HC1-AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE.00000000000000000000000000000003.hat_00ff";
        assert_eq!(client.to_string(), text);
        assert_eq!(text.parse(), Ok(client));
    }

    #[test]
    fn a_mistyped_token_is_known_as_such() {
        let text = JoinToken { pin: Pin([1; 32]), maker: CellId(3), secret: [2; 16] }.to_string();
        assert_eq!(text.replacen("AQ", "AR", 1).parse::<JoinToken>(), Err(BadToken::Mistyped));
        assert_eq!(text[..30].parse::<JoinToken>(), Err(BadToken::Mistyped));
        assert_eq!("H1-".parse::<JoinToken>(), Err(BadToken::Mistyped));
        assert!(matches!("hat_00".parse::<JoinToken>(), Err(BadToken::Other(..))));
        assert!(matches!(text.parse::<ClientToken>(), Err(BadToken::Other(..))));
        assert_eq!("HC1-abc.hat_00".parse::<ClientToken>(), Err(BadToken::Mistyped));
    }

    #[test]
    fn a_token_is_good_for_one_until_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::of(dir.path());
        let redeem = |secret, cell, now| tokens.redeem(secret, CellId(cell), now).expect("kept");
        let secret = [7; 16];
        assert_eq!(redeem(&secret, 1, 0), Err(NoGood::Unknown));
        tokens.add(&secret, HOUR, For::New(1), 1000).expect("kept");
        let on_disk = std::fs::read(dir.path().join(FILE)).expect("there");
        assert!(!on_disk.windows(16).any(|it| it == secret), "only its hash is on disk");
        let look = |cell| tokens.look(&secret, CellId(cell), 1000).expect("kept");
        assert_eq!((look(2), look(2)), (Ok(Good { again: false }), Ok(Good { again: false })));
        assert_eq!(redeem(&secret, 1, 1000), Ok(Good { again: false }));
        assert_eq!((look(1), look(2)), (Ok(Good { again: true }), Err(NoGood::Used)));
        assert_eq!(
            redeem(&secret, 1, 2000),
            Ok(Good { again: true }),
            "the answer may have been lost"
        );
        assert_eq!(redeem(&secret, 2, 2000), Err(NoGood::Used));
        assert_eq!(redeem(&secret, 1, 1000 + 3_600_000), Err(NoGood::Expired));
        assert_eq!(redeem(&[8; 16], 1, 1000), Err(NoGood::Unknown));
    }

    #[test]
    fn a_token_may_be_for_one_cell_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::of(dir.path());
        tokens.add(&[7; 16], HOUR, For::Cell(CellId(2)), 0).expect("kept");
        let redeem = |cell| tokens.redeem(&[7; 16], CellId(cell), 0).expect("kept");
        assert_eq!(redeem(1), Err(NoGood::Other));
        assert_eq!(redeem(2), Ok(Good { again: true }));
    }

    #[test]
    fn a_revoked_token_is_good_for_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::of(dir.path());
        tokens.add(&[7; 16], HOUR, For::New(5), 0).expect("kept");
        let label = tokens.list().expect("kept")[0].label();
        assert!(!tokens.revoke("00000000").expect("kept"));
        assert!(tokens.revoke(&label).expect("kept"));
        assert_eq!(tokens.redeem(&[7; 16], CellId(1), 0).expect("kept"), Err(NoGood::Unknown));
    }

    #[test]
    fn tokens_that_are_long_over_are_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::of(dir.path());
        tokens.add(&[7; 16], HOUR, For::New(1), 0).expect("kept");
        tokens.add(&[8; 16], HOUR, For::New(1), 30 * 86_400_000).expect("kept");
        assert_eq!(tokens.list().expect("kept").len(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String) {
            prop_assert!(text.parse::<JoinToken>().is_err());
            let (join, client) = (format!("H1-{text}"), format!("HC1-{text}"));
            prop_assert!(join.parse::<JoinToken>().is_err());
            prop_assert!(text.parse::<ClientToken>().is_err());
            drop(client.parse::<ClientToken>());
        }
    }
}
