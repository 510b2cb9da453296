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
    let mut ended = Vec::new();
    for life in store.lives()? {
        let mark = |(task, attempt): &(_, _)| store.mark(&life, *task, *attempt);
        let ends = mark::clear(&running.iter().map(mark).collect::<Vec<_>>())?;
        let known = |((task, _), end): (&(_, _), Option<mark::End>)| {
            end.map(|end| Record::Attempted { task: *task, cause: end.cause, at: now })
        };
        ended.extend(running.iter().zip(ends).filter_map(known));
    }
    journal.note(&ended)?;
    records.extend(ended);
    store.forget_lives()?;
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
    if changes {
        // First: if we are killed then, the next runner says again how the job has ended.
        store.reopen()?;
    }
    let records = before.into_iter().chain(after).filter_map(record);
    journal.note(&records.collect::<Vec<_>>())?;
    if machine.is_over() && store.over().is_none() {
        store.end(&Over::new(now(), &machine.summary(), machine.is_cancelled()))?;
    }
    Ok(Some(changes))
}
