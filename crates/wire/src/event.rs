//! What has happened in a cell, for whoever writes it down, watches it, or counts what was used.
//!
//! Events are projected from the facts of the log, and numbered by its records: whoever has seen all up to
//! one goes on after it. Each says enough to be understood alone. Times are milliseconds since 1970, by the
//! wall as it was then.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::{Ask, Change, Kind, Refusal, Taken};
use crate::name::{Name, Need};
use crate::request_no::RequestNo;
use crate::view::Who;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The record of the log that says so. What follows from one input has one number.
    pub index: u64,
    /// Which of them it is, from 0 on.
    pub nth: u32,
    /// When.
    pub at: u64,
    /// What.
    pub what: What,
}

/// What may happen. New kinds are added at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The agent has started.
    Started {
        /// Numbers and fences are above it.
        epoch: u32,
    },
    /// Somebody asks for something.
    Asked {
        /// The request.
        request: RequestNo,
        /// Who.
        who: Arc<Who>,
        /// For what. It is not copied, since many may wait for long.
        ask: Arc<Ask>,
    },
    /// A request waits.
    Queued {
        /// The request.
        request: RequestNo,
    },
    /// A request holds all it asked for.
    Granted {
        /// The request.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it holds, with fences.
        taken: Arc<[Taken]>,
        /// When it was asked for.
        asked: u64,
        /// Until when, if it is a reservation.
        until: Option<u64>,
        /// When its time is over, if it is for a time.
        limit: Option<u64>,
        /// How many older requests it has passed that want some of the same, of many not all.
        overtook: u32,
    },
    /// A process is about to become the command that uses a grant.
    Runs {
        /// The grant.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// The process, if it is known by its number.
        pid: Option<u32>,
    },
    /// A reservation lasts until then.
    Renewed {
        /// The reservation.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it holds.
        taken: Arc<[Taken]>,
        /// Until when.
        until: u64,
    },
    /// Somebody does something to a grant by force, or to that of another; what it is follows.
    Forced {
        /// The grant.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it holds.
        taken: Arc<[Taken]>,
        /// Who has done it.
        by: Arc<Who>,
    },
    /// A grant was taken away, and its client has some time to stop using it.
    TakenAway {
        /// The grant.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it holds.
        taken: Arc<[Taken]>,
        /// Why.
        how: Ending,
    },
    /// A grant has ended, and lasts until its processes or parts have.
    Ending {
        /// The grant.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it holds.
        taken: Arc<[Taken]>,
        /// How.
        how: Ending,
    },
    /// A grant is over: what it held is free.
    Ended {
        /// The grant.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it held.
        taken: Arc<[Taken]>,
        /// Since when.
        since: u64,
        /// How.
        how: Ending,
    },
    /// A request is over that has held nothing.
    Refused {
        /// The request.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it asked for.
        needs: Arc<[Need]>,
        /// When it was asked for.
        asked: u64,
        /// Why.
        why: Refusal,
    },
    /// Somebody has changed the pools, or it was time.
    Changed {
        /// Who.
        by: Option<Arc<Who>>,
        /// What.
        change: Change,
    },
    /// A pool is this from now on, or is no more.
    Pool {
        /// Its name.
        name: Name,
        /// What it consists of.
        kind: Option<Kind>,
        /// Whether that is so because the configuration says it.
        configured: bool,
    },
    /// A grant of an agent that had no log is in force.
    Restored {
        /// The grant.
        request: RequestNo,
        /// Whose.
        who: Arc<Who>,
        /// What it asked for.
        needs: Arc<[Need]>,
        /// What it holds.
        taken: Arc<[Taken]>,
        /// Since when.
        since: u64,
        /// Until when, if it is a reservation.
        until: Option<u64>,
    },
    /// The clock on the wall was set. Times before were told by the one, times after are told by the other.
    ClockSet {
        /// By how many milliseconds: less than none if it was set back.
        by: i64,
    },
}

/// How a grant ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It was given back.
    Released,
    /// Its time was over.
    Expired,
    /// Its client is gone, and nothing else used it.
    Left,
    /// Its client is gone, and its processes were killed.
    Killed,
    /// It was taken away.
    Lost,
    /// It was used for longer than it may be.
    Overrun,
    /// The grant that it was a part of has ended.
    WithItsGrant,
    /// It does not fit the pools any more.
    Unrestored,
}

impl Ending {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Left => "left",
            Self::Killed => "killed",
            Self::Lost | Self::WithItsGrant | Self::Unrestored => "lost",
            Self::Overrun => "overrun",
        }
    }
}

impl What {
    /// The request that it is about.
    pub fn request(&self) -> Option<RequestNo> {
        match self {
            Self::Asked { request, .. }
            | Self::Queued { request }
            | Self::Granted { request, .. }
            | Self::Runs { request, .. }
            | Self::Renewed { request, .. }
            | Self::Forced { request, .. }
            | Self::TakenAway { request, .. }
            | Self::Ending { request, .. }
            | Self::Ended { request, .. }
            | Self::Refused { request, .. }
            | Self::Restored { request, .. } => Some(*request),
            Self::Started { .. } | Self::Changed { .. } => None,
            Self::Pool { .. } | Self::ClockSet { .. } => None,
        }
    }
}
