//! Agents of version 5, which know no sessions.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use holdall_client::wire::frame::{self, Incoming};
use holdall_client::wire::{Answer, Body, Call, Reply, Shutdown, Status};
use holdall_client::{Client, Error};

use crate::{ask, on_one_thread};

/// Serves a connection as version 5 does: it greets at once, and hangs up on whoever says another version.
/// Returns whether it was told to stop.
fn talk(mut stream: UnixStream) -> Option<bool> {
    let mut out = Vec::new();
    frame::greet(&mut out, 5);
    let (mut incoming, mut greeted) = (Incoming::new(1000), false);
    loop {
        stream.write_all(&out).ok()?;
        out.clear();
        let mut bytes = [0; 1000];
        let read = stream.read(&mut bytes).ok().filter(|read| *read > 0)?;
        incoming.buffer().extend(&bytes[..read]);
        while let Some(content) = incoming.next_frame().expect("short") {
            if !std::mem::replace(&mut greeted, true) {
                if frame::version(content).expect("a greeting") != 5 {
                    return None;
                }
                continue;
            }
            let Call { id, body } = frame::read(content).expect("a call");
            let (reply, stops) = match body {
                Body::Agent => (Reply::Agent(Box::default()), false),
                Body::Status { .. } => {
                    (Reply::Status { page: Status::default(), more: false }, false)
                }
                Body::Stop { now: false } => (Reply::Done, true),
                other => panic!("{other:?}"),
            };
            let start = out.len();
            let is_view = matches!(reply, Reply::Agent(_));
            frame::write(&Answer { id, reply }, 1000, &mut out).expect("short");
            if is_view {
                // It does not say what it waits for.
                assert_eq!(out.pop(), Some(0));
                out[start] -= 1;
            }
            if stops {
                stream.write_all(&out).expect("it reads");
                return Some(true);
            }
        }
    }
}

#[test]
fn an_agent_without_sessions_is_looked_at_and_stopped_and_why_it_is_not_asked_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("it listens");
    let agent =
        std::thread::spawn(
            move || {
                while talk(listener.accept().expect("somebody comes").0).is_none() {}
            },
        );
    on_one_thread(async {
        let at_once = Client::connect_asking(&socket, ask("a", "a")).await;
        let (client, asked) = at_once.expect("it is served");
        assert!(asked.is_none(), "it has no sessions");
        client.status(&[], |_| false).await.expect("it is told");
        let asked = client.ask(ask("a", "a")).await.expect_err("it has no sessions");
        assert!(matches!(asked, Error::Version { agent: 5 }), "{asked}");
        assert!(asked.to_string().contains("`holdall agent stop`"), "{asked}");
        let restart = client.call(Body::Restart { exe: None }).await;
        assert!(matches!(restart, Err(Error::Version { agent: 5 })), "{restart:?}");
        client.call(Body::Shutdown(Shutdown::AtOnce)).await.expect("it stops");
        client.lost().await;
    });
    agent.join().expect("it has seen nothing that it does not know");
}

#[test]
fn an_agent_of_a_version_that_nobody_speaks_is_told_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("it listens");
    let agent = std::thread::spawn(move || {
        let mut out = Vec::new();
        frame::greet(&mut out, 4);
        listener.accept().expect("somebody comes").0.write_all(&out).expect("it reads");
    });
    let refused = on_one_thread(Client::connect(&socket)).expect_err("it cannot be served");
    assert!(matches!(refused, Error::Version { agent: 4 }), "{refused}");
    assert!(refused.to_string().contains("one release"), "{refused}");
    agent.join().expect("no panic");
}
