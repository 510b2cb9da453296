//! Cells that outlive their machine, as a host of them knows them.
//!
//! A replicated cell guards what hangs on no machine, and is nobody's home: clients keep that of their own machine, and reach
//! it over the links between cells, as any other one. Each of its hosts runs it as an agent of its own, a child of the
//! machine's agent with a directory below that one's. The child stands by until it is elected, goes on from the log in
//! etcd, and ends when it is deposed; then it is started again, and stands by. All children have the name and the id
//! of the cell, and each a key and a certificate of its own.
//!
//! | in `cells/NAME` | what |
//! |---|---|
//! | `hosted.json` | where the log is, who hosts it |
//! | `cluster` | the certificate, the members, where it listens ([`crate::cluster`]) |
//! | `standing.json` | how it stands, for people |
//! | `seen.json` | what this host has seen of the log: less than that is a backup |
//!
//! # Invariants
//! - A child whose agent has ended ends, too: it holds the end of a pipe. So nobody hosts a cell that no agent looks after.
//! - What a child tells rests on records that are committed, and leaves only as long as nobody else can lead (`service/host.rs`).
//! - Nobody asks a replicated cell for something but other cells: a process that it would have to watch may be on a machine that is gone.

pub(crate) mod children;
pub(crate) mod prepared;
pub(crate) mod stand_by;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use holdall_links::token::JoinToken;
use holdall_links::{Cell, CellId, Home};
use holdall_wire::{BEING_STARTED, HostCell, HostedView};
use serde::{Deserialize, Serialize};

use crate::cluster;
use crate::directory::Directory;

/// The directory with those of the cells that are hosted.
const CELLS: &str = "cells";
const HOSTED: &str = "hosted.json";
const STANDING: &str = "standing.json";
const SEEN: &str = "seen.json";
/// After how long a host counts as not there that stands by and does not say so.
const SILENT: Duration = Duration::from_secs(5);
/// What the directory of a cell that was removed is called: its name, this, and a number. No cell is called like this.
const AWAY: &str = ".removed.";

/// A replicated cell that is hosted here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosted {
    /// Its name.
    pub(crate) name: String,
    /// Where its log is.
    pub(crate) store: String,
    /// The member that hosts it here.
    pub(crate) host: String,
    /// All of these.
    pub(crate) hosts: Vec<String>,
    /// Where others reach it when it leads.
    pub(crate) advertise: Vec<String>,
}

/// How it stands with a replicated cell here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub(crate) leads: bool,
    /// Who leads, as far as is known.
    pub(crate) leader: Option<String>,
    pub(crate) epoch: u32,
    pub(crate) records: u64,
    /// What is wrong, for people.
    pub(crate) trouble: Option<String>,
    /// Since when, in milliseconds since 1970, if that is known.
    #[serde(default)]
    pub(crate) troubled_since: Option<u64>,
}

/// What this host has seen of a log, in which life of the cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sighting {
    /// In hexadecimal digits.
    pub(crate) life: String,
    pub(crate) epoch: u32,
    /// The number of the next record.
    pub(crate) next: u64,
}

impl Hosted {
    /// The cell whose directory this is.
    ///
    /// # Errors
    /// If it is none, or damaged.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(HOSTED);
        let text = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Where others reach it here.
    pub fn advertise(&self) -> Vec<String> {
        self.advertise.clone()
    }

    fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        Ok(Directory::private(dir)?.replace(HOSTED, &text)?)
    }

    /// How it stands, for people.
    pub(crate) fn view(&self, standing: Standing) -> HostedView {
        let Standing { leads, leader, epoch, records, trouble, troubled_since } = standing;
        let span = |since: u64| Duration::from_millis(wall().saturating_sub(since));
        let lasting = troubled_since.map(|since| lasting(span(since))).unwrap_or_default();
        let trouble = trouble.map(|why| format!("{why}{lasting}"));
        let Self { name, store, host, hosts, .. } = self.clone();
        HostedView { name, host, store, hosts, leads, leader, epoch, records, trouble }
    }
}

