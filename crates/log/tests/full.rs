//! A full disk: nothing new, but what must be said can be.

use std::sync::Arc;

use holdall_log::disk::Disk;
use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::epoch::Place;
use holdall_log::file::{FileLog, FileStore, Options, Syncing};
use holdall_log::{Class, Entry, Error, Index, Log, Memory, Opened};

const OWED: usize = 20;
/// A record of 48 bytes for each.
const ROOM: u64 = 48 * OWED as u64;

fn short() -> Options {
    Options { syncing: Syncing::Caller, segment: 4000, ..Options::default() }
}

fn open(disk: &SimulatedDisk) -> (FileLog, Opened) {
    let store = FileStore::new(Arc::new(disk.clone()), None, short());
    store.open_file().expect("it can be opened")
}

fn append(log: &mut FileLog, class: Class) -> Result<Index, Error> {
    let index = log.append(Entry { class, logic: 1, payload: b"12345678", sync: false })?;
    log.flush()?;
    Ok(index)
}

/// A log on a disk that has just become full.
fn filled(disk: &SimulatedDisk) -> (FileLog, u64) {
    let (mut log, _) = open(disk);
    log.keep_room(ROOM);
    disk.set_capacity(Some(disk.used()));
    let mut taken = 0;
    loop {
        match append(&mut log, Class::May) {
            Ok(index) => taken = index.0,
            Err(Error::Full(_)) => return (log, taken),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn what_is_owed_fits_and_nothing_new_does() {
    let disk = SimulatedDisk::new(1);
    let (mut log, taken) = filled(&disk);
    assert!(taken > 20);
    assert!(matches!(log.admit(8), Err(Error::Full(_))));
    for owed in 1..=OWED as u64 {
        let index = append(&mut log, Class::Must).expect("room was kept for it");
        assert_eq!(index.0, taken + owed, "what was refused has no number");
        assert_eq!(log.watch().may_leave(), index);
        assert!(matches!(append(&mut log, Class::May), Err(Error::Full(_))));
    }
    assert!(matches!(log.begin_snapshot(), Err(Error::Full(_))));
    assert!(log.watch().progress().trouble.is_none_or(|trouble| trouble.passes()));

    drop(log);
    let (mut log, opened) = open(&disk);
    assert_eq!(opened.memory, Memory::Kept, "it can be opened on a full disk");
    assert_eq!(opened.records.len() as u64, taken + OWED as u64, "what was said stays said");
    disk.set_capacity(None);
    append(&mut log, Class::May).expect("there is room again");
}

#[test]
fn an_epoch_stays_on_a_full_disk_if_nothing_was_lost_and_only_then() {
    let disk = SimulatedDisk::new(1);
    let (log, _) = filled(&disk);
    let epoch = log.watch().progress().epoch;
    drop(log);
    let (log, opened) = open(&disk);
    assert_eq!((opened.memory, opened.epoch), (Memory::Kept, epoch));
    drop(log);
    let disk = disk.unplugged(1);
    disk.set_capacity(Some(disk.used()));
    let store = FileStore::new(Arc::new(disk.clone()), None, short());
    assert!(store.open_file().is_err(), "an epoch that cannot be kept must not be used");
}

/// The same where only the twin's disk is full.
#[test]
fn an_epoch_that_its_twin_cannot_keep_is_not_used() {
    let (disk, outside) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
    let open = |disk: &SimulatedDisk| {
        let twin = Place::new(Arc::new(outside.clone()), "epoch-twin");
        FileStore::new(Arc::new(disk.clone()), Some(twin), short()).open_file()
    };
    let (mut log, first) = open(&disk).expect("there is room");
    append(&mut log, Class::May).expect("there is room");
    drop(log);
    outside.set_capacity(Some(0));
    let (log, opened) = open(&disk).expect("nothing is lost");
    assert_eq!((opened.memory, opened.epoch), (Memory::Kept, first.epoch));
    drop(log);
    assert!(open(&disk.unplugged(1)).is_err(), "numbers could come again");
    outside.set_capacity(None);
    let (_, opened) = open(&disk.unplugged(1)).expect("there is room again");
    assert!(opened.epoch > first.epoch);
}

#[test]
fn a_snapshot_that_does_not_fit_changes_nothing() {
    let disk = SimulatedDisk::new(1);
    let (mut log, _) = open(&disk);
    append(&mut log, Class::May).expect("there is room");
    let job = log.begin_snapshot().expect("there is room for a segment");
    disk.set_capacity(Some(disk.used() + 500));
    assert!(matches!(job.keep(1, &[7; 1000]), Err(Error::Full(_))));
    append(&mut log, Class::May).expect("the log goes on");
    assert!(disk.content("snapshot.new").is_none(), "it does not keep the room");
    drop(log);
    let (_, opened) = open(&disk);
    assert!(opened.snapshot.is_none());
    assert_eq!(opened.records.len(), 2);
}

/// What is kept grows with each that is let in: that alone needs no segment.
#[test]
fn a_segment_has_room_besides_what_is_kept() {
    const SEGMENT: u64 = 64 << 10;
    let disk = SimulatedDisk::new(1);
    let options = Options { segment: SEGMENT, ..short() };
    let (mut log, _) =
        FileStore::new(Arc::new(disk.clone()), None, options).open_file().expect("empty");
    let (asks, each) = (400, 2200);
    for ask in 1..=asks {
        log.keep_room(each * ask);
        log.admit(300).expect("there is room");
        let entry = Entry { class: Class::Must, logic: 1, payload: &[7; 300], sync: false };
        log.append(entry).expect("there is room");
        log.flush().expect("written");
        log.sync().expect("synced");
    }
    let segments = |name: &&String| name.starts_with("segment-");
    let made = disk.names().expect("readable").iter().filter(segments).count() as u64;
    let least = asks * (each + 352) / SEGMENT;
    assert!(made <= 2 * least + 2, "{made} segments, where {least} would do");
}

/// Each start needs a segment of its own, and takes the room for it from the one before.
#[test]
fn what_is_owed_fits_however_often_it_is_killed_on_a_full_disk() {
    let disk = SimulatedDisk::new(1);
    let options = Options { segment: 256 << 10, ..short() };
    let open = |disk: &SimulatedDisk| {
        FileStore::new(Arc::new(disk.clone()), None, options).open_file().expect("it can be opened")
    };
    let (mut log, first) = open(&disk);
    log.keep_room(ROOM);
    disk.set_capacity(Some(disk.used()));
    let mut taken = 0;
    while let Ok(index) = append(&mut log, Class::May) {
        taken = index.0;
    }
    let starts = 50;
    for start in 1..=starts {
        drop(log);
        disk.set_capacity(Some(disk.used()));
        let opened;
        (log, opened) = open(&disk.killed());
        assert_eq!((opened.memory, opened.life), (Memory::Kept, first.life), "start {start}");
        assert_eq!(opened.records.len() as u64, taken + start - 1);
        log.keep_room(ROOM);
        append(&mut log, Class::Must).expect("it says that it has started");
    }
    for _ in 0..OWED {
        append(&mut log, Class::Must).expect("room was kept for it");
    }
    drop(log);
    let (_, opened) = open(&disk.killed());
    assert_eq!(opened.records.len() as u64, taken + starts + OWED as u64);
}

#[test]
fn room_is_made_where_more_is_to_be_kept_than_a_segment_has() {
    let disk = SimulatedDisk::new(1);
    let (mut log, _) = open(&disk);
    log.keep_room(20_000);
    append(&mut log, Class::May).expect("there is room");
    disk.set_capacity(Some(disk.used()));
    for _ in 0..20_000 / 48 {
        append(&mut log, Class::Must).expect("room was kept for it");
    }
}
