//! What the child sees of its grant.

use std::collections::BTreeMap;

use holdall_client::Grant;
use holdall_wire::Need;

/// Refuses names that are one in the environment, and names that are named twice.
pub(super) fn check(needs: &[Need]) -> Result<(), String> {
    let mut seen: BTreeMap<String, &Need> = BTreeMap::new();
    for need in needs {
        match seen.insert(need.name.variable(), need) {
            Some(other) if other.name == need.name => {
                return Err(format!("'{}' is named twice; name everything once", need.name));
            }
            Some(other) => {
                return Err(format!(
                    "'{}' and '{}' would both be HOLDALL_UNITS_{} in the environment; rename one",
                    other.name,
                    need.name,
                    need.name.variable()
                ));
            }
            None => {}
        }
    }
    Ok(())
}

/// The variables that tell the child what it holds.
pub(super) fn variables(grant: &Grant, needs: &[Need]) -> Vec<(String, String)> {
    let words: Vec<_> = needs.iter().map(ToString::to_string).collect();
    let mut all = vec![
        ("HOLDALL_GRANT".into(), grant.number().to_string()),
        ("HOLDALL_NEEDS".into(), words.join(" ")),
    ];
    for taken in grant.taken() {
        let name = taken.name.variable();
        let units: Vec<_> = taken.units.iter().map(|(unit, _)| unit.as_str()).collect();
        let fences: Vec<_> = taken.units.iter().map(|(_, fence)| fence.to_string()).collect();
        all.push((format!("HOLDALL_UNITS_{name}"), units.join(",")));
        all.push((format!("HOLDALL_FENCE_{name}"), fences.join(",")));
    }
    all
}

/// How long one variable with its name may be; the kernel counts a byte at its end, too.
const LONGEST: usize = (128 << 10) - 1;

/// Refuses what no program could be started with.
pub(super) fn fits(variables: &[(String, String)]) -> Result<(), String> {
    let long = variables.iter().find(|(name, value)| name.len() + 1 + value.len() > LONGEST);
    long.map_or(Ok(()), |(name, value)| {
        Err(format!(
            "{name} would have {} bytes, and no variable of the environment may have more than 128 \
             KiB; ask for fewer units at once, or for units with shorter names",
            value.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_program_can_be_started_with_is_refused() {
        let variable = |bytes: usize| [("NAME".to_owned(), "x".repeat(bytes))];
        assert!(fits(&variable(131_066)).is_ok());
        assert!(fits(&variable(131_067)).is_err());
    }

    #[test]
    fn names_that_collide_are_refused() {
        let needs = |texts: &[&str]| -> Vec<Need> {
            texts.iter().map(|text| text.parse().expect("a need")).collect()
        };
        assert_eq!(check(&needs(&["a", "b:2", "c/d"])), Ok(()));
        for bad in [["a", "a"], ["a", "a:shared"], ["a-b", "a_b"], ["a", "A"]] {
            assert!(check(&needs(&bad)).is_err(), "{bad:?}");
        }
    }
}
