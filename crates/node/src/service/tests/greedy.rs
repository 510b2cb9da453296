//! Clients that take as much as they can.

use holdall_cell::session::Means;
use holdall_wire::Attach;

use super::*;

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn all_sessions_of_a_process_take_one_file() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut clients = Vec::new();
        for session in 1..=20 {
            clients.push(Client::attached(&service, session, false).await.0);
        }
        assert_eq!(service.borrow().files.of(own()), 21, "20 connections and a process");
        assert_eq!(service.borrow().watched.len(), 1);
        for client in clients.iter_mut().skip(1) {
            assert_eq!(client.call(Body::Leave).await, Reply::Done);
        }
        drop(clients);
        while !service.borrow().peers.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(service.borrow().files.of(own()), 1, "one session is left");
        let (mut client, _) = Client::attached(&service, 1, true).await;
        assert_eq!(client.call(Body::Leave).await, Reply::Done);
        assert!(client.next_frame().await.is_none());
        while !service.borrow().peers.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(service.borrow().watched.is_empty());
        assert_eq!(service.borrow().files.of(own()), 0);
    });
}

#[test]
fn whoever_has_no_file_left_for_its_process_may_look_and_release_and_not_ask() {
    let (_dir, dir) = directory();
    let request = with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let reserved = client.ask("x", Lasting::Reservation(3_600_000)).await;
        assert_eq!(client.call(Body::Leave).await, Reply::Done);
        granted(&reserved)
    });
    with_agent(&dir, &config(), |service| async move {
        let mut client = Client::connect(&service, frame::VERSION).await;
        assert!(matches!(client.call(Body::Agent).await, Reply::Agent(_)));
        let all = super::super::files_for_clients();
        service.borrow_mut().files.take_anyway(own(), all);
        let attach = Attach { session: 5, secret: 7, returns: false, heard: 0, lease: None };
        client.send(FIRST_QUERY, Body::Attach(attach));
        let told = client.reply(FIRST_QUERY).await;
        assert!(matches!(told, Reply::Attached { .. }), "{told:?}");
        assert!(service.borrow().watched.is_empty());
        let asked = client.ask("y", Lasting::Connection).await;
        assert!(matches!(asked, Reply::Refused(Refusal::Closed(_))), "{asked:?}");
        assert_eq!(
            client.call(Body::Release { request, force: false, reason: None }).await,
            Reply::Done
        );
        let means: Vec<_> = service.borrow().books().sessions().means().collect();
        assert!(matches!(means[..], [(SessionId(5), Means::Connection)]), "{means:?}");
        drop(client);
        while service.borrow().books().sessions().count() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(service.borrow().files.of(own()), all, "what it had was given back once");
        assert_eq!(service.borrow().visitors.of(own()), 0);
    });
}

#[test]
fn to_withdraw_what_is_not_there_leaves_nothing_behind() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let before = service.borrow().host.last();
        for number in 0..100 {
            assert_eq!(client.call(Body::Withdraw(number)).await, Reply::Done);
        }
        assert_eq!(service.borrow().host.last(), before, "there is a record");
        let (mut client, told) = Client::attached(&service, 1, true).await;
        assert!(matches!(told, Reply::Attached { last: 0, ref answers, .. } if answers.is_empty()));
        granted(&client.ask("x", Lasting::Connection).await);
        let (mut other, _) = Client::attached(&service, 2, false).await;
        assert!(matches!(other.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        assert_eq!(other.call(Body::Withdraw(1)).await, Reply::Done);
        assert!(matches!(other.reply(1).await, Reply::Refused(Refusal::Withdrawn)));
    });
}

#[test]
fn whoever_is_to_be_told_much_when_it_is_written_is_not_listened_to() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut client = Client::connect(&service, frame::VERSION).await;
        assert!(matches!(client.call(Body::Agent).await, Reply::Agent(_)));
        let (conn, outbox) = {
            let own = service.borrow();
            let (conn, peer) = own.peers.iter().next().expect("it is there");
            (*conn, peer.outbox.clone())
        };
        for first in [2, 1000] {
            for id in first..first + 100 {
                assert_eq!(outbox.is_full(), id > first + 64, "{id}");
                let call = Call { id, body: Body::Agent };
                service.borrow_mut().call(conn, call, outbox.stream());
            }
            for id in first..first + 100 {
                client.reply(id).await;
            }
            assert!(!outbox.is_full());
        }
        let status = || Body::Status { names: Vec::new(), more: false };
        service.borrow_mut().call(conn, Call { id: 5000, body: status() }, outbox.stream());
        assert!(outbox.is_full(), "a page may be long");
        client.reply(5000).await;
        client.last = 6000;
        assert!(matches!(client.call(status()).await, Reply::Status { .. }), "it is listened to");
    });
}

#[test]
fn on_a_full_disk_nobody_new_comes_and_whoever_was_there_does() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let request = granted(&client.ask("x", Lasting::Connection).await);
        let trouble = service.borrow_mut().host.trouble_log();
        trouble.fill(true);
        let (_, told) = Client::attached(&service, 2, false).await;
        assert!(matches!(told, Reply::Failed(Fault::Failed(_))), "{told:?}");
        let (mut client, told) = Client::attached(&service, 1, true).await;
        assert!(matches!(told, Reply::Attached { .. }), "{told:?}");
        client.last = 1;
        assert!(matches!(client.ask("y", Lasting::Connection).await, Reply::Failed(_)));
        assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
        trouble.fill(false);
        granted(&client.ask("y", Lasting::Connection).await);
    });
}

#[test]
fn who_comes_back_over_and_over_on_a_full_disk_waits_until_there_is_room() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (_client, _) = Client::attached(&service, 1, false).await;
        let trouble = service.borrow_mut().host.trouble_log();
        trouble.fill(true);
        for _ in 0..3 {
            let (_client, told) = Client::attached(&service, 1, true).await;
            assert!(matches!(told, Reply::Attached { .. }), "{told:?}");
        }
        let before = service.borrow().host.last();
        let attach = || Attach { session: 1, secret: 7, returns: true, heard: 0, lease: None };
        let mut waiting = Client::connect(&service, frame::VERSION).await;
        waiting.send(FIRST_QUERY, Body::Attach(attach()));
        let mut gone = Client::connect(&service, frame::VERSION).await;
        gone.send(FIRST_QUERY, Body::Attach(attach()));
        let is_waiting = |count| {
            let own = service.borrow();
            own.peers.values().filter(|peer| peer.at_leisure.is_some()).count() == count
        };
        while !is_waiting(2) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        drop(gone);
        while !is_waiting(1) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let (mut other, told) = Client::attached(&service, 2, false).await;
        assert!(matches!(told, Reply::Failed(_)), "{told:?}");
        assert!(matches!(other.call(Body::Agent).await, Reply::Agent(_)), "others are served");
        let detached = service.borrow().host.last().0 - before.0;
        assert!(detached <= 1, "the last one that came has gone, and nothing else is noted");
        trouble.fill(false);
        assert!(matches!(waiting.reply(FIRST_QUERY).await, Reply::Attached { .. }));
    });
}
