//! Units that the tasks of one request have between them.

use std::collections::BTreeMap;

use holdall_jobs::TaskIndex;
use holdall_wire::{Amount, Need};

/// What was granted, as the variables of its holder name it.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// By the variable's part of a name: each unit with its fence, and who has it.
    held: BTreeMap<String, Vec<Unit>>,
}

#[derive(Debug)]
struct Unit {
    name: String,
    fence: String,
    /// Whether a task needs this very unit.
    named: bool,
    user: Option<TaskIndex>,
}

impl Unit {
    /// Whether this very unit is needed, or one of a pool that goes by this name.
    fn is_it(&self, pool: &str, need: &Need) -> bool {
        need.name.as_str() == self.name || need.name.variable() == pool
    }
}

/// What a task gets of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) variables: BTreeMap<String, String>,
    /// Variables that name what only others have.
    pub(super) hidden: Vec<String>,
    pub(super) units: Vec<String>,
}

impl Units {
    /// What was granted of these needs.
    pub(super) fn granted(variables: &BTreeMap<String, String>, needs: &[Need]) -> Self {
        let mut held = BTreeMap::new();
        for (key, units) in variables {
            let Some(name) = key.strip_prefix("HOLDALL_UNITS_") else { continue };
            let fences = variables.get(&format!("HOLDALL_FENCE_{name}"));
            let fences = fences.map(String::as_str).unwrap_or_default();
            let pairs = units.split(',').zip(fences.split(','));
            let unit = |(unit, fence): (&str, &str)| Unit {
                name: unit.into(),
                fence: fence.into(),
                named: needs.iter().any(|need| need.name.as_str() == unit),
                user: None,
            };
            held.insert(name.to_owned(), pairs.map(unit).collect());
        }
        Self { held }
    }

    /// Picks units for a task: all of them, or what it needs of its group's.
    pub(super) fn take(
        &mut self,
        task: TaskIndex,
        shares: Option<(&Vec<Need>, &Vec<Need>)>,
    ) -> Taken {
        let mut taken = Taken::default();
        let Some((of_all, own)) = shares else {
            taken.units = self.held.values().flatten().map(|unit| unit.name.clone()).collect();
            return taken;
        };
        self.give_back_of(task);
        for (name, held) in &mut self.held {
            let all = || held.iter().map(|unit| unit.name.clone());
            let wanted = |need: &&Need| held.iter().any(|unit| unit.is_it(name, need));
            if of_all.iter().any(|need| wanted(&need)) {
                taken.units.extend(all());
                continue;
            }
            let wanted: Vec<&Need> = own.iter().filter(wanted).collect();
            let variables = [format!("HOLDALL_UNITS_{name}"), format!("HOLDALL_FENCE_{name}")];
            let has_all = |need: &&Need| matches!(need.amount, Amount::All | Amount::Shared);
            if wanted.is_empty() {
                taken.hidden.extend(variables);
            } else if wanted.iter().any(has_all) {
                taken.units.extend(all());
            } else {
                let (units, fences) = pick(held, &wanted, task);
                taken
                    .variables
                    .extend(variables.into_iter().zip([units.join(","), fences.join(",")]));
                taken.units.extend(units);
            }
        }
        taken
    }

    /// What a task has had is free for others.
    pub(super) fn give_back_of(&mut self, task: TaskIndex) {
        for unit in self.held.values_mut().flatten().filter(|unit| unit.user == Some(task)) {
            unit.user = None;
        }
    }
}

/// Picks units of one pool for a task: those it names, and any that nobody names.
fn pick(held: &mut [Unit], wanted: &[&Need], task: TaskIndex) -> (Vec<String>, Vec<String>) {
    let (mut units, mut fences) = (Vec::new(), Vec::new());
    for need in wanted {
        let this = held.iter().any(|unit| unit.name == need.name.as_str());
        let fits = |unit: &&mut Unit| match this {
            true => unit.name == need.name.as_str(),
            false => unit.user.is_none() && !unit.named,
        };
        let count = match need.amount {
            Amount::Units(n) => n as usize,
            _ => 1,
        };
        for unit in held.iter_mut().filter(fits).take(count) {
            unit.user = Some(task);
            units.push(unit.name.clone());
            fences.push(unit.fence.clone());
        }
    }
    (units, fences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(texts: &[&str]) -> Vec<Need> {
        texts.iter().map(|text| text.parse().expect("a need")).collect()
    }

    #[test]
    fn tasks_of_a_group_have_different_units() {
        let variables = [
            ("HOLDALL_UNITS_CPU", "cpu/0,cpu/1,cpu/2"),
            ("HOLDALL_FENCE_CPU", "7,8,9"),
            ("HOLDALL_UNITS_BOARD", "board/4"),
            ("HOLDALL_FENCE_BOARD", "3"),
        ];
        let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut units = Units::granted(&BTreeMap::from(variables), &[]);
        let group = needs(&["board"]);
        let first = units.take(TaskIndex(0), Some((&group, &needs(&["cpu:2"]))));
        assert_eq!(first.units, ["board/4", "cpu/0", "cpu/1"]);
        assert_eq!(first.variables["HOLDALL_FENCE_CPU"], "7,8");
        let second = units.take(TaskIndex(1), Some((&group, &needs(&["cpu:1"]))));
        assert_eq!(second.units, ["board/4", "cpu/2"]);
        let third = units.take(TaskIndex(2), Some((&group, &needs(&[]))));
        assert_eq!(third.hidden, ["HOLDALL_UNITS_CPU", "HOLDALL_FENCE_CPU"]);
        units.give_back_of(TaskIndex(0));
        let again = units.take(TaskIndex(3), Some((&group, &needs(&["cpu:2"]))));
        assert_eq!(again.units, ["board/4", "cpu/0", "cpu/1"]);
    }

    #[test]
    fn a_unit_that_one_of_them_names_is_left_to_it() {
        let variables = [
            ("HOLDALL_UNITS_BOARD", "board/0,board/1"),
            ("HOLDALL_FENCE_BOARD", "3,4"),
            ("HOLDALL_UNITS_LIC_MAYA", "lic/maya"),
            ("HOLDALL_FENCE_LIC_MAYA", "5"),
        ];
        let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let asked = needs(&["board/0", "board:1", "lic/maya"]);
        let mut units = Units::granted(&BTreeMap::from(variables), &asked);
        let group = needs(&["lic/maya"]);
        let any = units.take(TaskIndex(0), Some((&group, &needs(&["board:1"]))));
        assert_eq!(any.units, ["board/1", "lic/maya"]);
        let this = units.take(TaskIndex(1), Some((&group, &needs(&["board/0"]))));
        assert_eq!(this.units, ["board/0", "lic/maya"]);
        assert_eq!(this.variables["HOLDALL_FENCE_BOARD"], "3");
    }
}
