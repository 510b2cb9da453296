//! What a log says of files that are not as it left them.

use std::sync::Arc;

use holdall_log::disk::Disk;
use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::file::{Durability, FileStore, Options, Syncing};
use holdall_log::{Class, Entry, Error, Index, Log, Lost, Memory, OpenError, Opened};

const SEGMENT: &str = "segment-0000000000000001";

fn short() -> Options {
    Options { syncing: Syncing::Caller, segment: 2000, ..Options::default() }
}

fn open(disk: &SimulatedDisk, options: Options) -> Result<(Box<dyn Log>, Opened), OpenError> {
    let store = FileStore::new(Arc::new(disk.clone()), None, options);
    store.open_file().map(|(log, opened)| (Box::new(log) as Box<dyn Log>, opened))
}

fn append(log: &mut dyn Log, payload: &[u8]) {
    let entry = Entry { class: Class::May, logic: 1, payload, sync: false };
    log.append(entry).expect("there is room");
    log.flush().expect("written");
}

/// A disk with ten records in one segment, `record 0` to `record 9`.
fn ten() -> SimulatedDisk {
    let disk = SimulatedDisk::new(5);
    let (mut log, _) = open(&disk, short()).expect("empty");
    for number in 0..10 {
        append(&mut *log, format!("record {number}").as_bytes());
    }
    disk
}

fn payloads(opened: &Opened) -> Vec<String> {
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).expect("text");
    opened.records.iter().map(|record| text(&record.payload)).collect()
}

fn expected(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("record {number}")).collect()
}

#[test]
fn a_wrong_byte_anywhere_is_refused_or_told_or_does_no_harm() {
    let whole = ten();
    let length = whole.content(SEGMENT).expect("it is there").len();
    // A header of 128 bytes, and records of 32 + 8 + 1 bytes, rounded up to 48.
    let end = 128 + 10 * 48;
    let (mut refused, mut told) = (0, 0);
    for at in 0..length {
        for bit in [0x01, 0x80] {
            let disk = whole.as_it_is();
            disk.tamper(SEGMENT, |content| content[at] ^= bit);
            match open(&disk, short()) {
                Err(OpenError::Damaged { path, offset, .. }) => {
                    assert!(path.ends_with(SEGMENT));
                    let record = at.saturating_sub(128) / 48 * 48 + 128;
                    assert!(offset == 0 || offset == record as u64, "byte {at}, told {offset}");
                    refused += 1;
                }
                Err(OpenError::Newer { .. }) => assert!((8..12).contains(&at)),
                Err(other) => panic!("byte {at}: {other}"),
                Ok((_, opened)) if opened.memory == Memory::Kept => {
                    assert_eq!(payloads(&opened), expected(10), "byte {at}");
                }
                Ok((_, opened)) => {
                    assert_eq!(opened.memory, Memory::Lost(Lost::Torn), "byte {at}");
                    assert!(at >= end - 48, "only the end can be torn, not byte {at}");
                    assert!(payloads(&opened).len() >= 9 && opened.cut.is_some());
                    told += 1;
                }
            }
        }
    }
    assert!(refused > 900 && told > 90, "{refused} refused, {told} told");
}

#[test]
fn a_record_written_in_part_is_cut_off_and_nothing_is_lost() {
    let whole = ten();
    let last = 128 + 9 * 48;
    for written in 0..48 {
        let disk = whole.as_it_is();
        disk.tamper(SEGMENT, |content| content[last + written..].fill(0));
        let (mut log, opened) = open(&disk, short()).expect("it is not damaged");
        assert_eq!(opened.memory, Memory::Kept, "nobody was told of it");
        assert_eq!(payloads(&opened), expected(9));
        assert_eq!(opened.cut.is_some(), written > 0);
        append(&mut *log, b"record 9");
        drop(log);
        let (_, opened) = open(&disk, short()).expect("it went on");
        assert_eq!(payloads(&opened), expected(10));
    }
}

#[test]
fn what_was_begun_after_a_seal_may_not_be_removed() {
    let disk = ten();
    let (log, _) = open(&disk, short()).expect("kept");
    log.seal().expect("sealed");
    let (mut log, opened) = open(&disk, short()).expect("kept");
    assert_eq!((opened.memory, opened.sealed), (Memory::Kept, true));
    append(&mut *log, b"granted");
    drop(log);
    disk.remove("segment-0000000000000003").expect("it is there");
    let (_, opened) = open(&disk, short()).expect("what is there can be read");
    assert_eq!(opened.memory, Memory::Lost(Lost::Torn));
}

