//! How much somebody may have, and that others are not kept by it.

use std::io::Write;

use crate::client::{Both, Client, read, text};
use crate::fake::Lacks;
use crate::world::{UNREAD, World};
use holdall_http::{Config, token};
use holdall_wire::Right;
use serde_json::json;

/// Calls, and reads nothing.
fn call(client: &Client, path: &str) -> Box<dyn Both> {
    let mut stream = client.connect();
    stream.write_all(text("GET", path, "", &[]).as_bytes()).expect("sent");
    stream
}

/// A world in which everything takes about two thirds of what a user may leave unread.
fn crowded() -> World {
    let world = World::with_tcp(Config::default());
    world.fake.model().crowd = 1000;
    let one = world.client().get("/v1/status").body.len() as u64;
    world.fake.model().crowd = UNREAD as u64 * 2 / 3 * 1000 / one;
    world
}

#[test]
fn answers_that_are_not_read_count_against_their_user() {
    let world = crowded();
    let (client, remote) = (world.client(), world.remote());
    let mut unread = call(&client, "/v1/status");
    // It is told when it begins to be.
    let mut byte = [0];
    unread.read_exact(&mut byte).expect("an answer");
    for path in ["/v1/status", "/v1/pools", "/v1/events"] {
        let full = client.get(path);
        if path == "/v1/pools" {
            assert_eq!(full.status, 200, "there is room for what is short");
            continue;
        }
        assert_eq!((full.status, &*full.problem()), (429, "limit"), "{path}");
        assert!(full.body.contains("limits.unread_bytes"), "{full:?}");
    }
    let asked = client.put("/v1/requests/a", &json!({"needs": ["db"]}));
    assert_eq!(asked.status, 200, "what was done is told");
    // Others are not kept by it.
    let wall = token::add(world.dir.path(), "wall", &[Right::View], None).expect("made");
    let header = format!("authorization: Bearer {wall}");
    assert_eq!(remote.call("GET", "/v1/status", "", &[&header]).status, 200);
    // Whoever reads goes on.
    assert!(read(&mut *unread).body.len() > UNREAD / 2);
    assert_eq!(client.get("/v1/status").status, 200);
}

#[test]
fn whoever_hangs_up_has_read_all_it_wants() {
    let world = crowded();
    let client = world.client();
    for path in ["/v1/status", "/v1/events"] {
        let mut unread = call(&client, path);
        unread.read_exact(&mut [0]).expect("an answer");
        assert_eq!(client.get("/v1/status").status, 429, "{path}");
        drop(unread);
        while client.get("/v1/status").status != 200 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn one_user_does_not_listen_for_all() {
    let world = World::with_tcp(Config::default());
    let client = world.client();
    let listening: Vec<_> = (0..64).map(|_| client.listen("/v1/events", &[])).collect();
    let full = client.get("/v1/events");
    assert_eq!((full.status, &*full.problem()), (429, "limit"));
    let wall = token::add(world.dir.path(), "wall", &[Right::View], None).expect("made");
    let header = format!("authorization: Bearer {wall}");
    let mut events = world.remote().listen("/v1/events", &[&header]);
    assert_eq!(events.next().expect("an event").kind, "snapshot");
    drop(listening);
}

#[test]
fn limits_of_the_agent_are_told_as_limits() {
    let world = World::new();
    let client = world.client();
    let ask = || client.put("/v1/requests/a", &json!({"needs": ["gpu"]}));
    for lacks in [Lacks::Connections, Lacks::Sessions, Lacks::Requests] {
        world.fake.model().lacks = lacks;
        let answer = ask();
        assert_eq!((answer.status, &*answer.problem()), (429, "limit"), "{answer:?}");
        assert!(answer.head.contains("retry-after"), "{answer:?}");
    }
    world.fake.model().stopping = true;
    let answer = ask();
    assert_eq!((answer.status, &*answer.problem()), (503, "unreachable"), "it is about to end");
    world.fake.model().lacks = Lacks::Nothing;
    assert_eq!(ask().status, 200);
}

#[test]
fn the_head_of_a_call_has_an_end() {
    let world = World::new();
    let client = world.client();
    assert_eq!(client.get(&format!("/healthz?{}", "x".repeat(30_000))).status, 200);
    let long = client.get(&format!("/healthz?{}", "x".repeat(40_000)));
    assert_eq!((long.status, &*long.problem()), (431, "usage"));
    let header = format!("x-long: {}", "x".repeat(33_000));
    assert_eq!(client.call("GET", "/healthz", "", &[&header]).status, 431);
    let many = client.call("GET", "/healthz", "", &["x-line: 1"; 70]);
    assert_eq!((many.status, &*many.problem()), (431, "usage"));
    assert!(many.head.contains("x-request-id: "), "{many:?}");
}
