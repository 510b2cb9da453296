//! What a job consists of, after the file has been read: tasks in an order in which they can run.

use std::collections::BTreeMap;
use std::time::Duration;

use holdall_wire::{Amount, Name, Need};
use serde::{Deserialize, Serialize};

use crate::peak;

/// A task of a plan, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskIndex(pub usize);

/// A request of a plan, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestIndex(pub usize);

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// Variables for all of its tasks.
    pub env: BTreeMap<String, String>,
    /// Its tasks: none comes before one that it comes after.
    pub tasks: Vec<Task>,
    /// What holds things through several tasks.
    pub groups: Vec<Group>,
    /// Whoever asks for something.
    pub requests: Vec<Request>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it is called; one of a matrix has its values after its name: `suite[smoke]`.
    pub name: String,
    /// What it comes after.
    pub after: Vec<TaskIndex>,
    /// How that must have ended.
    pub when: When,
    /// What it needs; in a group, beside what the group has.
    pub needs: Vec<Need>,
    /// What is run.
    pub run: Command,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// How often it is run again if it fails.
    pub retries: u32,
    /// The pause before it is run again; each is twice as long as the one before.
    pub pause: Duration,
    /// How long it may wait for what it needs.
    pub wait: Option<Duration>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// Whether the job goes on if it fails.
    pub tolerated: bool,
    /// Whether it may be run again if it is not known how it ended.
    pub again: bool,
    /// What asks for what it needs.
    pub request: RequestIndex,
    /// How many tasks come one after another from it on: those with more behind them go first.
    pub depth: usize,
}

/// What is asked for at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub by: Requester,
    /// What for.
    pub needs: Vec<Need>,
}

/// Who asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A task, for itself.
    Task(TaskIndex),
    /// A group, by its place.
    Group(usize),
}

/// Tasks through all of which something is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// What is held for all of its tasks.
    pub needs: Vec<Need>,
    /// Its tasks.
    pub tasks: Vec<TaskIndex>,
    /// How long it may wait for what it needs.
    pub wait: Option<Duration>,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

/// How that must have ended what a task comes after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// All of it succeeded.
    #[default]
    Success,
    /// Something of it did not.
    Failure,
    /// However.
    Always,
}

impl Plan {
    /// A task.
    pub fn task(&self, task: TaskIndex) -> &Task {
        &self.tasks[task.0]
    }

    /// The tasks that run under a request.
    pub fn tasks_of(&self, request: RequestIndex) -> &[TaskIndex] {
        match &self.requests[request.0].by {
            Requester::Task(task) => std::slice::from_ref(task),
            Requester::Group(group) => &self.groups[*group].tasks,
        }
    }

    /// What a request is called: as its task or its group.
    pub fn name_of(&self, request: RequestIndex) -> &str {
        match &self.requests[request.0].by {
            Requester::Task(task) => &self.task(*task).name,
            Requester::Group(group) => &self.groups[*group].name,
        }
    }

    /// How long a request may wait.
    pub fn wait_of(&self, request: RequestIndex) -> Option<Duration> {
        match &self.requests[request.0].by {
            Requester::Task(task) => self.task(*task).wait,
            Requester::Group(group) => self.groups[*group].wait,
        }
    }

    /// What a request asks for: for a group, what it has itself and what those of its tasks need
    /// together that may run at the same time.
    pub(crate) fn needs_of(&self, by: &Requester) -> Vec<Need> {
        match by {
            Requester::Task(task) => self.task(*task).needs.clone(),
            Requester::Group(group) => {
                let group = &self.groups[*group];
                let mut needs = group.needs.clone();
                needs.extend(self.needs_inside(group));
                needs
            }
        }
    }

    fn needs_inside(&self, group: &Group) -> Vec<Need> {
        let mut by_name: BTreeMap<&Name, Vec<(usize, Amount)>> = BTreeMap::new();
        for (place, task) in group.tasks.iter().enumerate() {
            for need in &self.task(*task).needs {
                by_name.entry(&need.name).or_default().push((place, need.amount));
            }
        }
        let before = self.order_inside(group);
        let together = |wanted: &[(usize, Amount)]| {
            if wanted.iter().any(|(_, amount)| *amount == Amount::All) {
                return Amount::All;
            } else if wanted.iter().all(|(_, amount)| *amount == Amount::Shared) {
                return Amount::Shared;
            } else if wanted.iter().all(|(_, amount)| !matches!(amount, Amount::Units(_))) {
                return Amount::One;
            }
            let mut weights = vec![0; group.tasks.len()];
            for (place, amount) in wanted {
                weights[*place] = units(*amount);
            }
            Amount::Units(peak::heaviest_antichain(&weights, &before))
        };
        let need = |(name, wanted): (&Name, Vec<_>)| Need {
            name: name.clone(),
            amount: together(&wanted),
        };
        by_name.into_iter().map(need).collect()
    }

    /// For each task of a group, which others of it come after it, directly or not.
    fn order_inside(&self, group: &Group) -> Vec<Vec<usize>> {
        let place: BTreeMap<TaskIndex, usize> =
            group.tasks.iter().enumerate().map(|(place, task)| (*task, place)).collect();
        let mut behind = vec![Vec::new(); group.tasks.len()];
        // The tasks of a plan are in order, so what comes before a task is complete by then.
        let mut ahead: Vec<std::collections::BTreeSet<usize>> =
            vec![Default::default(); group.tasks.len()];
        let mut ordered = group.tasks.clone();
        ordered.sort_unstable();
        for task in ordered {
            let own = place[&task];
            for before in self.task(task).after.iter().filter_map(|before| place.get(before)) {
                let further = ahead[*before].clone();
                ahead[own].extend(further);
                ahead[own].insert(*before);
            }
            for before in &ahead[own] {
                behind[*before].push(own);
            }
        }
        behind
    }
}

/// How many units an amount stands for, beside others of the same pool.
pub(crate) fn units(amount: Amount) -> u32 {
    match amount {
        Amount::Units(n) => n,
        Amount::One | Amount::All | Amount::Shared => 1,
    }
}
