//! What there is to see, in JSON: the views of the wire, with fences as texts (they are larger than what
//! JavaScript can count to) and pairs as objects.

use holdall_wire as wire;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who asked for something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Who {
    /// The user's number.
    pub(crate) uid: u32,
    /// The user's name; that of a token is `token:NAME`.
    pub(crate) user: String,
    /// The machine.
    pub(crate) host: String,
    /// The process; 0 if it is on another machine.
    pub(crate) pid: u32,
    /// What the client said of itself.
    pub(crate) from: From,
}

/// What a client said of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct From {
    /// The command or program.
    pub(crate) command: String,
    /// A name for the request.
    pub(crate) name: Option<String>,
    /// The reason for it.
    pub(crate) reason: Option<String>,
}

impl std::convert::From<wire::Who> for Who {
    fn from(who: wire::Who) -> Self {
        let wire::From { command, name, reason } = who.from;
        Self {
            uid: who.uid,
            user: who.user.to_string(),
            host: who.host.to_string(),
            pid: who.pid,
            from: From { command, name, reason },
        }
    }
}

/// What is held of one pool or lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Taken {
    /// The pool or lock.
    pub(crate) name: String,
    /// Its units; for a lock, the lock itself.
    pub(crate) units: Vec<TakenUnit>,
}

/// A unit that is held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TakenUnit {
    /// Its name.
    pub(crate) name: String,
    /// A number that grows with every grant of this unit, in decimal digits.
    #[schema(pattern = "^[0-9]+$", example = "12884901905")]
    pub(crate) fence: String,
}

impl std::convert::From<&wire::Taken> for Taken {
    fn from(taken: &wire::Taken) -> Self {
        let unit = |(name, fence): &(wire::Name, u64)| TakenUnit {
            name: name.to_string(),
            fence: fence.to_string(),
        };
        Self { name: taken.name.to_string(), units: taken.units.iter().map(unit).collect() }
    }
}

/// Why a unit is given to nobody.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Drained {
    /// The reason.
    reason: String,
    /// Who has said so.
    by: String,
    /// Until when, in milliseconds since 1970; for good if nothing is said.
    until: Option<u64>,
}

impl std::convert::From<wire::Drained> for Drained {
    fn from(drained: wire::Drained) -> Self {
        let wire::Drained { reason, by, until } = drained;
        Self { reason: reason.to_string(), by: by.to_string(), until }
    }
}

/// A pool or a lock.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Pool {
    /// Its name.
    pub(crate) name: String,
    /// Whether it is a lock.
    lock: bool,
    /// Whether it was declared; otherwise it is forgotten when nobody wants it.
    declared: bool,
    /// Whether it is being removed, and stays only until its units come back.
    removed: bool,
    /// The units of a pool; none for a lock.
    units: Vec<Unit>,
    /// How many units are free and not drained; for a lock 1 if nobody has it.
    free: u32,
    /// The grants that hold some of it.
    holders: Vec<String>,
    /// How many requests wait for some of it.
    waiting: u32,
}

/// A unit of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Unit {
    /// Its name.
    name: String,
    /// The grant that holds it, if any.
    holder: Option<String>,
    /// Whether it goes away when it comes back.
    retiring: bool,
    /// Why it is given to nobody for now, if it is not.
    drained: Option<Drained>,
}

impl std::convert::From<wire::PoolView> for Pool {
    fn from(pool: wire::PoolView) -> Self {
        let unit = |unit: wire::UnitView| Unit {
            name: unit.name.to_string(),
            holder: unit.holder.map(|holder| holder.to_string()),
            retiring: unit.retiring,
            drained: unit.drained.map(Into::into),
        };
        Self {
            name: pool.name.to_string(),
            lock: pool.lock,
            declared: pool.declared,
            removed: pool.removed,
            units: pool.units.into_iter().map(unit).collect(),
            free: pool.free,
            holders: texts(&pool.holders),
            waiting: pool.waiting,
        }
    }
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Grant {
    /// Its number.
    #[schema(example = "3-17")]
    pub(crate) request: String,
    /// What was asked for.
    needs: Vec<String>,
    /// What is held.
    taken: Vec<Taken>,
    /// Who asked.
    who: Who,
    /// Since when it is held.
    since: u64,
    /// Until when, if that is limited.
    until: Option<u64>,
    /// How it stands.
    state: GrantState,
    /// The processes that use it, as far as they are known.
    pids: Vec<u32>,
    /// The grant that it uses a part of.
    part_of: Option<String>,
    /// The grants that use parts of it.
    parts: Vec<String>,
}

/// How it stands with a grant: in use, its processes stopped, waiting for them to end, or reserved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GrantState {
    Held,
    Stopped,
    Ending,
    Reserved,
}

