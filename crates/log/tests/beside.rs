//! A disk that takes its time: whoever appends does not notice.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::disk::{Disk, DiskFile, Lock, Place};
use holdall_log::file::{Durability, FileLog, FileStore, Options};
use holdall_log::{Class, Entry, Error, Index, Log, Memory};

const LIMIT: Duration = Duration::from_secs(60);

/// Something to pass, when it is open.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(&self) {
        *self.closed.lock().expect("sound") = true;
    }

    fn open(&self) {
        *self.closed.lock().expect("sound") = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().expect("sound");
        let passed = self.opened.wait_timeout_while(closed, LIMIT, |closed| *closed);
        assert!(!passed.expect("sound").1.timed_out(), "nobody has opened it");
    }
}

/// What it is that makes a disk slow.
#[derive(Default)]
struct Slowness {
    /// For syncs.
    syncs: Gate,
    /// For writes of the thread that is for that.
    writes: Gate,
    /// Whether those fail, and whether for lack of room.
    failing: AtomicBool,
    full: AtomicBool,
    /// How syncs fail, if they do.
    sync_error: Mutex<Option<io::ErrorKind>>,
    /// For the making of files by the thread that does so.
    makes: Gate,
    /// How many files others have made.
    made_here: AtomicUsize,
    /// How many syncs are under way.
    syncing: AtomicUsize,
    /// How many writes others have tried meanwhile.
    would_wait: AtomicUsize,
}

#[derive(Clone)]
struct SlowDisk(SimulatedDisk, Arc<Slowness>);

struct SlowFile(Arc<dyn DiskFile>, Arc<Slowness>);

impl SlowDisk {
    fn slow(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(SlowFile(file, self.1.clone()))
    }
}

impl Disk for SlowDisk {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn place(&self) -> io::Result<Place> {
        self.0.place()
    }
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if std::thread::current().name() == Some("log-sync") {
            self.1.makes.pass();
        } else {
            self.1.made_here.fetch_add(1, Ordering::SeqCst);
        }
        self.0.create(name).map(|file| self.slow(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(name).map(|file| self.slow(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.lock(name)
    }
    fn boot(&self) -> io::Result<u128> {
        self.0.boot()
    }
    fn random(&self) -> io::Result<u128> {
        self.0.random()
    }
}

impl DiskFile for SlowFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.0.read()
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.0.allocate(length)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if std::thread::current().name() == Some("log-write") {
            self.1.writes.pass();
            if self.1.failing.load(Ordering::SeqCst) {
                return Err(io::Error::other("it failed"));
            }
            if self.1.full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        } else if self.1.syncing.load(Ordering::SeqCst) > 0 {
            self.1.would_wait.fetch_add(1, Ordering::SeqCst);
        }
        self.0.write_at(bytes, offset)
    }
    fn cut(&self, length: u64) -> io::Result<()> {
        self.0.cut(length)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.syncing.fetch_add(1, Ordering::SeqCst);
        self.1.syncs.pass();
        self.1.syncing.fetch_sub(1, Ordering::SeqCst);
        match *self.1.sync_error.lock().expect("sound") {
            Some(kind) => Err(kind.into()),
            None => self.0.sync(),
        }
    }
    fn forget(&self) -> io::Result<()> {
        self.0.forget()
    }
    fn has_name(&self) -> bool {
        self.0.has_name()
    }
}

fn open(disk: &SlowDisk, durability: Durability) -> FileLog {
    let options = Options { durability, segment: 2000, ..Options::default() };
    FileStore::new(Arc::new(disk.clone()), None, options).open_file().expect("it is free").0
}

fn append(log: &mut FileLog, sync: bool) -> Index {
    let entry = Entry { class: Class::May, logic: 1, payload: b"some bytes", sync };
    let index = log.append(entry).expect("there is room");
    log.flush().expect("handed over");
    index
}

/// A log of which the first record is being synced, for as long as the gate is closed.
fn syncing(disk: &SlowDisk, durability: Durability) -> FileLog {
    let mut log = open(disk, durability);
    disk.1.syncs.close();
    assert_eq!(append(&mut log, true), Index(1));
    while disk.1.syncing.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    log
}

/// How many records another process would find now.
fn found(disk: &SlowDisk) -> usize {
    let copy = Arc::new(disk.0.as_it_is());
    let opened = FileStore::new(copy, None, Options::default()).open_file();
    let (_, opened) = opened.expect("it is not damaged");
    assert_eq!(opened.memory, Memory::Kept);
    opened.records.len()
}

#[tokio::test]
async fn whoever_appends_does_not_wait_for_a_sync() {
    for durability in [Durability::Written, Durability::Synced] {
        let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
        let mut log = syncing(&disk, durability);
        let mut last = Index(0);
        for _ in 0..100 {
            last = append(&mut log, false); // In several segments.
        }
        let mut watch = log.watch();
        if durability == Durability::Written {
            let reached = tokio::time::timeout(LIMIT, watch.reached(last)).await;
            reached.expect("it does not wait for the sync either").expect("written");
            assert_eq!(found(&disk), 101);
        } else {
            assert_eq!(watch.may_leave(), Index(0));
        }
        assert_eq!(watch.progress().synced, Index(0));
        assert_eq!(disk.1.would_wait.load(Ordering::SeqCst), 0, "a file system may let it wait");
        disk.1.syncs.open();
        let reached = tokio::time::timeout(LIMIT, watch.reached(last)).await;
        reached.expect("the gate is open").expect("synced");
    }
}

#[tokio::test]
async fn what_is_in_the_backlog_is_written_in_order() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = syncing(&disk, Durability::Written);
    let mut watch = log.watch();
    disk.1.writes.close();
    for _ in 0..3 {
        append(&mut log, false);
    }
    disk.1.syncs.open();
    watch.synced(Index(1)).await.expect("synced");
    for _ in 0..100 {
        append(&mut log, false); // Nothing is being synced any more.
    }
    assert_eq!(found(&disk), 1, "nothing overtakes what is in the backlog");
    assert_eq!(watch.may_leave(), Index(1));
    disk.1.writes.open();
    watch.reached(Index(104)).await.expect("written");
    assert_eq!(found(&disk), 104);
}

