//! The directory: opened, checked, refused.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use holdall_assign::Assigner;
use holdall_assign::registers::{Dir, DirError, Durability};
use holdall_assign::windows::{BadLayout, Layout, Position};

use super::journal;
use crate::usage;

/// Windows each worker remembers: few, because every write writes them all.
const RING: usize = 16;

/// A store on its terms.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) path: PathBuf,
    pub(super) terms: Terms,
    pub(super) layout: Layout,
}

/// What all workers of a store must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// How many workers have a lot in each window; others may come and get items from them.
    pub(super) workers: usize,
    pub(super) batch: u64,
    pub(super) kind: Kind,
    /// Whether every write is synced.
    pub(super) sync: bool,
}

/// What the items are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Numbers,
    Lines,
    /// What is between the NULs of a file.
    NulEnded,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Numbers, Self::Lines, Self::NulEnded];

    fn option(self) -> &'static str {
        match self {
            Self::Numbers => "--count",
            Self::Lines => "--items",
            Self::NulEnded => "--items and -0",
        }
    }
}

impl Terms {
    fn words(self) -> [u64; 4] {
        let kind = Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        [self.workers as u64, self.batch, kind as u64, self.sync.into()]
    }

    fn of([workers, batch, kind, sync]: [u64; 4]) -> anyhow::Result<Self> {
        let workers = usize::try_from(workers).context("too many workers")?;
        let kind = usize::try_from(kind).ok().and_then(|kind| Kind::ALL.get(kind).copied());
        let kind = kind.context("items of an unknown kind")?;
        Ok(Self { workers, batch, kind, sync: sync != 0 })
    }

    fn layout(self) -> Result<Layout, BadLayout> {
        Layout::new(self.workers, RING, self.batch)
    }
}

impl Store {
    /// A store to work in: made if it is not there.
    pub(super) fn make(path: &Path, terms: Terms) -> anyhow::Result<Self> {
        let cannot = || format!("--store {}: cannot be made", path.display());
        terms.layout().map_err(usage)?;
        fs::create_dir_all(path).with_context(cannot)?;
        // How many workers there are was decided by the first to come.
        let found = match workers(path)?.first() {
            Some(first) => Dir::terms(path, *first).map_err(tell)?,
            None => None,
        };
        let seats = found.map_or(Ok(terms), Terms::of)?.workers;
        let terms = Terms { workers: seats, ..terms };
        let layout = terms.layout().map_err(usage)?;
        let store = Self { path: path.to_owned(), terms, layout };
        store.agree()?;
        Ok(store)
    }

    /// A store that is there, on the terms it has.
    pub(super) fn find(path: &Path) -> anyhow::Result<Self> {
        let Some(&worker) = workers(path)?.first() else {
            return Err(usage(format!("--store {}: no worker was ever here", path.display())));
        };
        let terms = Dir::terms(path, worker).map_err(tell)?;
        let terms = Terms::of(terms.context("a worker's file vanished")?)?;
        let layout = terms.layout().map_err(usage)?;
        let store = Self { path: path.to_owned(), terms, layout };
        store.agree()?;
        Ok(store)
    }

    /// Whether every worker's file has our terms.
    pub(super) fn agree(&self) -> anyhow::Result<()> {
        for worker in workers(&self.path)? {
            if let Some(words) = Dir::terms(&self.path, worker).map_err(tell)? {
                let found = Terms::of(words)?;
                if found != self.terms {
                    return Err(usage(self.differs(found)));
                }
            }
        }
        Ok(())
    }

    fn differs(&self, found: Terms) -> String {
        let (path, here) = (self.path.display(), self.terms);
        let (there, here) = if found.workers != here.workers {
            (format!("--of {}", found.workers), format!("--of {}", here.workers))
        } else if found.batch != here.batch {
            (format!("--batch {}", found.batch), format!("--batch {}", here.batch))
        } else if found.kind != here.kind {
            (found.kind.option().into(), here.kind.option().into())
        } else {
            let sync = |sync| if sync { "with --sync" } else { "without --sync" };
            (sync(found.sync).into(), sync(here.sync).into())
        };
        format!("--store {path} was begun with {there}, not {here}: use that, or another store")
            .replace("with with", "with")
    }

    pub(super) fn dir(&self) -> Dir {
        let durability = if self.terms.sync { Durability::Disk } else { Durability::Process };
        let (workers, slots) = (self.layout.workers(), self.layout.slots());
        Dir::new(&self.path, workers, slots, self.terms.words(), durability)
    }

    /// Where every worker is.
    pub(super) fn positions(&self) -> anyhow::Result<Vec<Position>> {
        Assigner::over(self.layout, self.dir()).positions().map_err(tell)
    }

    /// Whether a worker has a lot in each window; if not, it lives on what others give it.
    pub(super) fn has_seat(&self, worker: usize) -> bool {
        worker < self.terms.workers
    }

    /// Whether a process ever worked under a number.
    pub(super) fn check_begun(&self, worker: usize) -> anyhow::Result<()> {
        let files = [Dir::file(&self.path, worker), journal::path(&self.path, worker)];
        if files.iter().any(|file| file.exists()) {
            return Ok(());
        }
        Err(usage(format!("worker {worker} never began: there is nothing of it in this store")))
    }
}

/// What is wrong with a store, with the remedy.
pub(super) fn tell(error: DirError) -> anyhow::Error {
    match error {
        DirError::Version { path, found } => usage(format!(
            "{} was written by another version (format {found}): finish with that one, or use \
             another store",
            path.display()
        )),
        DirError::Damaged(path) => anyhow::anyhow!(
            "{} is damaged: nothing was changed; use another store, for what is in this one \
             cannot be trusted",
            path.display()
        ),
        other => other.into(),
    }
}

/// The workers that have a file.
pub(super) fn workers(path: &Path) -> anyhow::Result<Vec<usize>> {
    let cannot = || format!("--store {}: cannot be read", path.display());
    let mut workers = Vec::new();
    for entry in fs::read_dir(path).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("worker-"));
        workers.extend(number.and_then(|number| number.parse::<usize>().ok()));
    }
    workers.sort_unstable();
    Ok(workers)
}

/// Refuses a file system whose reads may be old.
pub(super) fn check_fresh(path: &Path, store_is_fresh: bool) -> anyhow::Result<()> {
    // The directory may not be there yet: its nearest ancestor is.
    let there = path.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let Ok(found) = rustix::fs::statfs(there) else {
        bail!("--store {}: cannot see on which file system it is", path.display());
    };
    let kind = u64::from(found.f_type as u32);
    let network = NETWORK.iter().find(|(magic, _)| *magic == kind);
    match network {
        Some((_, name)) if !store_is_fresh => Err(usage(format!(
            "--store {} is on {name}, where reads may be old and items would then be dealt twice: \
             use a local directory, or add --store-is-fresh if `holdall deal probe --write` here \
             and `--read` on each other machine say so",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// `f_type` of file systems that other machines write to (statfs(2)).
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
];
