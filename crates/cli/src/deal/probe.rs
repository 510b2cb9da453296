//! `holdall deal probe`: how fresh are reads in this directory?
//!
//! One side writes numbers, by rename as the store does; the other reads all the time and says
//! when it saw an old one. What counts is a probe with two sides that see the directory through
//! different mounts: a cache is fresh to whoever writes through it. On one machine (`--and`) the
//! sides are threads with one clock. Between machines, run one with --write and one with --read:
//! then the number written is the time, and clocks must agree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::Serialize;

use crate::print;

/// Nothing was shown: one side only, or too little seen.
const NOT_SHOWN: u8 = 75;
/// So many different writes must be seen by who reads.
const WRITES_SEEN: u64 = 10;

/// Measure how fresh reads in a directory are
///
/// It takes two sides that see the directory by different ways. Between machines (clocks must
/// agree to some hundredths of a second): run it with --write on one and, meanwhile, with --read on
/// another, and then the other way round. Between two mounts of one machine: --and. A read is old
/// if it returns what was replaced before the read began. Any old read means that items would be
/// dealt twice. None seen is no proof.
///
/// Exit status: 0 if no old read was seen (for --write: if it could write), 1 if one was, 75 if
/// nothing is shown: with one side only, or if nobody was seen to write.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The directory to probe
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The same directory by another way, to read there what is written to the first
    #[arg(long, value_name = "DIR", conflicts_with_all = ["write", "read"])]
    and: Option<PathBuf>,
    /// How long, in seconds
    #[arg(long, value_name = "S", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    seconds: u64,
    /// Only write
    #[arg(long, conflicts_with = "read")]
    write: bool,
    /// Only read
    #[arg(long)]
    read: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was seen.
#[derive(Default, Serialize)]
struct Seen {
    schema: u32,
    writes: u64,
    reads: u64,
    /// How many different writes who read has seen.
    writes_seen: u64,
    /// Reads that returned what had been replaced before they began.
    old: u64,
    /// The oldest: how long before its read began it had been replaced.
    oldest_us: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let file = args.store.join("probe");
    let there = args.and.as_ref().unwrap_or(&args.store).join("probe");
    let mut seen = match (args.write, args.read) {
        (true, _) => Seen { writes: write(&file, until, |_| {})?, ..Seen::default() },
        (_, true) => read_elsewhere(&file, until),
        _ => both(&file, &there, until)?,
    };
    seen.schema = 2;
    if !args.read {
        let _ = fs::remove_file(&file);
    }
    let (shown, why) = if args.write {
        (true, "")
    } else if seen.writes_seen < WRITES_SEEN {
        (false, "nobody was seen to write: run it with --write elsewhere meanwhile")
    } else if !args.read && args.and.is_none() {
        (false, "through one mount only, which shows nothing: --write here and --read elsewhere")
    } else {
        (true, "")
    };
    if args.json {
        print(&serde_json::to_string(&seen)?)?;
    } else {
        let Seen { writes, reads, old, oldest_us, writes_seen, .. } = seen;
        let writes = if args.read { writes_seen } else { writes };
        let worst = if old > 0 { format!(", by up to {oldest_us} us") } else { String::new() };
        print(&format!("{writes} writes, {reads} reads, {old} of them old{worst}"))?;
        if !shown && old == 0 {
            print(why)?;
        }
    }
    Ok(ExitCode::from(match (seen.old, shown) {
        (1.., _) => 1,
        (0, false) => NOT_SHOWN,
        (0, true) => 0,
    }))
}

/// Writes the time again and again, each time as a new file renamed over the old one; and beside it
/// the longest it took until a time that was written had been replaced.
fn write(file: &Path, until: Instant, wrote: impl Fn(u64)) -> anyhow::Result<u64> {
    let new = file.with_extension("new");
    let (mut writes, mut before, mut longest) = (0, None, 0);
    while Instant::now() < until {
        let time = now();
        let text = format!("{time} {longest}");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
        written.with_context(|| format!("cannot write {}", file.display()))?;
        wrote(time);
        writes += 1;
        let replaced = before.replace(time).map_or(0, |before| now().saturating_sub(before));
        longest = longest.max(replaced);
    }
    Ok(writes)
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The time that was written, and what was said beside it.
fn read(file: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(file).ok()?;
    let (time, longest) = text.split_once(' ')?;
    Some((time.parse().ok()?, longest.parse().ok()?))
}

/// Counts a read that found this.
fn count(seen: &mut Seen, before: &mut u64, found: u64) {
    seen.reads += 1;
    seen.writes_seen += u64::from(found != std::mem::replace(before, found));
}

/// Writes to one file, and reads the other, which should be the same.
fn both(file: &Path, there: &Path, until: Instant) -> anyhow::Result<Seen> {
    let (last, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, mut before) = (Seen::default(), 0);
            while !done.load(Ordering::Relaxed) {
                let (replaced, began) = (last.load(Ordering::Acquire), now());
                let Some((found, _)) = read(there) else { continue };
                count(&mut seen, &mut before, found);
                if found < replaced {
                    seen.old += 1;
                    seen.oldest_us = seen.oldest_us.max((began.saturating_sub(found)) / 1000);
                }
            }
            seen
        });
        let writes = write(file, until, |time| last.store(time, Ordering::Release));
        done.store(true, Ordering::Relaxed);
        let seen = reader.join().unwrap_or_default();
        Ok(Seen { writes: writes?, ..seen })
    })
}

/// The writer is elsewhere, and says how long what it writes stands at most: what is older than that
/// when the read began was replaced before. That is known of a read once the writer has been seen
/// to go on by two writes; before that, it may have ended.
fn read_elsewhere(file: &Path, until: Instant) -> Seen {
    /// By how much clocks may differ, in nanoseconds.
    const CLOCKS: u64 = 50_000_000;
    let (mut seen, mut before, mut longest) = (Seen::default(), 0, 0);
    let mut late = Vec::new();
    while Instant::now() < until {
        let began = now();
        let Some((found, said)) = read(file) else { continue };
        count(&mut seen, &mut before, found);
        longest = longest.max(said);
        let age = began.saturating_sub(found);
        if age > CLOCKS {
            late.push((seen.writes_seen, age));
        }
    }
    for (at, age) in late {
        if at + 2 <= seen.writes_seen && age > longest + CLOCKS {
            seen.old += 1;
            seen.oldest_us = seen.oldest_us.max(age / 1000);
        }
    }
    seen
}
