//! Pools around grants that are put in force again: a pool is first made as large as they need it, and
//! then what it is meant to be, so that fewer units take effect as units come back.

use std::collections::{BTreeMap, BTreeSet};

use holdall_wire::{Change, Kind, Name, Taken};

/// What is to become of the pools.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// How those begin of which something is held.
    pub begins: Vec<Change>,
    /// The others.
    pub unused: Vec<Change>,
    /// What is changed when everything is in force.
    pub then: Vec<Change>,
}

impl Plan {
    /// From the pools that are wanted, the first of a name counting, and what is held.
    pub fn new<'a>(wanted: Vec<(Name, Kind)>, held: impl Iterator<Item = &'a Taken>) -> Self {
        let mut plan = Self::default();
        let mut pools: BTreeMap<Name, Kind> = BTreeMap::new();
        for (name, kind) in wanted {
            pools.entry(name).or_insert(kind);
        }
        let mut used: BTreeMap<&Name, BTreeSet<&Name>> = BTreeMap::new();
        for taken in held {
            let units = taken.units.iter().map(|(unit, _)| unit);
            used.entry(&taken.name).or_default().extend(units);
        }
        for (name, units) in &used {
            plan.make_room(name, units, pools.remove(*name).as_ref());
        }
        plan.unused.extend(pools.into_iter().map(|(name, kind)| Change::Add { name, kind }));
        plan
    }

    /// A pool of which units are held.
    fn make_room(&mut self, name: &Name, units: &BTreeSet<&Name>, wanted: Option<&Kind>) {
        let named_so = matches!(wanted, Some(Kind::Named(all)) if all.contains(name));
        let is_lock = !named_so && units.iter().all(|unit| *unit == name);
        let begins = match wanted {
            None if is_lock => return, // It is made on first use.
            Some(Kind::Named(all)) if !is_lock => {
                let more =
                    units.iter().filter(|unit| !all.contains(unit)).map(|unit| (*unit).clone());
                Kind::Named(all.iter().cloned().chain(more).collect())
            }
            _ if is_lock => Kind::Lock,
            _ => match (numbers(name, units), wanted) {
                (Some(most), Some(Kind::Numbered(n))) => Kind::Numbered(most.max(*n)),
                (Some(most), _) => Kind::Numbered(most),
                (None, _) => Kind::Named(units.iter().map(|unit| (*unit).clone()).collect()),
            },
        };
        let add = |kind: &Kind| Change::Add { name: name.clone(), kind: kind.clone() };
        self.begins.push(add(&begins));
        let resize = |units: usize| Change::Resize { name: name.clone(), units: units as u32 };
        match (&begins, wanted) {
            (_, Some(wanted)) if *wanted == begins => {}
            (Kind::Numbered(_), Some(Kind::Numbered(n))) => self.then.push(resize(*n as usize)),
            (Kind::Named(_), Some(Kind::Named(all))) => self.then.push(resize(all.len())),
            (_, wanted) => {
                self.then.push(Change::Remove { name: name.clone(), force: true });
                self.then.extend(wanted.map(add));
            }
        }
    }
}

/// How many units a numbered pool has at least that has these; none if it is no such pool.
fn numbers(name: &Name, units: &BTreeSet<&Name>) -> Option<u32> {
    let number = |unit: &&Name| {
        let rest = unit.as_str().strip_prefix(name.as_str())?.strip_prefix('/')?;
        rest.parse::<u32>().ok()?.checked_add(1)
    };
    units.iter().map(number).collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| name(text)).collect()
    }

    fn holds(pool: &str, units: &[&str]) -> Taken {
        let units = names(units).into_iter().map(|unit| (unit, 1)).collect();
        Taken { name: name(pool), units }
    }

    fn plan(wanted: Option<Kind>, held: &Taken) -> (Vec<Change>, Vec<Change>) {
        let wanted = wanted.map(|kind| (name("p"), kind)).into_iter().collect();
        let Plan { begins, then, .. } = Plan::new(wanted, [held].into_iter());
        (begins, then)
    }

    #[test]
    fn a_pool_begins_as_large_as_it_is_used_and_becomes_what_it_is_meant_to_be() {
        let add = |kind: Kind| vec![Change::Add { name: name("p"), kind }];
        let resize = |units| vec![Change::Resize { name: name("p"), units }];
        let remove = || vec![Change::Remove { name: name("p"), force: true }];
        let four = holds("p", &["p/0", "p/3"]);
        let numbered = |n| Some(Kind::Numbered(n));
        assert_eq!(plan(numbered(5), &four), (add(Kind::Numbered(5)), vec![]));
        assert_eq!(plan(numbered(2), &four), (add(Kind::Numbered(4)), resize(2)));
        assert_eq!(plan(None, &four), (add(Kind::Numbered(4)), remove()));
        let lock = [remove(), add(Kind::Lock)].concat();
        assert_eq!(plan(Some(Kind::Lock), &four), (add(Kind::Numbered(4)), lock));
        let red = holds("p", &["red"]);
        let (two, three) = (names(&["blue", "green"]), names(&["blue", "green", "red"]));
        assert_eq!(plan(Some(Kind::Named(two)), &red), (add(Kind::Named(three)), resize(2)));
        let held = holds("p", &["p"]);
        assert_eq!(plan(Some(Kind::Lock), &held), (add(Kind::Lock), vec![]));
        assert_eq!(plan(None, &held), (vec![], vec![]));
        let two = [remove(), add(Kind::Numbered(2))].concat();
        assert_eq!(plan(numbered(2), &held), (add(Kind::Lock), two));
    }
}
