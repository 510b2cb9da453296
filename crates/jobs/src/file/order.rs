//! Makes a plan of what the file says: names become places, and tasks get an order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use holdall_wire::{NEEDS_MAX, Need};

use super::flaw::{EDGES_MAX, Flaw, GROUP_MAX, Problem};
use super::{Draft, GroupDraft};
use crate::plan::{Group, Plan, Request, RequestIndex, Requester, Task, TaskIndex};

/// The places of tasks, by name: of one, or of all of a matrix.
struct Places<'a> {
    file: &'a str,
    by_name: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Places<'a> {
    fn new(file: &'a str, drafts: &'a [Draft]) -> Result<Self, Flaw> {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for (place, draft) in drafts.iter().enumerate() {
            if !names.insert(&draft.name) {
                return Err(Flaw::at(file, &draft.span, Problem::Same(draft.name.clone())));
            }
            by_name.entry(&draft.family).or_default().push(place);
            if draft.name != draft.family {
                by_name.entry(&draft.name).or_default().push(place);
            }
        }
        Ok(Self { file, by_name })
    }

    fn of(&self, name: &super::Text) -> Result<&[usize], Flaw> {
        self.by_name.get(name.text.as_str()).map(Vec::as_slice).ok_or_else(|| {
            let known = self.by_name.keys().map(ToString::to_string).collect();
            Flaw::at(self.file, &name.span, Problem::Task { name: name.text.clone(), known })
        })
    }
}

pub(super) fn plan(
    file: &str,
    name: String,
    env: BTreeMap<String, String>,
    drafts: Vec<Draft>,
    groups: Vec<GroupDraft>,
) -> Result<Plan, Flaw> {
    let places = Places::new(file, &drafts)?;
    let mut after = Vec::with_capacity(drafts.len());
    let mut edges = 0;
    for draft in &drafts {
        let mut all = BTreeSet::new();
        for name in &draft.after {
            let of_name = places.of(name)?;
            edges += of_name.len();
            if edges > EDGES_MAX {
                return Err(Flaw::at(file, &name.span, Problem::Edges));
            }
            all.extend(of_name.iter().copied());
        }
        after.push(all);
    }
    let members = members(&places, &drafts, &groups)?;
    let order = sorted(&after).map_err(|cycle| {
        let span = &drafts[cycle[0]].span;
        let names = cycle.iter().map(|place| drafts[*place].name.clone()).collect();
        Flaw::at(file, span, Problem::Cycle(names))
    })?;
    for (group, inside) in groups.iter().zip(&members) {
        check_group(file, group, inside, &drafts, &after, &order)?;
    }
    check_between(file, &groups, &members, &after)?;
    let spans: Vec<Range<usize>> = order.iter().map(|place| drafts[*place].span.clone()).collect();
    let plan = build(name, env, drafts, groups, &after, &members, &order);
    for request in &plan.requests {
        let first = match &request.by {
            Requester::Task(task) => *task,
            Requester::Group(group) => plan.groups[*group].tasks[0],
        };
        check_needs(&request.needs).map_err(|bad| Flaw::at(file, &spans[first.0], bad))?;
    }
    Ok(plan)
}

/// Whether all of it can be asked for at once.
fn check_needs(needs: &[Need]) -> Result<(), Problem> {
    if needs.len() > NEEDS_MAX {
        return Err(Problem::Needs(needs.len()));
    }
    let mut seen: BTreeMap<String, &Need> = BTreeMap::new();
    // What has a slash may be a unit, which goes by its pool.
    for need in needs.iter().filter(|need| !need.name.as_str().contains('/')) {
        let variable = need.name.variable();
        if let Some(other) = seen.insert(variable.clone(), need) {
            let (one, other) = (other.name.to_string(), need.name.to_string());
            return Err(Problem::Variable(one, other, variable));
        }
    }
    Ok(())
}

/// The tasks of each group.
fn members(
    places: &Places<'_>,
    drafts: &[Draft],
    groups: &[GroupDraft],
) -> Result<Vec<BTreeSet<usize>>, Flaw> {
    let mut owner: BTreeMap<usize, &str> = BTreeMap::new();
    let mut members = Vec::new();
    for group in groups {
        let mut inside = BTreeSet::new();
        for name in &group.tasks {
            for place in places.of(name)? {
                let own = group.name.text.as_str();
                if let Some(one) = owner.insert(*place, own).filter(|one| *one != own) {
                    let (task, one, other) = (drafts[*place].name.clone(), one.into(), own.into());
                    return Err(Flaw::at(
                        places.file,
                        &name.span,
                        Problem::Groups { task, one, other },
                    ));
                }
                inside.insert(*place);
            }
        }
        if inside.len() > GROUP_MAX {
            return Err(Flaw::at(places.file, &group.name.span, Problem::LargeGroup));
        }
        members.push(inside);
    }
    Ok(members)
}

/// An order in which each comes after what it comes after, as near to the file's as can be; or a
/// cycle.
fn sorted(after: &[BTreeSet<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut missing: Vec<usize> = after.iter().map(BTreeSet::len).collect();
    let behind = turned(after);
    let mut ready: BTreeSet<usize> = (0..after.len()).filter(|at| missing[*at] == 0).collect();
    let mut order = Vec::with_capacity(after.len());
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for later in &behind[next] {
            missing[*later] -= 1;
            if missing[*later] == 0 {
                ready.insert(*later);
            }
        }
    }
    if order.len() == after.len() {
        return Ok(order);
    }
    // From any that is left, whatever it comes after and is left too leads into a circle.
    let left = |at: &usize| missing[*at] > 0;
    let mut path: Vec<usize> = (0..after.len()).filter(left).take(1).collect();
    loop {
        let Some(next) = after[path[path.len() - 1]].iter().copied().find(left) else {
            return Err(path);
        };
        if let Some(start) = path.iter().position(|at| *at == next) {
            let mut cycle = path.split_off(start);
            cycle.push(next);
            return Err(cycle);
        }
        path.push(next);
    }
}