/// A segment has its length from the beginning, and loses what is not written only when it is sealed,
/// or when another one follows.
#[test]
fn a_log_that_was_cut_short_has_lost_its_memory() {
    let whole = ten();
    let length = whole.content(SEGMENT).expect("it is there").len();
    for left in 0..length {
        let disk = whole.as_it_is();
        disk.tamper(SEGMENT, |content| content.truncate(left));
        let (log, opened) = open(&disk, short()).expect("its end is torn");
        let lost = if left < 128 { Lost::Missing } else { Lost::Torn };
        assert_eq!(opened.memory, Memory::Lost(lost), "{left} bytes are left");
        assert_eq!(payloads(&opened), expected((left.saturating_sub(128) / 48).min(10)));
        assert_eq!(opened.cut.is_some(), left >= 128);
        drop(log);
        let (_, again) = open(&disk, short()).expect("it went on");
        assert_eq!(again.memory, Memory::Lost(lost), "nobody has appended anything");
    }
}

#[test]
fn a_sealed_log_that_was_cut_short_has_lost_its_memory() {
    let whole = ten();
    let (mut log, _) = open(&whole, short()).expect("it is there");
    append(&mut *log, b"record 10");
    log.seal().expect("sealed");
    let sealed = "segment-0000000000000002";
    let length = whole.content(sealed).expect("it is there").len();
    for left in 0..=length {
        let disk = whole.as_it_is();
        disk.tamper(sealed, |content| content.truncate(left));
        let (_, opened) = open(&disk, short()).expect("its end is torn");
        let kept = if left == length { Memory::Kept } else { Memory::Lost(Lost::Torn) };
        assert_eq!((opened.memory, opened.sealed), (kept, left == length), "{left} of {length}");
        assert_eq!(payloads(&opened), expected(if left < 128 + 48 { 10 } else { 11 }));
    }
    whole.remove(sealed).expect("it is there");
    let (_, opened) = open(&whole, short()).expect("its end is torn");
    assert_eq!(opened.memory, Memory::Lost(Lost::Torn), "nor may it be removed");
}

#[test]
fn a_wrong_byte_in_a_snapshot_is_refused() {
    let whole = ten();
    let (mut log, _) = open(&whole, short()).expect("it is there");
    log.begin_snapshot().expect("begun").keep(1, b"the state").expect("kept");
    drop(log);
    let name = "snapshot-0000000000000003";
    for at in 0..whole.content(name).expect("it is there").len() {
        let disk = whole.as_it_is();
        disk.tamper(name, |content| content[at] ^= 0x10);
        match open(&disk, short()) {
            Err(OpenError::Damaged { path, .. }) => assert!(path.ends_with(name)),
            Err(OpenError::Newer { .. }) => assert!((8..12).contains(&at)),
            Err(other) => panic!("byte {at}: {other}"),
            Ok(_) => panic!("byte {at} is not looked at"),
        }
    }
}

/// Whoever finds a torn end and ends before it could say so leaves it to the next to find.
#[test]
fn a_torn_end_is_told_however_often_it_is_interrupted() {
    use holdall_log::disk::simulated::{Fault, FaultKind};
    let whole = ten();
    whole.tamper(SEGMENT, |content| content[128 + 9 * 48 + 33] ^= 1);
    for at in 1.. {
        let disk = whole.as_it_is();
        let fault = Fault { at: disk.operations() + at, kind: FaultKind::Crash { bytes: 0 } };
        disk.set_fault(Some(fault));
        let is_interrupted = open(&disk, short()).is_err();
        let (_, opened) = open(&disk.killed(), short()).expect("it is not damaged");
        assert_eq!(opened.memory, Memory::Lost(Lost::Torn), "interrupted at {at}");
        assert_eq!(payloads(&opened), expected(9));
        if !is_interrupted && disk.operations() < fault.at {
            break;
        }
    }
}

