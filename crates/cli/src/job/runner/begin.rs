//! Where a runner begins: with what the one before it has noted.

use std::time::SystemTime;

use holdall_jobs::{Effect, Input, Machine, Record};

use super::super::journal::{self, Journal};
use super::super::mark;
use super::super::store::{Over, Store};

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A machine that goes on where the last one was, and what it says first. Nothing is left of what ran
/// then; what has ended meanwhile is noted. The caller has the lock.
pub(super) fn resumed(store: &Store, now: u64) -> anyhow::Result<(Journal, Machine, Vec<Effect>)> {
    let plan = store.plan()?;
    let (mut journal, mut records) = Journal::open(store, &plan)?;
    let running = journal::running(&records);
    let marks: Vec<_> = running.iter().map(|(task, attempt)| store.mark(*task, *attempt)).collect();
    let ends = mark::clear(&marks)?;
    let known = |(task, end): (_, Option<mark::End>)| {
        end.map(|end| Record::Attempted { task, cause: end.cause, at: now })
    };
    let ended: Vec<Record> =
        running.iter().map(|(task, _)| *task).zip(ends).filter_map(known).collect();
    journal.note(&ended)?;
    records.extend(ended);
    for old in std::fs::read_dir(store.dir.join("running"))?.flatten() {
        let _ = std::fs::remove_file(old.path());
    }
    let limits = store.about()?.limits();
    let (machine, effects) = Machine::resume(plan, limits, &records, now);
    Ok((journal, machine, effects))
}

/// Notes what follows from something for a job that nobody runs; tells whether anything does. Nothing
/// at all if somebody runs it.
pub(crate) fn change(store: &Store, input: Input) -> anyhow::Result<Option<bool>> {
    let Some(_lock) = store.lock()? else { return Ok(None) };
    let (mut journal, mut machine, before) = resumed(store, now())?;
    let after = machine.step(now(), input);
    let record = |effect: Effect| match effect {
        Effect::Record(record) => Some(record),
        _ => None,
    };
    let changes = after.iter().any(|effect| matches!(effect, Effect::Record(_)));
    let records = before.into_iter().chain(after).filter_map(record);
    journal.note(&records.collect::<Vec<_>>())?;
    if machine.is_over() && store.over().is_none() {
        store.end(&Over::new(now(), &machine.summary(), machine.is_cancelled()))?;
    }
    Ok(Some(changes))
}
