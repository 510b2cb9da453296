//! A look at a log that somebody else has.

use std::sync::Arc;

use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::file::{FileLog, FileStore, Options, Syncing};
use holdall_log::{Class, Entry, Error, Log};

fn store(disk: &SimulatedDisk) -> FileStore {
    let options = Options { syncing: Syncing::Caller, segment: 600, ..Options::default() };
    FileStore::new(Arc::new(disk.clone()), None, options)
}

fn append(log: &mut FileLog, payload: &[u8]) {
    let entry = Entry { class: Class::Must, logic: 1, payload, sync: false };
    log.append(entry).expect("there is room");
    log.flush().expect("written");
}

fn seen(disk: &SimulatedDisk) -> (usize, bool) {
    let seen = store(disk).look().expect("readable");
    let upto = seen.snapshot.map_or(0, |snapshot| snapshot.upto.0 as usize);
    (upto + seen.records.len(), seen.sealed)
}

#[test]
fn what_is_written_is_seen_while_somebody_has_it() {
    let disk = SimulatedDisk::new(1);
    assert_eq!(seen(&disk), (0, false), "nothing is there, and nothing is made");
    assert_eq!(disk.operations(), 0);
    let (mut log, _) = store(&disk).open_file().expect("empty");
    for number in 1..30 {
        append(&mut log, &[7; 100]);
        assert_eq!(seen(&disk), (number, false));
        if number == 20 {
            log.begin_snapshot().expect("begun").keep(1, b"state").expect("kept");
            assert_eq!(seen(&disk), (number, false));
        }
    }
    let before = disk.operations();
    assert_eq!(seen(&disk), (29, false));
    assert_eq!(disk.operations(), before, "it changes nothing");
    Box::new(log).seal().expect("sealed");
    assert_eq!(seen(&disk), (29, true));
}

/// A record of which the first bytes are there is not seen, and is no damage.
#[test]
fn what_is_being_written_is_not_seen() {
    let disk = SimulatedDisk::new(1);
    let (mut log, _) = store(&disk).open_file().expect("empty");
    append(&mut log, &[7; 100]);
    drop(log);
    let name = "segment-0000000000000001";
    let content = disk.content(name).expect("it is there");
    let end = content.iter().rposition(|byte| *byte != 0).expect("something") + 1;
    for cut in 1..100 {
        let copy = disk.as_it_is();
        copy.tamper(name, |content| content[end - cut..].fill(0));
        assert_eq!(seen(&copy), (0, false), "{cut} bytes are missing");
    }
}

/// Whoever has no descriptors left makes no snapshot; the log goes on.
#[test]
fn a_snapshot_that_cannot_open_a_file_does_not_end_the_log() {
    let disk = SimulatedDisk::new(1);
    let (mut log, _) = store(&disk).open_file().expect("empty");
    append(&mut log, &[7; 100]);
    let job = log.begin_snapshot().expect("begun");
    disk.fail_open(true);
    let failed = job.keep(1, b"state").expect_err("it cannot be opened");
    assert!(matches!(failed, Error::Failed { .. }) && failed.passes(), "{failed}");
    disk.fail_open(false);
    append(&mut log, &[8; 100]);
    log.sync().expect("it goes on");
    assert!(log.watch().progress().trouble.is_none());
    drop(log);
    assert_eq!(seen(&disk), (2, false));
}
