//! Several machines: what people say about their cluster, and see of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::Kind;
use crate::name::Name;

/// Something about the cluster of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterCall {
    /// Who is a member.
    Members,
    /// A token with which others join.
    Token {
        /// For how many milliseconds it is good.
        millis: u64,
        /// How many machines may join with it.
        machines: u32,
        /// The member that may join again with it, and nobody else.
        whose: Option<String>,
    },
    /// The tokens that there are.
    Tokens,
    /// A token is good for nothing any more, by its label.
    Revoke(String),
    /// A member is none any more: its certificate is good nowhere.
    Remove(String),
    /// A member is gone for good: what it holds is given up.
    Forget(String),
    /// This agent hosts a replicated cell from now on.
    Host(Box<HostCell>),
    /// The replicated cells that are hosted here; asked of one of them, itself.
    Hosted,
    /// Said to a replicated cell: another of its hosts leads it from now on.
    HandOver(String),
    /// Said to a replicated cell: it is to be removed, so it ends, unless something is held or waits and it is not forced.
    Close(bool),
}

/// A cell that outlives its machine, and what a host needs for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCell {
    /// Its name.
    pub name: String,
    /// What tells it from all others, in 32 hexadecimal digits.
    pub id: String,
    /// Where its log is: `etcd://HOST:PORT,HOST:PORT/NAME`.
    pub store: String,
    /// The members that host it.
    pub hosts: Vec<String>,
    /// Where a member listens that lets it join.
    pub at: String,
    /// With what it joins.
    pub token: String,
}

impl fmt::Debug for HostCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HostCell");
        shown.field("name", &self.name).field("id", &self.id).field("store", &self.store);
        shown.field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// What is wrong with a host that is there in a moment ([`HostedView::trouble`]).
pub const BEING_STARTED: &str = "it is being started";

/// What is wrong with a host whose log is not all that there was: a member does this.
pub const KNOWS_MORE: &str = "knows more of this cell than its log tells";

/// A replicated cell, as one of its hosts sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedView {
    /// The cell.
    pub name: String,
    /// The host that says this.
    pub host: String,
    /// Where its log is.
    pub store: String,
    /// The members that host it.
    pub hosts: Vec<String>,
    /// Whether this host leads it.
    pub leads: bool,
    /// The host that leads it, as far as is known.
    pub leader: Option<String>,
    /// The epoch of that: all fences so far are of this one, or before it.
    pub epoch: u32,
    /// How many records its log has had, if this host leads it.
    pub records: u64,
    /// Why nothing is granted at the moment, or this host cannot lead.
    pub trouble: Option<String>,
}

impl HostedView {
    /// Whether this host leads, and has heard that its log is not all that there was.
    pub fn is_put_back(&self) -> bool {
        self.leads && self.trouble.as_ref().is_some_and(|why| why.contains(KNOWS_MORE))
    }
}

/// A cluster, as one of its members knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The name of this member.
    pub name: String,
    /// Where it listens.
    pub listens: String,
    /// How long what others guard may be used without hearing of them, in milliseconds.
    pub lease: u64,
    /// Whether this member was removed: nobody talks to it any more.
    pub removed: bool,
    /// The other cells that it waits for before it grants anything, since it may have forgotten what they hold.
    pub waits_for: Vec<String>,
    /// All of them, this one first.
    pub members: Vec<MemberView>,
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// What tells it from all others, in 32 hexadecimal digits.
    pub id: String,
    /// Whether it is the one that says this.
    pub own: bool,
    /// Where it can be reached.
    pub addresses: Vec<String>,
    /// Whether it has the key of the authority.
    pub signs: bool,
    /// Whether it was removed.
    pub removed: bool,
    /// Whether an operator has said that it is gone for good.
    pub forgotten: bool,
    /// Whether there is a link to it.
    pub up: bool,
    /// Since when that is so, in milliseconds since 1970.
    pub since: u64,
    /// Why there is none, as far as it is known.
    pub why: Option<String>,
    /// How long it takes there and back, in microseconds.
    pub round_trip: Option<u64>,
    /// How many frames were sent to it, received from it, and not sent for want of room.
    pub frames: (u64, u64, u64),
    /// The pools that it has declared, as it last said.
    pub pools: Vec<(Name, Kind)>,
}

/// A token with which others join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenView {
    /// What it is revoked by.
    pub label: String,
    /// When it was made, in milliseconds since 1970.
    pub made: u64,
    /// Until when it is good.
    pub until: u64,
    /// How many machines may join with it.
    pub machines: u32,
    /// How many have.
    pub used: u32,
    /// The only member that may use it.
    pub whose: Option<String>,
}
