//! Programs that take the place of others, with the connections of clients that know no sessions.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::super::{HandedOver, go_on_with};
use super::*;

/// An end of a connection that outlasts the runtime it was used in.
fn loose(stream: impl AsFd) -> UnixStream {
    stream.as_fd().try_clone_to_owned().expect("a file is free").into()
}

/// What another program gets, as it is told.
fn handed_over(service: &Shared) -> Vec<(UnixStream, HandedOver)> {
    service.borrow_mut().end_round();
    let all = service.borrow().to_hand_over();
    let again = |kept: &HandedOver| -> HandedOver {
        let text = serde_json::to_string(kept).expect("written");
        serde_json::from_str(&text).expect("read")
    };
    all.iter().map(|one| (loose(one), again(&one.told))).collect()
}

fn sessions(all: &[(UnixStream, HandedOver)]) -> Vec<SessionId> {
    all.iter().filter_map(|(_, kept)| kept.session()).collect()
}

impl Client {
    /// Lets go of the connection, for another runtime.
    fn leave(self) -> (UnixStream, u64) {
        (loose(&self.stream), self.last)
    }

    fn again((socket, last): (UnixStream, u64)) -> Self {
        let stream = Stream::new(socket).expect("a socket");
        Self { stream, incoming: Incoming::new(FROM_NODE_MAX), answers: VecDeque::new(), last }
    }
}

#[test]
fn a_client_without_sessions_does_not_notice_that_another_program_takes_over() {
    let (_dir, dir) = directory();
    let (handed, holder, waiter, call) = with_agent(&dir, &config(), |service| async move {
        let mut holder = Client::connect(&service, frame::OLDEST).await;
        let request = granted(&holder.ask("x", Lasting::Connection).await);
        let mut waiter = Client::connect(&service, frame::OLDEST).await;
        assert!(matches!(waiter.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        let (_other, _) = Client::attached(&service, 1, false).await;
        // Half of a call is under way.
        let (mut call, id) = (Vec::new(), 7);
        let body = Body::End { request, left: false };
        frame::write(&Call { id, body }, FROM_CLIENT_MAX, &mut call).expect("short");
        holder.stream.write(&call[..5]).expect("sent");
        while service
            .borrow()
            .peers
            .values()
            .all(|peer| peer.incoming.borrow_mut().buffer().len() != 5)
        {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let handed = handed_over(&service);
        assert_eq!(handed.len(), 2, "whoever has a session comes back");
        (handed, holder.leave(), waiter.leave(), call)
    });
    let kept = sessions(&handed);
    with_agent_that_keeps(&kept, &dir, &config(), |service| async move {
        go_on_with(&service, handed);
        let (mut holder, mut waiter) = (Client::again(holder), Client::again(waiter));
        assert!(matches!(waiter.call(Body::Agent).await, Reply::Agent(_)));
        assert!(waiter.answers.is_empty(), "it was told already that it waits");
        holder.stream.write(&call[5..]).expect("sent");
        assert_eq!(holder.reply(7).await, Reply::Done);
        assert!(holder.answers.is_empty(), "it was told already what it holds");
        granted(&waiter.reply(1).await);
        drop(waiter);
        while service.borrow().books().grants().count() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(service.borrow().books().sessions().count(), 2, "one is over");
    });
}

#[test]
fn what_has_happened_meanwhile_is_told() {
    let (_dir, dir) = directory();
    let (handed, waiter) = with_agent(&dir, &config(), |service| async move {
        let (mut holder, _) = Client::attached(&service, 1, false).await;
        granted(&holder.ask("x", Lasting::Connection).await);
        let mut waiter = Client::connect(&service, frame::OLDEST).await;
        assert!(matches!(waiter.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        (handed_over(&service), waiter.leave())
    });
    let kept = sessions(&handed);
    with_agent_that_keeps(&kept, &dir, &config(), |service| async move {
        // Before anybody could be told.
        service.borrow_mut().input(holdall_cell::Input::Over(SessionId(1)));
        go_on_with(&service, handed);
        let mut waiter = Client::again(waiter);
        let request = granted(&waiter.reply(1).await);
        assert_eq!(waiter.call(Body::End { request, left: false }).await, Reply::Done);
    });
}

#[test]
fn a_client_without_sessions_that_is_forgotten_is_left() {
    let (_dir, dir) = directory();
    let (handed, client) = with_agent(&dir, &config(), |service| async move {
        let mut client = Client::connect(&service, frame::OLDEST).await;
        granted(&client.ask("x", Lasting::Connection).await);
        (handed_over(&service), client.leave())
    });
    std::fs::remove_dir_all(dir.join("data")).expect("ours");
    let kept = sessions(&handed);
    with_agent_that_keeps(&kept, &dir, &config(), |service| async move {
        go_on_with(&service, handed);
        let mut client = Client::again(client);
        assert!(client.next_frame().await.is_none(), "it learns that its grant is lost");
        assert!(service.borrow().peers.is_empty());
    });
}

#[test]
fn only_who_waits_for_the_disk_itself_is_lost() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut idle = Client::connect(&service, frame::OLDEST).await;
        granted(&idle.ask("x", Lasting::Connection).await);
        let mut other = Client::connect(&service, frame::OLDEST).await;
        granted(&other.ask("y", Lasting::Connection).await);
        let before = sessions(&handed_over(&service));
        assert_eq!(before.len(), 2);
        let (lost, trouble) = {
            let mut own = service.borrow_mut();
            let last = own.peers.keys().max().copied().expect("there");
            let trouble = own.host.trouble_log();
            trouble.stop_flushes(true);
            // A reply that no disk has taken yet.
            own.input(holdall_cell::Input::Clock { ahead: 12345 });
            own.answer(last, 9, Reply::Done);
            assert!(!own.has_told_all());
            (own.books().sessions().of(last).expect("it has asked"), trouble)
        };
        let kept = sessions(&handed_over(&service));
        assert_eq!(kept.len(), 1);
        assert!(!kept.contains(&lost));
        trouble.stop_flushes(false);
        assert_eq!(other.reply(9).await, Reply::Done);
    });
}

#[test]
fn nobody_is_listened_to_while_another_program_takes_over() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut client = Client::connect(&service, frame::OLDEST).await;
        granted(&client.ask("x", Lasting::Connection).await);
        let before = service.borrow().host.last();
        service.borrow_mut().listen(false);
        client.send(2, Body::Ask(ask("y", Lasting::Connection)));
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(service.borrow().host.last(), before);
        service.borrow_mut().listen(true);
        granted(&client.reply(2).await);
    });
}

