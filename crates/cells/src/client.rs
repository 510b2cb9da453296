//! A program that asks, uses what it gets for a while, and gives it back.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdall_cell::Wish;
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_wire::{Ask, From, Lasting, Need, RequestNo, Taken, Who};

/// What a client is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It wants nothing until then.
    Idle(u64),
    /// It has asked with this call, and perhaps waits.
    Asking(CallNo),
    /// It uses something; if it is reserved, until then by the clock of its machine at most.
    Using { request: RequestNo, until: u64, reserved: Option<u64> },
    /// It uses nothing any more, and is giving back with this call, once it could be made.
    Leaving(RequestNo, Option<CallNo>),
}

/// A client.
pub(crate) struct Client {
    pub(crate) home: usize,
    pub(crate) state: State,
    pub(crate) conn: Option<ConnNo>,
    session: u128,
    returns: bool,
    /// Its calls by number, from 1 on, and those whose end it has heard.
    pub(crate) calls: Vec<Wish>,
    pub(crate) answered: BTreeSet<CallNo>,
    /// Until when by the clock of its machine it may use what others guard.
    pub(crate) deadline: Option<u64>,
    paused_until: u64,
    /// Whether it was paused, and has not looked at the time since.
    is_dazed: bool,
    /// The call with which it renews its reservation.
    pub(crate) renewing: Option<CallNo>,
    /// It asks for nothing, and changes pools.
    pub(crate) is_operator: bool,
    /// It has put the pools in order, in the end.
    pub(crate) has_tidied: bool,
}

impl Client {
    pub(crate) fn new(home: usize, session: u128, is_operator: bool) -> Self {
        Self {
            home,
            state: State::Idle(0),
            conn: None,
            session,
            returns: false,
            calls: Vec::new(),
            answered: BTreeSet::new(),
            deadline: None,
            paused_until: 0,
            is_dazed: false,
            renewing: None,
            is_operator,
            has_tidied: false,
        }
    }

    /// It does nothing until then.
    pub(crate) fn pause(&mut self, until: u64) {
        (self.paused_until, self.is_dazed) = (until, true);
    }

    /// It is not paused any more.
    pub(crate) fn wake_up(&mut self) {
        self.paused_until = 0;
    }

    pub(crate) fn is_paused(&self, at: u64) -> bool {
        self.paused_until > at
    }

    /// Whether it was paused, and has yet to see that its time may be over. From now on it has.
    pub(crate) fn comes_to(&mut self) -> bool {
        std::mem::take(&mut self.is_dazed)
    }

    /// Whether it uses nothing: it is paused, or was and has not done anything since.
    pub(crate) fn is_out(&self, at: u64) -> bool {
        self.is_paused(at) || self.is_dazed
    }

    /// Whether nothing is under way of what it wants.
    pub(crate) fn calls_are_answered(&self) -> bool {
        self.heard().0 == self.calls.len() as u64
    }

    /// It has lost everything, and begins anew under another name.
    pub(crate) fn begin_anew(&mut self, session: u128, at: u64) {
        let (paused_until, is_dazed) = (self.paused_until, self.is_dazed);
        *self = Self { paused_until, is_dazed, ..Self::new(self.home, session, self.is_operator) };
        self.state = State::Idle(at);
    }

    pub(crate) fn session(&self) -> SessionId {
        SessionId(self.session)
    }

    pub(crate) fn hello(&mut self, conn: ConnNo) -> Hello {
        let returns = std::mem::replace(&mut self.returns, true);
        self.conn = Some(conn);
        Hello {
            session: self.session(),
            secret: Secret(self.session * 3),
            uid: 1000,
            means: Means::Process { pid: 7, start: self.session as u64 },
            returns,
            heard: self.heard(),
        }
    }

    pub(crate) fn heard(&self) -> CallNo {
        let mut upto = CallNo(0);
        while self.answered.contains(&upto.next()) {
            upto = upto.next();
        }
        upto
    }

    /// Makes a call; its number.
    pub(crate) fn call(&mut self, wish: Wish) -> CallNo {
        self.calls.push(wish);
        CallNo(self.calls.len() as u64)
    }

    pub(crate) fn ask(&mut self, needs: Vec<Need>, lasting: Lasting, now: bool) -> CallNo {
        let (from, who) = (From::default(), me());
        let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
        let call = self.call(Wish::Ask { who, ask: ask.into(), length: None });
        self.state = State::Asking(call);
        call
    }

    /// What it has asked for with a call was for a command, or reserves.
    pub(crate) fn asked(&self, call: CallNo) -> Option<&Ask> {
        match self.calls.get(call.0 as usize - 1)? {
            Wish::Ask { ask, .. } => Some(ask),
            _ => None,
        }
    }
}

/// Everybody who asks is one user.
pub(crate) fn me() -> Arc<Who> {
    Arc::new(Who { uid: 1000, user: "me".into(), pid: 7, ..Who::default() })
}

/// Each unit that was given, with its cell.
pub(crate) fn units<'a>(
    taken: &'a [Taken],
    needs: &'a [Need],
    home: &'a str,
) -> impl Iterator<Item = (String, u64, bool)> + 'a {
    taken.iter().flat_map(move |taken| {
        let full = |name: &holdall_wire::Name| name.at(name.cell().unwrap_or(home));
        let need = needs.iter().find(|need| full(&need.name) == full(&taken.name));
        let shared = need.is_some_and(|need| need.amount == holdall_wire::Amount::Shared);
        taken.units.iter().map(move |(unit, fence)| {
            let cell = unit.cell().unwrap_or(home);
            (unit.at(cell).to_string(), *fence, shared)
        })
    })
}
