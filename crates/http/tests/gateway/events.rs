//! What those are told who listen.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::world::World;
use holdall_http::{Config, token};
use holdall_wire::Right;
use serde_json::json;

#[test]
fn first_everything_and_then_what_changes() {
    let world = World::new();
    world.log(1);
    let client = world.client();
    client.put("/v1/requests/a", &json!({"needs": ["db"]}));
    let mut events = client.listen("/v1/events", &[]);
    let first = events.next().expect("a snapshot");
    assert_eq!((&*first.kind, &first.data["missed"]), ("snapshot", &json!(false)));
    assert_eq!(first.data["grants"].as_array().map(Vec::len), Some(1));
    assert_eq!(first.data["agent"]["you"], "anna");
    client.put("/v1/requests/b", &json!({"needs": ["db"], "queue": true}));
    world.log(2);
    assert_eq!(events.next_of("audit").data["at"], 2);
    let change = events.next_of("change").data;
    let waiting = change["waiting"][0]["request"].clone();
    assert!(waiting.is_string(), "{change}");
    assert_eq!((&change["grants"], &change["order"]), (&json!([]), &json!(null)));
    client.delete("/v1/requests/a");
    world.log(3);
    let change = events.next_of("change").data;
    assert_eq!((&change["left"], &change["grants"][0]["request"]), (&json!([waiting]), &waiting));
    assert_eq!(change["ended"], json!([first.data["grants"][0]["request"]]));
}

#[test]
fn whoever_comes_back_is_told_what_it_missed() {
    let world = World::new();
    world.log(1);
    let client = world.client();
    let mut events = client.listen("/v1/events", &[]);
    events.next().expect("a snapshot");
    world.log(2);
    let last = events.next_of("audit").id;
    drop(events);
    world.log(3);
    world.log(4);
    let mut events = client.listen("/v1/events", &[&format!("last-event-id: {last}")]);
    let first = events.next().expect("a snapshot");
    assert_eq!((&*first.kind, &first.data["missed"]), ("snapshot", &json!(false)));
    assert_eq!(events.next_of("audit").data["at"], 3);
    assert_eq!(events.next_of("audit").data["at"], 4);
    let mut events = client.listen("/v1/events?last_event_id=77.1", &[]);
    assert_eq!(events.next().expect("a snapshot").data["missed"], true);
    let mut events = client.listen("/v1/events", &["last-event-id: \u{e4}"]);
    assert_eq!(events.next().expect("a snapshot").data["missed"], true, "it is no id of ours");
}

#[test]
fn whoever_may_not_look_may_not_listen() {
    let world = World::new();
    world.fake.model().denied = true;
    for path in ["/v1/events", "/v1/audit", "/v1/status"] {
        let answer = world.client().get(path);
        assert_eq!((answer.status, &*answer.problem()), (403, "denied"), "{path}");
    }
}

/// Neither by reading the log, nor by listening from a place on that is long past.
#[test]
fn whoever_may_look_sees_its_own_past_and_of_others_only_what_happened() {
    let world = World::with_tcp(Config::default());
    world.log_of(1, 1000, "anna");
    let may = |name, may: &[Right]| {
        let token = token::add(world.dir.path(), name, may, None).expect("made");
        format!("authorization: Bearer {token}")
    };
    let (wall, boss) = (may("wall", &[Right::View]), may("boss", &[Right::View, Right::Admin]));
    for (header, seen) in [(&wall, json!(null)), (&boss, json!("anna"))] {
        let page = world.remote().call("GET", "/v1/audit", "", &[header]).json();
        assert_eq!((&page["lines"][0]["at"], &page["lines"][0]["who"]["user"]), (&json!(1), &seen));
        let mut events = world.remote().listen("/v1/events", &[header, "last-event-id: 0.0.0"]);
        let line = events.next_of("audit").data;
        assert_eq!((&line["at"], &line["who"]["user"]), (&json!(1), &seen));
    }
    // What happens now is in the status, too.
    let mut events = world.remote().listen("/v1/events", &[&wall]);
    events.next().expect("a snapshot");
    world.log_of(2, 1000, "anna");
    assert_eq!(events.next_of("audit").data["who"]["user"], "anna");
}

