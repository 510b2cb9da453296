//! A client, and what it knows.

use std::collections::{BTreeMap, BTreeSet};

use holdall_cell::Wish;
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_wire::{Ask, RequestNo};

/// How long the leases last.
pub(super) const LEASE: u64 = 5000;

/// A program with a session.
pub(super) struct Client {
    pub(super) hello: Hello,
    pub(super) conn: Option<ConnNo>,
    /// What it has called, by number from 1 on; and what it heard of it.
    pub(super) calls: Vec<Wish>,
    pub(super) answered: BTreeSet<CallNo>,
    /// What it was told that it holds.
    pub(super) grants: BTreeSet<RequestNo>,
    /// Under which of these its child runs.
    pub(super) children: BTreeSet<RequestNo>,
    /// The requests that it knows of, by the call that asked.
    pub(super) asked: BTreeMap<RequestNo, CallNo>,
    /// Since when it has no connection.
    pub(super) alone_since: u64,
}

impl Client {
    /// A client of a number of its own, under the id of a session that may have been another's.
    pub(super) fn new(number: u64, session: u64, means: u8) -> Self {
        let hello = Hello {
            session: SessionId(session.into()),
            secret: Secret(u128::from(number) * 7),
            uid: 1000 + (number % 2) as u32,
            means: match means % 4 {
                0 => Means::Lease(LEASE),
                1 => Means::Connection,
                2 => Means::Once { pid: 2, start: number },
                _ => Means::Process { pid: 2, start: number },
            },
            returns: false,
            heard: CallNo(0),
        };
        let (calls, answered, grants, children, asked) = Default::default();
        Self { hello, conn: None, calls, answered, grants, children, asked, alone_since: 0 }
    }

    /// What a request asked for.
    pub(super) fn ask(&self, request: RequestNo) -> &Ask {
        let call = self.asked[&request].0 as usize - 1;
        let Wish::Ask { ask, .. } = &self.calls[call] else {
            panic!("{request} asked for nothing")
        };
        ask
    }

    pub(super) fn is_connection(&self) -> bool {
        self.hello.means == Means::Connection
    }

    /// Whether it does not come back over another connection.
    pub(super) fn comes_once(&self) -> bool {
        self.is_connection() || matches!(self.hello.means, Means::Once { .. })
    }

    pub(super) fn is_process(&self) -> bool {
        matches!(self.hello.means, Means::Once { .. } | Means::Process { .. })
    }

    pub(super) fn heard(&self) -> CallNo {
        let mut upto = CallNo(0);
        while self.answered.contains(&upto.next()) {
            upto = upto.next();
        }
        upto
    }
}
