//! What was done for all who were ready is written and told together: one write for many grants.
//!
//! Nobody is told of a grant before it is noted (`journal`), nor of anything by a system call of its own
//! if several things are to be told. A round ends when nothing else is ready, or when it is long enough.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use holdall_wire::{Fault, Reply, RequestNo};
use tokio::sync::Notify;
use tracing::error;

use super::Service;
use super::outbox::Outbox;

/// After how many replies a round ends, so that clients go on while others are served.
const REPLIES: usize = 16;

/// What is to be told at the end of a round.
#[derive(Default)]
pub(super) struct Round {
    grants: Vec<(RequestNo, Reply)>,
    told: Vec<Rc<Outbox>>,
    has_begun: bool,
    begun: Rc<Notify>,
}

impl Round {
    /// Something happened that is told or written in the end.
    pub(super) fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            // Whoever ends it comes after everybody who is ready now.
            self.begun.notify_one();
        }
    }

    /// Something is in an outbox.
    pub(super) fn add(&mut self, outbox: &Rc<Outbox>) {
        self.begin();
        if outbox.join_round() {
            self.told.push(outbox.clone());
        }
    }

    /// A grant was noted, and is told when that is written.
    pub(super) fn add_grant(&mut self, request: RequestNo, reply: Reply) {
        self.begin();
        self.grants.push((request, reply));
    }
}

/// Ends rounds, as long as there is a service.
pub(crate) async fn end_rounds(service: Weak<RefCell<Service>>) {
    let Some(begun) = service.upgrade().map(|service| service.borrow().round.begun.clone()) else {
        return;
    };
    loop {
        begun.notified().await;
        let Some(service) = service.upgrade() else { return };
        service.borrow_mut().end_round();
    }
}

impl Service {
    /// Ends a round that is long enough.
    pub(super) fn end_long_round(&mut self) {
        if self.round.grants.len() + self.round.told.len() >= REPLIES {
            self.end_round();
        }
    }

    pub(crate) fn end_round(&mut self) {
        self.tell_grants();
        self.send();
        self.audit.hand_over();
        self.round.has_begun = false;
        if !self.round.grants.is_empty() {
            self.round.begin(); // Some follow from others that could not be noted.
        }
    }

    /// Sends what there is to be told.
    pub(super) fn send(&mut self) {
        for outbox in std::mem::take(&mut self.round.told) {
            let sent = outbox.end_round();
            self.traffic.give(outbox.uid(), sent);
        }
    }

    /// Writes what was noted, and tells those who were granted something. Those who cannot be noted
    /// are not granted it after all.
    pub(super) fn tell_grants(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if self.round.grants.is_empty() && journal.is_written() {
            return;
        }
        let written = journal.write();
        if let Err(error) = &written {
            error!("who holds what is not on disk: {error:#}");
        }
        for (request, reply) in std::mem::take(&mut self.round.grants) {
            match &written {
                Err(error) if self.journal.as_ref().is_some_and(|j| j.lacks(request)) => {
                    self.reply(request, Reply::Failed(Fault::Failed(format!("{error:#}"))));
                    self.end_unless_used(request, "lost");
                }
                _ => self.reply(request, reply),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdall_holders::Stream;
    use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
    use holdall_wire::{Answer, Ask, Body, Call, From, Lasting};

    use super::*;
    use crate::config::Config;
    use crate::data::Data;
    use crate::service::{Shared, serve};

    struct Client {
        stream: Stream,
        incoming: Incoming,
    }

    impl Client {
        /// One that holds by its connection.
        async fn connect(service: &Shared) -> Self {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
            let [stream, theirs] = [ours, theirs].map(|end| Stream::new(end).expect("a socket"));
            tokio::task::spawn_local(serve(service.clone(), theirs));
            let mut client = Self { stream, incoming: Incoming::new(FROM_NODE_MAX) };
            let mut greeting = Vec::new();
            frame::greet(&mut greeting, frame::OLDEST);
            client.stream.write(&greeting).expect("sent");
            client.next_frame().await;
            assert!(matches!(client.call(Body::Lock { beside: None }).await, Reply::Locked(_)));
            client
        }

        async fn call(&mut self, body: Body) -> Reply {
            let mut bytes = Vec::new();
            frame::write(&Call { id: 1, body }, FROM_CLIENT_MAX, &mut bytes).expect("short");
            self.stream.write(&bytes).expect("sent");
            self.reply().await
        }

        async fn ask(&mut self) -> Reply {
            let needs = vec!["x".parse().expect("a need")];
            let (now, lasting, from) = (false, Lasting::Connection, From::default());
            self.call(Body::Ask(Ask {
                needs,
                now,
                lasting,
                from,
                within: None,
                limit: None,
                part: None,
            }))
            .await
        }

        async fn reply(&mut self) -> Reply {
            let content = self.next_frame().await;
            frame::read::<Answer>(&content).expect("an answer").reply
        }

        async fn next_frame(&mut self) -> Vec<u8> {
            loop {
                if let Some(content) = self.incoming.next_frame().expect("a frame") {
                    return content.to_vec();
                }
                let ready = self.stream.readable().await.expect("a socket");
                let read = ready.read(self.incoming.buffer()).expect("open");
                assert_ne!(read, Some(0), "the agent has closed the connection");
            }
        }
    }

    /// Whoever cannot be noted is not granted, and whoever is granted it instead is told.
    #[tokio::test]
    async fn what_follows_from_a_failed_write_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let local = tokio::task::LocalSet::new();
        let tried = local.run_until(async {
            let data = Data::open(dir.path()).expect("ours");
            let config = Config { cgroups: false, ..Config::default() };
            let service = Service::new(data, config).expect("an agent");
            tokio::task::spawn_local(end_rounds(Rc::downgrade(&service)));
            let mut first = Client::connect(&service).await;
            let mut second = Client::connect(&service).await;
            let mut third = Client::connect(&service).await;
            let Reply::Granted { request, .. } = first.ask().await else { panic!("it is free") };
            assert!(matches!(second.ask().await, Reply::Queued(_)));
            assert!(matches!(third.ask().await, Reply::Queued(_)));
            service.borrow_mut().journal.as_mut().expect("it is open").break_once();
            assert_eq!(first.call(Body::End { request, left: false }).await, Reply::Done);
            assert!(matches!(second.reply().await, Reply::Failed(_)));
            assert!(matches!(third.reply().await, Reply::Granted { .. }));
        });
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, tried).await.expect("somebody is not told");
    }
}