impl std::convert::From<wire::GrantView> for Grant {
    fn from(grant: wire::GrantView) -> Self {
        Self {
            request: grant.request.to_string(),
            needs: texts(&grant.needs),
            taken: grant.taken.iter().map(Into::into).collect(),
            who: grant.who.into(),
            since: grant.since,
            until: grant.until,
            state: match grant.state {
                wire::State::Held => GrantState::Held,
                wire::State::Stopped => GrantState::Stopped,
                wire::State::Ending => GrantState::Ending,
                wire::State::Reserved => GrantState::Reserved,
            },
            pids: grant.pids,
            part_of: grant.part_of.map(|whole| whole.to_string()),
            parts: texts(&grant.parts),
        }
    }
}

/// A waiting request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Wait {
    /// Its number.
    pub(crate) request: String,
    /// What was asked for.
    needs: Vec<String>,
    /// Who asked.
    who: Who,
    /// Since when it waits.
    since: u64,
    /// The grant inside which it was asked.
    within: Option<String>,
    /// The grant that it wants a part of.
    part_of: Option<String>,
    /// What keeps it, one for each need that is lacking.
    pub(crate) hindrances: Vec<Hindrance>,
}

impl Wait {
    /// Whether it is the same but for what keeps it.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let Self { request, needs, who, since, within, part_of, hindrances: _ } = self;
        (request, needs, who) == (&other.request, &other.needs, &other.who)
            && (since, within, part_of) == (&other.since, &other.within, &other.part_of)
    }
}

impl std::convert::From<wire::WaitView> for Wait {
    fn from(wait: wire::WaitView) -> Self {
        Self {
            request: wait.request.to_string(),
            needs: texts(&wait.needs),
            who: wait.who.into(),
            since: wait.since,
            within: wait.within.map(|within| within.to_string()),
            part_of: wait.part_of.map(|whole| whole.to_string()),
            hindrances: wait.hindrances.into_iter().map(Into::into).collect(),
        }
    }
}

/// What keeps a request from one of its needs.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Hindrance {
    /// The need.
    need: String,
    /// How many units are wanted; for a lock 1.
    wanted: u32,
    /// How many are free.
    free: u32,
    /// The grants that hold too much of it; of many, the oldest.
    holders: Vec<String>,
    /// How many these are in all.
    holders_total: u32,
    /// The requests that are served earlier and want some of it; of many, the first.
    ahead: Vec<String>,
    /// How many these are in all, counted up to some thousands.
    ahead_total: u32,
    /// The units that are drained, without which it lacks something; of many, the first.
    drained: Vec<DrainedUnit>,
}

/// A unit that is given to nobody.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct DrainedUnit {
    /// Its name.
    name: String,
    /// Why.
    drained: Drained,
}

impl std::convert::From<wire::Hindrance> for Hindrance {
    fn from(it: wire::Hindrance) -> Self {
        let drained = |(name, drained): (wire::Name, wire::Drained)| DrainedUnit {
            name: name.to_string(),
            drained: drained.into(),
        };
        Self {
            need: it.need.to_string(),
            wanted: it.wanted,
            free: it.free,
            holders: texts(&it.holders),
            holders_total: it.holders_total,
            ahead: texts(&it.ahead),
            ahead_total: it.ahead_total,
            drained: it.drained.into_iter().map(drained).collect(),
        }
    }
}

/// Everything, or what concerns some names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Status {
    /// Pools and locks, by name.
    pub(crate) pools: Vec<Pool>,
    /// What is held, oldest first.
    pub(crate) grants: Vec<Grant>,
    /// What waits, in the order of service.
    pub(crate) waiting: Vec<Wait>,
}

impl std::convert::From<wire::Status> for Status {
    fn from(status: wire::Status) -> Self {
        Self {
            pools: status.pools.into_iter().map(Into::into).collect(),
            grants: status.grants.into_iter().map(Into::into).collect(),
            waiting: status.waiting.into_iter().map(Into::into).collect(),
        }
    }
}

