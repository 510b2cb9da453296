//! Scopes with what is known of them: one row each in `pinned/*.txt`, explored in process.
//!
//! A row has the number of states, what is expected, and the protocol with its options as for
//! `holdall check`:
//!
//! ```text
//!     69  sound        ordered --pools 1,1 --users '0+1/1+0'
//!      -  no-deadlock  ordered --without sorted --pools 1,1 --users '0+1/1+0'
//! ```
//!
//! `sound` means that everything was seen and every promise kept. The name of a property means that
//! it is promised and violated; the scope with the rule that was taken away must be sound then.
//! `distance=2` means that a crash can be felt that far, and no farther, as `holdall locality`
//! measures it. A dash for the number leaves it open. What is complete and not too large is explored a second
//! time with `--reduce`, and must come to the same.
//!
//! After a change that is meant to change counts,
//!
//! ```text
//! HOLDALL_PIN=1 cargo test -p holdall-lab --test check pinned
//! ```
//!
//! writes the numbers found into the files; `git diff` shows the rows that changed.

use std::fs;
use std::path::PathBuf;

use holdall_lab::check::{Report, locality};
use rayon::prelude::*;

use crate::common::{Job, violated};

/// The protocols that say of some messages that they may as well be received at once.
const GATHERING: &[&str] = &["house", "rhee", "skeen", "skr", "walk", "winkowski"];

/// Up to so many states a row is explored a second time, reduced.
const REDUCED_MAX: usize = 200_000;

/// One line of a file.
struct Row<'a> {
    states: Option<usize>,
    expected: &'a str,
    line: &'a str,
}

impl<'a> Row<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if text.trim().is_empty() || text.starts_with('#') {
            return None;
        }
        let (states, rest) = text.trim().split_once(char::is_whitespace).expect("three columns");
        let (expected, line) = rest.trim().split_once(char::is_whitespace).expect("three columns");
        Some(Self { states: states.parse().ok(), expected, line: line.trim() })
    }

    /// What is found instead of what is expected, and the number of states.
    fn explore(&self) -> (Result<(), String>, usize) {
        if let Some(distance) = self.expected.strip_prefix("distance=") {
            return self.measure(distance);
        }
        let reports = Job::parse(self.line).explore();
        let states = reports.iter().map(|report| report.states).sum();
        let lost: Vec<_> = reports
            .iter()
            .flat_map(|report| violated(report, true))
            .map(|(name, _)| name)
            .collect();
        let complete = reports.iter().all(|report| report.complete);
        let as_expected = match self.expected {
            "sound" => complete && lost.is_empty(),
            property => lost.contains(&property),
        };
        let cut_off = if complete { "" } else { ", cut off" };
        let found = format!("expected {}, violated {lost:?}{cut_off}", self.expected);
        let result = if as_expected { self.explore_with_all_rules() } else { Err(found) };
        (result.and_then(|()| self.explore_reduced(&reports, states)), states)
    }

    /// What is received at once spares states, and nothing else.
    fn explore_reduced(&self, plain: &[Report], states: usize) -> Result<(), String> {
        let mut job = Job::parse(self.line);
        let gathers = GATHERING.iter().any(|family| self.line.starts_with(family));
        let whole = plain.iter().all(|report| report.complete) && states <= REDUCED_MAX;
        if !gathers || !whole || job.settings.reduce {
            return Ok(());
        }
        job.settings.reduce = true;
        let reduced = job.explore();
        let verdicts = |report: &Report| -> Vec<_> {
            report.properties.iter().map(|property| (property.name, property.verdict)).collect()
        };
        let same = plain.iter().map(verdicts).eq(reduced.iter().map(verdicts));
        let fewer: usize = reduced.iter().map(|report| report.states).sum();
        match same && fewer <= states {
            true => Ok(()),
            false => Err(format!("reduced to {fewer} states: {}", verdict_list(&reduced))),
        }
    }

    /// The same for a row that is about the distance at which a crash can be felt.
    fn measure(&self, distance: &str) -> (Result<(), String>, usize) {
        let Job { chosen, scopes, settings } = Job::parse(self.line);
        let report = locality(&chosen, &scopes[0], &settings, &|_| {}).expect("served");
        let found = report.locality.to_string();
        let as_expected = report.exact && report.broken.is_empty() && found == distance;
        let found = format!("expected {}, found {found}", self.expected);
        (if as_expected { Ok(()) } else { Err(found) }, report.states)
    }

    /// What a rule is missed in must be sound with it.
    fn explore_with_all_rules(&self) -> Result<(), String> {
        let mut job = Job::parse(self.line);
        if job.chosen.options.without.is_empty() || self.line.contains("--as-printed") {
            return Ok(());
        }
        job.chosen.options.without.clear();
        let reports = job.explore();
        let lost: Vec<_> = reports.iter().flat_map(|report| violated(report, true)).collect();
        if lost.is_empty() { Ok(()) } else { Err(format!("with all rules, violated {lost:?}")) }
    }
}

fn verdict_list(reports: &[Report]) -> String {
    let properties = reports.iter().flat_map(|report| &report.properties);
    properties.map(|property| format!("{} {:?} ", property.name, property.verdict)).collect()
}

fn check(file: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "pinned", file].iter().collect();
    let text = fs::read_to_string(&path).expect("the file is there");
    let pin = std::env::var_os("HOLDALL_PIN").is_some();
    let lines: Vec<&str> = text.lines().collect();
    let explored: Vec<(String, Option<String>)> = lines
        .par_iter()
        .with_max_len(1)
        .map(|text| {
            let Some(row) = Row::parse(text) else { return (text.to_string(), None) };
            let (result, states) = row.explore();
            let wrong = match row.states {
                Some(pinned) if pinned != states && !pin => {
                    Some(format!("{pinned} states are pinned, there are {states}"))
                }
                _ => None,
            };
            let wrong = result.err().or(wrong).map(|why| format!("{}: {why}", row.line));
            let states = row.states.map_or_else(|| "-".into(), |_| states.to_string());
            (format!("{states:>9}  {:<18}  {}", row.expected, row.line), wrong)
        })
        .collect();
    if pin {
        let rows: String = explored.iter().map(|(row, _)| format!("{row}\n")).collect();
        fs::write(&path, rows).expect("the file can be written");
    }
    let wrong: Vec<_> = explored.into_iter().filter_map(|(_, wrong)| wrong).collect();
    assert!(wrong.is_empty(), "{file}:\n{}", wrong.join("\n"));
}

macro_rules! files {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            check($file);
        })*

        #[test]
        fn every_file_is_read() {
            let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "pinned"].iter().collect();
            let there = fs::read_dir(folder).expect("the folder is there");
            let mut there: Vec<_> =
                there.map(|entry| entry.expect("readable").file_name()).collect();
            there.sort();
            assert_eq!(there, [$($file),*]);
        }
    };
}

files! {
    coordinator: "coordinator.txt",
    datta: "datta.txt",
    house: "house.txt",
    linked: "linked.txt",
    lives: "lives.txt",
    locality_of_crashes: "locality.txt",
    neighbours: "neighbours.txt",
    ordered: "ordered.txt",
    rhee: "rhee.txt",
    skeen: "skeen.txt",
    specimens: "specimens.txt",
    winkowski: "winkowski.txt",
}
