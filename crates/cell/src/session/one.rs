//! One session: its calls, and what came of them.

use std::collections::BTreeMap;

use holdall_wire::RequestNo;
use serde::{Deserialize, Serialize};

use super::{CallNo, ConnNo, Means, Secret, Welcome};
use crate::facts::Answer;

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// It is being done.
    Pending,
    Open(RequestNo),
    Replied(Answer),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) secret: Secret,
    pub(super) uid: u32,
    pub(super) means: Means,
    pub(super) attached: Option<ConnNo>,
    /// Since when it has no connection.
    pub(super) alone_since: u64,
    pub(super) last: CallNo,
    pub(super) heard: CallNo,
    /// Of the calls that it has not heard the end of, and of those with open requests.
    pub(super) outcomes: BTreeMap<CallNo, Outcome>,
    /// How many of these have an open request.
    pub(super) opened: usize,
    /// How many of those hold a reservation, which the books tell.
    #[serde(skip)]
    pub(super) reserved: usize,
}

impl Session {
    pub(super) fn new(secret: Secret, uid: u32, means: Means) -> Self {
        Self {
            secret,
            uid,
            means,
            attached: None,
            alone_since: 0,
            last: CallNo(0),
            heard: CallNo(0),
            outcomes: BTreeMap::new(),
            opened: 0,
            reserved: 0,
        }
    }

    /// How many of its calls are kept until they are acknowledged.
    pub(super) fn unheard(&self) -> usize {
        self.outcomes.len().saturating_sub(self.opened)
    }

    pub(super) fn take(&mut self, call: CallNo) {
        if call > self.heard && !self.outcomes.contains_key(&call) {
            self.last = self.last.max(call);
            self.outcomes.insert(call, Outcome::Pending);
        }
    }

    pub(super) fn set(&mut self, call: CallNo, outcome: Outcome) {
        let Some(known) = self.outcomes.get_mut(&call) else { return };
        self.opened -= usize::from(matches!(known, Outcome::Open(_)));
        self.opened += usize::from(matches!(outcome, Outcome::Open(_)));
        let is_over = matches!(outcome, Outcome::Replied(_));
        *known = outcome;
        if is_over && call <= self.heard {
            self.outcomes.remove(&call);
        }
    }

    pub(super) fn open(&self) -> impl Iterator<Item = (CallNo, RequestNo)> {
        self.outcomes.iter().filter_map(|(call, outcome)| match outcome {
            Outcome::Open(request) => Some((*call, *request)),
            _ => None,
        })
    }

    /// What is not heard of again, and not open, is forgotten. Nobody can hear of what was not made.
    pub(super) fn hear(&mut self, upto: CallNo) {
        let upto = upto.min(self.last);
        if upto <= self.heard {
            return;
        }
        // Those before were looked at when they were heard of, or when they were over.
        let news = self.outcomes.range(self.heard.next()..=upto);
        let over = news.filter(|(_, outcome)| matches!(outcome, Outcome::Replied(_)));
        for call in over.map(|(call, _)| *call).collect::<Vec<_>>() {
            self.outcomes.remove(&call);
        }
        self.heard = upto;
    }

    pub(super) fn welcome(&self, displaced: Option<ConnNo>) -> Welcome {
        let replied = self.outcomes.iter().filter_map(|(call, outcome)| match outcome {
            Outcome::Replied(reply) => Some((*call, reply.clone())),
            _ => None,
        });
        let pending = self.outcomes.iter().filter(|(_, it)| matches!(it, Outcome::Pending));
        Welcome {
            last: self.last,
            open: self.open().collect(),
            replied: replied.collect(),
            pending: pending.map(|(call, _)| *call).collect(),
            displaced,
        }
    }

    /// When its lease lapses, if nobody comes back: not as long as all that it has open are reservations, which last without
    /// it. Whoever comes back to one is told of it.
    pub(super) fn lapses(&self) -> Option<u64> {
        let only_reserves = self.reserved > 0 && self.reserved == self.opened;
        self.lapses_otherwise().filter(|_| !only_reserves)
    }

    /// When it would lapse if it held no reservations.
    pub(super) fn lapses_otherwise(&self) -> Option<u64> {
        match self.means {
            Means::Lease(millis) if self.attached.is_none() => {
                Some(self.alone_since.saturating_add(millis))
            }
            _ => None,
        }
    }
}