#[test]
fn whoever_was_let_in_is_let_in_by_the_next_program_whatever_its_limits() {
    let (_dir, dir) = directory();
    let (handed, clients) = with_agent(&dir, &config(), |service| async move {
        let mut clients = Vec::new();
        for number in 0..40 {
            let mut client = Client::connect(&service, frame::OLDEST).await;
            granted(&client.ask(&format!("x{number}"), Lasting::Connection).await);
            clients.push(client);
        }
        let handed = handed_over(&service);
        (handed, clients.into_iter().map(Client::leave).collect::<Vec<_>>())
    });
    let kept = sessions(&handed);
    let mut few = config();
    few.limits.connections = 1;
    with_agent_that_keeps(&kept, &dir, &few, |service| async move {
        go_on_with(&service, handed);
        for (number, client) in clients.into_iter().enumerate() {
            let mut client = Client::again(client);
            granted(&client.ask(&format!("y{number}"), Lasting::Connection).await);
            drop(client);
        }
        while !service.borrow().peers.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let own = service.borrow();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!((own.connections.of(uid), own.visitors.of(uid)), (0, 0));
        assert_eq!((own.files.of(uid), own.watched.len()), (0, 0), "each file is given back once");
        assert_eq!(own.books().sessions().count(), 0);
    });
}

#[test]
fn a_connection_that_cannot_be_gone_on_with_has_ended() {
    let (_dir, dir) = directory();
    let handed = with_agent(&dir, &config(), |service| async move {
        let mut holder = Client::connect(&service, frame::OLDEST).await;
        granted(&holder.ask("x", Lasting::Connection).await);
        let mut waiter = Client::connect(&service, frame::OLDEST).await;
        assert!(matches!(waiter.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        handed_over(&service)
    });
    let kept = sessions(&handed);
    let other = std::fs::File::open(&dir).expect("no socket");
    with_agent_that_keeps(&kept, &dir, &config(), |service| async move {
        assert_eq!(service.borrow().books().sessions().count(), 2);
        let broken = handed.into_iter().map(|(_, told)| (loose(&other), told)).collect();
        go_on_with(&service, broken);
        assert_eq!(service.borrow().books().sessions().count(), 0);
        assert_eq!(service.borrow().books().waiting().count(), 0);
    });
}

#[test]
fn a_connection_that_ends_or_is_given_up_is_not_handed_over() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = Client::connect(&service, frame::OLDEST).await;
            assert!(matches!(client.call(Body::Agent).await, Reply::Agent(_)));
            clients.push(client);
        }
        assert_eq!(handed_over(&service).len(), 3);
        let own = service.borrow();
        let mut outboxes = own.peers.values().map(|peer| peer.outbox.clone());
        outboxes.next().expect("the first").end();
        outboxes.next().expect("the second").give_up();
        assert_eq!(own.to_hand_over().len(), 1);
    });
}
