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
    user: Option<TaskIndex>,
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
    pub(super) fn granted(variables: &BTreeMap<String, String>) -> Self {
        let mut held = BTreeMap::new();
        for (key, units) in variables {
            let Some(name) = key.strip_prefix("HOLDALL_UNITS_") else { continue };
            let fences = variables.get(&format!("HOLDALL_FENCE_{name}"));
            let fences = fences.map(String::as_str).unwrap_or_default();
            let pairs = units.split(',').zip(fences.split(','));
            let unit = |(unit, fence): (&str, &str)| Unit {
                name: unit.into(),
                fence: fence.into(),
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
            let is_it = |need: &&Need| need.name.variable() == *name;
            if of_all.iter().any(|need| is_it(&need)) {
                taken.units.extend(held.iter().map(|unit| unit.name.clone()));
                continue;
            }
            let (units, fences) =
                (format!("HOLDALL_UNITS_{name}"), format!("HOLDALL_FENCE_{name}"));
            let count = match own.iter().find(is_it).map(|need| need.amount) {
                None => {
                    taken.hidden.extend([units, fences]);
                    continue;
                }
                Some(Amount::Units(n)) => n as usize,
                Some(Amount::One) => 1,
                // It has all there is.
                Some(Amount::All | Amount::Shared) => {
                    taken.units.extend(held.iter().map(|unit| unit.name.clone()));
                    continue;
                }
            };
            let (mut names, mut numbers) = (Vec::new(), Vec::new());
            for unit in held.iter_mut().filter(|unit| unit.user.is_none()).take(count) {
                unit.user = Some(task);
                names.push(unit.name.clone());
                numbers.push(unit.fence.clone());
            }
            taken.variables.insert(units, names.join(","));
            taken.variables.insert(fences, numbers.join(","));
            taken.units.extend(names);
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
        let mut units = Units::granted(&BTreeMap::from(variables));
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
}
