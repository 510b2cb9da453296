//! Processes that are known by what is in their environment: what was started under a grant has the
//! grant in it, and hands it on to all that it starts. It is how they are found when nothing else is
//! left that tells of them.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, open, openat2, statx};
use rustix::io::Errno;

use crate::process::Process;

/// The processes, but for this one, whose environment satisfies a question. Those that may not be
/// looked at are left out.
///
/// # Errors
/// If there is no telling which processes there are, or what they are.
pub fn with_environment(asked: impl Fn(&Environment) -> bool) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        // First the pidfd, then the look: if it lives after that, it was the one that was looked at.
        let process = match Process::open(pid) {
            Err(error) if is_short_of_files(&error) => return Err(error),
            Ok(Some(process)) => process,
            _ => continue,
        };
        let content = match std::fs::read(format!("/proc/{pid}/environ")) {
            Err(error) if is_short_of_files(&error) => return Err(error),
            Ok(content) => content,
            Err(_) => continue,
        };
        if asked(&Environment { pid, content }) && !process.ended() {
            found.push(process);
        }
    }
    Ok(found)
}

fn is_short_of_files(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].contains(&Errno::from_io_error(error).unwrap_or(Errno::INTR))
}

/// The environment that a process was started with.
pub struct Environment {
    pid: u32,
    content: Vec<u8>,
}

impl Environment {
    /// The value of a variable, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.content.split(|byte| *byte == 0);
        let value =
            lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()
    }

    /// The device and number of a directory, as the process sees it: its root may be another than ours.
    /// To look may take as long as a file system of the process's choice likes.
    ///
    /// # Errors
    /// If it is not there, or cannot be told. Since Linux 5.6.
    pub fn directory(&self, path: &Path) -> io::Result<(u64, u64)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(format!("/proc/{}/root", self.pid), flags, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = openat2(root, path, flags, Mode::empty(), resolve)?;
        identity(statx(found, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO))
    }

    /// Whether numbers of processes mean the same to the process as to us.
    pub fn shares_pids(&self) -> bool {
        let space = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/pid")).ok();
        space("self").is_some_and(|own| space(&self.pid.to_string()) == Some(own))
    }
}

/// The device and number of a directory of our own, as [`Environment::directory`] tells them.
///
/// # Errors
/// If it is not there.
pub fn directory(path: &Path) -> io::Result<(u64, u64)> {
    identity(statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO))
}

fn identity(found: rustix::io::Result<rustix::fs::Statx>) -> io::Result<(u64, u64)> {
    let found = found?;
    let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
    Ok((device, found.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_what_they_inherited() {
        let mark = format!("mark-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env("HOLDALL_TEST_MARK", &mark)
            .spawn()
            .expect("it starts");
        let marked = |all: &Environment| all.get("HOLDALL_TEST_MARK") == Some(&mark);
        let found = loop {
            // It has our environment until it becomes the command.
            let found = with_environment(marked).expect("there is a table");
            if !found.is_empty() {
                break found;
            }
        };
        assert_eq!(found.iter().map(|one| one.id().pid).collect::<Vec<_>>(), [child.id()]);
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert!(with_environment(marked).expect("there is a table").is_empty());
    }

    #[test]
    fn a_directory_is_what_the_process_sees_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let (here, link) = (dir.path().join("here"), dir.path().join("link"));
        std::fs::create_dir(&here).expect("writable");
        std::os::unix::fs::symlink(&here, &link).expect("writable");
        let own = Environment { pid: std::process::id(), content: Vec::new() };
        let seen = own.directory(&link).expect("there");
        assert_eq!(seen, directory(&here).expect("there"));
        assert_ne!(seen, directory(dir.path()).expect("there"));
        assert!(own.directory(&dir.path().join("none")).is_err() && own.shares_pids());
    }

    #[test]
    fn a_name_is_not_taken_for_another_that_begins_so() {
        let all = Environment { pid: 1, content: b"AB=1\0A=2\0C\0A=3\0".to_vec() };
        assert_eq!((all.get("A"), all.get("AB"), all.get("C")), (Some("2"), Some("1"), None));
    }
}
