//! `holdall job check`: what a file says, and whether it can be done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use holdall_jobs::{Plan, RequestIndex, Requester};
use holdall_wire::{Amount, Name, Need, PoolView, UnitView};

use crate::failure::{Failure, NEVER};
use crate::reach::{Reach, look};
use crate::usage;

/// The largest file that is read.
const BYTES_MAX: u64 = 16 << 20;

/// The plan in a file, and its text. What a job is called is told by its file's name, if not in it.
pub(super) fn read(path: &Path) -> anyhow::Result<(Plan, String)> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(usage(format!("{} is larger than {BYTES_MAX} bytes", path.display())));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let fine = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = stem.trim_start_matches(['.', '-']).chars().map(fine).take(60).collect();
    let name = if name.is_empty() { "job".into() } else { name };
    let plan = holdall_jobs::read(&text, &name);
    Ok((plan.map_err(|flaw| usage(format!("{}: {flaw}", path.display())))?, text))
}

/// The declared pools and locks of the agent.
#[derive(Default)]
pub(super) struct Pools(BTreeMap<Name, PoolView>);

impl Pools {
    /// What the agent has for a plan. Who needs nothing needs no agent.
    pub(super) async fn of(plan: &Plan, reach: &Reach) -> anyhow::Result<Self> {
        if plan.requests.iter().all(|request| request.needs.is_empty()) {
            return Ok(Self::default());
        }
        let client = reach.connect_or_start().await?;
        let (status, _) = look(&client, &[], |_| false).await?;
        let declared = status.pools.into_iter().filter(|pool| pool.declared);
        Ok(Self(declared.map(|pool| (pool.name.clone(), pool)).collect()))
    }

    /// Refuses what will never be granted.
    pub(super) fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        for (at, request) in plan.requests.iter().enumerate() {
            for need in &request.needs {
                if let Some(why) = self.never(need) {
                    let name = plan.name_of(RequestIndex(at));
                    let text = format!("'{name}' needs {need}, which can never be granted: {why}");
                    return Err(Failure(NEVER, text).into());
                }
            }
        }
        Ok(())
    }

    /// Why a need is never granted, if so.
    fn never(&self, need: &Need) -> Option<String> {
        let name = &need.name;
        match (self.0.get(name), need.amount) {
            (Some(pool), Amount::Units(_) | Amount::All) if pool.lock => {
                Some(format!("{name} is a lock, not a pool"))
            }
            (Some(pool), Amount::Units(n)) if (n as usize) > pool.units.len() => {
                Some(format!("{name} has only {} units", pool.units.len()))
            }
            (Some(pool), Amount::Shared) if !pool.lock => {
                Some(format!("{name} is a pool, not a lock"))
            }
            (Some(_), _) => None,
            (None, amount) => self.never_a_unit(name, amount),
        }
    }

    /// The same for what is no pool and no declared lock: it is a unit, or a lock.
    fn never_a_unit(&self, name: &Name, amount: Amount) -> Option<String> {
        let slashes = name.as_str().rmatch_indices('/').map(|(at, _)| at);
        let mut in_front = slashes.filter_map(|at| self.0.get(&name.as_str()[..at]));
        match (in_front.find(|pool| !pool.lock), amount) {
            (Some(pool), Amount::One) => {
                let is_it = |unit: &UnitView| {
                    unit.name == *name || format!("{}/{}", pool.name, unit.name) == name.as_str()
                };
                let known = pool.units.iter().any(is_it);
                (!known).then(|| format!("the pool {} has no unit {name}", pool.name))
            }
            (Some(pool), _) => Some(format!("{name} is one unit of the pool {}", pool.name)),
            (None, Amount::Units(_) | Amount::All) => {
                Some(format!("{name} is no pool; `holdall pool add {name} --units N` makes one"))
            }
            (None, Amount::One | Amount::Shared) => None,
        }
    }

    /// At most as much as there is: of a lock one, of a pool all.
    fn capped(&self, need: Need) -> Need {
        let amount = match (self.0.get(&need.name).filter(|pool| !pool.lock), need.amount) {
            (None, Amount::Units(_)) => Amount::One,
            (Some(pool), Amount::Units(n)) => {
                Amount::Units(n.min(u32::try_from(pool.units.len()).unwrap_or(n)))
            }
            (_, amount) => amount,
        };
        Need { amount, ..need }
    }
}

/// What a plan is, for people.
pub(super) fn told(plan: &Plan, pools: &Pools) -> String {
    let mut lines = vec![format!("{}: {} tasks", plan.name, plan.tasks.len())];
    for task in &plan.tasks {
        let after: Vec<&str> = task.after.iter().map(|one| plan.task(*one).name.as_str()).collect();
        let group = match &plan.requests[task.request.0].by {
            Requester::Group(group) => format!(", in {}", plan.groups[*group].name),
            Requester::Task(_) => String::new(),
        };
        let list =
            |word: &str, all: String| if all.is_empty() { all } else { format!(", {word} {all}") };
        lines.push(format!(
            "  {}{}{}{group}",
            task.name,
            list("after", crate::show::shorten(&after.join(" "), 200)),
            list("needs", written(&task.needs))
        ));
    }
    for group in &plan.groups {
        let request = plan.task(group.tasks[0]).request;
        let needs = written(&plan.requests[request.0].needs);
        lines.push(format!("  {} holds {needs} through its tasks", group.name));
    }
    let most: Vec<Need> = plan.most().into_iter().map(|need| pools.capped(need)).collect();
    let most = if most.is_empty() { "nothing".into() } else { written(&most) };
    lines.push(format!("holds at most: {most}"));
    let path: Vec<&str> =
        plan.critical_path().iter().map(|task| plan.task(*task).name.as_str()).collect();
    lines.push(format!("critical path: {}", path.join(" -> ")));
    lines.join("\n")
}

fn written(needs: &[Need]) -> String {
    needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