/// The chain of waiting from a request to whoever it ends at.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Explanation {
    /// The request.
    request: String,
    /// Whether it is held already.
    held: bool,
    /// The request itself, then those it waits behind, in the order found.
    chain: Vec<Wait>,
    /// The grants the chain ends at: all that would have to be released.
    release: Vec<Grant>,
    /// Whether the chain comes back to itself, so that waiting will not end.
    circular: bool,
    /// How many of all these were found and are not shown, nor followed.
    left_out: u32,
    /// When it will probably be granted, if it waits.
    outlook: Option<Outlook>,
}

/// When a request that waits will probably be granted. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Outlook {
    /// When this was worked out.
    made: Option<u64>,
    /// In half of the cases it is granted between these times.
    half: Option<[u64; 2]>,
    /// In nine of ten cases.
    nine: Option<[u64; 2]>,
    /// Why nothing can be said, if nothing can.
    unknown: Option<String>,
}

impl std::convert::From<wire::Outlook> for Outlook {
    fn from(it: wire::Outlook) -> Self {
        match it {
            wire::Outlook::Expected(wire::Expected { made, half, nine, .. }) => Self {
                made: Some(made),
                half: Some(half.into()),
                nine: Some(nine.into()),
                unknown: None,
            },
            wire::Outlook::Unknown(why) => Self { unknown: Some(why), ..Self::default() },
        }
    }
}

impl std::convert::From<wire::Explanation> for Explanation {
    fn from(it: wire::Explanation) -> Self {
        Self {
            request: it.request.to_string(),
            held: it.held,
            chain: it.chain.into_iter().map(Into::into).collect(),
            release: it.release.into_iter().map(Into::into).collect(),
            circular: it.circular,
            left_out: it.left_out,
            outlook: it.outlook.map(Into::into),
        }
    }
}

/// About an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Agent {
    /// Its version.
    version: String,
    /// Its process.
    pid: u32,
    /// How often it was started in its data directory.
    epoch: u32,
    /// Since when it runs.
    since: u64,
    /// Where its files are.
    data: String,
    /// The protocol it runs.
    protocol: String,
    /// How many grants are held.
    grants: u32,
    /// How many requests wait.
    waiting: u32,
    /// How many pools are declared.
    pools: u32,
    /// About how many bytes requests and unread replies take.
    memory: u64,
    /// Whether it takes no more requests and ends when nothing is held.
    stopping: bool,
    /// Why commands do not run in cgroups, if they do not.
    no_cgroups: Option<String>,
    /// Who you are, as the agent sees it.
    pub(crate) you: String,
    /// What you may do.
    pub(crate) your_rights: Vec<Right>,
    /// What users and groups may do.
    rights: Vec<Rights>,
    /// Whether a name that is not declared is a lock, made on first use.
    ephemeral: bool,
    /// What has to be over before anything is granted, if nothing is.
    waits_for: Option<String>,
    /// Where HTTP is not served although it should be, and why.
    no_http: Option<String>,
}

impl Agent {
    /// Whether you have a right.
    pub(crate) fn may(&self, right: wire::Right) -> bool {
        self.your_rights.contains(&right.into())
    }
}

/// A right that an agent gives to users, groups and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    View,
    Ask,
    Reserve,
    Pools,
    Force,
    Admin,
}

impl std::convert::From<wire::Right> for Right {
    fn from(right: wire::Right) -> Self {
        match right {
            wire::Right::View => Self::View,
            wire::Right::Ask => Self::Ask,
            wire::Right::Reserve => Self::Reserve,
            wire::Right::Pools => Self::Pools,
            wire::Right::Force => Self::Force,
            wire::Right::Admin => Self::Admin,
        }
    }
}

/// What somebody may do.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Rights {
    /// `everybody`, `user anna`, `group lab`.
    whom: String,
    /// What they may do.
    may: Vec<Right>,
}

impl std::convert::From<wire::AgentView> for Agent {
    fn from(agent: wire::AgentView) -> Self {
        let rights = |list: Vec<wire::Right>| list.into_iter().map(Into::into).collect();
        Self {
            version: agent.version,
            pid: agent.pid,
            epoch: agent.epoch,
            since: agent.since,
            data: agent.data,
            protocol: agent.protocol,
            grants: agent.grants,
            waiting: agent.waiting,
            pools: agent.pools,
            memory: agent.memory,
            stopping: agent.stopping,
            no_cgroups: agent.no_cgroups,
            you: agent.you.to_string(),
            your_rights: rights(agent.your_rights),
            rights: agent
                .rights
                .into_iter()
                .map(|(whom, may)| Rights { whom, may: rights(may) })
                .collect(),
            ephemeral: agent.ephemeral,
            waits_for: agent.waits_for,
            no_http: agent.no_http,
        }
    }
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
