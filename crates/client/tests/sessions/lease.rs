//! Leases are over here before they are over for the agent.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use holdall_client::wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_client::wire::{Answer, Body, Call, Reply, RequestNo};
use holdall_client::{Client, Presence};
use tokio::time::timeout;

use crate::stand_in::{StandIn, Trouble};
use crate::{ask, on_one_thread};

#[test]
fn a_lease_that_is_over_is_noticed_without_the_agent() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let lease = Duration::from_secs(2);
        let client = Client::with_lease(agent.socket(), lease).await.expect("it listens");
        let mut held = client.ask(ask("a", "held")).await.expect("free");
        agent.cut_all();
        client.presence().wait_for(|now| *now == Presence::Here).await.expect("it is back");
        assert!(timeout(lease, held.lost()).await.is_err(), "it was not away for long");
        agent.kill().await;
        held.lost().await;
        agent.start();
        let other = client.ask(ask("b", "other")).await.expect("free");
        drop(other);
    });
}

/// An agent in a thread of its own, which grants one request and ends when it is told to.
fn grant_once(listener: &UnixListener, end: &std::sync::mpsc::Receiver<()>) {
    let (mut stream, _) = listener.accept().expect("somebody comes");
    let mut incoming = Incoming::new(FROM_CLIENT_MAX);
    let (mut out, mut granted) = (Vec::new(), false);
    frame::greet(&mut out, frame::VERSION);
    while !granted {
        let mut bytes = [0; 1000];
        let read = stream.read(&mut bytes).expect("it speaks");
        incoming.buffer().extend(&bytes[..read]);
        while let Some(content) = incoming.next_frame().expect("short") {
            let Ok(Call { id, body }) = frame::read(content) else { continue };
            let reply = match body {
                Body::Agent => Reply::Agent(Box::default()),
                Body::Attach(_) => Reply::Attached { life: 1, last: 0, answers: Vec::new() },
                _ => {
                    granted = true;
                    let (request, taken, variables) = (RequestNo(1), [].into(), Vec::new());
                    Reply::Granted { request, taken, place: None, variables, limit: None }
                }
            };
            frame::write(&Answer { id, reply }, FROM_NODE_MAX, &mut out).expect("short");
        }
        stream.write_all(&out).expect("it reads");
        out.clear();
    }
    end.recv().expect("it is told");
    // The client is stopped by now, and hears nothing of it.
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn a_lease_is_counted_from_when_the_agent_was_last_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("it listens");
    let (end, told) = std::sync::mpsc::channel();
    let agent = std::thread::spawn(move || grant_once(&listener, &told));
    on_one_thread(async {
        let lease = Duration::from_secs(2);
        let client = Client::with_lease(&socket, lease).await.expect("it listens");
        let mut held = client.ask(ask("a", "held")).await.expect("free");
        end.send(()).expect("it listens");
        // As one that is stopped, with everything that it runs.
        std::thread::sleep(lease);
        timeout(lease / 2, held.lost()).await.expect("it is over when it wakes up");
    });
    agent.join().expect("no panic");
}