impl Standing {
    /// Notes how it stands.
    pub(crate) fn note(&self, dir: &Directory) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        if let Err(error) = dir.rewrite(STANDING, &text) {
            tracing::warn!("how it stands is not noted: {error}");
        }
    }

    fn read(dir: &Path) -> Option<Self> {
        let path = dir.join(STANDING);
        let mut standing: Self = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        // Whoever stands by says so each second; whoever leads, when there is news.
        let silent = path.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
        if !standing.leads && silent > SILENT {
            let why = || format!("its process has not been heard of for {} s", silent.as_secs());
            standing.trouble.get_or_insert_with(why);
        }
        Some(standing)
    }
}

impl Sighting {
    /// Notes what was seen: if it is lost, a backup that is put back is not known as one by this host.
    pub(crate) fn note(&self, dir: &Directory) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        if let Err(error) = dir.rewrite(SEEN, &text) {
            tracing::warn!("what was seen of the log is not noted: {error}");
        }
    }

    /// It is not synced: what a loss of power has left of it may be nothing.
    fn read(dir: &Directory) -> anyhow::Result<Self> {
        let kept = dir.read(SEEN)?.unwrap_or_default();
        let told = serde_json::from_slice(&kept);
        if let (Err(error), false) = (&told, kept.is_empty()) {
            tracing::warn!("{} is damaged, and passed over: {error}", dir.path_of(SEEN).display());
        }
        Ok(told.unwrap_or_default())
    }
}

/// The time of the machine, in milliseconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// For how long something has been wrong.
pub(crate) fn lasting(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!(" (for {seconds} s)"),
        seconds => format!(" (for {} min)", seconds / 60),
    }
}

/// The directory of the cells that the agent with this one hosts.
fn cells(data: &Path) -> PathBuf {
    data.join(CELLS)
}

/// The cells that the agent with this directory hosts, each with its own.
pub(crate) fn all(data: &Path) -> Vec<(PathBuf, Hosted)> {
    let Ok(entries) = std::fs::read_dir(cells(data)) else { return Vec::new() };
    let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut all: Vec<_> = dirs
        .filter(|dir| dir.join(HOSTED).exists() && !is_away(dir))
        .filter_map(|dir| match Hosted::read(&dir) {
            Ok(hosted) => Some((dir, hosted)),
            Err(error) => {
                tracing::error!("a cell is not hosted: {error:#}");
                None
            }
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Those of them that are one of these cells: the directory, and the name.
pub(crate) fn all_of(data: &Path, cells: &[CellId]) -> Vec<(PathBuf, String)> {
    let is_one = |dir: &Path| {
        let home = Home::open(&cluster::directory(dir));
        home.is_ok_and(|home| cells.contains(&home.cell().id))
    };
    let all = all(data).into_iter().filter(|(dir, _)| is_one(dir));
    all.map(|(dir, hosted)| (dir, hosted.name)).collect()
}

/// Nothing is hosted in a directory any more: another cell may get its name. Says what it is called now.
pub(crate) fn put_away(dir: &Path) -> std::io::Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let away = |number: u32| dir.with_file_name(format!("{name}{AWAY}{number}"));
    let away = (1..).map(away).find(|away| !away.exists()).unwrap_or_else(|| away(0));
    // With that it is done: whatever else is there is passed over, and deleted when its child has ended.
    std::fs::rename(dir, &away)?;
    Ok(away)
}

/// Whether something was hosted in a directory, and is no more.
fn is_away(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name.to_string_lossy().contains(AWAY))
}

/// Of a cell that was hosted, what people did stays written down; its keys and all else is deleted.
pub(crate) fn clear(away: &Path) {
    let Ok(entries) = std::fs::read_dir(away) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let gone = match entry.file_type() {
            _ if entry.file_name().to_string_lossy().starts_with("audit") => continue,
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
            _ => std::fs::remove_file(&path),
        };
        if let Err(error) = gone {
            tracing::warn!("{} is left: {error}", path.display());
        }
    }
}

/// How it stands with all of these.
pub(crate) fn views(data: &Path) -> Vec<HostedView> {
    let view = |(dir, hosted): (PathBuf, Hosted)| {
        let unknown = || Standing { trouble: Some(BEING_STARTED.into()), ..Standing::default() };
        hosted.view(Standing::read(&dir).unwrap_or_else(unknown))
    };
    all(data).into_iter().map(view).collect()
}

