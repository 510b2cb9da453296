//! Snapshots, made beside the running cell: on a thread of its own the log is replayed, which also
//! shows that it leads to the same facts again, and the state that it leads to is kept in its place.

use std::time::Instant;

use holdall_cell::replay::{LOGIC, Replay};
use holdall_log::SnapshotJob;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::Service;

/// In how many pieces a log may be that an agent starts with.
const SEGMENTS: usize = 16;
/// The priority of whoever makes them.
const NICE: i32 = 10;

impl Service {
    /// Makes a snapshot if enough has come since the last one.
    pub(super) fn snapshot_if_due(&mut self) {
        if let Some(job) = self.host.snapshot_if_due() {
            self.hurry_history();
            drop(make(job));
        }
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

    /// Makes one now; whoever waits is told when it is there, or why it is not.
    pub(super) fn snapshot_now(&mut self) -> oneshot::Receiver<Result<(), String>> {
        self.hurry_history();
        match self.host.begin_snapshot() {
            Ok(job) => make(job),
            Err(why) => {
                let (tell, told) = oneshot::channel();
                drop(tell.send(Err(why.to_string())));
                told
            }
        }
    }
}

fn make(job: Box<dyn SnapshotJob>) -> oneshot::Receiver<Result<(), String>> {
    let (tell, told) = oneshot::channel();
    let made = move || {
        let begun = Instant::now();
        // Whoever asks comes first.
        let _ = rustix::process::setpriority_process(None, NICE);
        let done = keep(job);
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

fn keep(job: Box<dyn SnapshotJob>) -> Result<usize, String> {
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
    let bytes = made.cell.snapshot().map_err(|why| why.to_string())?;
    job.keep(LOGIC, &bytes).map_err(|error| error.to_string())?;
    Ok(bytes.len())
}
