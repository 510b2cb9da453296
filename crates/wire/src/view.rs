//! What there is to see: pools, grants, waiting requests, and why they wait.
//!
//! Times are milliseconds since 1970. The same types go through frames and out as JSON.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::message::{From, Taken};
use crate::name::{Name, Need};
use crate::request_no::RequestNo;
use crate::right::Right;

/// Who asked for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The user's number, vouched for by the kernel.
    pub uid: u32,
    /// The user's name.
    pub user: Arc<str>,
    /// The machine.
    pub host: Arc<str>,
    /// The process, vouched for by the kernel.
    pub pid: u32,
    /// What the client said of itself.
    pub from: From,
}

/// Everything, or what concerns some names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Pools and locks, by name.
    pub pools: Vec<PoolView>,
    /// What is held, oldest first.
    pub grants: Vec<GrantView>,
    /// What waits, in the order of service.
    pub waiting: Vec<WaitView>,
    /// How many more there are of all these, if that is known.
    pub left_out: u32,
}

/// A pool or a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// Its name.
    pub name: Name,
    /// Whether it is a lock.
    pub lock: bool,
    /// Whether it was declared; otherwise it is forgotten when nobody wants it.
    pub declared: bool,
    /// Whether it is being removed, and stays only until its units come back.
    pub removed: bool,
    /// The units of a pool; none for a lock.
    pub units: Vec<UnitView>,
    /// How many units are free and not drained; for a lock 1 if nobody has it.
    pub free: u32,
    /// The grants that hold some of it.
    pub holders: Vec<RequestNo>,
    /// How many requests wait for some of it.
    pub waiting: u32,
}

/// A unit of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitView {
    /// Its name.
    pub name: Name,
    /// The grant that holds it, if any.
    pub holder: Option<RequestNo>,
    /// Whether it goes away when it comes back.
    pub retiring: bool,
    /// Why it is given to nobody for now, if it is not.
    pub drained: Option<Drained>,
}

/// Why a unit is given to nobody. Whoever has it keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// The reason, for people to read.
    pub reason: Arc<str>,
    /// Who has said so.
    pub by: Arc<str>,
    /// Until when; for good if nothing is said.
    pub until: Option<u64>,
}

/// How it stands with a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In use.
    Held,
    /// Its processes are stopped; they still hold.
    Stopped,
    /// Its client has ended, some of its processes have not: it waits for them.
    Ending,
    /// It outlives its client.
    Reserved,
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    /// Its number.
    pub request: RequestNo,
    /// What was asked for.
    pub needs: Vec<Need>,
    /// What is held.
    pub taken: Vec<Taken>,
    /// Who asked.
    pub who: Who,
    /// Since when it is held.
    pub since: u64,
    /// Until when it is held, for a reservation; or when it will be lost, if a cell that has lent something of it is out of reach.
    pub until: Option<u64>,
    /// How it stands.
    pub state: State,
    /// The processes that use it, as far as they are known.
    pub pids: Vec<u32>,
    /// The grant that it uses a part of.
    pub part_of: Option<RequestNo>,
    /// The grants that use parts of it.
    pub parts: Vec<RequestNo>,
}

/// A waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitView {
    /// Its number.
    pub request: RequestNo,
    /// What was asked for.
    pub needs: Vec<Need>,
    /// Who asked.
    pub who: Who,
    /// Since when it waits.
    pub since: u64,
    /// The grant inside which it was asked.
    pub within: Option<RequestNo>,
    /// The grant that it wants a part of.
    pub part_of: Option<RequestNo>,
    /// What keeps it, one for each need that is lacking.
    pub hindrances: Vec<Hindrance>,
}

/// What keeps a request from one of its needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hindrance {
    /// The need.
    pub need: Need,
    /// How many units are wanted; for a lock 1.
    pub wanted: u32,
    /// How many are free.
    pub free: u32,
    /// The grants that hold too much of it; of many, the oldest.
    pub holders: Vec<RequestNo>,
    /// How many these are in all.
    pub holders_total: u32,
    /// The requests that are served earlier and want some of it; of many, the first.
    pub ahead: Vec<RequestNo>,
    /// How many these are in all, counted up to some thousands.
    pub ahead_total: u32,
    /// The units that are drained, without which it lacks something; of many, the first.
    pub drained: Vec<(Name, Drained)>,
}

/// The chain of waiting from a request to whoever it ends at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The request.
    pub request: RequestNo,
    /// Whether it is held already.
    pub held: bool,
    /// The request itself, then those it waits behind, in the order found.
    pub chain: Vec<WaitView>,
    /// The grants the chain ends at: all that would have to be released.
    pub release: Vec<GrantView>,
    /// Whether the chain comes back to itself, so that waiting will not end.
    pub circular: bool,
    /// How many of all these were found and are not shown, nor followed.
    pub left_out: u32,
    /// When it will probably be granted, if it waits. Older agents do not say it.
    #[serde(deserialize_with = "if_said")]
    pub outlook: Option<Outlook>,
    /// Where else it waits, if other cells guard a part of it. Older agents do not say it.
    #[serde(deserialize_with = "if_said")]
    pub elsewhere: Option<Elsewhere>,
}

