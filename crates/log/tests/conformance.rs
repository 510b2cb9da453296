//! Every log keeps the same promises.

use std::sync::Arc;
use std::time::Duration;

use holdall_log::conformance::check;
use holdall_log::disk::RealDisk;
use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::epoch::Place;
use holdall_log::file::{Durability, FileStore, Options};
use holdall_log::memory::MemoryStore;
use holdall_log::{Identity, Life, Store};

async fn check_in_time(mut fresh: impl FnMut() -> Box<dyn Store>) {
    tokio::time::timeout(Duration::from_secs(120), check(&mut fresh)).await.expect("it ends");
}

#[tokio::test]
async fn in_memory() {
    check_in_time(|| Box::new(MemoryStore::new(Identity(1), Life(2)))).await;
}

#[tokio::test]
async fn in_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut made = 0;
    for durability in [Durability::Written, Durability::Synced] {
        for segment in [4096, Options::default().segment] {
            let options = Options { durability, segment, ..Options::default() };
            check_in_time(|| {
                made += 1;
                let path = dir.path().join(made.to_string());
                std::fs::create_dir(&path).expect("a directory");
                let disk = Arc::new(RealDisk::open(&path).expect("it is there"));
                let above = Arc::new(RealDisk::open(dir.path()).expect("it is there"));
                let twin = Place::new(above, &format!("{made}.epoch"));
                Box::new(FileStore::new(disk, Some(twin), options))
            })
            .await;
        }
    }
}

#[tokio::test]
async fn in_files_on_a_simulated_disk() {
    for durability in [Durability::Written, Durability::Synced] {
        let options = Options { durability, segment: 1000, ..Options::default() };
        check_in_time(|| {
            let disk = Arc::new(SimulatedDisk::default());
            Box::new(FileStore::new(disk, None, options))
        })
        .await;
    }
}

/// A state that rests on what is not committed could be kept, and that never come.
#[test]
fn a_snapshot_waits_for_what_is_committed() {
    use holdall_log::memory::Commits;
    use holdall_log::{Class, Entry, Store};
    let store = MemoryStore::new(Identity(1), Life(2));
    let (mut log, _) = store.open().expect("empty");
    store.set_commits(Commits::Held);
    let entry = Entry { class: Class::May, logic: 1, payload: b"x", sync: false };
    log.append(entry).expect("there is room");
    let job = log.begin_snapshot().expect("none is being made");
    assert!(job.history().is_err());
    assert!(job.keep(1, b"the state").is_err());
    let job = log.begin_snapshot().expect("the one before is gone");
    store.set_commits(Commits::Prompt);
    assert_eq!(job.history().expect("committed").1.len(), 1);
    job.keep(1, b"the state").expect("kept");
}
