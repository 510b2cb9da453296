//! What a step leads to.

use alloc::vec::Vec;

use crate::ids::{Addr, ManagerId, RequestId, UserId};
use crate::needs::Request;
use crate::role::Protocol;

/// How long a timer waits, as a step of a ladder of delays that the world chooses. A role that
/// backs off climbs it, and its state stays finite.
pub type Rung = u8;

/// One thing a role wants done. `T` is the role's timer.
#[derive(Debug)]
pub enum Effect<P: Protocol, T> {
    /// Let this timer ring once. Arming an armed timer starts it anew.
    Arm(T, Rung),
    /// Let this timer not ring.
    Disarm(T),
    /// The client may use everything its request is for. Of listed pools, the needs told here name every
    /// unit: those that were asked for by name, and those that were picked.
    Granted(Request),
    /// The request is over although its client lives: it was taken for dead, or its lease ran out.
    /// The client must stop using what it was granted, and may ask again as a fresh user.
    Lost(RequestId),
    /// A party did what no honest party does; the service drops it, the lab calls it an error.
    Misbehaved(Addr, &'static str),
    /// The request is over, and the user may ask again.
    Released(RequestId),
    /// Something happened that is worth counting: its name and its size. A world may keep the
    /// number, the mean and the largest; nothing depends on it.
    Tally(&'static str, u64),
    /// Send a message to a manager.
    ToManager(ManagerId, P::ToManager),
    /// Send a message to a user.
    ToUser(UserId, P::ToUser),
}

/// Where a role pushes its effects. The world drains it after every step.
#[derive(Debug)]
pub struct Outbox<P: Protocol, T> {
    effects: Vec<Effect<P, T>>,
}

impl<P: Protocol, T> Default for Outbox<P, T> {
    fn default() -> Self {
        Self { effects: Vec::new() }
    }
}

impl<P: Protocol, T> Outbox<P, T> {
    /// See [`Effect::Arm`].
    pub fn arm(&mut self, timer: T, rung: Rung) {
        self.effects.push(Effect::Arm(timer, rung));
    }

    /// See [`Effect::Disarm`].
    pub fn disarm(&mut self, timer: T) {
        self.effects.push(Effect::Disarm(timer));
    }

    /// See [`Effect::Granted`].
    pub fn granted(&mut self, request: Request) {
        self.effects.push(Effect::Granted(request));
    }

    /// See [`Effect::Lost`].
    pub fn lost(&mut self, request: RequestId) {
        self.effects.push(Effect::Lost(request));
    }

    /// See [`Effect::Misbehaved`].
    pub fn misbehaved(&mut self, who: Addr, what: &'static str) {
        self.effects.push(Effect::Misbehaved(who, what));
    }

    /// See [`Effect::Released`].
    pub fn released(&mut self, request: RequestId) {
        self.effects.push(Effect::Released(request));
    }

    /// See [`Effect::Tally`].
    pub fn tally(&mut self, what: &'static str, size: u64) {
        self.effects.push(Effect::Tally(what, size));
    }

    /// See [`Effect::ToManager`].
    pub fn to_manager(&mut self, to: ManagerId, msg: P::ToManager) {
        self.effects.push(Effect::ToManager(to, msg));
    }

    /// See [`Effect::ToUser`].
    pub fn to_user(&mut self, to: UserId, msg: P::ToUser) {
        self.effects.push(Effect::ToUser(to, msg));
    }

    /// Takes the effects out, in the order they were pushed.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect<P, T>> + '_ {
        self.effects.drain(..)
    }

    /// Passes on what a role of a subroutine `Q` wants done, wrapped into this protocol's
    /// messages and timers, and returns what the subroutine granted and released: that is news
    /// for the protocol around it, not for the client.
    pub fn lift<Q: Protocol, S>(
        &mut self,
        mut inner: Outbox<Q, S>,
        to_user: impl Fn(Q::ToUser) -> P::ToUser,
        to_manager: impl Fn(Q::ToManager) -> P::ToManager,
        timer: impl Fn(S) -> T,
    ) -> Vec<Note> {
        let mut notes = Vec::new();
        for effect in inner.drain() {
            match effect {
                Effect::Arm(t, rung) => self.arm(timer(t), rung),
                Effect::Disarm(t) => self.disarm(timer(t)),
                Effect::Granted(request) => notes.push(Note::Granted(request)),
                Effect::Lost(request) => notes.push(Note::Lost(request)),
                Effect::Misbehaved(who, what) => self.misbehaved(who, what),
                Effect::Released(request) => notes.push(Note::Released(request)),
                Effect::Tally(what, size) => self.tally(what, size),
                Effect::ToManager(to, msg) => self.to_manager(to, to_manager(msg)),
                Effect::ToUser(to, msg) => self.to_user(to, to_user(msg)),
            }
        }
        notes
    }
}

/// What a subroutine tells the protocol around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The subroutine granted a request.
    Granted(Request),
    /// The subroutine has lost a request.
    Lost(RequestId),
    /// The subroutine is done with a request.
    Released(RequestId),
}
