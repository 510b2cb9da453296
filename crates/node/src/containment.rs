//! How the processes of grants are kept together: in cgroups, where we may make some.

use std::collections::BTreeSet;

use holdall_holders::{Cgroup, Cgroups, Holder, Record, boot};
use holdall_wire::{Place, RequestNo, Who};
use tracing::{info, warn};

use crate::directory::Directory;

/// What there is to keep processes together.
#[derive(Debug)]
pub(crate) struct Containment {
    cgroups: Option<Cgroups>,
    /// Why they are not used, if they are not.
    why_not: Option<String>,
    /// How the names of its cgroups begin: no other data directory has the same.
    prefix: String,
}

impl Containment {
    /// Looks for cgroups for the agent of a data directory and tries them out, unless they are not
    /// wanted.
    pub(crate) fn find(wanted: bool, dir: &Directory) -> Self {
        let prefix =
            dir.identity().map_or_else(|_| "0".into(), |(dev, ino)| format!("{dev:x}.{ino:x}"));
        let found = Cgroups::find();
        let why_not = match &found {
            _ if !wanted => Some("the configuration says cgroups = false".to_owned()),
            Ok(cgroups) => {
                cgroups.trial(&format!("{prefix}-trial")).err().map(|why| why.to_string())
            }
            Err(why) => Some(why.to_string()),
        };
        let cgroups = found.ok();
        match (&why_not, &cgroups) {
            (None, Some(cgroups)) => info!(at = %cgroups.mount().display(), "grants have cgroups"),
            (why, _) => warn!("grants have no cgroups: {}", why.as_deref().unwrap_or_default()),
        }
        Self { cgroups, why_not, prefix }
    }

    /// Removes the empty cgroups that killed agents of this directory have left, but for those in which
    /// a command may start yet.
    pub(crate) fn sweep(&self, holders: &[Record]) {
        let used: BTreeSet<_> = holders
            .iter()
            .filter_map(|holder| Some(holder.cgroup.as_ref()?.path.as_str()))
            .collect();
        let prefix = format!("{}-", self.prefix);
        let all = self.cgroups.as_ref();
        let swept = all.map_or(0, |all| all.sweep(&prefix, |path| used.contains(path)));
        if swept > 0 {
            info!(swept, "empty cgroups of former agents are removed");
        }
    }

    /// Why grants have no cgroups, if they have none.
    pub(crate) fn why_not(&self) -> Option<&String> {
        self.why_not.as_ref()
    }

    /// A cgroup for a grant, below that of its client.
    pub(crate) fn cgroup(&self, request: RequestNo, who: &Who) -> Option<Cgroup> {
        let cgroups = self.cgroups.as_ref().filter(|_| self.why_not.is_none() && who.pid > 0)?;
        let parent = cgroups.of(who.pid)?;
        let name = format!("{}-{request}", self.prefix);
        match cgroups.make(&parent, &name) {
            Ok(cgroup) => Some(cgroup),
            Err(error) => {
                warn!(%request, parent, "no cgroup for this grant: {error}");
                None
            }
        }
    }

    /// Where a client finds a cgroup.
    pub(crate) fn place(&self, cgroup: &Cgroup) -> Option<Place> {
        let path = self.cgroups.as_ref()?.place(cgroup).to_str()?.to_owned();
        Some(Place { path, inode: cgroup.id().inode })
    }

    /// A holder that an agent before this one knew, also if nothing of it runs.
    pub(crate) fn find_again(&self, record: &Record) -> Option<Holder> {
        Holder::find(record, self.cgroups.as_ref())
    }

    /// What is left of a holder of a former agent; none if it is gone.
    pub(crate) fn again(&self, record: &Record, dir: &Directory) -> Option<Holder> {
        let Some(name) = record.lock.as_ref().filter(|_| !record.is_before(boot())) else {
            return Holder::again(record, self.cgroups.as_ref());
        };
        match dir.read_only(name) {
            Ok(file) => Some(Holder::Client(name.clone(), file)).filter(|client| !client.ended()),
            Err(error) if error.is_absent() => None,
            Err(_) => Some(Holder::Unknown(record.clone(), None)),
        }
    }
}
