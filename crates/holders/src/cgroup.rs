//! Cgroups of version 2: one for each grant, below the cgroup of whoever holds it, so that its
//! limits and its accounts stay as they are.
//!
//! A cgroup that can be removed is empty and stays so: whoever still has it open starts nothing
//! in it any more. So removing it is the question whether its grant is over.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use holdall_wire::holder::CgroupId;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, open, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::Interest;

use crate::process::Process;
use crate::raw;
use crate::spawn::{Command, Start};

/// How the cgroups of grants begin.
const PREFIX: &str = "holdall-";
/// How many cgroups of one name there may be.
const NAMES: u32 = 100;

/// Why there are no cgroups for grants.
#[derive(Debug, thiserror::Error)]
pub enum NoCgroups {
    /// There is none of version 2 to be seen.
    #[error("no cgroup2 file system is mounted")]
    NotMounted,
    /// This process is outside of what is mounted.
    #[error("this process is outside the cgroups that are mounted at {0}")]
    Outside(PathBuf),
    /// The kernel cannot end a cgroup.
    #[error("the kernel is older than 5.14: it has no cgroup.kill")]
    NoKill,
    /// It was tried, and failed.
    #[error("cannot {0} below {1}: {2}")]
    Failed(&'static str, PathBuf, io::Error),
}

/// The hierarchy of cgroups.
#[derive(Clone, Debug)]
pub struct Cgroups {
    top: Rc<OwnedFd>,
    mount: PathBuf,
    /// What of the hierarchy is mounted, seen from its top; empty for all of it.
    part: String,
    root: u64,
}

/// A cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    top: Rc<OwnedFd>,
    id: CgroupId,
}

impl Cgroups {
    /// The hierarchy, wherever it is mounted.
    ///
    /// # Errors
    /// If it is not.
    pub fn find() -> Result<Self, NoCgroups> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut all = mounts.lines().filter_map(Mount::parse);
        let found = all.find(|mount| mount.kind == "cgroup2").ok_or(NoCgroups::NotMounted)?;
        let (part, mount) = (found.part, found.place);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = open(&mount, flags, Mode::empty())
            .map_err(|error| NoCgroups::Failed("open it", mount.clone(), error.into()))?;
        let root = rustix::fs::fstat(&top)
            .map_err(|error| NoCgroups::Failed("look at it", mount.clone(), error.into()))?
            .st_ino;
        Ok(Self { top: Rc::new(top), mount, part, root })
    }

    /// Tries out, with one of a name, whether we may make cgroups, move processes into them, and end
    /// them.
    ///
    /// # Errors
    /// If not: why.
    pub fn trial(&self, name: &str) -> Result<(), NoCgroups> {
        let Some(own) = self.of(std::process::id()) else {
            return Err(NoCgroups::Outside(self.mount.clone()));
        };
        let failed = |what| {
            let place = self.mount.join(&own);
            move |error| NoCgroups::Failed(what, place, error)
        };
        let cgroup = self.make(&own, name).map_err(failed("make a cgroup"))?;
        let tried = self.try_out(&cgroup);
        let removed = cgroup.remove();
        tried?;
        if removed { Ok(()) } else { Err(failed("remove a cgroup")(Errno::BUSY.into())) }
    }

    fn try_out(&self, cgroup: &Cgroup) -> Result<(), NoCgroups> {
        let failed = |error| NoCgroups::Failed("move a process", self.place(cgroup), error);
        let command = Command {
            words: vec!["true".into()],
            variables: Vec::new(),
            mask: nix::sys::signal::SigSet::empty(),
            own_group: true,
            dies_with_us: true,
            stands_still: false,
        };
        // It waits at its gate, and becomes nothing.
        let mut child = command.start(Start::Gated).map_err(failed)?;
        let moved = cgroup
            .open("cgroup.procs", OFlags::WRONLY)
            .and_then(|mut file| file.write_all(child.pid().to_string().as_bytes()));
        let killed = moved.as_ref().map_or(Ok(()), |()| cgroup.kill());
        child.end();
        moved.map_err(failed)?;
        killed.map_err(|_| NoCgroups::NoKill)
    }

    /// The cgroup of a process, below the mount.
    pub fn of(&self, pid: u32) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        if path.starts_with("/..") || path.ends_with(" (deleted)") {
            return None;
        }
        let below = path.strip_prefix(self.part.as_str())?;
        if !(below.is_empty() || below.starts_with('/')) {
            return None;
        }
        Some(below.trim_start_matches('/').to_owned())
    }

    /// Removes the cgroups whose names begin so, wherever they are, if they are empty and nobody is
    /// about to use them. Returns how many these were.
    pub fn sweep(&self, name: &str, in_use: impl Fn(&str) -> bool) -> usize {
        let prefix = format!("{PREFIX}{name}");
        let id = CgroupId { path: ".".into(), inode: self.root, root: self.root };
        let all = Cgroup { top: self.top.clone(), id }.below(".").unwrap_or_default();
        let ours = all
            .into_iter()
            .filter(|path| path.rsplit('/').next().is_some_and(|last| last.starts_with(&prefix)))
            .filter(|path| !in_use(path.strip_prefix("./").unwrap_or(path)));
        ours.filter(|path| unlinkat(&self.top, path, AtFlags::REMOVEDIR).is_ok()).count()
    }

    /// Makes a cgroup for a grant below another.
    ///
    /// # Errors
    /// If it may not be made.
    pub fn make(&self, parent: &str, name: &str) -> io::Result<Cgroup> {
        let parent = if parent.is_empty() { String::new() } else { format!("{parent}/") };
        let mut path = format!("{parent}{PREFIX}{name}");
        let mut again = 1;
        // An agent in another container may have the same name for one of its own.
        while let Err(error) = mkdirat(&self.top, &path, Mode::from_raw_mode(0o755)) {
            if error != Errno::EXIST || again == NAMES {
                return Err(error.into());
            }
            again += 1;
            path = format!("{parent}{PREFIX}{name}.{again}");
        }
        let inode = statat(&self.top, &path, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
        Ok(Cgroup { top: self.top.clone(), id: CgroupId { path, inode, root: self.root } })
    }

    /// A cgroup of a former time, if it is still there.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn again(&self, id: &CgroupId) -> io::Result<Option<Cgroup>> {
        if id.root != self.root {
            return Err(io::Error::other("another part of the hierarchy is mounted"));
        }
        match statat(&self.top, &id.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_ino == id.inode => {
                Ok(Some(Cgroup { top: self.top.clone(), id: id.clone() }))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Where a cgroup is, for others to open.
    pub fn place(&self, cgroup: &Cgroup) -> PathBuf {
        self.mount.join(&cgroup.id.path)
    }

    /// Where the hierarchy is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }
}

/// A mount, from a line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What of the file system is mounted, seen from its top; empty for all of it.
    pub part: String,
    /// Where.
    pub place: PathBuf,
    /// The kind of file system.
    pub kind: String,
    /// Its options, separated by commas.
    pub options: String,
}

impl Mount {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Self> {
        let (about, of) = line.split_once(" - ")?;
        let mut about = about.split(' ').skip(3);
        let part = unescaped(about.next()?).trim_end_matches('/').to_owned();
        let place = unescaped(about.next()?).into();
        let mut of = of.split(' ');
        let (kind, options) = (of.next()?.to_owned(), of.nth(1)?.to_owned());
        Some(Self { part, place, kind, options })
    }
}

/// Blanks and the like are written in octal there.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut whole, part| {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                whole.push(char::from(byte));
                whole.push_str(&part[3..]);
            }
            None => {
                whole.push('\\');
                whole.push_str(part);
            }
        }
        whole
    })
}