#[test]
fn the_audit_log_is_read_page_by_page() {
    let world = World::new();
    for at in 1..=5 {
        world.log(at);
    }
    let page = world.client().get("/v1/audit?limit=3").json();
    let times = |page: &serde_json::Value| -> Vec<u64> {
        let lines = page["lines"].as_array().expect("lines").iter();
        lines.map(|line| line["at"].as_u64().expect("a time")).collect()
    };
    assert_eq!(times(&page), [5, 4, 3]);
    let cursor = page["cursor"].as_str().expect("there is more");
    let page = world.client().get(&format!("/v1/audit?limit=9&cursor={cursor}")).json();
    assert_eq!((times(&page), &page["cursor"]), (vec![2, 1], &json!(null)));
    assert_eq!(times(&world.client().get("/v1/audit?request=1-4").json()), [4]);
}

#[test]
fn what_happens_is_told_also_if_it_is_not_in_the_audit_log() {
    let world = World::new();
    let client = world.client();
    let mut events = client.listen("/v1/events", &[]);
    events.next().expect("a snapshot");
    client.put("/v1/requests/a", &json!({"needs": ["db"]}));
    let change = events.next_of("change");
    assert_eq!(change.data["grants"].as_array().map(Vec::len), Some(1), "{change:?}");
}

/// Somebody may restore or remove the log while others listen.
#[test]
fn another_log_in_the_place_of_the_old_one_is_gone_on_with() {
    let world = World::new();
    world.log(1);
    let client = world.client();
    let mut events = client.listen("/v1/events", &[]);
    events.next().expect("a snapshot");
    world.log(2);
    assert_eq!(events.next_of("audit").data["at"], 2);
    std::fs::remove_file(world.dir.path().join("audit.jsonl")).expect("removed");
    world.log(7);
    let told = events.next_of("audit").data;
    assert_eq!(told["what"], "left-out", "{told}");
    world.log(8);
    assert_eq!(events.next_of("audit").data["at"], 8);
}

#[test]
fn whoever_missed_very_much_is_told_so_and_the_last_of_it() {
    let mut world = World::new();
    world.log(1);
    let client = world.client();
    let last = client.listen("/v1/events", &[]).next().expect("a snapshot").id;
    let many: Vec<u64> = (100_000..160_000).collect();
    world.log_all(&many);
    world.start(); // Nobody has listened meanwhile.
    let mut events = client.listen("/v1/events", &[&format!("last-event-id: {last}")]);
    assert_eq!(events.next().expect("a snapshot").data["missed"], true);
    let first = events.next_of("audit").data["at"].as_u64().expect("a time");
    assert!(first > 100_000, "not from the first on: {first}");
    let mut expected = first + 1;
    while expected < 160_000 {
        assert_eq!(events.next_of("audit").data["at"], expected);
        expected += 1;
    }
}

#[test]
fn whoever_does_not_read_is_let_go_and_nobody_waits_for_it() {
    let world = World::new();
    let client = world.client();
    let mut slow = client.listen("/v1/events", &[]);
    slow.next().expect("a snapshot");
    // As many as one user may.
    let mut listening: Vec<_> = (1..64).map(|_| client.listen("/v1/events", &[])).collect();
    let is_full = || {
        let mut status = [0; 12];
        let mut stream = client.begin("GET", "/v1/events", &json!(null));
        stream.read_exact(&mut status).expect("a status");
        status.ends_with(b"429")
    };
    assert!(is_full());
    let quick = listening.last_mut().expect("one of them");
    // More than a connection takes of what is not read, as often as it is told.
    let mut last = 0;
    for _ in 0..20 {
        world.log_all(&(last + 1..=last + 1000).collect::<Vec<_>>());
        for _ in 0..1000 {
            last += 1;
            assert_eq!(quick.next_of("audit").data["at"], last);
        }
    }
    let end = Instant::now() + Duration::from_secs(120);
    while is_full() {
        assert!(Instant::now() < end, "it is not let go");
        world.log(last);
        std::thread::sleep(Duration::from_millis(50));
    }
    // What was on its way is read, and then there is no more of it.
    let heard = std::iter::from_fn(|| slow.next()).filter(|event| event.kind == "audit");
    assert!((heard.count() as u64) < last);
}
