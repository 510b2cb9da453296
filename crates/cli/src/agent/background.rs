//! An agent in the background belongs to nobody.
//!
//! Whoever came first has started it, perhaps from a job with a low priority, tight limits and a
//! cgroup that is killed when the job ends. None of that is meant for everybody's agent. What
//! cannot be undone without rights stays; an agent under a supervisor (`agent install`) has none
//! of it to undo.

use std::path::{Path, PathBuf};

use holdall_holders::Mount;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The cgroup that the agent makes for itself.
const CGROUP: &str = "holdall.agent";
/// How many files an agent may have open if it may choose.
const FILES: u64 = 65_536;
/// With fewer it could serve only some at a time.
const FILES_LEAST: u64 = 256;

/// Leaves the session, limits, priority and cgroup of whoever started this process.
///
/// # Errors
/// If there are limits that it cannot lift and that would end it.
pub(super) fn leave_everything() -> anyhow::Result<()> {
    close_inherited();
    // It fails only for the leader of a process group, which is on its own already.
    let _ = rustix::process::setsid();
    // A command that waits for signals has them blocked.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // Whoever may not be nicer to itself stays as it is.
    let _ = rustix::process::setpriority_process(None, 0);
    lift_limits();
    be_spared();
    leave_cgroups();
    let limited = |resource| getrlimit(resource).current.is_some();
    let few = getrlimit(Resource::Nofile).current.is_some_and(|files| files < FILES_LEAST);
    anyhow::ensure!(
        !limited(Resource::Cpu) && !limited(Resource::Fsize) && !few,
        "an agent that serves everybody would inherit limits that end it (`ulimit -t`, `-f`, or \
         `-n` below {FILES_LEAST}); start one without them: `holdall agent`"
    );
    Ok(())
}

/// Closes what the command that started us left open.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // One of them was the directory itself, which is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Every limit that could stop an agent is raised as far as it goes; beyond that for root alone.
fn lift_limits() {
    let all = [Resource::As, Resource::Cpu, Resource::Data, Resource::Fsize, Resource::Nproc];
    for resource in all {
        lift(resource, None);
    }
    lift(Resource::Nofile, Some(FILES));
}

/// Lifts a limit to a number at least, or for good.
fn lift(resource: Resource, most: Option<u64>) {
    let now = getrlimit(resource);
    let enough = now.maximum.is_none_or(|hard| most.is_some_and(|most| hard >= most));
    let beyond = Rlimit { current: most, maximum: most };
    if enough || setrlimit(resource, beyond).is_err() {
        // If even that fails, it can do with what it has.
        let _ = setrlimit(resource, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}

/// Jobs offer themselves to be killed when memory is short; the agent does not.
fn be_spared() {
    let path = "/proc/self/oom_score_adj";
    let offered = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    if offered.is_some_and(|score: i32| score > 0) {
        let _ = std::fs::write(path, "0");
    }
}

/// Leaves the cgroups of whoever started us, as far up as we may.
fn leave_cgroups() {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for hierarchy in own.lines().filter_map(|line| Hierarchy::find(line, &mounts)) {
        hierarchy.leave();
    }
}

/// A hierarchy of cgroups, and our place in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// Below the mount.
    place: PathBuf,
    unified: bool,
}

impl Hierarchy {
    /// From a line of `/proc/self/cgroup`, like `0::/user.slice` or `4:cpu,cpuacct:/job`, and
    /// `/proc/self/mountinfo`: hybrid systems mount them in odd places.
    fn find(line: &str, mounts: &str) -> Option<Self> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, place) = rest.split_once(':')?;
        let unified = controllers.is_empty();
        let same = |mount: &Mount| {
            let has = |wanted| mount.options.split(',').any(|option| option == wanted);
            match unified {
                true => mount.kind == "cgroup2",
                false => mount.kind == "cgroup" && controllers.split(',').all(has),
            }
        };
        let mount = mounts.lines().filter_map(Mount::parse).find(same)?;
        let part = format!("{}/", mount.part);
        let place = Path::new(place).strip_prefix(part).ok()?.into();
        Some(Self { mount: mount.place, place, unified })
    }

    /// Moves this process as far up as it may. In the unified hierarchy processes live in leaves.
    fn leave(&self) {
        if self.place.file_name().is_none_or(|name| name == CGROUP) {
            return;
        }
        let above: Vec<_> = self.place.ancestors().skip(1).collect();
        for above in above.into_iter().rev() {
            let mut target = self.mount.join(above);
            if self.unified {
                target.push(CGROUP);
                // It may be there already, or not ours to make: then the move fails.
                let _ = std::fs::create_dir(&target);
            }
            if std::fs::write(target.join("cgroup.procs"), "0").is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 0:22 / /sys rw - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 /part /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd";

    #[test]
    fn hierarchies_are_found_wherever_they_are_mounted() {
        let find = |line| Hierarchy::find(line, MOUNTS).map(|h| (h.mount, h.place, h.unified));
        let at = |mount: &str, place: &str, unified| Some((mount.into(), place.into(), unified));
        assert_eq!(find("0::/job/step"), at("/sys/fs/cgroup/unified", "job/step", true));
        assert_eq!(find("0::/"), at("/sys/fs/cgroup/unified", "", true));
        assert_eq!(find("4:cpu,cpuacct:/a"), at("/sys/fs/cgroup/cpu", "a", false));
        assert_eq!(find("1:name=systemd:/part/b"), at("/sys/fs/cgroup/systemd", "b", false));
        for line in ["1:name=systemd:/other", "5:memory:/a", "nonsense", ""] {
            assert_eq!(find(line), None, "{line}");
        }
    }
}
