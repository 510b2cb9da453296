//! What people want, and what time brings: tasks that are cancelled, retried, stopped, or run again after
//! a pause.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{Alarm, Asked, Cause, Effect, Force, GRACE, Machine, Millis, Outcome, Record, Stage};
use crate::plan::TaskIndex;

impl Machine {
    pub(super) fn cancel(&mut self, task: TaskIndex, now: Millis, out: &mut Vec<Effect>) {
        if *self.stage(task) == Stage::Running {
            // Until it has ended, nothing else would tell a machine that goes on from the records.
            out.push(Effect::Record(Record::Cancelled { task: Some(task), at: now }));
        }
        self.end(task, now, out);
    }

    /// A task is not wanted any more.
    fn end(&mut self, task: TaskIndex, now: Millis, out: &mut Vec<Effect>) {
        match self.stage(task) {
            Stage::Running => self.stop(task, Cause::Cancelled, now, out),
            Stage::Waiting | Stage::Ready | Stage::Pausing => {
                self.conclude(task, Outcome::Failed(Cause::Cancelled), now, out);
            }
            Stage::Stopping(_) | Stage::Ended(_) => {}
        }
    }

    pub(super) fn cancel_all(&mut self, now: Millis, out: &mut Vec<Effect>) {
        if self.cancelled || self.left == 0 {
            return;
        }
        self.cancelled = true;
        out.push(Effect::Record(Record::Cancelled { task: None, at: now }));
        for task in (0..self.tasks.len()).rev().map(TaskIndex) {
            self.end(task, now, out);
        }
    }

    fn stop(&mut self, task: TaskIndex, cause: Cause, now: Millis, out: &mut Vec<Effect>) {
        let progress = &mut self.tasks[task.0];
        progress.stage = Stage::Stopping(cause);
        self.alarms.insert((now + GRACE, Alarm::Kill(task, progress.attempts)));
        out.push(Effect::Stop(task, Force::Ask));
    }

    /// Takes back how tasks have ended, and how all ended that comes after them.
    pub(super) fn retry(&mut self, task: Option<TaskIndex>, now: Millis, out: &mut Vec<Effect>) {
        let is_over = self.is_over();
        let again = |task: &TaskIndex| {
            matches!(self.stage(*task), Stage::Ended(Outcome::Failed(_) | Outcome::Skipped))
        };
        let mut open: Vec<TaskIndex> = match task {
            Some(task) if matches!(self.stage(task), Stage::Ended(_)) => vec![task],
            Some(_) => Vec::new(),
            None => (0..self.tasks.len()).map(TaskIndex).filter(again).collect(),
        };
        // While something runs or waits, what hangs together with it stays as it is.
        if !is_over || open.is_empty() {
            return;
        }
        let mut tasks = BTreeSet::new();
        while let Some(task) = open.pop() {
            if tasks.insert(task) {
                open.extend(&self.behind[task.0]);
            }
        }
        for task in &tasks {
            self.reset(*task);
        }
        out.push(Effect::Record(Record::Retried { tasks: tasks.into_iter().collect(), at: now }));
        (self.failed, self.cancelled) = (false, false);
        self.begin(now, out);
    }

    /// Does what is due.
    pub(super) fn ring(&mut self, now: Millis, out: &mut Vec<Effect>) {
        while let Some((at, alarm)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, alarm));
            match alarm {
                Alarm::Timeout(task, attempt) => {
                    if self.runs(task, attempt) && *self.stage(task) == Stage::Running {
                        self.stop(task, Cause::Timeout, now, out);
                    }
                }
                Alarm::Kill(task, attempt) => {
                    if self.runs(task, attempt) {
                        out.push(Effect::Stop(task, Force::Kill));
                    }
                }
                Alarm::Pause(task, attempt) => self.end_pause(task, attempt, now, out),
                Alarm::Wait(request, ask) => {
                    let asking = &self.requests[request.0];
                    if asking.state == Asked::Waiting && asking.asks == ask {
                        out.push(Effect::Withdraw(request, ask));
                        self.refused(request, ask, &Cause::NotInTime, now, out);
                    }
                }
            }
        }
    }

    fn runs(&self, task: TaskIndex, attempt: u32) -> bool {
        let progress = &self.tasks[task.0];
        let runs = matches!(progress.stage, Stage::Running | Stage::Stopping(_));
        runs && progress.attempts == attempt
    }

    fn end_pause(&mut self, task: TaskIndex, attempt: u32, now: Millis, out: &mut Vec<Effect>) {
        let progress = &mut self.tasks[task.0];
        if progress.stage != Stage::Pausing || progress.attempts != attempt {
            return;
        }
        progress.stage = Stage::Ready;
        let (request, depth) = (self.plan.tasks[task.0].request, self.plan.tasks[task.0].depth);
        self.requests[request.0].ready.insert((Reverse(depth), task));
        self.offer(request);
        self.run_inside(request, now, out);
    }
}
