//! The tasks that run: started and stopped by way of their holders, and cleared away if those are lost.

use std::io::Write;
use std::time::Duration;

use holdall_jobs::{Cause, Command as Run, Input, Record, Requester, Stage, TaskIndex};

use super::super::mark;
use super::super::talk::{FromRunner, Order};
use super::asking::{Asked, holding};
use super::{Event, Runner};

impl Runner<'_> {
    pub(super) fn start(&mut self, task: TaskIndex, attempt: u32) {
        self.running.insert(task, attempt);
        let plan = self.machine.plan();
        let own = plan.task(task);
        let words = match &own.run {
            Run::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            Run::Words(words) => words.clone(),
        };
        let (request, mut env) = (own.request, plan.env.clone());
        let Some(held) = holding(&mut self.asking, request) else { return };
        let shares = match &plan.requests[request.0].by {
            Requester::Group(group) => Some((&plan.groups[*group].needs, &own.needs)),
            Requester::Task(_) => None,
        };
        let taken = held.units.take(task, shares);
        env.extend(own.env.clone());
        env.extend(taken.variables);
        env.insert("HOLDALL_JOB".into(), self.store.id());
        env.insert("HOLDALL_TASK".into(), own.name.clone());
        env.insert("HOLDALL_ATTEMPT".into(), attempt.to_string());
        let line = serde_json::json!({ "task": task, "attempt": attempt, "units": taken.units });
        // It is for pictures only.
        let _ = writeln!(self.units, "{line}");
        let (hidden, dir) = (taken.hidden, self.about.dir.clone());
        let (log, mark) =
            (self.store.log(plan, task, attempt), self.store.mark(&self.life, task, attempt));
        let order = Order { task, attempt, words, dir, env, hidden, log, mark };
        self.order(task, FromRunner::Start(order));
    }

    /// Tells the holder of a task something. One that is gone is heard of when it has ended.
    pub(super) fn order(&mut self, task: TaskIndex, order: FromRunner) {
        let request = self.machine.plan().task(task).request;
        if let Some(held) = holding(&mut self.asking, request) {
            let _ = held.orders.send(order);
        }
    }

    /// What an attempt had is free for others, and its mark of no use, once its end is noted.
    pub(super) fn forget(&mut self, record: &Record) {
        let Record::Attempted { task, .. } = record else { return };
        let request = self.machine.plan().task(*task).request;
        if let Some(held) = holding(&mut self.asking, request) {
            held.units.give_back_of(*task);
        }
        if let Some(attempt) = self.running.remove(task) {
            let path = self.store.mark(&self.life, *task, attempt);
            // One that is closed stays so until this runner ends.
            if mark::end(&path).is_some() {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// What was granted is lost. What ran under it may still be about to end, or have ended unheard.
    pub(super) fn lost(&mut self, (request, ask): Asked, cause: Cause) {
        let plan = self.machine.plan();
        let runs = |task: &TaskIndex| {
            matches!(self.machine.stage(*task), Stage::Running | Stage::Stopping(_))
        };
        let running = plan.tasks_of(request).iter().copied().filter(runs);
        let running: Vec<(TaskIndex, u32)> =
            running.map(|task| (task, self.machine.attempts(task))).collect();
        let held_nothing = plan.requests[request.0].needs.is_empty();
        let cause = if held_nothing { Cause::Unknown } else { cause };
        // First: so nothing else of a group is started under what is lost.
        self.tell(Input::Lost(request, ask, cause));
        let (mut marks, mut left) = (Vec::new(), Vec::new());
        for (task, attempt) in running {
            let path = self.store.mark(&self.life, task, attempt);
            match mark::end(&path) {
                Some(end) => self.tell(Input::Ended(task, attempt, end.cause)),
                None => {
                    marks.push(path);
                    left.push((task, attempt));
                }
            }
        }
        let events = self.events.clone();
        let clear = move || {
            let ends = loop {
                match mark::clear(&marks) {
                    Ok(ends) => break ends,
                    // Too many files are open, or the like. What is not known to be gone is there.
                    Err(_) => std::thread::sleep(Duration::from_secs(1)),
                }
            };
            let ended =
                left.into_iter().zip(ends).map(|((task, attempt), end)| (task, attempt, end));
            // Without a runner nobody wants to know.
            let _ = events.send(Event::Clear(ended.collect()));
        };
        tokio::task::spawn_blocking(clear);
    }
}
