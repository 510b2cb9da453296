//! `holdall deal probe`: how fresh are reads in this directory?
//!
//! One process writes numbers, by rename as the store does, and says when each write had returned;
//! another reads all the time and says when it last saw an old one. On one machine the two are
//! threads with one clock. Between machines, run one with --write and one with --read: then the
//! number written is the time, and clocks must agree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::Serialize;

use crate::print;

/// Measure how fresh reads in a directory are
///
/// Alone: writes and reads on this machine. Between machines (clocks must agree): run it with
/// --write on one and with --read on another. A read is old if it returns what was replaced
/// before the read began. Any old read means that items would be dealt twice. None seen is no
/// proof. Exit status: 0 if no old read was seen, 1 if one was.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The directory to probe
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// How long, in seconds
    #[arg(long, value_name = "S", default_value_t = 3)]
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

/// Where the moment of the last finished write is kept: in the file, or in this process.
#[derive(Default, Serialize)]
struct Seen {
    schema: u32,
    writes: u64,
    reads: u64,
    /// Reads that returned what had been replaced before they began.
    old: u64,
    /// The oldest: how long before its read began it had been replaced.
    oldest_us: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let file = args.store.join("probe");
    let mut seen = match (args.write, args.read) {
        (true, _) => Seen { writes: write(&file, until, |_| {})?, ..Seen::default() },
        (_, true) => read_elsewhere(&file, until)?,
        _ => both(&file, until)?,
    };
    seen.schema = 1;
    if !args.read {
        let _ = fs::remove_file(&file);
    }
    if args.json {
        print(&serde_json::to_string(&seen)?)?;
    } else {
        let Seen { writes, reads, old, oldest_us, .. } = seen;
        let worst = if old > 0 { format!(", by up to {oldest_us} us") } else { String::new() };
        print(&format!("{writes} writes, {reads} reads, {old} of them old{worst}"))?;
    }
    Ok(ExitCode::from(u8::from(seen.old > 0)))
}

/// Writes the time again and again, each time as a new file renamed over the old one.
fn write(file: &Path, until: Instant, wrote: impl Fn(u64)) -> anyhow::Result<u64> {
    let new = file.with_extension("new");
    let mut writes = 0;
    while Instant::now() < until {
        let time = now();
        let written = fs::write(&new, time.to_string()).and_then(|()| fs::rename(&new, file));
        written.with_context(|| format!("cannot write {}", file.display()))?;
        wrote(time);
        writes += 1;
    }
    Ok(writes)
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn read(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.parse().ok()
}

fn both(file: &Path, until: Instant) -> anyhow::Result<Seen> {
    let (last, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = Seen::default();
            while !done.load(Ordering::Relaxed) {
                let (replaced, began) = (last.load(Ordering::Acquire), now());
                let Some(found) = read(file) else { continue };
                seen.reads += 1;
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

/// The writer is elsewhere and writes at least every few milliseconds: what is older than that
/// when the read began is old.
fn read_elsewhere(file: &Path, until: Instant) -> anyhow::Result<Seen> {
    const SLOW_WRITE: u64 = 50_000_000;
    let mut seen = Seen::default();
    while Instant::now() < until {
        let began = now();
        let Some(found) = read(file) else { continue };
        seen.reads += 1;
        let age = began.saturating_sub(found);
        if age > SLOW_WRITE {
            seen.old += 1;
            seen.oldest_us = seen.oldest_us.max(age / 1000);
        }
    }
    Ok(seen)
}
