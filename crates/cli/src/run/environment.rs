//! What the child sees of its grant.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use holdall_client::Grant;
use holdall_wire::{Name, Need};

/// Refuses names that are named twice, and names that are one in the environment. Of a name with a slash only
/// the agent knows whether it is a lock or a unit, which goes by its pool.
pub(super) fn check(needs: &[Need]) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = needs.iter().find(|need| !seen.insert(&need.name)) {
        return Err(format!("'{}' is named twice; name everything once", twice.name));
    }
    let names = needs.iter().map(|need| &need.name);
    differ(names.filter(|name| !name.as_str().contains('/')))
}

/// Refuses names that are one in the environment.
pub(super) fn differ<'a>(names: impl Iterator<Item = &'a Name>) -> Result<(), String> {
    let mut seen: BTreeMap<String, &Name> = BTreeMap::new();
    for name in names {
        if let Some(other) = seen.insert(name.variable(), name) {
            return Err(format!(
                "'{other}' and '{name}' would both be HOLDALL_UNITS_{} in the environment; rename one",
                name.variable()
            ));
        }
    }
    Ok(())
}

/// The variable that says whose grant it is.
pub(super) const GRANT_AGENT: &str = "HOLDALL_GRANT_AGENT";

/// The variables that tell the child what it holds, of which agent, and for how long from now at most.
pub(crate) fn variables(
    grant: &Grant,
    needs: &[Need],
    agent: &str,
    limit: Option<Duration>,
) -> Vec<(String, String)> {
    let words: Vec<_> = needs.iter().map(ToString::to_string).collect();
    let mut all = vec![
        ("HOLDALL_GRANT".into(), grant.number().to_string()),
        (GRANT_AGENT.into(), agent.into()),
        ("HOLDALL_NEEDS".into(), words.join(" ")),
    ];
    for taken in grant.taken() {
        let name = taken.name.variable();
        let units: Vec<_> = taken.units.iter().map(|(unit, _)| unit.as_str()).collect();
        let fences: Vec<_> = taken.units.iter().map(|(_, fence)| fence.to_string()).collect();
        all.push((format!("HOLDALL_UNITS_{name}"), units.join(",")));
        all.push((format!("HOLDALL_FENCE_{name}"), fences.join(",")));
    }
    if let Some(limit) = limit {
        let until = crate::show::now() / 1000 + limit.as_secs();
        all.push(("HOLDALL_UNTIL".into(), until.to_string()));
    }
    all.extend(grant.variables().iter().filter(|(name, value)| may_be_set(name, value)).cloned());
    all
}

/// Whether a variable is one that an administrator may have put down. Its name goes into lines for a shell.
fn may_be_set(name: &str, value: &str) -> bool {
    let mut letters = name.bytes();
    let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
    let is_name = first && letters.all(|c| c.is_ascii_alphanumeric() || c == b'_');
    is_name && !name.starts_with("HOLDALL_") && !value.contains('\0')
}

/// How long one variable with its name may be; the kernel counts a byte at its end, too.
const LONGEST: usize = (128 << 10) - 1;

/// Refuses what no program could be started with.
pub(super) fn fits(variables: &[(String, String)], command: &[OsString]) -> Result<(), String> {
    let long = variables.iter().find(|(name, value)| name.len() + 1 + value.len() > LONGEST);
    let remedy = "ask for fewer units at once, or for units with shorter names";
    if let Some((name, value)) = long {
        return Err(format!(
            "{name} would have {} bytes, and no variable of the environment may have more than 128 \
             KiB; {remedy}",
            value.len()
        ));
    }
    // The kernel keeps a quarter of the stack for arguments and environment, each with a pointer.
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    let most = stack.map_or(6 << 20, |stack| (stack / 4).clamp(128 << 10, 6 << 20)) as usize;
    let own = std::env::vars_os().map(|(name, value)| name.len() + value.len() + 10);
    let more = variables.iter().map(|(name, value)| name.len() + value.len() + 10);
    let words = command.iter().map(|word| word.len() + 9);
    let all = own.chain(more).chain(words).sum::<usize>();
    if all + (4 << 10) > most {
        return Err(format!(
            "the command and its environment would have {all} bytes, and may have {most}; {remedy}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_program_can_be_started_with_is_refused() {
        let variable = |bytes: usize| [("NAME".to_owned(), "x".repeat(bytes))];
        assert!(fits(&variable(131_066), &[]).is_ok());
        assert!(fits(&variable(131_067), &[]).is_err());
        let many = vec![variable(100_000)[0].clone(); 100];
        assert!(fits(&many, &[]).is_err(), "ten megabytes");
    }

    #[test]
    fn names_that_collide_are_refused() {
        let needs = |texts: &[&str]| -> Vec<Need> {
            texts.iter().map(|text| text.parse().expect("a need")).collect()
        };
        assert_eq!(check(&needs(&["a", "b:2", "c/d"])), Ok(()));
        assert_eq!(check(&needs(&["board/0", "board/1", "board-1", "board:2"])), Ok(()));
        for bad in [["a", "a"], ["a", "a:shared"], ["a-b", "a_b"], ["a", "A"], ["a/0", "a/0"]] {
            assert!(check(&needs(&bad)).is_err(), "{bad:?}");
        }
        let held = ["lic/maya", "lic_maya"].map(|text| text.parse().expect("a name"));
        assert!(differ(held.iter()).is_err(), "both are locks, as the agent has told");
    }
}
