//! What every log promises, as tests: give [`check`] something that makes empty stores.
//!
//! The end of a process is played by dropping a log.

use crate::{
    Class, Entry, Error, Index, Log, Memory, OpenError, Opened, PAYLOAD_MAX, Record, Store,
};

/// Makes an empty store.
pub type Fresh<'a> = &'a mut dyn FnMut() -> Box<dyn Store>;

/// Runs all of it.
///
/// # Panics
/// If a promise is not kept.
pub async fn check(fresh: Fresh<'_>) {
    a_new_store_is_empty(&*fresh());
    what_may_have_left_is_there_again(&*fresh()).await;
    nothing_leaves_before_it_is_handed_over(&*fresh()).await;
    what_was_not_handed_over_is_lost_from_the_end(&*fresh()).await;
    a_record_can_be_waited_for_until_it_is_synced(&*fresh()).await;
    a_snapshot_stands_for_what_was_before(&*fresh()).await;
    a_snapshot_that_is_dropped_changes_nothing(&*fresh()).await;
    a_seal_is_seen_once(&*fresh()).await;
    of_two_logs_one_counts(&*fresh()).await;
    epochs_only_grow(&*fresh()).await;
    what_is_too_long_is_refused(&*fresh()).await;
}

fn open(store: &dyn Store) -> (Box<dyn Log>, Opened) {
    store.open().expect("it can be opened")
}

fn entry(payload: &[u8]) -> Entry<'_> {
    Entry { class: Class::May, logic: 3, payload, sync: false }
}

/// Records whose content is their number.
fn append(log: &mut dyn Log, count: u64) -> Index {
    let mut last = Index(0);
    for _ in 0..count {
        let number = last.0.to_le_bytes();
        last = log.append(entry(&number)).expect("there is room");
    }
    last
}

fn indexes(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.index.0).collect()
}

fn a_new_store_is_empty(store: &dyn Store) {
    let (log, opened) = open(store);
    assert_eq!(opened.memory, Memory::New);
    assert!(opened.snapshot.is_none() && opened.records.is_empty() && !opened.sealed);
    assert!(opened.epoch > 0, "numbers of epoch 0 look like none");
    assert_eq!(log.watch().may_leave(), Index(0));
}

async fn what_may_have_left_is_there_again(store: &dyn Store) {
    let payloads: [&[u8]; 4] = [b"", b"one", &[0; 4000], &[0xff; 70_000]];
    let mut before: Option<Opened> = None;
    for round in 0..4 {
        let (mut log, opened) = open(store);
        let seen = round * payloads.len();
        assert_eq!(opened.records.len(), seen);
        for (at, record) in opened.records.iter().enumerate() {
            assert_eq!((record.index, record.logic), (Index(at as u64 + 1), 3));
            assert_eq!(record.payload, payloads[at % payloads.len()]);
        }
        if let Some(before) = before {
            assert_eq!(opened.memory, Memory::Kept);
            assert_eq!((opened.identity, opened.life), (before.identity, before.life));
            assert!(opened.epoch > before.epoch);
        }
        let mut watch = log.watch();
        for payload in payloads {
            let index = log.append(entry(payload)).expect("there is room");
            log.flush().expect("it is handed over");
            watch.reached(index).await.expect("it may leave");
        }
        before = Some(opened);
    }
}

async fn nothing_leaves_before_it_is_handed_over(store: &dyn Store) {
    let (mut log, _) = open(store);
    let mut watch = log.watch();
    for _ in 0..10 {
        let before = watch.may_leave();
        let index = log.append(entry(b"x")).expect("there is room");
        assert_eq!(index, before.next());
        assert_eq!(watch.may_leave(), before, "nobody has kept it");
        log.flush().expect("it is handed over");
        watch.reached(index).await.expect("it may leave");
        assert_eq!(watch.may_leave(), index, "there is nothing beyond it");
    }
}

async fn what_was_not_handed_over_is_lost_from_the_end(store: &dyn Store) {
    let (mut log, _) = open(store);
    let mut watch = log.watch();
    let told = append(&mut *log, 5);
    log.flush().expect("it is handed over");
    watch.reached(told).await.expect("it may leave");
    append(&mut *log, 5);
    drop(log);
    let (mut log, opened) = open(store);
    let there = indexes(&opened.records);
    assert!(there.len() >= 5 && there.iter().copied().eq(1..=there.len() as u64), "{there:?}");
    assert_eq!(opened.memory, Memory::Kept, "nobody was told of the others");
    let next = log.append(entry(b"next")).expect("there is room");
    assert_eq!(next.0, there.len() as u64 + 1);
}

async fn a_record_can_be_waited_for_until_it_is_synced(store: &dyn Store) {
    let (mut log, _) = open(store);
    let mut watch = log.watch();
    append(&mut *log, 3);
    let index = log.append(Entry { sync: true, ..entry(b"keep") }).expect("there is room");
    log.flush().expect("it is handed over");
    watch.synced(index).await.expect("it survives");
    assert!(watch.may_leave() >= index);
}

