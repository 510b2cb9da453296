//! The configuration file: pools, limits, and how the agent behaves.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use holdall_cell::engine::{Effect, Engine, Input};
use holdall_cell::lease::Terms;
use holdall_wire::{Change, Kind, Name, Taken};
use serde::Deserialize;

use crate::history::Config as History;
use crate::rights::{Listed, Table};
use crate::service::{Served, SnapshotEvery};
use crate::socket::Access;

/// What a configuration file may say. Everything has a default.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether a name that is no pool is a lock, made on first use.
    pub ephemeral: bool,
    /// Who may connect: the mode of the socket, as `chmod` writes it. The owner alone if nothing
    /// is said.
    pub socket_mode: Option<String>,
    /// The group of the socket, by name.
    pub socket_group: Option<String>,
    /// Whether commands run in cgroups where that can be done.
    pub cgroups: bool,
    /// What is on disk before anybody is told of it: what outlives the agent (`written`), or also the
    /// machine (`sync`). Reservations and changes of pools always do.
    pub durability: Durability,
    /// After so many records, or bytes of them, a snapshot takes the place of the log so far.
    pub snapshot_records: u64,
    /// Bytes.
    pub snapshot_bytes: u64,
    /// For how long nothing is granted after the log was lost while the machine runs: the time that former
    /// clients have to come back.
    pub forgotten: String,
    /// HTTP over TCP.
    pub http: holdall_http::Config,
    /// Who may do what.
    pub rights: Listed,
    /// What one user may have at a time.
    pub limits: Limits,
    /// The pools, by name.
    pub pools: BTreeMap<String, Pool>,
    /// How large the audit log gets before it is rotated, in bytes.
    pub audit_bytes: u64,
    /// How many old audit logs are kept.
    pub audit_files: u32,
    /// What is kept of what was asked for, granted and used.
    pub history: History,
    /// How it is a member of a cluster, if it is one.
    pub cluster: Cluster,
    /// Names of what other cells guard, as they are called here.
    pub names: BTreeMap<Name, Name>,
}

/// How an agent is a member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// The address to listen at, instead of the one that it was made a member with.
    pub listen: Option<String>,
    /// Where others reach it, if that is not where it listens.
    pub advertise: Vec<String>,
    /// How long what other cells guard may be used without hearing of them; the same everywhere.
    pub lease_seconds: u64,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { listen: None, advertise: Vec::new(), lease_seconds: 60 }
    }
}

impl Cluster {
    /// The terms of its leases.
    pub(crate) fn terms(&self) -> Terms {
        let lease = self.lease_seconds.saturating_mul(1000);
        Terms { lease, grace: lease / 6, stopping: lease / 4, suspicion: lease / 60 * 25 }
    }

    fn check(&self) -> anyhow::Result<()> {
        let sensible = (LEASE_MIN..=LEASE_MAX).contains(&self.lease_seconds);
        anyhow::ensure!(
            sensible,
            "cluster.lease_seconds is {}; it is between {LEASE_MIN} and {LEASE_MAX}",
            self.lease_seconds
        );
        Ok(())
    }
}

/// The shortest lease in seconds: what is shorter is over before anybody has stopped.
const LEASE_MIN: u64 = 4;
/// And the longest.
const LEASE_MAX: u64 = 86_400;

impl Default for Config {
    fn default() -> Self {
        Self {
            ephemeral: true,
            socket_mode: None,
            socket_group: None,
            cgroups: true,
            durability: Durability::default(),
            snapshot_records: 50_000,
            snapshot_bytes: 8 << 20,
            forgotten: "10s".into(),
            http: holdall_http::Config::default(),
            rights: Listed::default(),
            limits: Limits::default(),
            pools: BTreeMap::new(),
            audit_bytes: 16 << 20,
            audit_files: 4,
            history: History::default(),
            cluster: Cluster::default(),
            names: BTreeMap::new(),
        }
    }
}

/// When somebody may be told of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it outlives the agent.
    #[default]
    Written,
    /// When it outlives the machine.
    Sync,
}

