//! What a process and its children use.

use std::fs;

/// A process, whose children count as part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pid: u32,
}

/// What `/proc/PID/stat` tells of a process.
struct Stat {
    parent: u32,
    /// Its own processor time and that of its children that have ended, in ticks.
    ticks: u64,
}

impl Process {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid }
    }

    /// This one.
    pub(crate) fn own() -> Self {
        Self::new(std::process::id())
    }

    /// Seconds of processor time that it has used, without children that still run.
    pub(crate) fn cpu_alone(self) -> Option<f64> {
        Some(seconds(stat(self.pid)?.ticks))
    }

    /// Seconds of processor time that it has used, and its children.
    pub(crate) fn cpu(self) -> Option<f64> {
        let of_children: f64 = self.children().filter_map(cpu_of_one_thread).sum();
        Some(seconds(stat(self.pid)?.ticks) + of_children)
    }

    /// Megabytes of memory it has, and its children; what they share counts once.
    pub(crate) fn megabytes(self) -> Option<f64> {
        let of_children: f64 = self.children().filter_map(megabytes).sum();
        Some(megabytes(self.pid)? + of_children)
    }

    fn children(self) -> impl Iterator<Item = u32> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(move |pid| stat(*pid).is_some_and(|stat| stat.parent == self.pid))
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Seconds of processor time of a process with one thread. Ticks are too coarse where many
/// processes have each a small share.
fn cpu_of_one_thread(pid: u32) -> Option<f64> {
    let told = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds: u64 = told.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

fn stat(pid: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain anything but ends with the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>()).sum::<Result<_, _>>();
    Some(Stat { parent: fields.get(1)?.parse().ok()?, ticks: ticks.ok()? })
}

fn megabytes(pid: u32) -> Option<f64> {
    let shares = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = shares.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kb| kb / 1024.0)
}
