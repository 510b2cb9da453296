//! The command of the runs: uses what it was given, and writes to it all the time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::journal::{RunNo, Unit};
use crate::store::Word;

/// How often it writes.
const EVERY: Duration = Duration::from_millis(30);

/// What a command is told.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Where the store is.
    pub store: &'a Path,
    /// Its run.
    pub run: RunNo,
    /// The name of its cell.
    pub home: &'a str,
    /// For how long it works.
    pub works: Duration,
    /// Whether it ignores being asked to end.
    pub deaf: bool,
}

/// Uses what the environment says was granted.
///
/// # Errors
/// If the store is gone, or the environment says nothing.
pub fn section(section: &Section<'_>) -> anyhow::Result<()> {
    if section.deaf {
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
    }
    let units = granted(std::env::vars(), section.home)?;
    ensure!(!units.is_empty(), "nothing was granted; this is run by `holdall torture`");
    let store = UnixStream::connect(section.store).context("the store is gone")?;
    let mut answers = BufReader::new(store.try_clone()?);
    let mut say = |word: &Word| -> anyhow::Result<()> {
        let line = serde_json::to_string(word)? + "\n";
        (&store).write_all(line.as_bytes())?;
        let mut answer = String::new();
        ensure!(answers.read_line(&mut answer)? > 0, "the store is gone");
        Ok(())
    };
    say(&Word::Begin { run: section.run, units: units.clone() })?;
    let begun = Instant::now();
    loop {
        for (unit, Unit { fence, .. }) in &units {
            say(&Word::Write { unit: unit.clone(), fence: *fence })?;
        }
        if begun.elapsed() >= section.works {
            return say(&Word::End);
        }
        std::thread::sleep(EVERY.min(section.works));
    }
}

/// What was granted, each unit with its cell.
fn granted(
    variables: impl Iterator<Item = (String, String)>,
    home: &str,
) -> anyhow::Result<BTreeMap<String, Unit>> {
    let variables: BTreeMap<String, String> = variables.collect();
    let at = |name: &str| if name.contains('@') { name.into() } else { format!("{name}@{home}") };
    let needs = variables.get("HOLDALL_NEEDS").map_or("", String::as_str).split(' ');
    let shared: Vec<_> = needs.filter_map(|need| need.strip_suffix(":shared")).map(at).collect();
    let mut all = BTreeMap::new();
    for (variable, units) in &variables {
        let Some(name) = variable.strip_prefix("HOLDALL_UNITS_") else { continue };
        let fences = variables.get(&format!("HOLDALL_FENCE_{name}"));
        let fences = fences.with_context(|| format!("{variable} has no fences"))?;
        ensure!(units.split(',').count() == fences.split(',').count(), "{variable}: {fences}");
        for (unit, fence) in units.split(',').zip(fences.split(',')) {
            let (name, fence) = (at(unit), fence.parse()?);
            let shared = shared.contains(&name);
            all.insert(name, Unit { fence, shared });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_is_read_from_the_environment() {
        let variables = [
            ("HOLDALL_NEEDS", "board:2 db@c1:shared scope"),
            ("HOLDALL_UNITS_BOARD", "board/0,board/2"),
            ("HOLDALL_FENCE_BOARD", "7,9"),
            ("HOLDALL_UNITS_DB_C1", "db@c1"),
            ("HOLDALL_FENCE_DB_C1", "3"),
            ("HOLDALL_UNITS_SCOPE", "scope"),
            ("HOLDALL_FENCE_SCOPE", "4"),
            ("HOLDALL_GRANT", "1-2"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let units = granted(variables.into_iter(), "c0").expect("units");
        let unit = |fence, shared| Unit { fence, shared };
        let expected = [
            ("board/0@c0", unit(7, false)),
            ("board/2@c0", unit(9, false)),
            ("db@c1", unit(3, true)),
            ("scope@c0", unit(4, false)),
        ];
        let expected = expected.map(|(name, unit)| (name.to_owned(), unit));
        assert_eq!(units, expected.into());
        let odd = [("HOLDALL_UNITS_A", "a,b"), ("HOLDALL_FENCE_A", "1")];
        let odd = odd.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert!(granted(odd.into_iter(), "c0").is_err());
    }
}
