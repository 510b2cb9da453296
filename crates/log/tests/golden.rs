//! The bytes on disk: written and read as ever. `UPDATE_GOLDEN=1 cargo test -p holdall-log --test
//! golden` writes the files anew; after a release that is a new format.

use std::path::PathBuf;
use std::sync::Arc;

use holdall_log::disk::Disk;
use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::file::{FileStore, Options, Syncing};
use holdall_log::{Class, Entry, Identity, Index, Life, Log, Memory, OpenError};

/// The files of the directory, and what they are called among the golden ones.
const FILES: [(&str, &str); 4] = [
    ("epoch", "epoch-1"),
    ("segment-0000000000000002", "segment-1"),
    ("segment-0000000000000003", "segment-1-sealed"),
    ("snapshot-0000000000000002", "snapshot-1"),
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn store(disk: &SimulatedDisk) -> FileStore {
    let options = Options { syncing: Syncing::Caller, segment: 512, ..Options::default() };
    FileStore::new(Arc::new(disk.clone()), None, options)
}

fn append(log: &mut dyn Log, payload: &[u8]) {
    let entry = Entry { class: Class::May, logic: 7, payload, sync: false };
    log.append(entry).expect("there is room");
}

fn written() -> SimulatedDisk {
    let disk = SimulatedDisk::new(42);
    let (mut log, _) = store(&disk).open_file().expect("empty");
    append(&mut log, b"before the snapshot");
    log.begin_snapshot().expect("begun").keep(8, b"the state after one record").expect("kept");
    append(&mut log, b"");
    append(&mut log, b"seven b");
    append(&mut log, b"eight by");
    log.flush().expect("written");
    drop(log);
    let (mut log, _) = store(&disk).open_file().expect("it is there");
    append(&mut log, &[0xff; 20]);
    Box::new(log).seal().expect("sealed");
    disk
}

#[test]
fn what_is_written() {
    let disk = written();
    for (name, golden) in FILES {
        let content = disk.content(name).expect("it was written");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path(golden), &content).expect("writable");
        }
        let golden_content = std::fs::read(path(golden)).expect("a golden file");
        assert!(content == golden_content, "{name} is not as it was in {golden}");
    }
}

#[test]
fn what_is_read() {
    let disk = SimulatedDisk::new(42);
    for (name, golden) in FILES {
        let content = std::fs::read(path(golden)).expect("a golden file");
        disk.create(name).and_then(|file| file.write_at(&content, 0)).expect("room");
    }
    let (_, opened) = store(&disk).open_file().expect("it is understood");
    assert_eq!(opened.identity, Identity(0xbdd7_3226_2feb_6e95_28ef_e333_b266_f103));
    assert_eq!(opened.life, Life(0x4752_6757_130f_9f52_581c_e1ff_0e4a_e394));
    assert_eq!((opened.epoch, opened.memory, opened.sealed), (3, Memory::Kept, true));
    let snapshot = opened.snapshot.expect("a snapshot");
    assert_eq!((snapshot.upto, snapshot.logic), (Index(1), 8));
    assert_eq!(snapshot.payload, "the state after one record");
    let payloads: Vec<&[u8]> = opened.records.iter().map(|record| &*record.payload).collect();
    assert_eq!(payloads, [b"", &b"seven b"[..], b"eight by", &[0xff; 20]]);
    assert!(opened.records.iter().all(|record| record.logic == 7));
}

#[test]
fn what_a_newer_version_has_written_is_left_to_it() {
    for (name, _) in &FILES[1..] {
        let disk = written();
        disk.tamper(name, |content| content[8] = 2);
        match store(&disk).open_file() {
            Err(OpenError::Newer { path, version: 2 }) => assert!(path.ends_with(name)),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{name} of another version is read"),
        }
    }
}
