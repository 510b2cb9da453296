//! Programs that take the place of others, with the connections of clients that know no sessions.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::super::{Kept, go_on_with};
use super::*;

/// An end of a connection that outlasts the runtime it was used in.
fn loose(stream: impl AsFd) -> UnixStream {
    stream.as_fd().try_clone_to_owned().expect("a file is free").into()
}

/// What another program gets, as it is told.
fn handed_over(service: &Shared) -> Vec<(UnixStream, Kept)> {
    service.borrow_mut().end_round();
    let all = service.borrow().to_keep();
    let again = |kept: &Kept| -> Kept {
        let text = serde_json::to_string(kept).expect("written");
        serde_json::from_str(&text).expect("read")
    };
    all.iter().map(|one| (loose(one), again(&one.kept))).collect()
}

fn sessions(all: &[(UnixStream, Kept)]) -> Vec<SessionId> {
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
