//! How a log in etcd is kept and led.

use std::time::Duration;

use crate::{Identity, Life};

/// What to do if somebody else leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLed {
    /// Say so ([`crate::OpenError::InUse`]).
    Refuse,
    /// Stand by until nobody does.
    #[default]
    StandBy,
    /// Lead instead of whoever was elected at this revision ([`super::Leader::term`]), and of nobody else. It may tell others for the rest of
    /// its lease what rests on no record.
    TakeOver(i64),
}

/// What a host has seen of a store, to be kept by it: what is there later may not be less, unless somebody has said that memory was
/// lost: then it is another life, in a higher epoch, and a shorter log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The life of the cell.
    pub life: Life,
    /// The highest revision in it.
    pub revision: i64,
    /// The highest epoch.
    pub epoch: u32,
    /// The number of the next record in it.
    pub next: u64,
}

/// How a log in etcd is kept and led.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the cell, under which its keys lie.
    pub cell: String,
    /// The name of this host, and where its agent is reached.
    pub host: String,
    /// See there; without white space, as the name.
    pub address: String,
    /// How long a leader leads without being heard of. etcd takes two seconds at least.
    pub lease: Duration,
    /// What to do if somebody else leads.
    pub when_led: WhenLed,
    /// Whether the cell is made if there is none.
    pub create: bool,
    /// Whether a store that was put back from a backup is taken over. Memory is lost then.
    pub adopt: bool,
    /// Which cell it has to be, if that is known: another one is not led.
    pub identity: Option<Identity>,
    /// What this host has seen of the store.
    pub seen: Seen,
    /// The highest epoch in which others were given fences of what has the same names: whoever is elected is in a higher one.
    pub above: u32,
    /// Whether etcd is told to forget how keys were before the last snapshot but one. If not,
    /// somebody else has to, or it grows.
    pub compact: bool,
    pub(super) rules: Rules,
}

impl Options {
    /// For a cell, hosted by a machine.
    pub fn new(cell: &str, host: &str, address: &str) -> Self {
        Self {
            cell: cell.into(),
            host: host.into(),
            address: address.into(),
            lease: Duration::from_secs(5),
            when_led: WhenLed::default(),
            create: false,
            adopt: false,
            identity: None,
            seen: Seen::default(),
            above: 0,
            compact: true,
            rules: Rules::default(),
        }
    }

    /// The lease in seconds, as etcd counts.
    pub(super) fn seconds(&self) -> i64 {
        i64::try_from(self.lease.as_secs()).unwrap_or(i64::MAX).max(1)
    }
}

/// What makes it safe, rule by rule: tests take one away to see that it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// A transaction compares the key of the leader.
    pub(super) compares_leader: bool,
    /// A transaction compares what the head says.
    pub(super) compares_head: bool,
    /// That is the epoch, too, and not only a number.
    pub(super) head_says_epoch: bool,
    /// Nothing is told before it is committed.
    pub(super) tells_after_commit: bool,
    /// What was not answered is looked up before it is sent again.
    pub(super) reads_back: bool,
    /// Nothing is deleted before the snapshot that has it is in force.
    pub(super) deletes_last: bool,
    /// The lease is counted from when its renewal was asked for.
    pub(super) counts_from_sending: bool,
    /// A snapshot is put in force only if no other was since.
    pub(super) compares_snapshot: bool,
    /// A leader is known by when its key was last written, not by when it was made.
    pub(super) knows_last_writing: bool,
    /// Whoever leads next without an election has a higher epoch.
    pub(super) raises_epoch_of_heir: bool,
    /// And has heard of all that came until then.
    pub(super) heir_hears_the_end: bool,
    /// Whoever hands over says that it leads no longer before it does.
    pub(super) resigns_first: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            compares_leader: true,
            compares_head: true,
            head_says_epoch: true,
            tells_after_commit: true,
            reads_back: true,
            deletes_last: true,
            counts_from_sending: true,
            compares_snapshot: true,
            knows_last_writing: true,
            raises_epoch_of_heir: true,
            heir_hears_the_end: true,
            resigns_first: true,
        }
    }
}
