//! What a whole job holds at most at the same time.

use std::collections::{BTreeMap, BTreeSet};

use holdall_wire::{Amount, Name, Need};

use crate::peak;
use crate::plan::{Plan, RequestIndex, TaskIndex, units};

/// Beyond so many tasks, or requests for the same thing, it is not looked which of them come after
/// each other: then all of them count.
const LARGE: usize = 500;

impl Plan {
    /// What is held at most: of each pool or lock that the job needs. It never holds more; whether it
    /// ever holds as much depends on others, and on how long its tasks take.
    pub fn most(&self) -> Vec<Need> {
        let mut by_name: BTreeMap<&Name, Vec<(usize, Amount)>> = BTreeMap::new();
        for (at, request) in self.requests.iter().enumerate() {
            for need in &request.needs {
                by_name.entry(&need.name).or_default().push((at, need.amount));
            }
        }
        let ahead = if self.tasks.len() > LARGE { Vec::new() } else { self.ahead() };
        let need = |(name, wanted): (&Name, Vec<_>)| Need {
            name: name.clone(),
            amount: self.together(&wanted, &ahead),
        };
        by_name.into_iter().map(need).collect()
    }

    /// As much as is held at the same time of what requests want of one thing.
    fn together(&self, wanted: &[(usize, Amount)], ahead: &[BTreeSet<TaskIndex>]) -> Amount {
        if wanted.iter().any(|(_, amount)| *amount == Amount::All) {
            return Amount::All;
        } else if wanted.iter().all(|(_, amount)| *amount == Amount::Shared) {
            return Amount::Shared;
        }
        let weights: Vec<u32> = wanted.iter().map(|(_, amount)| units(*amount)).collect();
        let most = if ahead.is_empty() || wanted.len() > LARGE {
            weights.iter().sum()
        } else {
            let behind = |(one, _): &(usize, Amount)| {
                let is_behind = |other: &usize| self.is_behind(*one, wanted[*other].0, ahead);
                (0..wanted.len()).filter(is_behind).collect()
            };
            let behind: Vec<Vec<usize>> = wanted.iter().map(behind).collect();
            peak::heaviest_antichain(&weights, &behind)
        };
        match most {
            1 => Amount::One,
            most => Amount::Units(most),
        }
    }

    /// Whether a request is asked for only when another is given back: all of that one's tasks come
    /// before some of its own.
    fn is_behind(&self, one: usize, other: usize, ahead: &[BTreeSet<TaskIndex>]) -> bool {
        let own = self.tasks_of(RequestIndex(other));
        let before = |task: &TaskIndex| own.iter().any(|later| ahead[later.0].contains(task));
        one != other && self.tasks_of(RequestIndex(one)).iter().all(before)
    }

    /// For each task, all that it comes after, directly or not.
    fn ahead(&self) -> Vec<BTreeSet<TaskIndex>> {
        let mut ahead: Vec<BTreeSet<TaskIndex>> = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let mut all: BTreeSet<TaskIndex> = task.after.iter().copied().collect();
            for before in &task.after {
                all.extend(&ahead[before.0]);
            }
            ahead.push(all);
        }
        ahead
    }

    /// The longest chain of tasks that come one after another.
    pub fn critical_path(&self) -> Vec<TaskIndex> {
        let mut path = Vec::new();
        let mut depth = self.tasks.iter().map(|task| task.depth).max().unwrap_or(0);
        for (at, task) in self.tasks.iter().enumerate() {
            let follows = path.last().is_none_or(|last| task.after.contains(last));
            if depth > 0 && task.depth == depth && follows {
                path.push(TaskIndex(at));
                depth -= 1;
            }
        }
        path
    }
}