/// What a request that waits has to do with other cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The id that other cells know it by, if they do.
    pub known_as: Vec<u8>,
    /// Each, and whether it has said that what it guards is held for the request.
    pub cells: Vec<(String, bool)>,
    /// Of the requests in the chain that were asked elsewhere, or wait elsewhere: which, at which cell, and the id that cells know them by.
    pub asked_at: Vec<(RequestNo, String, Vec<u8>)>,
}

/// When a request that waits will probably be granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// In these ranges of time.
    Expected(Expected),
    /// Nothing can be said, and why.
    Unknown(String),
}

/// When a request will probably be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The request.
    pub request: RequestNo,
    /// When this was worked out.
    pub made: u64,
    /// In half of the cases it is granted between these times: a quarter earlier, a quarter later.
    pub half: (u64, u64),
    /// In nine of ten cases.
    pub nine: (u64, u64),
}

/// What everybody who waits can expect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prospects {
    /// Of the first who wait, as far as it is worked out.
    pub expected: Vec<Expected>,
    /// Why nothing is said of others.
    pub unknown: String,
}

/// A part of the history of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Its lines, as they are kept (`docs/history.md`).
    pub text: String,
    /// Whether they are those of everybody, and not only the caller's own.
    pub all: bool,
    /// What follows on it, if something does.
    pub next: Option<HistoryPlace>,
}

/// A place in the history of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPlace {
    /// The file, by the time at which it was begun.
    pub file: u64,
    /// The byte of it.
    pub byte: u64,
}

/// About how many bytes a number, a length or a small field takes.
const SMALL: usize = 12;

impl Who {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        5 * SMALL + self.user.len() + self.host.len() + self.from.size()
    }
}

impl From {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let Self { command, name, reason } = self;
        command.len() + [name, reason].into_iter().flatten().map(String::len).sum::<usize>()
    }
}

impl Drained {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        3 * SMALL + self.reason.len() + self.by.len()
    }
}

impl PoolView {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let unit = |unit: &UnitView| {
            let drained = unit.drained.as_ref().map_or(0, Drained::size);
            unit.name.as_str().len() + SMALL + drained
        };
        let units: usize = self.units.iter().map(unit).sum();
        5 * SMALL + self.name.as_str().len() + units + self.holders.len() * SMALL
    }
}

impl GrantView {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let taken = |taken: &Taken| {
            let units = taken.units.iter().map(|(name, _)| name.as_str().len() + SMALL);
            taken.name.as_str().len() + units.sum::<usize>()
        };
        let taken: usize = self.taken.iter().map(taken).sum();
        (5 + self.parts.len()) * SMALL + needs_size(&self.needs) + taken + self.who.size()
    }
}

impl WaitView {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let hindrance = |hindrance: &Hindrance| {
            let named = hindrance.holders.len() + hindrance.ahead.len();
            let drained = hindrance.drained.iter().map(|(_, drained)| drained.size());
            need_size(&hindrance.need) + (named + 4) * SMALL + drained.sum::<usize>()
        };
        let hindrances: usize = self.hindrances.iter().map(hindrance).sum();
        5 * SMALL + needs_size(&self.needs) + self.who.size() + hindrances
    }
}

fn need_size(need: &Need) -> usize {
    need.name.as_str().len() + SMALL
}

/// About how many bytes needs take.
pub fn needs_size(needs: &[Need]) -> usize {
    needs.iter().map(need_size).sum()
}

/// About an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How often it was started in its data directory.
    pub epoch: u32,
    /// Since when it runs.
    pub since: u64,
    /// Where its files are.
    pub data: String,
    /// The protocol it runs.
    pub protocol: String,
    /// How many grants are held.
    pub grants: u32,
    /// How many requests wait.
    pub waiting: u32,
    /// How many pools are declared.
    pub pools: u32,
    /// About how many bytes requests and unread replies take.
    pub memory: u64,
    /// Whether it takes no more requests and ends when nothing is held.
    pub stopping: bool,
    /// Why commands do not run in cgroups, if they do not.
    pub no_cgroups: Option<String>,
    /// Who you are, as the agent sees it.
    pub you: Arc<str>,
    /// What you may do.
    pub your_rights: Vec<Right>,
    /// What users and groups may do: `everybody`, `user anna`, `group lab`.
    pub rights: Vec<(String, Vec<Right>)>,
    /// Whether a name that is not declared is a lock, made on first use.
    pub ephemeral: bool,
    /// What has to be over before anything is granted, if nothing is. Agents of version 5 do not say it.
    #[serde(deserialize_with = "if_said")]
    pub waits_for: Option<String>,
    /// Where HTTP is not served although it should be, and why. Older agents do not say it.
    #[serde(deserialize_with = "if_said")]
    pub no_http: Option<String>,
    /// What its clock says by which [`Until`](crate::Reply::Until) counts: clients on other machines have another. Older agents
    /// do not say it.
    #[serde(deserialize_with = "if_said")]
    pub boottime_millis: Option<u64>,
}

/// The last fields of a frame, which older programs do not say.
pub(crate) fn if_said<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(deserializer).unwrap_or_default())
}