/// After a restart of the machine the end may be torn, but not what was synced.
#[test]
fn what_was_synced_is_damaged_and_not_torn_also_after_a_restart() {
    let disk = SimulatedDisk::new(5);
    let store = FileStore::new(Arc::new(disk.clone()), None, short());
    let (mut log, _) = store.open_file().expect("empty");
    for number in 0..10 {
        if number == 5 {
            let entry = Entry { class: Class::May, logic: 1, payload: b"record 5", sync: true };
            log.append(entry).expect("there is room");
            log.flush().expect("written");
            log.sync().expect("synced");
        } else {
            append(&mut log, format!("record {number}").as_bytes());
        }
    }
    for number in 0..10 {
        let disk = disk.as_it_is();
        disk.tamper(SEGMENT, |content| content[128 + number * 48 + 33] ^= 1);
        let opened = open(&disk.unplugged(1), short());
        match opened {
            Err(OpenError::Damaged { offset, .. }) => {
                assert!(number <= 5, "record {number} was not synced");
                assert_eq!(offset, 128 + number as u64 * 48);
            }
            Err(other) => panic!("{other}"),
            Ok((_, opened)) => {
                assert!(number > 5, "record {number} was synced");
                assert_eq!(opened.memory, Memory::Lost(Lost::Rebooted));
                assert_eq!(payloads(&opened), expected(number));
            }
        }
    }
}

#[test]
fn a_segment_that_is_missing_in_the_middle_is_refused() {
    let disk = ten();
    for _ in 0..2 {
        append(&mut *open(&disk, short()).expect("it is there").0, b"more");
    }
    disk.remove("segment-0000000000000002").expect("it is there");
    let told = open(&disk, short()).err().expect("a record is missing").to_string();
    assert!(told.contains("segment-0000000000000001") && told.contains("record 11"), "{told}");
    assert!(told.contains("Put back"), "{told}");
}

#[test]
fn a_directory_has_one_log_and_a_copy_is_known() {
    let disk = ten();
    let (_log, opened) = open(&disk, short()).expect("it is there");
    assert!(matches!(open(&disk, short()), Err(OpenError::InUse(_))));
    let copy = disk.copied();
    assert!(matches!(open(&copy, short()), Err(OpenError::Copied(_))));
    let adopt = Options { adopt: true, ..short() };
    let (log, adopted) = open(&copy, adopt).expect("it was told to");
    assert_eq!(adopted.memory, Memory::Lost(Lost::Adopted));
    assert!(adopted.life != opened.life && adopted.epoch > opened.epoch);
    drop(log);
    let (mut log, adopted) = open(&copy, short()).expect("it was taken over");
    assert_eq!(adopted.memory, Memory::Lost(Lost::Adopted), "nobody has appended anything");
    append(&mut *log, b"record 10");
    drop(log);
    let (_, again) = open(&copy, short()).expect("it is its own now");
    assert_eq!((again.memory, again.life), (Memory::Kept, adopted.life));
}

#[test]
fn a_log_whose_files_are_removed_says_so_and_tells_nothing_more() {
    for name in ["lock", "segment-0000000000000002"] {
        let disk = ten();
        let (mut log, _) = open(&disk, short()).expect("it is there");
        disk.remove(name).expect("it is there");
        let entry = Entry { class: Class::Must, logic: 1, payload: b"x", sync: false };
        log.append(entry).expect("nobody has looked yet");
        assert!(matches!(log.flush(), Err(Error::Gone(_))));
        assert_eq!(log.watch().may_leave(), Index(10));
        assert!(matches!(log.append(entry), Err(Error::Gone(_))), "it stays gone");
        assert!(matches!(log.watch().progress().trouble, Some(Error::Gone(_))));
    }
}

#[test]
fn an_emptied_directory_has_lost_its_memory_as_long_as_an_epoch_is_left() {
    let disk = ten();
    let before = open(&disk, short()).expect("it is there").1;
    for name in disk.names().expect("readable") {
        if name != "epoch" {
            disk.remove(&name).expect("it is there");
        }
    }
    let (_, opened) = open(&disk, short()).expect("it goes on");
    assert_eq!(opened.memory, Memory::Lost(Lost::Missing));
    assert!(opened.epoch > before.epoch && opened.life != before.life);
    assert_eq!(opened.identity, before.identity, "it is the same cell");
    for name in disk.names().expect("readable") {
        disk.remove(&name).expect("it is there");
    }
    let (_, opened) = open(&disk, short()).expect("it begins");
    assert_eq!(opened.memory, Memory::New);
    assert_ne!(opened.identity, before.identity);
}