async fn a_snapshot_stands_for_what_was_before(store: &dyn Store) {
    let (mut log, _) = open(store);
    append(&mut *log, 4);
    let job = log.begin_snapshot().expect("none is being made");
    assert_eq!(job.upto(), Index(4));
    assert!(matches!(log.begin_snapshot(), Err(Error::Snapshotting(_))));
    append(&mut *log, 2);
    log.flush().expect("it is handed over");
    log.watch().reached(Index(6)).await.expect("the log goes on meanwhile");
    let (before, records) = job.history().expect("readable");
    assert!(before.is_none());
    assert_eq!(indexes(&records), [1, 2, 3, 4]);
    job.keep(9, b"four").expect("kept");
    append(&mut *log, 1);
    let job = log.begin_snapshot().expect("the one before is done");
    let (before, records) = job.history().expect("readable");
    assert_eq!(before.map(|snapshot| snapshot.payload), Some("four".into()));
    assert_eq!(indexes(&records), [5, 6, 7]);
    job.keep(9, b"seven").expect("kept");
    append(&mut *log, 1);
    log.flush().expect("it is handed over");
    log.watch().reached(Index(8)).await.expect("it may leave");
    drop(log);
    let (_, opened) = open(store);
    let snapshot = opened.snapshot.expect("it was kept");
    assert_eq!((snapshot.upto, snapshot.logic), (Index(7), 9));
    assert_eq!(snapshot.payload, "seven");
    assert_eq!(indexes(&opened.records), [8]);
    assert_eq!(opened.memory, Memory::Kept);
}

async fn a_snapshot_that_is_dropped_changes_nothing(store: &dyn Store) {
    let (mut log, _) = open(store);
    append(&mut *log, 3);
    drop(log.begin_snapshot().expect("none is being made"));
    append(&mut *log, 1);
    log.flush().expect("it is handed over");
    log.watch().reached(Index(4)).await.expect("it may leave");
    drop(log);
    let (_, opened) = open(store);
    assert!(opened.snapshot.is_none());
    assert_eq!(indexes(&opened.records), [1, 2, 3, 4]);
}

async fn a_seal_is_seen_once(store: &dyn Store) {
    let (mut log, _) = open(store);
    append(&mut *log, 2);
    log.seal().expect("sealed");
    let (mut log, opened) = open(store);
    assert!(opened.sealed);
    assert_eq!((opened.memory, indexes(&opened.records)), (Memory::Kept, vec![1, 2]));
    assert_eq!(append(&mut *log, 1), Index(3), "a seal is no record");
    log.flush().expect("it is handed over");
    log.watch().reached(Index(3)).await.expect("it may leave");
    drop(log);
    let (_, opened) = open(store);
    assert!(!opened.sealed, "the last one ended without a word");
    assert_eq!(indexes(&opened.records), [1, 2, 3]);
}

async fn of_two_logs_one_counts(store: &dyn Store) {
    let (mut first, _) = open(store);
    let index = append(&mut *first, 1);
    first.flush().expect("it is handed over");
    first.watch().reached(index).await.expect("it may leave");
    match store.open() {
        Err(OpenError::InUse(_)) => {}
        Err(other) => panic!("{other}"),
        Ok((mut second, opened)) => {
            assert_eq!(indexes(&opened.records), [1]);
            let refused = first.append(entry(b"late")).and_then(|_| first.flush());
            let told = first.watch().reached(Index(2)).await;
            assert!(refused.is_err() || told.is_err());
            assert!(matches!(told, Err(Error::Deposed(_))), "{told:?}");
            let index = append(&mut *second, 1);
            second.flush().expect("it leads");
            second.watch().reached(index).await.expect("it leads");
        }
    }
}

async fn epochs_only_grow(store: &dyn Store) {
    let (mut log, opened) = open(store);
    let raised = opened.epoch + 5;
    assert_eq!(log.watch().progress().epoch, opened.epoch);
    log.raise_epoch(raised).expect("it can be raised");
    log.watch().raised(raised).await.expect("it may be used");
    log.raise_epoch(raised - 1).expect("that is no error");
    append(&mut *log, 1);
    log.seal().expect("sealed");
    let (log, opened) = open(store);
    assert!(opened.epoch > raised);
    assert_eq!(log.watch().progress().epoch, opened.epoch);
}

async fn what_is_too_long_is_refused(store: &dyn Store) {
    let (mut log, _) = open(store);
    let longest = vec![7; PAYLOAD_MAX];
    let too_long = vec![7; PAYLOAD_MAX + 1];
    assert!(matches!(log.append(entry(&too_long)), Err(Error::TooLong(_))));
    log.admit(PAYLOAD_MAX + 1).expect("there is room for that much in several records");
    let index = log.append(entry(&longest)).expect("it fits");
    assert_eq!(index, Index(1), "what was refused has no number");
    log.flush().expect("it is handed over");
    log.watch().reached(index).await.expect("it may leave");
    drop(log);
    assert_eq!(open(store).1.records[0].payload, longest);
}
