//! The processes that use a grant: a child of the client and its process group.
//!
//! A group is looked for until nothing of it is left, more and more rarely: the kernel tells when
//! one process ends, but not when a group does. A zombie counts as gone: it runs nothing. The
//! number of a process group is not given to anybody else while a member is left,
//! so it is safe to name it as long as one is.

use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// A process group that uses a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    leader: Pid,
}

impl Group {
    /// The group led by `child`, a child of `parent`. The kernel vouches for `parent`; whatever
    /// is not its child is none of its business to name.
    ///
    /// # Errors
    /// If there is no such child, or it leads no group.
    pub(crate) fn of_child(child: u32, parent: u32) -> anyhow::Result<Self> {
        let stat = Stat::read(child).with_context(|| format!("there is no process {child}"))?;
        if stat.parent != parent || stat.group != child {
            bail!("process {child} is no child of {parent} that leads a process group");
        }
        let leader = i32::try_from(child).ok().and_then(Pid::from_raw).context("no process id")?;
        Ok(Self { leader })
    }

    /// The number of the group.
    pub(crate) fn number(&self) -> u32 {
        self.leader.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether something of it still runs.
    pub(crate) fn alive(&self) -> bool {
        alive(self.leader)
    }

    /// Kills all of it.
    pub(crate) fn kill(&self) {
        // Whoever is gone needs no killing, and whoever may not be killed is waited for.
        let _ = kill_process_group(self.leader, Signal::KILL);
    }

    /// Waits until nothing of it runs any more.
    pub(crate) async fn gone(self) {
        let mut pause = Duration::from_millis(1);
        while self.alive() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(64));
        }
    }
}

fn alive(group: Pid) -> bool {
    if test_kill_process_group(group) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    // Something has that number. Perhaps only zombies that nobody reaps.
    let number = group.as_raw_nonzero().get().unsigned_abs();
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(Stat::read).any(|stat| stat.group == number && stat.runs())
}

/// Whether a process is stopped.
pub(crate) fn stopped(pid: u32) -> bool {
    Stat::read(pid).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// Some of what `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
    group: u32,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name of the program comes second, in parentheses, and may itself hold any of these.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }

    fn runs(self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn odd_program_names_do_not_confuse() {
        let stat = Stat::parse("12 (a) Z (b) S 7 12 1 0 -1").expect("readable");
        assert_eq!(stat, Stat { state: 'S', parent: 7, group: 12 });
        assert_eq!(Stat::parse(""), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_group_is_gone_when_all_of_it_is() {
        let script = "sleep 1000 & echo started; sleep 1000";
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(std::process::Stdio::null());
        let mut child = command.spawn().expect("a shell");
        let me = std::process::id();
        let group = Group::of_child(child.id(), me).expect("a child");
        assert!(Group::of_child(1, me).is_err() && Group::of_child(me, me).is_err());
        assert!(group.alive());
        group.kill();
        group.gone().await; // The leader is a zombie, since nobody has waited for it.
        assert!(!group.alive());
        child.wait().expect("a child");
    }
}