/// What one user may have at a time. Of memory nobody has more than is left over, of open files twice that.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections of one user.
    pub connections: usize,
    /// Requests on one connection, waiting and granted.
    pub requests: usize,
    /// Requests of one user that wait.
    pub waiting: usize,
    /// Sessions of one user: programs that ask, connected or not.
    pub sessions: usize,
    /// How many hours a program may be away whose process the agent cannot see.
    pub lease_hours: u64,
    /// Reservations of one user.
    pub reservations: usize,
    /// How many hours ahead somebody may reserve.
    pub reservation_hours: u64,
    /// How many minutes a command may outlast the reservation that it uses a part of.
    pub overtime_minutes: u64,
    /// Bytes of replies that one client has not read.
    pub unread_bytes: usize,
    /// Bytes of requests and unread replies of all users.
    pub memory_bytes: usize,
    /// Units of all pools.
    pub units: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            requests: 4096,
            waiting: 1 << 17,
            sessions: 8192,
            lease_hours: 24,
            reservations: 1024,
            reservation_hours: 366 * 24,
            overtime_minutes: 60,
            unread_bytes: 64 << 20,
            memory_bytes: 1 << 30,
            units: 1 << 20,
        }
    }
}

impl Limits {
    /// With less than this nobody could be served.
    fn check(&self) -> anyhow::Result<()> {
        let least = [
            ("connections", self.connections, 1),
            ("requests", self.requests, 1),
            ("unread_bytes", self.unread_bytes, 1 << 16),
            ("memory_bytes", self.memory_bytes, 1 << 20),
        ];
        for (name, given, least) in least {
            anyhow::ensure!(given >= least, "limits.{name} is {given}; it is {least} at least");
        }
        Ok(())
    }
}

/// A pool: a number of units, units by name, or a lock.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    units: Option<Units>,
    #[serde(default)]
    lock: bool,
    /// The variable that tells a command its units, without their pool.
    export: Option<String>,
    /// What stands between them.
    separator: Option<String>,
    /// How long anybody may have some of it.
    limit: Option<String>,
    /// What becomes of what another cell holds of it that is not heard of.
    #[serde(default)]
    pub(crate) on_partition: OnPartition,
}

/// What becomes of what another cell holds that is not heard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnPartition {
    /// It stops using it in time, and then it is given to others.
    #[default]
    Stop,
    /// It stays with it until it is back or forgotten.
    Wait,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Units {
    Numbered(u32),
    Named(Vec<Name>),
    /// With the variables that a command finds which has got a unit.
    Described(BTreeMap<Name, BTreeMap<String, String>>),
}

impl Pool {
    /// How many milliseconds anybody may have some of it.
    pub(crate) fn limit(&self) -> Option<u64> {
        let limit = holdall_wire::span(self.limit.as_deref()?).ok()?;
        Some(limit.as_millis() as u64)
    }

    /// What a command shall find in its environment that has got these units of the pool: for each variable
    /// the values of the units in their order.
    pub(crate) fn variables(&self, taken: &Taken) -> Vec<(String, String)> {
        let separator = self.separator.as_deref().unwrap_or(",");
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (unit, _) in &taken.units {
            let own = unit.as_str().strip_prefix(taken.name.as_str());
            let own = own.and_then(|rest| rest.strip_prefix('/')).unwrap_or(unit.as_str());
            if let Some(export) = &self.export {
                values.entry(export).or_default().push(own);
            }
            if let Some(Units::Described(units)) = &self.units {
                for (variable, value) in units.get(unit).into_iter().flatten() {
                    values.entry(variable).or_default().push(value);
                }
            }
        }
        values.into_iter().map(|(name, all)| (name.to_owned(), all.join(separator))).collect()
    }