#[test]
fn what_is_written_because_a_segment_is_full_does_not_leave_before_it_is_flushed() {
    let disk = SimulatedDisk::new(5);
    for durability in [Durability::Written, Durability::Synced] {
        let options = Options { durability, ..short() };
        let store = FileStore::new(Arc::new(disk.clone()), None, options);
        let (mut log, opened) = store.open_file().expect("it can be opened");
        let before = Index(opened.records.len() as u64);
        let entry = Entry { class: Class::May, logic: 1, payload: &[7; 100], sync: false };
        let mut last = before;
        for _ in 0..100 {
            last = log.append(entry).expect("there is room");
            log.sync().expect("synced");
        }
        assert_eq!(log.watch().may_leave(), before);
        log.flush().expect("written");
        log.sync().expect("synced");
        assert_eq!(log.watch().may_leave(), last);
    }
}

#[test]
fn a_failed_sync_ends_the_log() {
    use holdall_log::disk::simulated::{Fault, FaultKind};
    let disk = SimulatedDisk::new(5);
    let store = FileStore::new(
        Arc::new(disk.clone()),
        None,
        Options { durability: Durability::Synced, ..short() },
    );
    let (mut log, _) = store.open_file().expect("empty");
    append(&mut log, b"record 0");
    disk.set_fault(Some(Fault { at: disk.operations() + 1, kind: FaultKind::Fails }));
    assert!(matches!(log.sync(), Err(Error::Unknown { .. })));
    disk.set_fault(None);
    assert_eq!(log.watch().may_leave(), Index(0), "nobody knows whether it is synced");
    assert!(matches!(log.flush(), Err(Error::Unknown { .. })));
    assert!(log.sync().is_err(), "it does not ask again");
    assert_eq!(log.watch().may_leave(), Index(0));
}

/// The pages of a failed sync are taken for clean, and are not on the disk.
#[test]
fn what_a_failed_sync_has_left_in_memory_is_not_believed() {
    use holdall_log::disk::simulated::{Fault, FaultKind};
    let disk = SimulatedDisk::new(5);
    let store = FileStore::new(Arc::new(disk.clone()), None, short());
    let (mut log, first) = store.open_file().expect("empty");
    append(&mut log, b"record 0");
    let entry = Entry { class: Class::May, logic: 1, payload: b"record 1", sync: true };
    log.append(entry).expect("there is room");
    log.flush().expect("written");
    assert_eq!(log.watch().may_leave(), Index(2), "they may be told, being written");
    disk.set_fault(Some(Fault { at: disk.operations() + 1, kind: FaultKind::Fails }));
    assert!(log.sync().is_err());
    drop(log);
    let disk = disk.killed();
    for at in 1..30 {
        // Whoever finds it and ends leaves it to the next to find.
        let disk = disk.as_it_is();
        let kind = FaultKind::Crash { bytes: 0 };
        disk.set_fault(Some(Fault { at: disk.operations() + at, kind }));
        drop(open(&disk, short()));
        let disk = disk.killed();
        let (mut log, opened) = open(&disk, short()).expect("nothing was said to be synced");
        assert_eq!(opened.memory, Memory::Lost(Lost::Torn), "interrupted at {at}");
        assert!(opened.life != first.life && opened.epoch > first.epoch);
        assert_eq!(payloads(&opened), expected(0), "what is not on the disk is not there");
        append(&mut *log, b"record 0");
        drop(log);
        let (_, opened) = open(&disk.unplugged(at), short()).expect("it is what it said to be");
        assert_eq!(opened.memory, Memory::Lost(Lost::Rebooted));
    }
}

/// A header that is wrong may once have been right, and what follows it synced.
#[test]
fn a_segment_with_a_wrong_header_is_left_for_people_to_look_at() {
    let disk = ten();
    append(&mut *open(&disk, short()).expect("it is there").0, b"record 10");
    let name = "segment-0000000000000002";
    disk.tamper(name, |content| content[20] ^= 1);
    let disk = disk.unplugged(1);
    let (_log, opened) = open(&disk, short()).expect("the machine was restarted");
    assert_eq!(opened.memory, Memory::Lost(Lost::Rebooted));
    assert_eq!(payloads(&opened), expected(10));
    assert!(disk.content(name).is_some(), "it is not removed");
}

#[test]
fn the_last_number_there_is_is_no_overflow() {
    let disk = ten();
    disk.create("segment-ffffffffffffffff").expect("it is not there");
    assert!(matches!(open(&disk, short()), Err(OpenError::Damaged { .. })));
}
