//! The directory of a log, of which a file is anything: what opens can be gone on with, and opens again.
//!
//! The first byte says which file, and whether its checksums are made right, so that the search gets behind them.

use std::sync::Arc;

use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::file::{FileStore, Options, Syncing};
use holdall_log::{Class, Entry, Log, OpenError, Opened};

const SEGMENT: &str = "segment-0000000000000002";
const FILES: [&str; 4] = [SEGMENT, "snapshot-0000000000000002", "epoch", "doubt"];
const RIGHT: u8 = 4;
/// The longest file that is tried: a disk in memory keeps all of it.
const FILE_MAX: usize = 1 << 16;

fn store(disk: &SimulatedDisk) -> FileStore {
    let options = Options { syncing: Syncing::Caller, segment: 4096, ..Options::default() };
    FileStore::new(Arc::new(disk.clone()), None, options)
}

fn append(log: &mut dyn Log, payload: &[u8]) -> bool {
    let entry = Entry { class: Class::May, logic: 1, payload, sync: false };
    log.append(entry).is_ok() && log.flush().is_ok()
}

/// A log with a snapshot and records after it.
fn whole() -> SimulatedDisk {
    let disk = SimulatedDisk::new(5);
    let (mut log, _) = store(&disk).open_file().expect("empty");
    for payload in [&b"one"[..], b"two"] {
        assert!(append(&mut log, payload));
    }
    let job = log.begin_snapshot().expect("room");
    job.keep(1, b"one and two").expect("room");
    for number in 0..5 {
        assert!(append(&mut log, format!("record {number}").as_bytes()));
    }
    drop(log);
    disk.killed()
}

pub(crate) fn run(bytes: &[u8]) -> bool {
    let Some((how, content)) = bytes.split_first() else { return false };
    let disk = whole();
    let name = FILES[usize::from(how % RIGHT)];
    let mut content = content.get(..FILE_MAX).unwrap_or(content).to_vec();
    if how & RIGHT != 0 {
        make_right(name, &mut content);
    }
    assert!(disk.content(name).is_some() || name == "doubt", "{name} is not there");
    disk.tamper(name, |file| *file = content);
    drop(store(&disk).look());
    let Ok((mut log, opened)) = store(&disk).open_file() else { return false };
    let before = payloads(&opened);
    if !append(&mut log, b"more") {
        return false;
    }
    drop(log);
    let again = match store(&disk.killed()).open_file() {
        Ok((_, again)) => again,
        // The number of starts has come to its end.
        Err(OpenError::Exhausted(_)) => return true,
        Err(error) => panic!("what opened does not open again: {error}"),
    };
    let mut expected = before;
    expected.push(b"more".to_vec());
    assert_eq!(payloads(&again), expected, "it is not what was there");
    true
}

fn payloads(opened: &Opened) -> Vec<Vec<u8>> {
    opened.records.iter().map(|record| record.payload.to_vec()).collect()
}

/// Puts right checksums, and the bytes that must not be zero, where `docs/log.md` has them.
fn make_right(name: &str, file: &mut [u8]) {
    let header = if name == SEGMENT { 128 } else { 64 };
    if file.len() < header {
        return;
    }
    if name == SEGMENT {
        file[header - 1] = 0xed;
        let salt: [u8; 4] = file[92..96].try_into().expect("four");
        make_records_right(&mut file[header..], salt);
    } else {
        let sum = crc32c::crc32c(&file[header..]);
        file[60..64].copy_from_slice(&sum.to_le_bytes());
        let length = (file.len() - header) as u64;
        file[48..56].copy_from_slice(&length.to_le_bytes());
    }
    let sum = crc32c::crc32c(&file[16..header]);
    file[12..16].copy_from_slice(&sum.to_le_bytes());
}

fn make_records_right(mut rest: &mut [u8], salt: [u8; 4]) {
    while rest.len() >= 40 {
        let length = u32::from_le_bytes(rest[16..20].try_into().expect("four")) as usize;
        let size = length.saturating_add(33).checked_next_multiple_of(8);
        let Some(size) = size.filter(|size| *size <= rest.len()) else { return };
        let (record, behind) = rest.split_at_mut(size);
        let sum = crc32c::crc32c(&record[32..32 + length]);
        record[4..8].copy_from_slice(&sum.to_le_bytes());
        record[size - 1] = 0xed;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&salt), &record[4..32]);
        record[0..4].copy_from_slice(&sum.to_le_bytes());
        rest = behind;
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let disk = whole();
    let mut seeds = Vec::new();
    for (how, name) in FILES.into_iter().enumerate() {
        let mut content = disk.content(name).unwrap_or_default();
        if name == SEGMENT {
            content.truncate(512);
        }
        for right in [0, RIGHT] {
            seeds.push([&[how as u8 | right][..], &content].concat());
        }
    }
    seeds
}