/// What comes after each.
fn turned(after: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut behind = vec![Vec::new(); after.len()];
    for (at, before) in after.iter().enumerate() {
        for one in before {
            behind[*one].push(at);
        }
    }
    behind
}

/// Nobody waits for others inside a group, and nobody asks there for what is held.
fn check_group(
    file: &str,
    group: &GroupDraft,
    inside: &BTreeSet<usize>,
    drafts: &[Draft],
    after: &[BTreeSet<usize>],
    order: &[usize],
) -> Result<(), Flaw> {
    let name = || group.name.text.clone();
    for place in inside {
        let twice = drafts[*place]
            .needs
            .iter()
            .find(|need| group.needs.iter().any(|held| held.name == need.name));
        if let Some(need) = twice {
            let (need, task) = (need.name.to_string(), drafts[*place].name.clone());
            let problem = Problem::Held { group: name(), task, need };
            return Err(Flaw::at(file, &drafts[*place].span, problem));
        }
    }
    // Of each task outside, one inside that it comes after, directly or not.
    let mut through: BTreeMap<usize, usize> = BTreeMap::new();
    for at in order {
        for before in &after[*at] {
            let from =
                if inside.contains(before) { Some(*before) } else { through.get(before).copied() };
            let Some(from) = from else { continue };
            if !inside.contains(at) {
                through.insert(*at, from);
            } else if !inside.contains(before) {
                let (inside, outside) = (drafts[from].name.clone(), drafts[*before].name.clone());
                let problem = Problem::Inside { group: name(), inside, outside };
                return Err(Flaw::at(file, &group.name.span, problem));
            }
        }
    }
    Ok(())
}

/// A group is asked for when all has ended that its tasks come after, outside of it: so groups must
/// not come after each other.
fn check_between(
    file: &str,
    groups: &[GroupDraft],
    members: &[BTreeSet<usize>],
    after: &[BTreeSet<usize>],
) -> Result<(), Flaw> {
    // Who asks for each task: its group, or itself.
    let mut asks: Vec<usize> = (0..after.len()).map(|task| groups.len() + task).collect();
    for (group, inside) in members.iter().enumerate() {
        inside.iter().for_each(|task| asks[*task] = group);
    }
    let mut between = vec![BTreeSet::new(); groups.len() + after.len()];
    for (task, before) in after.iter().enumerate() {
        let others = before.iter().map(|one| asks[*one]).filter(|one| *one != asks[task]);
        between[asks[task]].extend(others);
    }
    let Err(cycle) = sorted(&between) else { return Ok(()) };
    let in_it: Vec<&GroupDraft> = cycle.iter().filter_map(|one| groups.get(*one)).collect();
    let names = in_it.iter().map(|group| group.name.text.clone()).collect();
    // Tasks by themselves have no cycle, so there is a group in it.
    let span = in_it.first().map_or(0..0, |group| group.name.span.clone());
    Err(Flaw::at(file, &span, Problem::GroupCycle(names)))
}

fn build(
    name: String,
    env: BTreeMap<String, String>,
    drafts: Vec<Draft>,
    groups: Vec<GroupDraft>,
    after: &[BTreeSet<usize>],
    members: &[BTreeSet<usize>],
    order: &[usize],
) -> Plan {
    let mut place = vec![0; order.len()];
    for (at, draft) in order.iter().enumerate() {
        place[*draft] = at;
    }
    let mut depth = vec![1; order.len()];
    for at in order.iter().rev() {
        for before in &after[*at] {
            depth[*before] = depth[*before].max(depth[*at] + 1);
        }
    }
    let mut requests: Vec<Requester> = (0..groups.len()).map(Requester::Group).collect();
    let group_of = |draft: usize| members.iter().position(|inside| inside.contains(&draft));
    let mut drafts: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    let mut tasks = Vec::with_capacity(order.len());
    for at in order {
        let Some(draft) = drafts[*at].take() else { continue };
        let request = group_of(*at).unwrap_or_else(|| {
            requests.push(Requester::Task(TaskIndex(tasks.len())));
            requests.len() - 1
        });
        let mut after: Vec<TaskIndex> =
            after[*at].iter().map(|one| TaskIndex(place[*one])).collect();
        after.sort_unstable();
        tasks.push(task(draft, after, RequestIndex(request), depth[*at]));
    }
    let groups = groups.into_iter().zip(members).map(|(draft, inside)| {
        let mut tasks: Vec<TaskIndex> = inside.iter().map(|one| TaskIndex(place[*one])).collect();
        tasks.sort_unstable();
        Group { name: draft.name.text, needs: draft.needs, tasks, wait: draft.wait }
    });
    let mut plan = Plan { name, env, tasks, groups: groups.collect(), requests: Vec::new() };
    let request = |by| Request { needs: plan.needs_of(&by), by };
    plan.requests = requests.into_iter().map(request).collect();
    plan
}

fn task(draft: Draft, after: Vec<TaskIndex>, request: RequestIndex, depth: usize) -> Task {
    let Draft { name, when, needs, run, env, retries, pause, wait, timeout, .. } = draft;
    let Draft { tolerated, again, .. } = draft;
    Task {
        name,
        after,
        when,
        needs,
        run,
        env,
        retries,
        pause,
        wait,
        timeout,
        tolerated,
        again,
        request,
        depth,
    }
}
