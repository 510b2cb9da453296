//! A search that is saved, interrupted and resumed ends as one that was not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdall_lab::check::{
    BadCheckpoint, CutOff, Interrupt, Report, Saving, Settings, check_saving, resume, saved_search,
};
use tempfile::TempDir;

use crate::common::{Job, explore};

const NEVER: Duration = Duration::from_secs(1 << 30);
const ALWAYS: Duration = Duration::ZERO;

/// Of all that may be in a state, or behind a violation, something.
const SEARCHES: &[&str] = &[
    "skeen --pools 1,1 --users '0+1/1+0/0'",
    "coordinator:skip --pools 1,1 --users '0+1*/0*/1*'",
    "house --pools 1 --users '0/0' --crash 0 --detector reclaim --amid --timers quiet",
    "house --pools 1,1 --users '0+1/1' --duplicates",
    "house:resend=1 --pools 1 --users '0/0' --loss 1 --timers quiet",
    "ordered --pools 1 --users '0^/0^' --overlap --departures",
    "ordered --without sorted --pools 1,1 --users '0+1/1+0'",
    "coordinator:skip --without room --pools 1,1 --users '0+1*/0*/1*'",
    "ordered --without whole --pools 2 --users '0:2*/0*/0*'",
    "datta --as-printed d2 --pools 1,1 --users '0+1/1+0'",
    "skeen --pools 1,1 --users '0+1*/0*' --max-states 20000",
];

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("search")
    }

    /// What is in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).expect("there");
        entries
            .map(|entry| entry.expect("there").file_name().into_string().expect("ours"))
            .collect()
    }
}

type Found = Result<Report, BadCheckpoint>;

fn begin(job: &Job, settings: &Settings, file: &Path, every: Duration) -> Found {
    let saving = Saving { file: file.into(), every, told: &|saved| saved.expect("written") };
    check_saving(&job.chosen, &job.scopes[0], settings, &saving, &|_| {})
}

fn go_on(job: &Job, settings: &Settings, file: &Path, every: Duration) -> Found {
    let saving = Saving { file: file.into(), every, told: &|saved| saved.expect("written") };
    resume(&job.chosen, &job.scopes[0], settings, &saving, &|_| {})
}

fn up_to(job: &Job, max_states: usize, threads: usize) -> Settings {
    let max_states = max_states.min(job.settings.max_states);
    Settings { max_states, threads: Some(threads), ..job.settings.clone() }
}

#[test]
fn a_search_in_pieces_finds_what_it_finds_in_one() {
    for line in SEARCHES {
        let (whole, job) = (explore(line), Job::parse(line));
        for (piece, threads) in [(1, 1), (611, 2), (whole.states - 1, 1)] {
            let place = Place::new();
            let piece = piece.max(whole.states / 10);
            let mut settings = up_to(&job, piece, threads);
            let mut report = begin(&job, &settings, &place.file(), NEVER).expect("saved");
            while report.cut_off == Some(CutOff::MaxStates)
                && settings.max_states < job.settings.max_states
            {
                settings = up_to(&job, report.states + piece, threads);
                report = go_on(&job, &settings, &place.file(), NEVER).expect("resumed");
            }
            assert_eq!(report, whole, "{line}, {piece} states at a time");
            assert_eq!(place.names(), ["search"], "nothing is left beside it");
        }
    }
}

#[test]
fn a_search_that_is_interrupted_anywhere_goes_on_from_there() {
    let line = "skeen --pools 1,1 --users '0+1/1+0/0'";
    let (whole, job) = (explore(line), Job::parse(line));
    for after in [0, 1, 3, 10, 15] {
        let place = Place::new();
        let interrupt = Interrupt::default();
        let paused = AtomicUsize::new(0);
        let watch = |_| {
            if paused.fetch_add(1, Ordering::Relaxed) == after {
                interrupt.interrupt();
            }
        };
        let settings = Settings { interrupt: interrupt.clone(), ..up_to(&job, usize::MAX, 2) };
        let saving =
            Saving { file: place.file(), every: ALWAYS, told: &|saved| saved.expect("written") };
        let report = check_saving(&job.chosen, &job.scopes[0], &settings, &saving, &watch);
        assert_eq!(report.expect("saved").cut_off, Some(CutOff::Interrupted));
        let resumed = go_on(&job, &up_to(&job, usize::MAX, 2), &place.file(), ALWAYS);
        assert_eq!(resumed.expect("resumed"), whole, "after {after} pauses");
    }
}

/// A search of this line, cut off half-way and saved.
fn saved(line: &str) -> (Place, Job) {
    let (place, job) = (Place::new(), Job::parse(line));
    let half = explore(line).states / 2;
    begin(&job, &up_to(&job, half, 1), &place.file(), NEVER).expect("saved");
    (place, job)
}