    /// Whether variables and times are such.
    fn check(&self) -> anyhow::Result<()> {
        let described = match &self.units {
            Some(Units::Described(units)) => units.values().flat_map(BTreeMap::keys).collect(),
            _ => Vec::new(),
        };
        for variable in described.into_iter().chain(&self.export) {
            let mut letters = variable.bytes();
            let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
            let fine = first && letters.all(|c| c.is_ascii_alphanumeric() || c == b'_');
            anyhow::ensure!(fine, "'{variable}' is no name of a variable");
            anyhow::ensure!(
                !variable.starts_with("HOLDALL_"),
                "'{variable}': variables that begin with HOLDALL_ are holdall's own"
            );
        }
        if let Some(Units::Described(units)) = &self.units {
            let mut values = units.values().flatten();
            let unfit = values.find(|(_, value)| value.contains('\0'));
            anyhow::ensure!(unfit.is_none(), "a variable cannot have a NUL in it: {unfit:?}");
        }
        if let Some(limit) = &self.limit {
            let limit = holdall_wire::span(limit).map_err(anyhow::Error::msg)?;
            anyhow::ensure!(!limit.is_zero(), "a limit of no time lets nobody have anything");
        }
        Ok(())
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or says something unknown.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    /// Reads what is in a file.
    ///
    /// # Errors
    /// If it says something unknown, or nothing that an agent could do anything with.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let config = toml::from_str::<Self>(text)
            .map_err(|error| anyhow::anyhow!("{}", error.to_string().replace('\n', "; ")))?;
        config.check()?;
        Ok(config)
    }

    /// Whether an agent could do anything with it.
    fn check(&self) -> anyhow::Result<()> {
        self.access()?;
        self.limits.check()?;
        self.history.check()?;
        self.cluster.check()?;
        for (name, meant) in &self.names {
            let is_bare = name.cell().is_none() && !name.as_str().contains('/');
            anyhow::ensure!(is_bare, "names: '{name}' is no name of its own");
            anyhow::ensure!(
                meant.cell().is_some(),
                "names: '{meant}' names no cell, as 'maya@licences' does"
            );
            let is_pool = self.pools.contains_key(name.as_str());
            anyhow::ensure!(!is_pool, "names: '{name}' is a pool, too");
        }
        self.forgotten()?;
        Table::new(&self.rights)?;
        for (name, pool) in &self.pools {
            pool.check().with_context(|| format!("pool '{name}'"))?;
        }
        // An engine without pools takes those of a sensible configuration, and knows why if not.
        let mut engine = Engine::<Served>::new(None, 0, false)?;
        for change in self.pools()? {
            for effect in engine.step(0, Input::Change(change.clone()))? {
                if let Effect::Changed(Err(wrong)) = effect {
                    bail!("{wrong}");
                }
            }
        }
        Ok(())
    }

    /// When snapshots are made.
    pub(crate) fn snapshots(&self) -> SnapshotEvery {
        SnapshotEvery { records: self.snapshot_records.max(1), bytes: self.snapshot_bytes.max(1) }
    }

    /// The pools of which other cells keep what they hold when they are not heard of.
    pub(crate) fn waits(&self) -> Vec<Name> {
        let waits = self.pools.iter().filter(|(_, pool)| pool.on_partition == OnPartition::Wait);
        waits.filter_map(|(name, _)| name.parse().ok()).collect()
    }

    /// What a name means: that of something another cell guards may have another one here.
    pub(crate) fn meant(&self, name: &Name) -> Option<Name> {
        if self.names.is_empty() || name.cell().is_some() {
            return None;
        }
        let (pool, unit) = match name.as_str().split_once('/') {
            Some((pool, unit)) => (pool, Some(unit)),
            None => (name.as_str(), None),
        };
        let meant = self.names.get(pool)?;
        match unit {
            None => Some(meant.clone()),
            Some(unit) => format!("{}/{unit}@{}", meant.here(), meant.cell()?).parse().ok(),
        }
    }

    /// For how long nothing is granted after the log was lost while the machine runs.
    pub(crate) fn forgotten(&self) -> anyhow::Result<Duration> {
        holdall_wire::span(&self.forgotten).map_err(|bad| anyhow::anyhow!("forgotten: {bad}"))
    }

    /// The pools, as changes that add them.
    ///
    /// # Errors
    /// If a name is none, or a pool is neither units nor a lock.
    pub fn pools(&self) -> anyhow::Result<Vec<Change>> {
        let pools = self.pools.iter().map(|(name, pool)| {
            let kind = match (&pool.units, pool.lock) {
                (Some(Units::Numbered(n)), false) => Kind::Numbered(*n),
                (Some(Units::Named(names)), false) => Kind::Named(names.clone()),
                (Some(Units::Described(units)), false) => {
                    Kind::Named(units.keys().cloned().collect())
                }
                (None, true) => Kind::Lock,
                _ => bail!("pool '{name}' has either units = N, units = [names] or lock = true"),
            };
            Ok(Change::Add { name: name.parse()?, kind })
        });
        pools.collect()
    }

