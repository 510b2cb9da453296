//! What is noted of a job, and a machine made of it anew.

use serde::{Deserialize, Serialize};

use super::{Cause, Effect, Limits, Machine, Millis, Outcome, Stage};
use crate::plan::{Plan, TaskIndex};

/// What has to be on disk before anything else is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A task is about to start.
    Started {
        /// Which.
        task: TaskIndex,
        /// For the so many-th time.
        attempt: u32,
        /// When.
        at: Millis,
        /// How long it waited for what it needs.
        waited: Millis,
    },
    /// A task has ended, perhaps to be run again.
    Attempted {
        /// Which.
        task: TaskIndex,
        /// Why it did not end well, if so.
        cause: Option<Cause>,
        /// When.
        at: Millis,
    },
    /// A task has ended for good.
    Ended {
        /// Which.
        task: TaskIndex,
        /// How.
        outcome: Outcome,
        /// When.
        at: Millis,
    },
    /// A task that runs is not wanted any more, or the whole job is not.
    Cancelled {
        /// Which; none for the whole job.
        task: Option<TaskIndex>,
        /// When.
        at: Millis,
    },
    /// Tasks are as if they had never run.
    Retried {
        /// Which.
        tasks: Vec<TaskIndex>,
        /// When.
        at: Millis,
    },
}

impl Machine {
    /// A machine that goes on where another was that has noted these. What is to be done at once is
    /// told, too: what was running then is not known to have ended well, and is run again only if
    /// its plan allows that.
    pub fn resume(
        plan: Plan,
        limits: Limits,
        records: &[Record],
        now: Millis,
    ) -> (Self, Vec<Effect>) {
        let mut machine = Self::new(plan, limits);
        for record in records {
            machine.replay(record);
        }
        let mut effects = Vec::new();
        machine.lose_running(now, &mut effects);
        machine.note_ends(records, now, &mut effects);
        machine.begin(now, &mut effects);
        (machine, effects)
    }

    /// Notes the ends that follow from what was noted, but were not noted themselves any more.
    fn note_ends(&self, records: &[Record], now: Millis, effects: &mut Vec<Effect>) {
        let mut noted = vec![false; self.tasks.len()];
        for record in records {
            match record {
                Record::Ended { task, .. } => noted[task.0] = true,
                Record::Retried { tasks, .. } => {
                    tasks.iter().for_each(|task| noted[task.0] = false);
                }
                _ => {}
            }
        }
        for (at, progress) in self.tasks.iter().enumerate() {
            let task = TaskIndex(at);
            if let (Stage::Ended(outcome), false) = (&progress.stage, noted[at]) {
                let outcome = outcome.clone();
                effects.push(Effect::Record(Record::Ended { task, outcome, at: now }));
            }
        }
    }

    fn replay(&mut self, record: &Record) {
        match record {
            Record::Started { task, attempt, .. } => {
                let progress = &mut self.tasks[task.0];
                (progress.stage, progress.attempts) = (Stage::Running, *attempt);
            }
            // What follows from it may not have been noted any more.
            Record::Attempted { task, cause: None, .. } => self.settle(*task, Outcome::Succeeded),
            Record::Attempted { task, cause: Some(_), .. } if self.tasks[task.0].unwanted => {
                self.settle(*task, Outcome::Failed(Cause::Cancelled));
            }
            Record::Attempted { task, cause: Some(cause), .. } => {
                if self.may_run_again(*task, cause) {
                    self.tasks[task.0].stage = Stage::Waiting;
                } else {
                    self.settle(*task, Outcome::Failed(cause.clone()));
                }
            }
            Record::Ended { task, outcome, .. } => self.settle(*task, outcome.clone()),
            Record::Cancelled { task: Some(task), .. } => self.tasks[task.0].unwanted = true,
            Record::Cancelled { task: None, .. } => self.cancelled = true,
            Record::Retried { tasks, .. } => {
                (self.failed, self.cancelled) = (false, false);
                for task in tasks {
                    self.reset(*task);
                }
            }
        }
    }

    /// A task is as if it had never run.
    pub(super) fn reset(&mut self, task: TaskIndex) {
        let progress = &mut self.tasks[task.0];
        (progress.stage, progress.attempts, progress.unwanted) = (Stage::Waiting, 0, false);
    }

    /// What was running when the machine before this one ended.
    fn lose_running(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        for at in 0..self.tasks.len() {
            let task = TaskIndex(at);
            if self.tasks[at].stage != Stage::Running {
                continue;
            }
            let ended = Record::Attempted { task, cause: Some(Cause::Unknown), at: now };
            self.replay(&ended);
            effects.push(Effect::Record(ended));
        }
    }

    fn settle(&mut self, task: TaskIndex, outcome: Outcome) {
        self.failed |= self.stops_the_rest(task, &outcome);
        self.tasks[task.0].stage = Stage::Ended(outcome);
    }

    /// Whether nothing that wants success is begun after a task has ended like this.
    pub(super) fn stops_the_rest(&self, task: TaskIndex, outcome: &Outcome) -> bool {
        let minds = !self.plan.task(task).tolerated;
        minds && matches!(outcome, Outcome::Failed(cause) if *cause != Cause::Cancelled)
    }
}