#[tokio::test]
async fn a_write_that_fails_in_the_backlog_ends_the_log() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = syncing(&disk, Durability::Written);
    let mut watch = log.watch();
    disk.1.writes.close();
    let lost = append(&mut log, false);
    let last = append(&mut log, false);
    disk.1.failing.store(true, Ordering::SeqCst);
    disk.1.writes.open();
    let told = tokio::time::timeout(LIMIT, watch.reached(lost)).await.expect("it is told");
    assert!(matches!(told, Err(Error::Unknown { .. })), "{told:?}");
    disk.1.failing.store(false, Ordering::SeqCst);
    disk.1.syncs.open();
    assert!(log.flush().is_err(), "it is at its end");
    assert!(watch.reached(last).await.is_err());
    drop(log);
    assert_eq!((watch.may_leave(), found(&disk)), (Index(1), 1), "there is no hole");
}

/// Waits until something is so.
fn wait_for(what: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !what() {
        assert!(begun.elapsed() < LIMIT, "it does not come");
        std::thread::yield_now();
    }
}

fn fail_syncs(disk: &SlowDisk, kind: io::ErrorKind) {
    *disk.1.sync_error.lock().expect("sound") = Some(kind);
    disk.1.syncs.open();
}

#[test]
fn nothing_leaves_after_a_sync_has_failed() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = syncing(&disk, Durability::Written);
    disk.1.writes.close();
    for _ in 0..3 {
        append(&mut log, false);
    }
    fail_syncs(&disk, io::ErrorKind::Other);
    let watch = log.watch();
    wait_for(|| watch.progress().has_ended());
    disk.1.writes.open();
    drop(log); // With it, its threads have ended.
    assert_eq!(watch.may_leave(), Index(1), "the others rest on what is not known to be there");
}

#[test]
fn what_ended_the_log_is_not_forgotten_for_what_passes() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = open(&disk, Durability::Written);
    disk.1.syncs.close();
    log.raise_epoch(7).expect("asked for");
    wait_for(|| disk.1.syncing.load(Ordering::SeqCst) > 0);
    disk.1.failing.store(true, Ordering::SeqCst);
    append(&mut log, false);
    let watch = log.watch();
    wait_for(|| watch.progress().has_ended());
    fail_syncs(&disk, io::ErrorKind::StorageFull); // There is no room for the epoch.
    wait_for(|| disk.1.syncing.load(Ordering::SeqCst) == 0);
    assert!(matches!(log.flush(), Err(Error::Unknown { .. })), "it is at its end");
    drop(log);
    assert!(matches!(watch.progress().trouble, Some(Error::Unknown { .. })));
}

