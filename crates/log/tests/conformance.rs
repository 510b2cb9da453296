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
