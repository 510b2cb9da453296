//! What no task and no manager sees alone, looked at in every state of the whole system.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use holdall_core::{Broken, Need, PoolId, RequestId, System};

use super::task::Task;
use super::{Manager, User, Winkowski, manager_of};

pub(super) fn check<const C: bool>(system: &impl System<Winkowski<C>>) -> Result<(), Broken> {
    let managers: Vec<_> = system.managers().collect();
    for (request, level) in system.users().filter_map(User::confirmed) {
        let held = |need: &Need| {
            let manager = &managers[manager_of(need.pool).index()];
            manager.has_confirmed(request.id, level) || manager.has_evicted(request.id)
        };
        Broken::unless(
            request.needs.iter().all(held),
            "W4: whoever wins is set aside for everywhere, and whoever is granted has it all",
        )?;
    }
    let tasks: Vec<&Task> = system.users().filter_map(User::task).collect();
    let stuck = |task: &&Task| task.competes() && !goes_on(task, &tasks, &managers);
    Broken::unless(
        !tasks.iter().any(stuck),
        "F1: while a task competes, something is possible for one of those it depends on",
    )
}

/// Whether something will happen to one of the tasks that this one depends on: to itself, or to one that
/// it reaches over tasks that take part in the game and share a pool. Of a task whose user is gone nothing is
/// known, and nothing said.
fn goes_on<const C: bool>(task: &Task, tasks: &[&Task], managers: &[&Manager<C>]) -> bool {
    let mut reached: BTreeSet<RequestId> = BTreeSet::from([task.request.id]);
    let mut open = alloc::vec![task];
    while let Some(task) = open.pop() {
        let pools = || task.request.needs.iter().map(|need| need.pool);
        if pools().any(|pool| is_under_way(task, pool, managers)) || task.moves_by_itself() {
            return true;
        }
        for rival in pools().flat_map(|pool| managers[manager_of(pool).index()].rivals()) {
            match tasks.iter().find(|task| task.request.id == rival) {
                None => return true,
                Some(next) if reached.insert(rival) => open.push(next),
                Some(_) => {}
            }
        }
    }
    false
}

/// Whether a task has yet to hear from the manager of a pool: an answer, news, or that it is out.
fn is_under_way<const C: bool>(task: &Task, pool: PoolId, managers: &[&Manager<C>]) -> bool {
    let sent = managers[manager_of(pool).index()].last_sent(task.request.id);
    task.last_seen(pool) != sent
}
