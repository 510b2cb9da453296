//! One token on a ring, which moves only when somebody wants it.
//!
//! The paper lets the token circulate for ever. Here it stays where it was last of use, and a
//! system in which nobody wants it sends no message. Whoever wants it sends [`RingMessage::Want`] round
//! the ring; it ends at the holder, or at somebody who wants the token as well and whose own
//! `Want` has gone before. On its way it leaves a mark (`pass`) with everybody, so that the token,
//! which takes the same way, is not kept before it is back where it came from: a released token is
//! told where to `stop`, and everybody on the lap is served.
//!
//! The token counts its laps: the root, where a lap begins, adds one. A `Want` tells the lap in which
//! the token will have been with its sender again when it is here; where it passes the root, that is
//! one lap later. Whoever has seen the token in that lap drops the `Want`, or its mark. So however
//! slowly a `Want` travels, it causes no lap that nobody needs, and no more than two of one sender
//! are ever under way. Nobody knows how many resources there are, nor its own place on the ring: only
//! who is next, and whether it is the root (section II.B).
//!
//! # Invariants
//! - **R1, one token.** Exactly one manager holds the token, or one [`RingMessage::Token`] is under way
//!   (`one`, which the checker looks at in every state).
//! - **R2, no want is forgotten.** While `asked` is set, a `Want` of this manager is under way, or
//!   a mark lies where the token is or will come by, or the token is on its way to stop behind it.

use holdall_core::{Broken, ManagerId, Stamp};
use serde::{Deserialize, Serialize};

use super::Ring;

/// Counts the laps of the token.
pub type Lap = Stamp<1>;

/// What goes round the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RingMessage {
    /// The token.
    Token {
        /// Where it may stay if nobody wants it.
        stop: ManagerId,
        /// Which lap this is.
        lap: Lap,
    },
    /// Somebody wants the token.
    Want {
        /// Who.
        origin: ManagerId,
        /// Once the token was here in this lap, it has been there again.
        until: Lap,
    },
}

impl RingMessage {
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
    /// The lap in which it was here last.
    seen: Lap,
    /// This manager has sent a `Want` since it last had the token.
    asked: bool,
    /// A `Want` came by, so the token must not stay, unless it has been here in this lap: the latest of
    /// such.
    pass: Option<Lap>,
}

/// What the holder does with a token that it does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Keep it.
    Keep,
    /// Serve those who want it here.
    Serve,
    /// Send it on.
    Send(RingMessage),
}

impl Token {
    /// The root has the token at the start, as if it had come to it from everybody else.
    pub(crate) fn new(ring: &Ring, me: ManagerId) -> Self {
        let root = ring.is_root(me);
        let seen = Lap::first(ring.origin()).plus(u64::from(root));
        Self { me, held: root.then_some(me), seen, asked: false, pass: None }
    }

    pub(crate) fn held(&self) -> bool {
        self.held.is_some()
    }

    /// The token is wanted here: what to send, if anything.
    pub(crate) fn want(&mut self) -> Option<RingMessage> {
        if self.held() || core::mem::replace(&mut self.asked, true) {
            return None;
        }
        Some(RingMessage::Want { origin: self.me, until: self.seen.next() })
    }

    /// A `Want` comes by: what goes on, if anything.
    pub(crate) fn on_want(
        &mut self,
        ring: &Ring,
        origin: ManagerId,
        until: Lap,
    ) -> Option<RingMessage> {
        if self.is_obsolete(ring, origin, until) {
            return None;
        }
        let until = ring.lap_after(self.me, until);
        self.pass = self.pass.max(Some(until));
        (!self.held() && !self.asked).then_some(RingMessage::Want { origin, until })
    }

    /// Whether the token has been with the origin since, or the `Want` has come back to it.
    pub(crate) fn is_obsolete(&self, ring: &Ring, origin: ManagerId, until: Lap) -> bool {
        origin == self.me || self.seen >= ring.lap_after(self.me, until)
    }

    pub(crate) fn on_token(&mut self, ring: &Ring, stop: ManagerId, lap: Lap) {
        self.held = Some(stop);
        self.seen = ring.lap_after(self.me, lap);
        self.asked = false;
    }

    /// What becomes of the token, if this manager holds it and needs it for nobody at the moment;
    /// `wanted` says whether somebody here has come to want it since.
    pub(crate) fn rest(&mut self, wanted: bool) -> Next {
        let Some(stop) = self.held else { return Next::Keep };
        let pass = self.pass.take().is_some_and(|until| self.seen < until);
        let stop = match (pass, stop == self.me, wanted) {
            (false, true, true) => return Next::Serve,
            (false, true, false) => return Next::Keep,
            (true, ..) | (_, _, true) => self.me,
            _ => stop,
        };
        self.held = None;
        Next::Send(RingMessage::Token { stop, lap: self.seen })
    }
}

/// R1, of all managers' tokens and all message.
pub(crate) fn one<'a>(
    tokens: impl Iterator<Item = &'a Token>,
    message: impl Iterator<Item = &'a RingMessage>,
) -> Result<(), Broken> {
    let held = tokens.filter(|token| token.held()).count();
    let travelling = message.filter(|message| matches!(message, RingMessage::Token { .. })).count();
    Broken::unless(held + travelling == 1, "R1: there is exactly one token")
}