#[test]
fn what_is_torn_or_damaged_is_refused() {
    let (place, job) = saved("ordered --pools 1,1 --users '0+1/1+0'");
    let (file, settings) = (place.file(), up_to(&job, usize::MAX, 1));
    let whole = fs::read(&file).expect("there");
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&file, bytes).expect("written");
        match go_on(&job, &settings, &file, NEVER) {
            Ok(_) => panic!("{what} is taken for whole"),
            Err(BadCheckpoint::Unreadable { .. } | BadCheckpoint::Unwritable { .. }) => {
                panic!("{what} is taken for a fault of the disk")
            }
            Err(_) => {}
        }
    };
    for length in (0..whole.len()).step_by(1 + whole.len() / 300) {
        refused(&whole[..length], &format!("the first {length} bytes"));
    }
    for at in (0..whole.len()).step_by(1 + whole.len() / 300).chain(whole.len() - 4..whole.len()) {
        for bit in [1, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= bit;
            refused(&damaged, &format!("a change at {at}"));
        }
    }
    refused(&[&whole[..], b"x"].concat(), "something behind it");
    refused(b"", "nothing");
    refused(&[0xff; 4000], "noise");
    fs::write(&file, &whole).expect("written");
    assert!(go_on(&job, &settings, &file, NEVER).expect("as it was").complete);
}

#[test]
fn what_is_not_of_this_search_is_refused() {
    let (place, job) = saved("ordered --pools 1,1 --users '0+1/1+0'");
    let (file, settings) = (place.file(), up_to(&job, usize::MAX, 1));
    let said = |found: Found| found.expect_err("refused").to_string();
    for other in [
        "ordered --pools 1,1 --users '0+1/1+0' --crash 0",
        "ordered --pools 1,1 --users '0+1/0+1'",
        "ordered --pools 1,1 --users '0+1/1+0' --plain",
        "ordered --without sorted --pools 1,1 --users '0+1/1+0'",
        "skeen --pools 1,1 --users '0+1/1+0'",
    ] {
        let other = Job::parse(other);
        let told = said(go_on(&other, &other.settings, &file, NEVER));
        let is = "is of another search: ordered --pools 1,1 --users '0+1/1+0'";
        assert!(told.ends_with(is), "{told}");
    }
    let told = said(begin(&job, &settings, &file, NEVER));
    assert!(told.contains("is there already: if a search was saved there, --resume"), "{told}");

    let whole = fs::read(&file).expect("there");
    let version = [b"holdall search 2", &whole[16..]].concat();
    fs::write(&file, version).expect("written");
    let told = said(go_on(&job, &settings, &file, NEVER));
    assert!(told.ends_with("in version 2 of the format; this program knows 1"), "{told}");
    fs::write(&file, "some text").expect("written");
    assert!(said(go_on(&job, &settings, &file, NEVER)).ends_with("is no saved search"));
    let nowhere = place.dir.path().join("no/such");
    assert!(said(go_on(&job, &settings, &nowhere, NEVER)).contains("No such file"));
    assert!(said(begin(&job, &settings, &nowhere, NEVER)).contains("No such file"));
}

#[test]
fn one_search_at_a_time_is_saved_to_a_file() {
    let (place, job) = saved("ordered --pools 1,1 --users '0+1/1+0'");
    let (file, settings) = (place.file(), up_to(&job, usize::MAX, 1));
    let saving = Saving { file: file.clone(), every: ALWAYS, told: &|_| {} };
    let watch = |_| {
        let told = go_on(&job, &settings, &file, NEVER).expect_err("refused").to_string();
        assert!(told.starts_with("another program is at the search in"), "{told}");
    };
    resume(&job.chosen, &job.scopes[0], &settings, &saving, &watch).expect("resumed");
}

#[test]
fn what_is_beside_the_file_and_not_ours_is_left_alone() {
    let line = "ordered --pools 1,1 --users '0+1/1+0'";
    let (place, job) = saved(line);
    let beside = place.file().with_added_extension("partial");
    let settings = up_to(&job, explore(line).states - 1, 1);
    // What a search that was killed has left of a file is.
    fs::copy(place.file(), &beside).expect("copied");
    go_on(&job, &settings, &place.file(), ALWAYS).expect("saved");
    assert!(!beside.exists());
    let precious = place.file().with_file_name("precious");
    for link in [false, true] {
        fs::write(&precious, "precious").expect("written");
        let in_the_way = if link {
            std::os::unix::fs::symlink(&precious, &beside)
        } else {
            fs::rename(&precious, &beside)
        };
        in_the_way.expect("made");
        let told = std::sync::Mutex::new(String::new());
        let tell = |saved: Result<(), &BadCheckpoint>| {
            *told.lock().expect("whole") = saved.expect_err("not saved").to_string();
        };
        let saving = Saving { file: place.file(), every: ALWAYS, told: &tell };
        resume(&job.chosen, &job.scopes[0], &settings, &saving, &|_| {}).expect("it goes on");
        let told = told.into_inner().expect("whole");
        assert!(told.contains("is in the way"), "{told}");
        assert_eq!(fs::read_to_string(&beside).expect("left alone"), "precious");
        fs::remove_file(&beside).expect("removed");
    }
}

#[test]
fn a_file_tells_which_search_it_is_of() {
    for line in SEARCHES {
        let job = Job::parse(line);
        let place = Place::new();
        begin(&job, &up_to(&job, 5, 1), &place.file(), NEVER).expect("saved");
        let told = saved_search(&place.file()).expect("there");
        let again = Job::parse(&told);
        go_on(&again, &up_to(&again, 9, 1), &place.file(), NEVER).expect("of the same search");
    }
}
