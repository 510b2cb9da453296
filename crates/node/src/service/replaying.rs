//! What a log leads to, as far as it was read; and what of it a history does not tell.

use holdall_cell::replay::{LOGIC, Replay, Replayed};
use holdall_history::Mark;
use holdall_log::{Identity, Opened, Record, Snapshot};

use crate::history::Before;

/// What tells a log from others, in a history.
pub(super) fn of_log(identity: Identity) -> String {
    format!("{:016x}", identity.0 as u64)
}

/// A log that is being replayed.
pub(crate) struct Replaying {
    replay: Replay,
    before: Before,
    /// The last record that is in what it begins with.
    begin: u64,
    /// The last record that a history tells of, if it is one of this log.
    told: Option<u64>,
    /// Whether that is of another log.
    is_other: bool,
}

impl Replaying {
    /// Begins with a snapshot of the log of this cell, or with nothing; a history goes as far as a mark.
    ///
    /// # Errors
    /// If the snapshot cannot be understood.
    pub(crate) fn new(
        identity: Identity,
        snapshot: Option<&Snapshot>,
        mark: Option<&Mark>,
    ) -> anyhow::Result<Self> {
        let begin = snapshot.map_or(0, |snapshot| snapshot.upto.0);
        let snapshot = snapshot.map(|snapshot| (snapshot.logic, &*snapshot.payload));
        let is_other = mark.is_some_and(|mark| mark.of != of_log(identity));
        let told = mark.filter(|_| !is_other).map(|mark| mark.upto);
        let before = Before { upto: begin, ..Before::default() };
        Ok(Self { replay: Replay::new(LOGIC, snapshot)?, before, begin, told, is_other })
    }

    /// Whether it goes on to what a log has been opened with: nothing between is missing.
    pub(crate) fn reaches(&self, opened: &Opened) -> bool {
        let known = self.before.upto;
        let is_new = |record: &&Record| record.index.0 > known;
        let next = opened.records.iter().find(is_new).map_or(known + 1, |record| record.index.0);
        opened.snapshot.as_ref().is_none_or(|snapshot| snapshot.upto.0 <= known)
            && next == known + 1
    }

    /// Takes what comes next of these, in order.
    ///
    /// # Errors
    /// If one cannot be understood, or is missing.
    pub(crate) fn take(&mut self, records: &[Record]) -> anyhow::Result<()> {
        let known = self.before.upto;
        for record in records.iter().filter(|record| record.index.0 > known) {
            let next = self.before.upto + 1;
            anyhow::ensure!(
                record.index.0 == next,
                "record {next} is missing in what was read of the log"
            );
            let out = self.replay.take(record.logic, &record.payload)?;
            if record.index.0 > self.told.unwrap_or(0) {
                self.before.events.extend(out.into_iter().flat_map(|out| out.events));
            }
            self.before.upto = record.index.0;
        }
        Ok(())
    }

    /// The end of the log.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub(super) fn finish(self) -> anyhow::Result<(Replayed, Before)> {
        let Self { replay, mut before, begin, told, is_other } = self;
        let (replayed, upto) = (replay.finish()?, before.upto);
        before.gap = match told {
            _ if is_other => Some(0),
            // The log was shortened.
            Some(told) if told > upto => Some(0),
            // Facts alone do not say what to tell.
            Some(told) if replayed.from_facts && told < upto => Some(upto - told),
            Some(told) if told < begin => Some(begin - told),
            _ => None,
        };
        Ok((replayed, before))
    }
}
