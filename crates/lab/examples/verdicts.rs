//! `verdicts STATES PROTOCOL...`: whether what these protocols promise holds in the scopes of
//! `tests/pinned` that have up to so many states, whatever their numbers are. For mutants: a number of
//! states that changes is not noticed here, a promise that is broken is.
//!
//! Where a row says what is lost without a rule, the rule is left in force, and the promise must hold.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use holdall_lab::check::locality;

use self::common::{Job, violated};

#[path = "../tests/check/common.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod common;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let most = args.next().and_then(|most| most.parse().ok()).expect("a number of states");
    let protocols: Vec<String> = args.collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pinned");
    for file in fs::read_dir(folder).expect("the folder is there") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("readable");
        for row in text.lines().filter(|row| is_about(row, &protocols)) {
            if let Some(broken) = broken(row, most) {
                eprintln!("{row}: {broken}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Whether a row is about one of these protocols, in whatever variant.
fn is_about(row: &str, protocols: &[String]) -> bool {
    let name = row.split_whitespace().nth(2).unwrap_or_default();
    !row.starts_with('#') && protocols.iter().any(|p| Some(p.as_str()) == name.split(':').next())
}

/// What is promised and violated in the scope of a row.
fn broken(row: &str, most: usize) -> Option<String> {
    let (states, rest) = row.trim().split_once(char::is_whitespace)?;
    let (expected, line) = rest.trim().split_once(char::is_whitespace)?;
    let too_many = match states.parse::<usize>() {
        Ok(states) => states > most,
        Err(_) => expected.starts_with("distance="), // A search that is cut off measures nothing.
    };
    if too_many || line.contains("--as-printed") {
        return None;
    }
    let Job { mut chosen, scopes, mut settings } = Job::parse(line);
    settings.max_states = settings.max_states.min(5 * most);
    if let Some(distance) = expected.strip_prefix("distance=") {
        let report = locality(&chosen, &scopes[0], &settings, &|_| {}).expect("served");
        let found = report.locality.to_string();
        return (found != distance).then(|| format!("felt at a distance of {found}"));
    }
    if expected != "sound" {
        chosen.options.without.clear();
    }
    let reports = Job { chosen, scopes, settings }.explore();
    let lost: Vec<_> = reports.iter().flat_map(|report| violated(report, true)).collect();
    (!lost.is_empty()).then(|| format!("violated {lost:?}"))
}
