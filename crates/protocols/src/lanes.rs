//! What a manager knows of the lanes that requests come from.
//!
//! The requests of a lane follow each other, and so do its users (`holdall_core::contract`): whoever
//! asks again has ended what it asked for before, even if its release is still under way, or never
//! comes. So a manager hears of one request of a lane at a time, the latest; whatever belongs to an
//! earlier one comes late and is void.

use alloc::collections::BTreeMap;
use core::fmt;

use holdall_core::{Lane, Party, RequestId, UserId};
use serde::{Deserialize, Serialize};

/// By lane, the latest request heard of. Bounded by the number of lanes, and forgotten with their home.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Lanes(BTreeMap<Lane, Latest>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Latest {
    request: RequestId,
    /// If it is over: whether its user was taken for gone.
    over: Option<bool>,
}

/// How a request stands with a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is later than all that was heard of its lane.
    New,
    /// It is the latest of its lane.
    Current,
    /// It is over.
    Over,
    /// It is over, because its user was taken for gone.
    Gone,
}

impl Lanes {
    /// How a request stands.
    pub(crate) fn state(&self, request: RequestId) -> State {
        let Some(latest) = self.0.get(&request.user.lane()) else { return State::New };
        match latest.over {
            Some(true) if request.user == latest.request.user => State::Gone,
            _ if request < latest.request => State::Over,
            _ if request > latest.request => State::New,
            None => State::Current,
            Some(_) => State::Over,
        }
    }

    /// Whether a later request of its lane has been heard of.
    pub(crate) fn is_overtaken(&self, request: RequestId) -> bool {
        self.0.get(&request.user.lane()).is_some_and(|latest| request < latest.request)
    }

    /// The request is the latest of its lane from now on. Returns the one before, if that was not
    /// over.
    pub(crate) fn begin(&mut self, request: RequestId) -> Option<RequestId> {
        let latest = Latest { request, over: None };
        let before = self.0.insert(request.user.lane(), latest)?;
        Some(before.request).filter(|_| before.over.is_none())
    }

    /// The request is over, and all before it.
    pub(crate) fn end(&mut self, request: RequestId) {
        if matches!(self.state(request), State::New | State::Current) {
            self.0.insert(request.user.lane(), Latest { request, over: Some(false) });
        }
    }

    /// All requests of a user are over, those that are still to come included. False if that says
    /// nothing new, because a later user of the lane has been heard of.
    fn end_user(&mut self, user: UserId) -> bool {
        let none = RequestId { user, seq: 0 };
        let latest =
            self.0.entry(user.lane()).or_insert(Latest { request: none, over: Some(true) });
        if latest.request.user <= user {
            *latest = Latest { request: latest.request.max(none), over: Some(true) };
        }
        latest.request.user <= user
    }

    /// Remembers that a party is gone; or forgets a home, of which nothing will be heard any more.
    /// False if that says nothing new.
    pub(crate) fn end_all_of(&mut self, who: Party) -> bool {
        match who {
            Party::Home(home) => {
                self.0.retain(|lane, _| lane.home != home);
                true
            }
            Party::User(user) => self.end_user(user),
        }
    }
}

/// Whether a report on a party ends a request: those of the party, and of its predecessors.
pub(crate) fn ends_with(request: RequestId, who: Party) -> bool {
    match who {
        Party::Home(_) => who.includes(request.user),
        Party::User(user) => request.user.lane() == user.lane() && request.user <= user,
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values().map(|l| (l.request, l.over))).finish()
    }
}
