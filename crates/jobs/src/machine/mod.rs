//! Goes through a plan: it is told what has happened, and says what is to be done.
//!
//! Whoever drives it does what it says in the order in which it says it, and a [`Record`] is on disk
//! before anything that comes behind it is done. So whatever has started is known, and a machine that
//! is made anew from the records goes on where the old one was.
//!
//! What always holds, whatever happens when:
//! - no task runs twice at the same time, and none that has ended well runs again unless it is told to;
//! - none starts before all that it comes after has ended, as wanted;
//! - none starts without the grant of its request, and a request is given back when the last of its
//!   tasks has ended;
//! - who holds something waits for none but the tasks that run under the same grant.

mod inside;
mod orders;
mod record;
mod steps;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::inside::InUse;
pub use self::record::Record;
use crate::plan::{Plan, RequestIndex, TaskIndex};

/// A point in time, in milliseconds since 1970.
pub type Millis = u64;

/// How long a task may take to end after it was told to, before it is killed.
const GRACE: Millis = 10_000;
/// The longest pause before a task is run again.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// How much is done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that wait for what they need.
    pub ahead: usize,
    /// Requests that wait or are held; in a group, tasks that run.
    pub jobs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ahead: 16, jobs: 256 }
    }
}

/// What has happened. Requests are asked for several times if tasks are run again: each time has a
/// number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A request was granted.
    Granted(RequestIndex, u32),
    /// A request will not be granted.
    Refused(RequestIndex, u32, Cause),
    /// What was granted is lost, and with it what runs under it, for this reason.
    Lost(RequestIndex, u32, Cause),
    /// A task has ended that was run for the so many-th time: it, and everything that it has
    /// started. Without a cause, well.
    Ended(TaskIndex, u32, Option<Cause>),
    /// A task is not wanted any more, or none is.
    Cancel(Option<TaskIndex>),
    /// A task shall be run again, and what comes after it; or all that did not succeed.
    Retry(Option<TaskIndex>),
    /// Nothing but time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Note this. Nothing that follows is done before it is on disk.
    Record(Record),
    /// Ask for everything a request needs.
    Ask(RequestIndex, u32),
    /// Do not ask any more.
    Withdraw(RequestIndex, u32),
    /// Give back what was granted.
    Release(RequestIndex, u32),
    /// Run a task, for the so many-th time.
    Start(TaskIndex, u32),
    /// End a task: politely, or at once.
    Stop(TaskIndex, Force),
}

/// How a task is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// It is asked to end.
    Ask,
    /// It is killed.
    Kill,
}

/// Why something did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It had this exit status.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
    /// It ran for too long.
    Timeout,
    /// It waited for too long.
    NotInTime,
    /// It can never be granted.
    Never(String),
    /// What it held was lost, and it was stopped.
    GrantLost,
    /// It is not known how it ended.
    Unknown,
    /// It was not wanted any more.
    Cancelled,
}

/// How a task has ended for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Well.
    Succeeded,
    /// Not well.
    Failed(Cause),
    /// It was not run, because of how others ended.
    Skipped,
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Something that it comes after has not ended.
    Waiting,
    /// It may run as soon as its request is granted.
    Ready,
    /// It is run again after a pause.
    Pausing,
    /// It runs.
    Running,
    /// It was told to end, for this reason.
    Stopping(Cause),
    /// It has ended.
    Ended(Outcome),
}

/// How a job is, in numbers of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// All.
    pub tasks: usize,
    /// Ended well.
    pub succeeded: usize,
    /// Not ended well.
    pub failed: usize,
    /// Of those, how many the job does not mind.
    pub tolerated: usize,
    /// Not run.
    pub skipped: usize,
}

/// A job on its way.
#[derive(Clone, Debug)]
pub struct Machine {
    plan: Plan,
    limits: Limits,
    tasks: Vec<Progress>,
    requests: Vec<Asking>,
    /// What comes after each task.
    behind: Vec<Vec<TaskIndex>>,
    /// Requests that can be asked for: first those that need nothing, of either kind those with most
    /// behind them first.
    ready: BTreeSet<Place>,
    alarms: BTreeSet<(Millis, Alarm)>,
    /// Requests that wait, for nothing or for something.
    waiting: Counts,
    held: usize,
    /// A task has failed, and nothing is begun any more that wants success.
    failed: bool,
    /// Nothing is begun any more.
    cancelled: bool,
    /// Tasks that have not ended.
    left: usize,
}

