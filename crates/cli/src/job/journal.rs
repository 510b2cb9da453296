//! What is noted of a job: a line for each record.
//!
//! Only whoever has the job's lock writes. A line is on disk before anything is done that follows
//! from it; a last line that is torn was never acted upon, and is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use holdall_jobs::{Plan, Record, TaskIndex};

use super::store::{Store, sync_names};

const NAME: &str = "records.jsonl";

/// Where more is noted.
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// What was noted so far, and where more is noted.
    pub(super) fn open(store: &Store, plan: &Plan) -> anyhow::Result<(Self, Vec<Record>)> {
        let path = store.dir.join(NAME);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(&path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let (records, whole) = parse(&path, &text, plan)?;
        file.set_len(whole)?;
        file.sync_all()?;
        sync_names(&store.dir)?;
        file.seek(std::io::SeekFrom::End(0))?;
        Ok((Self { file }, records))
    }

    pub(super) fn note(&mut self, records: &[Record]) -> anyhow::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        written.context(
            "cannot note what the job does; it stops here, and `holdall job resume` goes on",
        )
    }
}

/// What was noted, whether or not somebody goes on writing.
pub(super) fn records(store: &Store, plan: &Plan) -> anyhow::Result<Vec<Record>> {
    let path = store.dir.join(NAME);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    Ok(parse(&path, &text, plan)?.0)
}

/// How much was noted, in bytes.
pub(super) fn length(store: &Store) -> u64 {
    fs::metadata(store.dir.join(NAME)).map_or(0, |metadata| metadata.len())
}

/// The attempts that were running when this was noted.
pub(super) fn running(records: &[Record]) -> Vec<(TaskIndex, u32)> {
    let mut running = std::collections::BTreeMap::new();
    for record in records {
        match record {
            Record::Started { task, attempt, .. } => {
                running.insert(*task, *attempt);
            }
            Record::Attempted { task, .. } | Record::Ended { task, .. } => {
                running.remove(task);
            }
            Record::Cancelled { .. } | Record::Retried { .. } => {}
        }
    }
    running.into_iter().collect()
}

/// The records, and how many bytes of the text are whole lines.
fn parse(path: &Path, text: &[u8], plan: &Plan) -> anyhow::Result<(Vec<Record>, u64)> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let record = |(at, line)| {
        record(line, plan.tasks.len()).with_context(|| {
            let place = path.display();
            format!("{place}, line {}: it is damaged; `holdall job submit` the file anew", at + 1)
        })
    };
    let records = lines.enumerate().map(record).collect::<anyhow::Result<_>>()?;
    Ok((records, whole as u64))
}

fn record(line: &[u8], tasks: usize) -> anyhow::Result<Record> {
    let record: Record = serde_json::from_slice(line)?;
    let known = |task: &TaskIndex| task.0 < tasks;
    let fits = match &record {
        Record::Started { task, attempt, .. } => known(task) && *attempt > 0,
        Record::Attempted { task, .. } | Record::Ended { task, .. } => known(task),
        Record::Retried { tasks, .. } => tasks.iter().all(known),
        Record::Cancelled { task, .. } => task.as_ref().is_none_or(known),
    };
    ensure!(fits, "it speaks of a task that the job does not have");
    Ok(record)
}
