//! What has become of a job so far, from what was noted.

use std::path::PathBuf;

use holdall_jobs::{Cause, Outcome, Plan, Record, Task, TaskIndex};
use serde::{Deserialize, Serialize};

use super::journal;
use super::runner::now;
use super::store::{About, Over, Store};

/// What has become of a task so far.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Line {
    pub(super) task: String,
    pub(super) state: State,
    /// How often it was run.
    pub(super) attempts: u32,
    /// Milliseconds that it waited for what it needs, the last time.
    pub(super) waited_ms: u64,
    /// Milliseconds that it ran, the last time, or has run so far.
    pub(super) ran_ms: u64,
    /// When it was started last, in milliseconds since 1970.
    pub(super) started_ms: Option<u64>,
    /// Of its last run, if it ended by itself.
    pub(super) exit_status: Option<i32>,
    /// Why it did not end well.
    pub(super) cause: Option<String>,
    pub(super) log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    #[default]
    Waiting,
    Running,
    Succeeded,
    Failed,
    Skipped,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// An attempt, for pictures.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) task: TaskIndex,
    pub(super) from: u64,
    /// None while it runs.
    pub(super) to: Option<u64>,
    pub(super) waited: u64,
    pub(super) cause: Option<Cause>,
    pub(super) units: Vec<String>,
}

/// A job, as it is told.
#[derive(Serialize)]
pub(super) struct View {
    pub(super) id: String,
    pub(super) state: &'static str,
    submitted_ms: u64,
    dir: PathBuf,
    /// The process that goes on with it.
    runner: Option<u32>,
    over: Option<Over>,
    pub(super) tasks: Vec<Line>,
    #[serde(skip)]
    pub(super) plan: Plan,
    #[serde(skip)]
    pub(super) attempts: Vec<Attempt>,
}

impl View {
    pub(super) fn of(store: &Store) -> anyhow::Result<Self> {
        let About { submitted, dir, .. } = store.about()?;
        let plan = store.plan()?;
        // First how it ended: so what is noted is complete if it has.
        let over = store.over();
        let runner = if over.is_none() { store.runner()? } else { None };
        let records = journal::records(store, &plan)?;
        let state = match &over {
            Some(over) if over.succeeded => "succeeded",
            Some(over) if over.cancelled => "cancelled",
            Some(_) => "failed",
            None if runner.is_some() => "running",
            None => "interrupted",
        };
        Ok(Self {
            id: store.id(),
            state,
            submitted_ms: submitted,
            dir,
            runner,
            over,
            tasks: lines(store, &plan, &records),
            attempts: attempts(&records, &units(store)),
            plan,
        })
    }

    pub(super) fn count(&self, state: State) -> usize {
        self.tasks.iter().filter(|line| line.state == state).count()
    }
}

fn lines(store: &Store, plan: &Plan, records: &[Record]) -> Vec<Line> {
    let line = |task: &Task| Line { task: task.name.clone(), ..Line::default() };
    let mut lines: Vec<Line> = plan.tasks.iter().map(line).collect();
    for record in records {
        match record {
            Record::Started { task, attempt, at, waited } => {
                lines[task.0] = Line {
                    state: State::Running,
                    attempts: *attempt,
                    log: Some(store.log(plan, *task, *attempt)),
                    waited_ms: *waited,
                    started_ms: Some(*at),
                    ..line(plan.task(*task))
                };
            }
            Record::Attempted { task, cause, at } => {
                let line = &mut lines[task.0];
                line.ran_ms = at.saturating_sub(line.started_ms.unwrap_or(*at));
                line.state = if cause.is_none() { State::Succeeded } else { State::Waiting };
                line.exit_status = match cause {
                    None => Some(0),
                    Some(Cause::Exit(status)) => Some(*status),
                    Some(_) => None,
                };
                line.cause = cause.as_ref().map(why);
            }
            Record::Ended { task, outcome, .. } => {
                let line = &mut lines[task.0];
                match outcome {
                    Outcome::Succeeded => line.state = State::Succeeded,
                    Outcome::Skipped => line.state = State::Skipped,
                    Outcome::Failed(cause) => {
                        (line.state, line.cause) = (State::Failed, Some(why(cause)));
                    }
                }
            }
            Record::Cancelled { .. } => {}
            Record::Retried { tasks, .. } => {
                for task in tasks {
                    lines[task.0] = line(plan.task(*task));
                }
            }
        }
    }
    for line in lines.iter_mut().filter(|line| line.state == State::Running) {
        line.ran_ms = now().saturating_sub(line.started_ms.unwrap_or_default());
    }
    lines
}

/// Which units an attempt had.
#[derive(Deserialize)]
struct Had {
    task: TaskIndex,
    attempt: u32,
    units: Vec<String>,
}

/// Which units attempts had, as far as that is known.
fn units(store: &Store) -> Vec<Had> {
    let text = std::fs::read_to_string(store.dir.join("units.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn attempts(records: &[Record], units: &[Had]) -> Vec<Attempt> {
    // A task that is retried begins to count anew, so the lines are in order and not by number.
    let mut had = units.iter().peekable();
    let mut all: Vec<Attempt> = Vec::new();
    let mut last = std::collections::BTreeMap::new();
    for record in records {
        match record {
            Record::Started { task, attempt, at, waited } => {
                let own = |had: &&Had| (had.task, had.attempt) == (*task, *attempt);
                let units = had.next_if(own).map(|had| had.units.clone());
                last.insert(*task, all.len());
                all.push(Attempt {
                    task: *task,
                    from: *at,
                    to: None,
                    waited: *waited,
                    cause: None,
                    units: units.unwrap_or_default(),
                });
            }
            Record::Attempted { task, cause, at } => {
                if let Some(place) = last.remove(task) {
                    (all[place].to, all[place].cause) = (Some(*at), cause.clone());
                }
            }
            _ => {}
        }
    }
    all
}

/// Why a task did not end well, in words.
pub(super) fn why(cause: &Cause) -> String {
    match cause {
        Cause::Exit(code) => format!("exit status {code}"),
        Cause::Signal(signal) => format!("ended by signal {signal}"),
        Cause::NotStarted(why) => format!("not started: {why}"),
        Cause::Timeout => "it ran for too long".into(),
        Cause::NotInTime => "what it needs was not granted in time".into(),
        Cause::Never(why) => format!("never granted: {why}"),
        Cause::GrantLost => "what it held was lost, and it was stopped".into(),
        Cause::Unknown => "lost: it is not known how it ended".into(),
        Cause::Cancelled => "cancelled".into(),
    }
}

/// A span of time for people.
pub(super) fn span(ms: u64) -> String {
    if ms < 10_000 {
        return format!("{:.1}s", ms as f64 / 1000.0);
    }
    crate::show::span(ms / 1000)
}
