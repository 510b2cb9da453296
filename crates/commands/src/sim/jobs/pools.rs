//! The pools and locks of a job, as a protocol sees them: numbers and units.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use holdall_core::{Need, Needs, PoolId};
use holdall_jobs::Plan;
use holdall_wire::{Amount, Name};

/// How many units a pool has.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    name: Name,
    units: u32,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' is not of the form NAME:UNITS, such as board:6");
        match text.parse::<holdall_wire::Need>() {
            Ok(holdall_wire::Need { name, amount: Amount::Units(units) }) => {
                Ok(Self { name, units })
            }
            _ => Err(form()),
        }
    }
}

/// All of them, in the order of their names.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) names: Vec<Name>,
    pub(super) capacities: Vec<u32>,
    locks: BTreeSet<usize>,
}

impl Pools {
    /// Those of a plan. What is not said to be a pool is a lock: it has one unit, or if somebody
    /// shares it as many as there are clients.
    pub(super) fn of(plan: &Plan, sizes: &[Size], clients: usize) -> Result<Self, String> {
        let mut asked: BTreeMap<&Name, Vec<Amount>> = BTreeMap::new();
        for need in plan.requests.iter().flat_map(|request| &request.needs) {
            asked.entry(&need.name).or_default().push(need.amount);
        }
        if let Some(size) = sizes.iter().find(|size| !asked.contains_key(&size.name)) {
            return Err(format!("the job does not need '{}'", size.name));
        }
        let mut pools = Self { names: Vec::new(), capacities: Vec::new(), locks: BTreeSet::new() };
        for (name, amounts) in asked {
            let size = sizes.iter().find(|size| size.name == *name).map(|size| size.units);
            let most = amounts.iter().map(|amount| match amount {
                Amount::Units(n) => *n,
                _ => 1,
            });
            let most = most.max().unwrap_or(1);
            let counted = |amount: &Amount| matches!(amount, Amount::Units(_) | Amount::All);
            let capacity = match size {
                Some(units) if units < most => {
                    return Err(format!("'{name}' has {units} units, and the job needs {most}"));
                }
                Some(_) if amounts.contains(&Amount::Shared) => {
                    return Err(format!("'{name}' is shared by the job, so it is a lock"));
                }
                Some(units) => units,
                None if amounts.iter().any(counted) => {
                    return Err(format!("say how many units '{name}' has: --pool {name}:N"));
                }
                None => {
                    pools.locks.insert(pools.names.len());
                    let shared = amounts.contains(&Amount::Shared);
                    if shared { u32::try_from(clients).unwrap_or(u32::MAX).max(1) } else { 1 }
                }
            };
            pools.names.push(name.clone());
            pools.capacities.push(capacity);
        }
        Ok(pools)
    }

    /// What a request asks for; nothing if it needs nothing.
    pub(super) fn needs(&self, needs: &[holdall_wire::Need]) -> Option<Needs> {
        let need = |need: &holdall_wire::Need| {
            let at = self.names.binary_search(&need.name).ok()?;
            let units = match need.amount {
                Amount::Units(n) => n,
                Amount::All => self.capacities[at],
                Amount::One if self.locks.contains(&at) => self.capacities[at],
                Amount::One | Amount::Shared => 1,
            };
            Some(Need::any(PoolId(at as u64), units))
        };
        Needs::new(needs.iter().filter_map(need).collect()).ok()
    }
}