#[test]
fn a_seal_does_not_ask_again_after_a_sync_has_failed() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let log = syncing(&disk, Durability::Written);
    let (watch, before) = (log.watch(), disk.0.operations());
    let sealed = std::thread::spawn(move || Box::new(log).seal());
    wait_for(|| disk.0.operations() > before); // It waits for the sync that is under way.
    fail_syncs(&disk, io::ErrorKind::Other);
    wait_for(|| watch.progress().has_ended());
    *disk.1.sync_error.lock().expect("sound") = None;
    assert!(sealed.join().expect("no panic").is_err());
    assert_eq!(watch.progress().synced, Index(0));
}

#[tokio::test]
async fn a_write_in_the_backlog_that_finds_no_room_is_tried_again() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = syncing(&disk, Durability::Written);
    disk.1.full.store(true, Ordering::SeqCst);
    let last = append(&mut log, false);
    let mut watch = log.watch();
    wait_for(|| matches!(watch.progress().trouble, Some(Error::Full(_))));
    let entry = Entry { class: Class::May, logic: 1, payload: b"more", sync: false };
    assert!(matches!(log.append(entry), Err(Error::Full(_))), "nothing new meanwhile");
    disk.1.full.store(false, Ordering::SeqCst);
    disk.1.syncs.open();
    let reached = tokio::time::timeout(LIMIT, watch.reached(last)).await;
    reached.expect("it is tried again").expect("there is room");
    log.append(entry).expect("there is room again");
}

#[tokio::test]
async fn an_epoch_that_finds_no_room_is_tried_again() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = open(&disk, Durability::Written);
    fail_syncs(&disk, io::ErrorKind::StorageFull);
    log.raise_epoch(7).expect("asked for");
    let mut watch = log.watch();
    wait_for(|| matches!(watch.progress().trouble, Some(Error::Full(_))));
    *disk.1.sync_error.lock().expect("sound") = None;
    let raised = tokio::time::timeout(LIMIT, watch.raised(7)).await;
    raised.expect("it is tried again").expect("there is room");
}

#[test]
fn whoever_appends_makes_no_files() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = open(&disk, Durability::Written);
    let segments = || {
        let names = disk.names().expect("readable");
        names.iter().filter(|name| name.starts_with("segment-")).count()
    };
    disk.1.made_here.store(0, Ordering::SeqCst);
    let watch = log.watch();
    for number in 2..6 {
        // A segment of 2000 bytes has 35 of these.
        for _ in 0..20 {
            append(&mut log, false);
        }
        wait_for(|| segments() == number);
        // What is asked for now is done after that.
        log.raise_epoch(number as u32).expect("asked for");
        wait_for(|| watch.progress().epoch == number as u32);
        for _ in 0..15 {
            append(&mut log, false);
        }
        wait_for(|| watch.may_leave() == Index(35 * (number as u64 - 1)));
    }
    assert_eq!(disk.1.made_here.load(Ordering::SeqCst), 0);
    drop(log);
    assert_eq!(found(&disk), 4 * 35);
    drop(open(&disk, Durability::Written));
    assert!(disk.0.content("segment-0000000000000005").is_none(), "what was made ahead goes");
}

/// If making a file takes long, whoever needs one makes it, and the late one goes.
#[test]
fn whoever_appends_does_not_wait_for_a_file() {
    let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
    let mut log = open(&disk, Durability::Written);
    disk.1.makes.close();
    for _ in 0..300 {
        append(&mut log, false);
    }
    disk.1.makes.open();
    let watch = log.watch();
    wait_for(|| watch.may_leave() == Index(300));
    for _ in 0..300 {
        append(&mut log, false);
    }
    wait_for(|| watch.may_leave() == Index(600));
    drop(log);
    assert_eq!(found(&disk), 600);
}

#[test]
fn a_snapshot_waits_for_what_is_in_the_backlog() {
    for reads in [true, false] {
        let disk = SlowDisk(SimulatedDisk::new(1), Arc::default());
        let mut log = syncing(&disk, Durability::Written);
        disk.1.writes.close();
        for _ in 0..3 {
            append(&mut log, false);
        }
        let job = log.begin_snapshot().expect("none is being made");
        disk.1.syncs.open();
        let (begun, told) = std::sync::mpsc::channel();
        let made = std::thread::spawn(move || {
            begun.send(()).expect("somebody listens");
            let records = if reads { job.history().expect("readable").1.len() } else { 4 };
            job.keep(1, b"the state").expect("kept");
            records
        });
        told.recv().expect("it runs");
        std::thread::sleep(Duration::from_millis(20)); // If it did not wait, it would be done.
        assert_eq!(found(&disk), 1, "what it stands for is there");
        disk.1.writes.open();
        assert_eq!(made.join().expect("made"), 4);
    }
}
