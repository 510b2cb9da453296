//! What was read of a log before it is led.

use holdall_log::{Opened, Snapshot};

use super::*;
use crate::service::Replaying;

/// A log with some records.
fn opened(dir: &Path) -> Opened {
    with_agent(dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        for _ in 0..5 {
            let request = granted(&client.ask("x", Lasting::Connection).await);
            assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
        }
    });
    let (_log, opened) = loop {
        let data = Data::open(&dir.join("data"), None, false);
        if let Ok(opened) = data.and_then(|data| data.open_log(false, &dir.join("sock"))) {
            break opened;
        }
    };
    assert!(opened.records.len() > 8 && opened.snapshot.is_none());
    opened
}

fn replaying(opened: &Opened, upto: usize) -> Replaying {
    let mut replaying = Replaying::new(opened.identity, None, None).expect("nothing");
    replaying.take(&opened.records[..upto]).expect("readable");
    replaying
}

/// What is missing between is never passed over: what it granted would be given twice.
#[test]
fn a_record_that_is_missing_is_noticed() {
    let (_dir, dir) = directory();
    let opened = opened(&dir);
    assert!(replaying(&opened, 3).take(&opened.records).is_ok(), "what is known is passed over");
    assert!(replaying(&opened, 3).take(&opened.records[3..]).is_ok());
    assert!(replaying(&opened, 3).take(&opened.records[4..]).is_err());
    let mut later = replaying(&opened, 0);
    assert!(later.take(&[opened.records[0].clone(), opened.records[2].clone()]).is_err());
}

/// What was read stands for the log only if it reaches what that is opened with.
#[test]
fn what_ended_before_a_snapshot_does_not_reach_the_log() {
    let (_dir, dir) = directory();
    let mut opened = opened(&dir);
    let early = replaying(&opened, 3);
    let late = replaying(&opened, 5);
    assert!(early.reaches(&opened) && late.reaches(&opened));
    let upto = opened.records[4].index;
    opened.snapshot = Some(Snapshot { upto, logic: 1, payload: Vec::new().into() });
    opened.records.drain(..5);
    assert!(!early.reaches(&opened) && late.reaches(&opened));
    opened.records.clear();
    assert!(!early.reaches(&opened) && late.reaches(&opened), "whatever comes after it");
    opened.snapshot = None;
    assert!(late.reaches(&opened));
}

/// Another host need not replay much.
#[test]
fn much_that_has_come_is_put_into_a_snapshot_before_a_hand_over() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        assert!(service.borrow_mut().snapshot_if_long().is_none(), "nothing has come");
        let (mut client, _) = Client::attached(&service, 1, false).await;
        while !service.borrow().host.is_long() {
            let request = granted(&client.ask("x", Lasting::Connection).await);
            assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
        }
        let made = service.borrow_mut().snapshot_if_long().expect("much has come");
        made.await.expect("told").expect("a snapshot");
        assert!(service.borrow_mut().snapshot_if_long().is_none(), "it is in the snapshot");
    });
}

/// Two have asked for the same: it need not come when it need not for both.
#[test]
fn a_host_is_called_for_as_long_as_one_wants_it() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let host = &mut service.borrow_mut().host;
        host.call("lab2");
        host.call("lab2");
        host.call_off();
        assert_eq!(host.called(), Some("lab2"));
        host.call_off();
        assert_eq!(host.called(), None);
    });
}
