//! What the log of an agent that does not run, or not here, tells.

use std::path::Path;
use std::sync::Arc;

use holdall_cell::Cell;
use holdall_cell::replay::{LOGIC, Replay};
use holdall_log::disk::RealDisk;
use holdall_log::etcd::CellCopy;
use holdall_log::file::{FileStore, Options};
use holdall_log::{Record, Snapshot};
use holdall_wire::{GrantView, State};

/// What a log leads to. Nothing is changed, and an agent may be at it.
///
/// # Errors
/// If it cannot be read, or understood.
pub fn check_log(path: &Path) -> anyhow::Result<Cell> {
    let store = FileStore::new(Arc::new(RealDisk::open(path)?), None, Options::default());
    let seen = store.look()?;
    replayed(seen.snapshot.as_ref(), &seen.records)
}

/// What takes the place of a replicated cell that was removed, from a copy of it: a cell of its own, with its pools.
///
/// # Errors
/// If the copy cannot be understood.
pub fn another(copy: &CellCopy) -> anyhow::Result<CellCopy> {
    let cell = replayed(copy.snapshot.as_ref(), &copy.records)?;
    Ok(copy.another(LOGIC, cell.with_pools_alone()?.snapshot()?.into())?)
}

fn replayed(snapshot: Option<&Snapshot>, records: &[Record]) -> anyhow::Result<Cell> {
    let snapshot = snapshot.map(|snapshot| (snapshot.logic, &*snapshot.payload));
    let mut replay = Replay::new(LOGIC, snapshot)?;
    for record in records {
        replay.take(record.logic, &record.payload)?;
    }
    Ok(replay.finish()?.cell)
}

/// What is reserved in a data directory, as far as it can be read: for people, while no agent runs.
pub fn reserved(path: &Path) -> Vec<GrantView> {
    let Ok(cell) = check_log(path) else { return Vec::new() };
    let (clock, now) = (cell.clock(), crate::clock::Clock::new().wall());
    let all = cell.books().grants().filter(|(_, entry, _)| entry.is_reserved());
    let views = all.map(|(request, entry, held)| GrantView {
        request,
        needs: entry.ask.needs.clone(),
        taken: held.taken.to_vec(),
        who: (*entry.who).clone(),
        since: clock.wall(held.since),
        until: held.until.map(|until| clock.wall(until)),
        state: State::Reserved,
        pids: Vec::new(),
        part_of: None,
        parts: Vec::new(),
    });
    views.filter(|one| one.until.is_none_or(|until| until > now)).collect()
}
