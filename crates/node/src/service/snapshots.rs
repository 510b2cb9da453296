//! Snapshots: the state that the log leads to is kept in its place, on a thread of its own.
//!
//! A small cell is written down as it is. Of a large one, which would keep everybody waiting for that, and one time in some
//! of any, the log is replayed beside the running cell, which also shows that it leads to the same facts again.

use std::time::Instant;

use holdall_cell::replay::{LOGIC, Replay};
use holdall_log::SnapshotJob;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::Service;

/// In how many pieces a log may be that an agent starts with.
const SEGMENTS: usize = 16;
/// How many requests, sessions and units a cell has at most that is written down as it is: that takes a millisecond or two.
const SMALL: usize = 2048;
/// One in so many is made from the log in any case.
const REPLAYED: u64 = 8;
/// The priority of whoever makes them.
const NICE: i32 = 10;

impl Service {
    /// Makes a snapshot if enough has come since the last one.
    pub(super) fn snapshot_if_due(&mut self) {
        if let Some(job) = self.host.snapshot_if_due() {
            self.hurry_history();
            drop(make(job, self.written_down()));
        }
    }

    /// The state that the log has just led to, unless it is to be found out from the log.
    fn written_down(&mut self) -> Option<Vec<u8>> {
        self.snapshots += 1;
        let cell = self.cell();
        let as_it_is = cell.extent() <= SMALL && !self.snapshots.is_multiple_of(REPLAYED);
        let written = as_it_is.then(|| cell.snapshot())?;
        written.inspect_err(|why| warn!("the state cannot be written down: {why}")).ok()
    }

    /// What is in the history by then need not be in the log.
    fn hurry_history(&mut self) {
        let upto = self.host.told_upto();
        if let Some(history) = &mut self.history {
            history.hurry(upto);
        }
    }

    /// Makes one if the log is in many pieces: each start begins another.
    pub(super) fn snapshot_if_scattered(&mut self) -> anyhow::Result<()> {
        let names = self.data.dir().names()?;
        if names.iter().filter(|name| name.starts_with("segment-")).count() > SEGMENTS {
            drop(self.snapshot_now());
        }
        Ok(())
    }

    /// Makes one if what has come since the last one takes long to read and replay; none if it does not, or one is being made.
    pub(super) fn snapshot_if_long(&mut self) -> Option<oneshot::Receiver<Result<(), String>>> {
        let job = self.host.is_long().then(|| self.host.begin_snapshot().ok()).flatten()?;
        self.hurry_history();
        Some(make(job, self.written_down()))
    }

    /// Makes one now; whoever waits is told when it is there, or why it is not.
    pub(super) fn snapshot_now(&mut self) -> oneshot::Receiver<Result<(), String>> {
        self.hurry_history();
        match self.host.begin_snapshot() {
            Ok(job) => make(job, None),
            Err(why) => {
                let (tell, told) = oneshot::channel();
                drop(tell.send(Err(why.to_string())));
                told
            }
        }
    }
}

fn make(
    job: Box<dyn SnapshotJob>,
    written: Option<Vec<u8>>,
) -> oneshot::Receiver<Result<(), String>> {
    let (tell, told) = oneshot::channel();
    let made = move || {
        let begun = Instant::now();
        // Whoever asks comes first.
        let _ = rustix::process::setpriority_process(None, NICE);
        let written = written.map_or_else(|| replayed(&*job), Ok);
        let done = written.and_then(|bytes| {
            job.keep(LOGIC, &bytes).map_err(|error| error.to_string())?;
            Ok(bytes.len())
        });
        match &done {
            Ok(bytes) => info!(bytes, millis = begun.elapsed().as_millis(), "a snapshot was made"),
            Err(why) => warn!("no snapshot was made: {why}"),
        }
        // Whether somebody waits for it makes no difference.
        drop(tell.send(done.map(drop)));
    };
    if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(made) {
        warn!("no snapshot was made: {error}");
    }
    told
}

/// The state that the log leads to.
fn replayed(job: &dyn SnapshotJob) -> Result<Vec<u8>, String> {
    let (before, records) = job.history().map_err(|error| error.to_string())?;
    let before = before.as_ref().map(|snapshot| (snapshot.logic, &*snapshot.payload));
    let mut replay = Replay::new(LOGIC, before).map_err(|why| why.to_string())?;
    for record in &records {
        replay.take(record.logic, &record.payload).map_err(|why| why.to_string())?;
    }
    let made = replay.finish().map_err(|why| why.to_string())?;
    if let Some(diverged) = made.diverged {
        error!("the log does not lead to what it led to before: {diverged}");
        return Err("the log would be needed to find out why".into());
    }
    if made.from_facts {
        return Err("the log is that of another version".into());
    }
    made.cell.snapshot().map_err(|why| why.to_string())
}