impl Cgroup {
    /// Opens the one at a path, if it is this one.
    ///
    /// # Errors
    /// If it cannot be opened, or is another.
    pub fn enter(path: &Path, inode: u64) -> io::Result<OwnedFd> {
        let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        if rustix::fs::fstat(&dir)?.st_ino != inode {
            return Err(io::Error::other("another cgroup is there"));
        }
        Ok(dir)
    }

    /// The one that is open here, as [`Cgroup::enter`] opens it.
    pub fn at(dir: OwnedFd, inode: u64) -> Self {
        Self { top: Rc::new(dir), id: CgroupId { path: ".".into(), inode, root: inode } }
    }

    /// Its identity.
    pub fn id(&self) -> &CgroupId {
        &self.id
    }

    fn open(&self, file: &str, flags: OFlags) -> io::Result<File> {
        let path = format!("{}/{file}", self.id.path);
        Ok(openat(&self.top, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Moves a process into it. That may take the kernel some milliseconds.
    ///
    /// # Errors
    /// If that may not be, or the process is gone: it may then have been another that was moved.
    pub async fn adopt(&self, process: &Process) -> io::Result<()> {
        let mut file = self.open("cgroup.procs", OFlags::WRONLY)?;
        let pid = process.id().pid.to_string();
        let moved = tokio::task::spawn_blocking(move || file.write_all(pid.as_bytes())).await;
        moved.map_err(io::Error::other)??;
        // It is alive after the move, so the number was its own.
        if process.ended() { Err(Errno::SRCH.into()) } else { Ok(()) }
    }

    /// Kills everything in it and below.
    ///
    /// # Errors
    /// If the kernel does not do it.
    pub fn kill(&self) -> io::Result<()> {
        self.open("cgroup.kill", OFlags::WRONLY)?.write_all(b"1")
    }

    /// Removes it, and with it those below: whether it is gone. While something lives in it, or
    /// it cannot be told, it is not.
    pub fn remove(&self) -> bool {
        match self.rmdir(&self.id.path) {
            Err(Errno::BUSY) if self.populated().is_ok_and(|populated| !populated) => {
                for below in self.below(&self.id.path).unwrap_or_default() {
                    // If one is not empty any more, neither are we.
                    let _ = self.rmdir(&below);
                }
                self.rmdir(&self.id.path).is_ok()
            }
            done => done.is_ok(),
        }
    }

    fn rmdir(&self, path: &str) -> Result<(), Errno> {
        match unlinkat(&self.top, path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The cgroups below one, innermost first.
    fn below(&self, path: &str) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.top, path, flags, Mode::empty())?;
        let mut all = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if entry.file_type() == rustix::fs::FileType::Directory && !name.starts_with('.') {
                let inner = format!("{path}/{name}");
                match self.below(&inner) {
                    Err(error) if is_removed(&error) => continue,
                    below => all.extend(below?),
                }
                all.push(inner);
            }
        }
        Ok(all)
    }

    /// Processes in it and below, so many at most: there may be very many of them.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn pids(&self, most: usize) -> io::Result<Vec<u32>> {
        let mut all = Vec::new();
        for path in [self.id.path.clone()].into_iter().chain(self.below(&self.id.path)?) {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = match openat(&self.top, format!("{path}/cgroup.procs"), flags, Mode::empty())
            {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) => continue, // Removed in the meantime: nothing was in it.
                Err(error) => return Err(error.into()),
            };
            for line in BufReader::new(file).lines() {
                // Whoever is in a pid namespace that we do not see has the number 0.
                all.extend(line?.parse::<u32>().ok().filter(|pid| *pid > 0));
                if all.len() >= most {
                    break;
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Sends a signal to each process in it.
    pub fn signal(&self, signal: Signal) {
        let open = |pid: u32| Process::open(pid).ok().flatten();
        let pids = || self.pids(usize::MAX).unwrap_or_default();
        let opened: Vec<_> = pids().into_iter().filter_map(open).collect();
        // Whoever is in it now, after we have its pidfd, was not mistaken for another.
        let still = pids();
        for process in opened.iter().filter(|process| still.contains(&process.id().pid)) {
            process.signal(signal);
        }
    }

    /// Whether something lives in it, or below.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn populated(&self) -> io::Result<bool> {
        populated(&self.open("cgroup.events", OFlags::RDONLY)?)
    }

    /// Waits until nothing lives in it, and removes it.
    pub async fn until_removed(&self) {
        while !self.remove() {
            if self.until_empty().await.is_err() {
                // Too many files are open. It will have to be looked at.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Waits until nothing lives in it. Something may be started in it again.
    ///
    /// # Errors
    /// If it cannot be watched.
    pub async fn until_empty(&self) -> io::Result<()> {
        let file = match self.open("cgroup.events", OFlags::RDONLY) {
            Err(error) if is_removed(&error) => return Ok(()),
            opened => opened?,
        };
        let events = raw::watch(file, Interest::PRIORITY)?;
        while populated(events.get_ref())? {
            events.ready(Interest::PRIORITY).await?.clear_ready();
        }
        // Its last process may not have left it altogether.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }
}

/// Whether the cgroup is no longer there: somebody removed it, which is possible only when it is empty.
fn is_removed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT))
}

fn populated(events: &File) -> io::Result<bool> {
    let mut text = [0; 256];
    let length = match events.read_at(&mut text, 0) {
        Err(error) if is_removed(&error) => return Ok(false),
        done => done?,
    };
    let text = String::from_utf8_lossy(&text[..length]);
    Ok(!text.lines().any(|line| line == "populated 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_wherever_they_are() {
        let mount = |part: &str, place: &str, kind: &str, options: &str| {
            let (part, place) = (part.to_owned(), place.into());
            Some(Mount { part, place, kind: kind.into(), options: options.into() })
        };
        let hybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        assert_eq!(Mount::parse(hybrid), mount("", "/sys/fs/cgroup/unified", "cgroup2", "rw"));
        let part = "41 31 0:38 /a/b /mnt/my\\040cgroups rw shared:4 master:1 - cgroup2 none rw";
        assert_eq!(Mount::parse(part), mount("/a/b", "/mnt/my cgroups", "cgroup2", "rw"));
        let first = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu";
        assert_eq!(Mount::parse(first), mount("", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu"));
        assert_eq!(Mount::parse("nonsense"), None);
    }
}