/// Where a request stands among those that can be asked for: whether it needs something, how many tasks
/// come one after another from it on, and which it is.
type Place = (bool, Reverse<usize>, RequestIndex);

/// How many there are of two kinds: requests that need nothing, and others.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    free: usize,
    needy: usize,
}

impl Counts {
    fn all(self) -> usize {
        self.free + self.needy
    }

    fn of(&mut self, needs_something: bool) -> &mut usize {
        if needs_something { &mut self.needy } else { &mut self.free }
    }
}

/// How far a task is, and how often it was run.
#[derive(Clone, Debug)]
struct Progress {
    stage: Stage,
    attempts: u32,
    /// It was cancelled by itself.
    unwanted: bool,
    /// What it comes after and has not ended.
    missing: usize,
}

/// How far a request is.
#[derive(Clone, Debug, Default)]
struct Asking {
    state: Asked,
    /// How often it was asked for.
    asks: u32,
    since: Millis,
    /// How long it waited, the last time.
    waited: Millis,
    /// What its tasks come after, outside of it, and has not ended.
    missing: usize,
    /// Its tasks that have not ended.
    left: usize,
    /// Its tasks that can be run, those with most behind them first.
    ready: BTreeSet<(Reverse<usize>, TaskIndex)>,
    running: usize,
    in_use: InUse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    No,
    Waiting,
    Held,
    /// It was held, and is lost: it is over when nothing runs any more.
    Lost,
}

/// What is to be looked at, at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Whether a task still runs, for the so many-th time.
    Timeout(TaskIndex, u32),
    /// Whether a task that was told to end still runs.
    Kill(TaskIndex, u32),
    /// A pause is over.
    Pause(TaskIndex, u32),
    /// Whether a request still waits, asked for the so many-th time.
    Wait(RequestIndex, u32),
}

impl Machine {
    /// A job that has not begun.
    pub fn new(plan: Plan, limits: Limits) -> Self {
        let mut behind = vec![Vec::new(); plan.tasks.len()];
        for (at, task) in plan.tasks.iter().enumerate() {
            for before in &task.after {
                behind[before.0].push(TaskIndex(at));
            }
        }
        let progress =
            |_| Progress { stage: Stage::Waiting, attempts: 0, unwanted: false, missing: 0 };
        let tasks = plan.tasks.iter().map(progress).collect();
        let requests = vec![Asking::default(); plan.requests.len()];
        let left = plan.tasks.len();
        let (waiting, held) = (Counts::default(), 0);
        let (ready, alarms) = (BTreeSet::new(), BTreeSet::new());
        let (failed, cancelled) = (false, false);
        Self {
            plan,
            limits,
            tasks,
            requests,
            behind,
            ready,
            alarms,
            waiting,
            held,
            failed,
            cancelled,
            left,
        }
    }

    /// The plan it goes through.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How far a task is.
    pub fn stage(&self, task: TaskIndex) -> &Stage {
        &self.tasks[task.0].stage
    }

    /// How often a task was run.
    pub fn attempts(&self, task: TaskIndex) -> u32 {
        self.tasks[task.0].attempts
    }

    /// Whether a request waits.
    pub fn waits(&self, request: RequestIndex) -> bool {
        self.requests[request.0].state == Asked::Waiting
    }

    /// When it wants to be told the time.
    pub fn next_alarm(&self) -> Option<Millis> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Whether all tasks have ended, and nothing is held or asked for.
    pub fn is_over(&self) -> bool {
        self.left == 0 && self.waiting.all() == 0 && self.held == 0
    }

    /// Whether the whole job is not wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// How many tasks have ended, and how.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary { tasks: self.tasks.len(), ..Summary::default() };
        for (task, progress) in self.plan.tasks.iter().zip(&self.tasks) {
            match &progress.stage {
                Stage::Ended(Outcome::Succeeded) => summary.succeeded += 1,
                Stage::Ended(Outcome::Skipped) => summary.skipped += 1,
                Stage::Ended(Outcome::Failed(_)) => {
                    summary.failed += 1;
                    summary.tolerated += usize::from(task.tolerated);
                }
                _ => {}
            }
        }
        summary
    }
}