/// Another member may say what is hosted here. It must not lead this machine to strangers, nor have it show them what is its own.
fn check_trust(data: &Path, dir: &Path, what: &HostCell) -> anyhow::Result<()> {
    let token: JoinToken = what.token.parse()?;
    let own = Home::open(&cluster::directory(data))?;
    anyhow::ensure!(own.pin() == token.pin(), "the token is of another cluster");
    let address = holdall_log::etcd::Address::parse(&what.store)?;
    let tls = address.tls.iter().flat_map(|tls| {
        let own = tls.own.iter().flat_map(|(certificate, key)| [certificate, key]);
        own.chain([&tls.ca])
    });
    let data = data.canonicalize()?;
    for file in tls.chain(address.user.iter().map(|(_, file)| file)) {
        let real = file.canonicalize().with_context(|| format!("{}", file.display()))?;
        let is_own = real.starts_with(&data);
        anyhow::ensure!(!is_own, "{} is the agent's own, and for no etcd", file.display());
    }
    if !dir.join(HOSTED).exists() {
        return Ok(());
    }
    let (before, cell) = (Hosted::read(dir)?, Home::open(&cluster::directory(dir))?);
    let is_same = before.store == what.store && cell.cell().id.to_string() == what.id;
    anyhow::ensure!(is_same, "another cell of this name is hosted here, at {}", before.store);
    Ok(())
}

/// Makes the member `host`, whose agent has this directory and is reached at these addresses, a host of a replicated cell: it
/// gets a certificate for it.
///
/// # Errors
/// If what is said of the cell makes no sense, or it is not let in.
pub(crate) async fn host(
    data: &Path,
    host: &str,
    listens: &str,
    addresses: &[String],
    what: &HostCell,
) -> anyhow::Result<()> {
    let id: CellId = what.id.parse()?;
    let cell = Cell { id, name: what.name.parse()? };
    anyhow::ensure!(what.hosts.iter().any(|one| one == host), "{host} is none of its hosts");
    let dir = cells(data).join(&what.name);
    check_trust(data, &dir, what)?;
    Directory::private(data)?;
    Directory::private(&cells(data))?;
    Directory::private(&dir)?;
    let (listens, advertise) = cluster::join_as(&dir, &cell, listens, addresses, what).await?;
    tracing::info!(cell = %cell, at = listens, "hosted here from now on");
    let (name, store, hosts) = (what.name.clone(), what.store.clone(), what.hosts.clone());
    Hosted { name, store, host: host.into(), hosts, advertise }.write(&dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is in the way of deleting what is there, its child is ended, and it is put away once.
    #[test]
    fn what_is_put_away_is_hosted_no_more() {
        let data = tempfile::tempdir().expect("a directory");
        let dir = cells(data.path()).join("licences");
        std::fs::create_dir_all(&dir).expect("made");
        let hosted = Hosted {
            name: "licences".into(),
            store: "etcd://nowhere:1".into(),
            host: "lab1".into(),
            hosts: vec!["lab1".into()],
            advertise: Vec::new(),
        };
        hosted.write(&dir).expect("written");
        assert_eq!(all(data.path()), [(dir.clone(), hosted.clone())]);
        let away = put_away(&dir).expect("put away");
        assert!(away.ends_with("licences.removed.1") && !dir.exists());
        assert!(all(data.path()).is_empty(), "nobody starts it again");

        // No file that could be deleted.
        std::fs::create_dir_all(dir.join(HOSTED)).expect("made");
        let second = put_away(&dir).expect("put away");
        assert!(second.ends_with("licences.removed.2") && all(data.path()).is_empty());
        hosted.write(&dir).expect("another cell has the name");
        clear(&away);
        clear(&second);
        let left = |dir: &Path| std::fs::read_dir(dir).expect("it is there").count();
        assert_eq!((left(&away), left(&second)), (0, 0));
        assert_eq!(all(data.path()), [(dir, hosted)]);
    }
}
