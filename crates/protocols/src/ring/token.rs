//! One token on a ring, which moves only when somebody wants it.
//!
//! The paper lets the token circulate for ever. Here it stays where it was last of use, and a
//! system in which nobody wants it sends no message. Whoever wants it sends [`Mail::Want`] round
//! the ring; it ends at the holder, or at somebody who wants the token as well and whose own
//! `Want` has gone before. On its way it leaves a mark (`pass`) with everybody, so that the token,
//! which takes the same way, is not kept before it is back where it came from: a released token is
//! told where to `stop`, and everybody on the lap is served.
//!
//! The token counts its hops, and a `Want` tells the last hop that its sender has seen. Whoever
//! has seen the token since it must have been there again drops the `Want`, or its mark. So however
//! slowly a `Want` travels, it causes no lap that nobody needs, and no more than two of one sender
//! are ever under way.
//!
//! # Invariants
//! - **R1, one token.** Exactly one manager holds the token, or one [`Mail::Token`] is under way
//!   (`one`, which the checker looks at in every state).
//! - **R2, no want is forgotten.** While `asked` is set, a `Want` of this manager is under way, or
//!   a mark lies where the token is or will come by, or the token is on its way to stop behind it.

use holdall_core::{Broken, ManagerId, Stamp};
use serde::{Deserialize, Serialize};

use super::Ring;

/// Counts the hops of the token.
pub type Hop = Stamp<1>;

/// What goes round the ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mail {
    /// The token.
    Token {
        /// Where it may stay if nobody wants it.
        stop: ManagerId,
        /// How far it has come.
        hop: Hop,
    },
    /// Somebody wants the token.
    Want {
        /// Who.
        origin: ManagerId,
        /// The hop of the token when it was there last.
        seen: Hop,
    },
}

impl Mail {
    /// Its name in tallies.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Want { .. } => "want",
        }
    }
}

/// What one manager knows of the token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    me: ManagerId,
    /// The holder's: where it may stay.
    held: Option<ManagerId>,
    /// When it was here last.
    seen: Hop,
    /// This manager has sent a `Want` since it last had the token.
    asked: bool,
    /// A `Want` came by, so the token must not stay: the latest hop that the senders of such had
    /// seen.
    pass: Option<Hop>,
}

/// What the holder does with a token that it does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Keep it.
    Keep,
    /// Serve those who want it here.
    Serve,
    /// Send it on.
    Send(Mail),
}

impl Token {
    /// The root has the token at the start, as if it had come to it from everybody else.
    pub(crate) fn new(ring: &Ring, me: ManagerId) -> Self {
        let root = ring.is_root(me);
        let seen = Hop::first(ring.origin()).plus(if root { ring.len() } else { me.0 });
        Self { me, held: root.then_some(me), seen, asked: false, pass: None }
    }

    pub(crate) fn held(&self) -> bool {
        self.held.is_some()
    }

    /// The token is wanted here: what to send, if anything.
    pub(crate) fn want(&mut self) -> Option<Mail> {
        if self.held() || core::mem::replace(&mut self.asked, true) {
            return None;
        }
        Some(Mail::Want { origin: self.me, seen: self.seen })
    }

    /// A `Want` comes by: whether it goes on.
    pub(crate) fn on_want(&mut self, ring: &Ring, origin: ManagerId, seen: Hop) -> bool {
        if self.is_obsolete(ring, origin, seen) {
            return false;
        }
        self.pass = self.pass.max(Some(seen));
        !self.held() && !self.asked
    }

    /// Whether the token has been with the origin since, or the `Want` has come back to it.
    pub(crate) fn is_obsolete(&self, ring: &Ring, origin: ManagerId, seen: Hop) -> bool {
        origin == self.me || self.came_by(ring, seen)
    }

    /// Whether the token has been here since it was back with somebody who saw it then.
    fn came_by(&self, ring: &Ring, seen: Hop) -> bool {
        self.seen > seen.plus(ring.len())
    }

    pub(crate) fn on_token(&mut self, stop: ManagerId, hop: Hop) {
        self.held = Some(stop);
        self.seen = hop;
        self.asked = false;
    }

    /// What becomes of the token, if this manager holds it and needs it for nobody at the moment;
    /// `wanted` says whether somebody here has come to want it since.
    pub(crate) fn rest(&mut self, ring: &Ring, wanted: bool) -> Next {
        let Some(stop) = self.held else { return Next::Keep };
        let pass = self.pass.take().is_some_and(|seen| !self.came_by(ring, seen));
        let stop = match (pass, stop == self.me, wanted) {
            (false, true, true) => return Next::Serve,
            (false, true, false) => return Next::Keep,
            (true, ..) | (_, _, true) => self.me,
            _ => stop,
        };
        self.held = None;
        Next::Send(Mail::Token { stop, hop: self.seen.next() })
    }
}

/// R1, of all managers' tokens and all mail.
pub(crate) fn one<'a>(
    tokens: impl Iterator<Item = &'a Token>,
    mail: impl Iterator<Item = &'a Mail>,
) -> Result<(), Broken> {
    let held = tokens.filter(|token| token.held()).count();
    let travelling = mail.filter(|mail| matches!(mail, Mail::Token { .. })).count();
    Broken::unless(held + travelling == 1, "R1: there is exactly one token")
}
