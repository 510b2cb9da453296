//! Whoever holds something, and waits for its end.

use std::time::{Duration, Instant};

use holdall_http::{Config, token};
use holdall_wire::Right;
use serde_json::{Value, json};

use crate::client::read;
use crate::world::World;

const ENDED: &str = "/v1/requests/mine?wait_ms=60000&until=ended";

#[test]
fn whoever_waits_for_the_end_of_what_it_holds_is_told_when_it_is_taken_away() {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/mine", &json!({"needs": ["gpu"]}));
    world.fake.until_alone();
    let mut waits = client.begin("GET", ENDED, &Value::Null);
    world.fake.until_attached();
    assert_eq!(
        client.get("/v1/requests/mine?wait_ms=60000").status,
        200,
        "a grant ends no waiting"
    );
    world.fake.take_away();
    let lost = read(&mut *waits);
    assert_eq!((lost.status, &*lost.problem()), (410, "lost"));
}

#[test]
fn whoever_waits_for_the_end_of_what_waits_hears_nothing_of_its_grant() {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/other", &json!({"needs": ["db"]}));
    assert_eq!(
        client.put("/v1/requests/mine", &json!({"needs": ["db"], "queue": true})).status,
        202
    );
    let mut waits = client.begin("GET", ENDED, &Value::Null);
    client.delete("/v1/requests/other");
    assert_eq!(client.get("/v1/requests/mine?wait_ms=60000").json()["state"], "granted");
    client.delete("/v1/requests/mine");
    assert_eq!(read(&mut *waits).json()["state"], "released");
}

#[test]
fn waiting_for_the_end_has_an_end_and_holds_nobody_else_up() {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/mine", &json!({"needs": ["gpu"]}));
    let still = client.get("/v1/requests/mine?wait_ms=1&until=ended");
    assert_eq!((still.status, &still.json()["state"]), (200, &json!("granted")));
    for senseless in ["until=never", "until=ended&wait_ms=300001"] {
        let told = client.get(&format!("/v1/requests/mine?{senseless}"));
        assert_eq!((told.status, &*told.problem()), (400, "usage"), "{senseless}");
    }
    // Half the connections of a user are left for everything else.
    let mut waiting: Vec<_> = (0..200).map(|_| client.begin("GET", ENDED, &Value::Null)).collect();
    let full = loop {
        let answer = client.get("/v1/requests/mine?wait_ms=1&until=ended");
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!((full.status, &*full.problem()), (429, "limit"));
    assert_eq!(client.call("POST", "/v1/requests/mine/renew", "", &[]).status, 200);
    world.fake.take_away();
    let told: Vec<_> = waiting.iter_mut().map(|stream| read(&mut **stream).status).collect();
    assert!(told.iter().all(|status| matches!(status, 410 | 429)), "{told:?}");
    let ended = told.iter().filter(|status| **status == 410).count();
    assert!((1..=128).contains(&ended), "{ended} have waited");
}

#[test]
fn those_behind_one_address_leave_connections_for_renewing() {
    let world = World::with_tcp(Config::default());
    let begin = |call: &str| {
        let mut stream = world.remote().connect();
        stream.write_all(call.as_bytes()).expect("sent");
        stream
    };
    let tokens = ["a", "b", "c"].map(|name| {
        let token = token::add(world.dir.path(), name, &[Right::Ask], None).expect("made");
        let header = format!("authorization: Bearer {token}");
        let body = json!({"needs": [name]}).to_string();
        let asks = crate::client::text("PUT", "/v1/requests/mine", &body, &[&header]);
        assert_eq!(read(&mut *begin(&asks)).status, 200);
        header
    });
    // Together more than an address may have connections.
    let of_each = tokens.iter().flat_map(|header| std::iter::repeat_n(header, 100));
    let waiting: Vec<_> =
        of_each.map(|header| begin(&crate::client::text("GET", ENDED, "", &[header]))).collect();
    let end = Instant::now() + Duration::from_secs(30);
    for header in &tokens {
        let renews = crate::client::text("POST", "/v1/requests/mine/renew", "", &[header]);
        // Those that were turned away may take a moment to go.
        while read(&mut *begin(&renews)).status != 200 {
            assert!(Instant::now() < end, "there is no room for renewing");
        }
    }
    drop(waiting);
}

#[test]
fn whoever_waits_with_a_token_that_is_removed_is_told_that_and_not_to_try_again() {
    let world = World::with_tcp(Config::default());
    world.client().put("/v1/requests/other", &json!({"needs": ["db"]}));
    let ci = token::add(world.dir.path(), "ci", &[Right::Ask], None).expect("made");
    let header = format!("authorization: Bearer {ci}");
    let body = json!({"needs": ["db"], "wait_ms": 60_000}).to_string();
    let call = crate::client::text("PUT", "/v1/requests/mine", &body, &[&header]);
    let mut waits = world.remote().connect();
    waits.write_all(call.as_bytes()).expect("sent");
    world.fake.until_there_are(2);
    token::remove(world.dir.path(), "ci").expect("removed");
    // As the agent does when it withdraws what the token waits for.
    world.fake.hang_up();
    let told = read(&mut *waits);
    assert_eq!((told.status, &*told.problem()), (401, "unauthenticated"));
}

/// Waits until it was told that so many tokens are good, after what was told at a position; where that is.
fn until_told(world: &World, from: usize, good: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let told = world.fake.model().tokens.clone();
        let at = told.iter().skip(from).position(|tokens| tokens.len() == good);
        if let Some(at) = at {
            return from + at;
        }
        assert!(Instant::now() < end, "not told of {good} after {from}: {told:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nobody_is_told_of_tokens_before_they_could_be_read() {
    let mut world = World::with_tcp(Config::default());
    token::add(world.dir.path(), "ci", &[Right::Ask], None).expect("made");
    until_told(&world, 0, 1);
    let file = world.dir.path().join("tokens.json");
    let kept = std::fs::read(&file).expect("kept");
    std::fs::write(&file, "half").expect("written");
    world.fake.model().tokens.clear();
    world.start();
    assert_eq!(world.client().get("/healthz").status, 200);
    std::fs::write(&file, kept).expect("written");
    until_told(&world, 0, 1);
    let told = world.fake.model().tokens.clone();
    assert!(told.iter().all(|good| good.len() == 1), "that there are none: {told:?}");
}

#[test]
fn which_tokens_are_good_is_told_whenever_it_changes() {
    let world = World::with_tcp(Config::default());
    // What was told before is not looked at again.
    let mut seen = 0;
    let mut told = |good: usize| seen = until_told(&world, seen, good);
    told(0);
    token::add(world.dir.path(), "ci", &[Right::Ask], None).expect("made");
    told(1);
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("now");
    let until = Some(soon.as_millis() as u64 + 5_000);
    token::add(world.dir.path(), "short", &[Right::Ask], until).expect("made");
    told(2);
    told(1);
    token::remove(world.dir.path(), "ci").expect("removed");
    told(0);
    let tokens = world.fake.model().tokens.clone();
    assert!(tokens.iter().flatten().all(|uid| token::is_of_token(*uid)), "{tokens:?}");
}