    /// Who may connect.
    ///
    /// # Errors
    /// If the mode is no octal number, or there is no such group.
    pub(crate) fn access(&self) -> anyhow::Result<Access> {
        let text = self.socket_mode.as_deref().unwrap_or("0600");
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.filter(|mode| mode & 0o200 != 0).with_context(|| {
            format!("socket_mode '{text}' is no mode like 0660, with which its owner may connect")
        })?;
        let group = self.socket_group.as_deref().map(|name| {
            let group = nix::unistd::Group::from_name(name).ok().flatten();
            group.map(|group| group.gid.as_raw()).with_context(|| {
                format!("there is no group '{name}' for the socket; `groupadd --system {name}`")
            })
        });
        Ok(Access { mode, group: group.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_or_refused_with_a_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("holdall.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("writable");
            Config::read(&path)
        };
        let config = read(
            "ephemeral = false\n[pools.gpu]\nunits = 2\n[pools.seat]\nunits = ['a', 'b']\n\
             [pools.db]\nlock = true\n[limits]\nrequests = 3\n",
        )
        .expect("sensible");
        assert_eq!(config.pools().expect("pools").len(), 3);
        assert_eq!(config.limits.requests, 3);
        let described = "[pools.board.units.red]\nSERIAL = '/dev/ttyUSB0'\n[pools.board.units.blue]\n\
                         [pools.gpu]\nunits = 4\nexport = 'CUDA'\nlimit = '2h'\nseparator = ';'";
        let config = read(described).expect("sensible");
        let taken = |pool: &str, units: &[&str]| Taken {
            name: pool.parse().expect("a name"),
            units: units.iter().map(|unit| (unit.parse().expect("a name"), 1)).collect(),
        };
        let variable = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let gpu = config.pools["gpu"].variables(&taken("gpu", &["gpu/1", "gpu/3"]));
        assert_eq!(gpu, variable("CUDA", "1;3"));
        assert_eq!(config.pools["gpu"].limit(), Some(7_200_000));
        let board = config.pools["board"].variables(&taken("board", &["blue", "red"]));
        assert_eq!(board, variable("SERIAL", "/dev/ttyUSB0"));
        let clustered = "[cluster]\nlease_seconds = 12\n[names]\nmaya = 'seats@licences'\n[pools.a]\nunits = 1\n\
                         on_partition = 'wait'";
        let config = read(clustered).expect("sensible");
        let name = |text: &str| text.parse::<Name>().expect("a name");
        assert_eq!(config.meant(&name("maya")), Some(name("seats@licences")));
        assert_eq!(config.meant(&name("maya/3")), Some(name("seats/3@licences")));
        assert_eq!(config.meant(&name("maya@lab1")), None);
        assert_eq!(config.meant(&name("mayas")), None);
        assert_eq!(config.waits(), [name("a")]);
        let Terms { lease, grace, stopping, suspicion } = config.cluster.terms();
        assert_eq!((lease, grace, stopping, suspicion), (12_000, 2000, 3000, 5000));
        for bad in [
            "[pools.gpu]",
            "[pools.gpu]\nunits = 1\nexport = '1X'",
            "[pools.gpu]\nunits = 1\nexport = 'HOLDALL_GRANT'",
            "[pools.gpu]\nunits = 1\nlimit = 'soon'",
            "[rights]\neverybody = ['fly']",
            "[rights.users]\n'no such user' = ['view']",
            "colour = 1",
            "[pools.'a b']\nunits = 1",
            "[pools.a]\nunits = ['b/0']\n[pools.b]\nunits = 1",
            "[pools.a]\nunits = ['b']\n[pools.b]\nlock = true",
            "[pools.a]\nunits = ['x', 'x']",
            "[pools.a]\nunits = 0",
            "[limits]\nunread_bytes = 0",
            "[limits]\nconnections = 0",
            "socket_mode = '9'",
            "socket_mode = '0066'",
            "socket_group = 'no such'",
            "[cluster]\nlease_seconds = 1",
            "[names]\nmaya = 'maya'",
            "[names]\n'a/b' = 'maya@licences'",
            "[names]\nmaya = 'maya@licences'\n[pools.maya]\nunits = 1",
            "[pools.a]\nunits = 1\non_partition = 'fly'",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
