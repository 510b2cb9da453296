//! The life of a request over HTTP, before a fake service.

use crate::world::World;
use serde_json::{Value, json};

fn fence(granted: &Value) -> u64 {
    let fence = granted["taken"][0]["units"][0]["fence"].as_str().expect("a text");
    fence.parse().expect("decimal digits")
}

#[test]
fn a_request_lives_from_its_asking_to_its_release() {
    let world = World::new();
    let client = world.client();
    let asked = client.put("/v1/requests/one", &json!({"needs": ["gpu:2", "db"], "reason": "<b>"}));
    assert_eq!(asked.status, 200, "{asked:?}");
    assert!(
        asked.head.contains("location: /v1/requests/one") && asked.head.contains("x-request-id: ")
    );
    let granted = asked.json();
    assert_eq!((&granted["state"], &granted["id"]), (&json!("granted"), &json!("one")));
    assert_eq!(granted["taken"][0]["units"][1]["name"], "gpu/1");
    assert_eq!(granted["taken"][1]["name"], "db");
    assert!(fence(&granted) > 1 << 53, "it is exact where JavaScript is not");
    assert_eq!(granted["ttl_ms"], 30_000);
    for again in
        [client.get("/v1/requests/one"), client.call("POST", "/v1/requests/one/renew", "", &[])]
    {
        assert_eq!((again.status, &again.json()), (200, &granted));
    }
    let status = client.get("/v1/status").json();
    assert_eq!(status["grants"][0]["request"], granted["request"]);
    assert_eq!(status["grants"][0]["who"]["from"]["reason"], "<b>");
    for _ in 0..2 {
        let released = client.delete("/v1/requests/one");
        assert_eq!((released.status, &released.json()["state"]), (200, &json!("released")));
    }
    assert_eq!(client.get("/v1/requests/one").json()["state"], "released");
    let late = client.put("/v1/requests/one", &json!({"needs": ["gpu:2", "db"]}));
    assert_eq!(late.json()["state"], "released", "an ask that comes late holds nothing");
    let model = world.fake.model();
    assert_eq!((model.asked, model.requests.len()), (1, 0));
}

#[test]
fn asking_again_after_a_lost_answer_is_harmless() {
    let world = World::new();
    let client = world.client();
    client.post("/v1/requests", &json!({"needs": ["db"]}));
    let body = json!({"needs": ["db"], "wait_ms": 60000});
    let call = client.begin("PUT", "/v1/requests/mine", &body);
    world.fake.until_there_are(2);
    drop(call);
    world.fake.until_alone();
    let number = world.fake.model().requests[1].number.to_string();
    let polled = json!({"needs": ["db"], "queue": true});
    let again = client.put("/v1/requests/mine", &polled);
    assert_eq!((again.status, &again.json()["request"]), (202, &json!(number)));
    world.fake.take_away();
    let granted = client.put("/v1/requests/mine", &polled);
    assert_eq!((granted.status, &granted.json()["request"]), (200, &json!(number)));
    assert_eq!(world.fake.model().asked, 2);
    let other = client.put("/v1/requests/mine", &json!({"needs": ["other"]}));
    assert_eq!((other.status, &*other.problem()), (409, "conflict"));
}

#[test]
fn whoever_is_cut_off_finds_its_request_again() {
    let world = World::new();
    let client = world.client();
    client.post("/v1/requests", &json!({"needs": ["db"]}));
    let body = json!({"needs": ["db"], "wait_ms": 60000});
    let mut call = client.begin("POST", "/v1/requests", &body);
    world.fake.until_there_are(2);
    world.fake.hang_up();
    let cut_off = crate::client::read(&mut *call);
    assert_eq!((cut_off.status, &*cut_off.problem()), (503, "unreachable"));
    let told = cut_off.json()["detail"].as_str().expect("words").to_owned();
    let path = told.split_whitespace().find(|word| word.starts_with("/v1/")).expect("what to do");
    let again = client.put(path, &json!({"needs": ["db"], "queue": true}));
    let number = world.fake.model().requests[1].number.to_string();
    assert_eq!((again.status, &again.json()["request"]), (202, &json!(number)));
    let other = client.put(path, &json!({"needs": ["other"]}));
    assert_eq!((other.status, &*other.problem()), (409, "conflict"));
    assert_eq!(world.fake.model().asked, 2);
}

#[test]
fn whoever_asks_again_after_its_time_begins_anew() {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/a", &json!({"needs": ["db"]}));
    world.fake.model().dawdles = true;
    for _ in 0..2 {
        let late = client.put("/v1/requests/b", &json!({"needs": ["db"], "wait_ms": 1}));
        assert_eq!((late.status, &*late.problem()), (409, "timeout"), "{late:?}");
    }
    assert_eq!(world.fake.model().displaced, 0);
}

#[test]
fn whoever_does_not_renew_loses_it_and_the_fence_says_so() {
    let world = World::new();
    let client = world.client();
    let body = json!({"needs": ["gpu"], "ttl_ms": 1000});
    let first = client.put("/v1/requests/a", &body).json();
    world.fake.until_alone();
    world.fake.lapse();
    for lost in [
        client.get("/v1/requests/a"),
        client.call("POST", "/v1/requests/a/renew", "", &[]),
        client.delete("/v1/requests/a"),
        client.get("/v1/requests/never-asked-for"),
    ] {
        assert_eq!(
            (lost.status, &*lost.problem(), &lost.json()["exit"]),
            (410, "lost", &json!(70))
        );
    }
    let second = client.put("/v1/requests/a", &body).json();
    assert!(fence(&second) > fence(&first));
}

#[test]
fn a_grant_that_is_taken_away_is_lost() {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/a", &json!({"needs": ["gpu"]}));
    world.fake.take_away();
    let lost = client.get("/v1/requests/a");
    assert_eq!((lost.status, &*lost.problem()), (410, "lost"));
}

#[test]
fn whoever_asks_again_for_what_was_taken_away_has_not_said_that_it_has_stopped() {
    let world = World::new();
    let client = world.client();
    let ask = json!({"needs": ["gpu"]});
    client.put("/v1/requests/a", &ask);
    world.fake.take_away();
    for lost in [client.put("/v1/requests/a", &ask), client.put("/v1/requests/a", &ask)] {
        assert_eq!((lost.status, &*lost.problem()), (410, "lost"));
    }
    assert_eq!(client.delete("/v1/requests/a").status, 410);
    assert_eq!(client.put("/v1/requests/a", &ask).json()["state"], "granted");
}

#[test]
fn waiting_ends_with_the_grant_or_the_patience() {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/a", &json!({"needs": ["db"]}));
    let busy = client.put("/v1/requests/b", &json!({"needs": ["db"]}));
    assert_eq!((busy.status, &*busy.problem(), &busy.json()["exit"]), (409, "busy", &json!(75)));
    assert!(busy.json()["detail"].as_str().expect("words").contains("not free"));
    let late = client.put("/v1/requests/b", &json!({"needs": ["db"], "wait_ms": 1}));
    assert_eq!((late.status, &*late.problem()), (409, "timeout"));
    assert_eq!(world.fake.model().requests.len(), 1, "what was not granted does not wait");
    let queued = client.put("/v1/requests/b", &json!({"needs": ["db"], "queue": true}));
    assert_eq!((queued.status, &queued.json()["state"]), (202, &json!("waiting")));
    let mut polled = client.begin("GET", "/v1/requests/b?wait_ms=60000", &Value::Null);
    let mut others = client.begin("GET", "/v1/requests/b?wait_ms=60000", &Value::Null);
    assert_eq!(client.get("/v1/requests/b").status, 202);
    assert_eq!(client.delete("/v1/requests/a").status, 200);
    for stream in [&mut polled, &mut others] {
        let answer = crate::client::read(&mut **stream);
        assert_eq!(answer.json()["state"], "granted");
    }
    assert_eq!(world.fake.model().displaced, 0, "calls about one request share a connection");
}

#[test]
fn what_is_refused_is_told_in_the_words_of_the_command_line() {
    let world = World::new();
    let client = world.client();
    let ask = |body: Value| client.put("/v1/requests/x", &body);
    let never = ask(json!({"needs": ["gpu:9"]}));
    assert_eq!((never.status, &*never.problem()), (422, "never"));
    assert_eq!(
        (&never.json()["detail"], &never.json()["exit"]),
        (&json!("gpu has 2 units"), &json!(78))
    );
    for senseless in [
        json!({"needs": []}),
        json!({"needs": ["gpu:0:1"]}),
        json!({"needs": ["a b"]}),
        json!({"needs": ["gpu"], "ttl_ms": 1}),
        json!({"needs": ["gpu"], "ttl_ms": -1}),
        json!({"needs": ["gpu"], "wait_ms": 1e12}),
        json!({"needs": ["gpu"], "within": "x"}),
        json!({"needs": "gpu"}),
        json!({"needs": ["gpu"], "wiat_ms": 5}),
        json!(7),
        // What each field would be, in their order.
        json!([["gpu"], 30_000, 0, false, null, null, null, null, null, null]),
    ] {
        let answer = ask(senseless.clone());
        assert_eq!((answer.status, &*answer.problem()), (400, "usage"), "{senseless}");
        let ours = ["struct", "Failed to", "u64", "sequence"]
            .iter()
            .all(|word| !answer.body.contains(word));
        assert!(ours, "words of our own: {answer:?}");
    }
    let long = client.put(&format!("/v1/requests/{}", "x".repeat(129)), &json!({"needs": ["gpu"]}));
    assert_eq!((long.status, &*long.problem()), (400, "usage"));
    world.fake.model().denied = true;
    let denied = ask(json!({"needs": ["gpu"]}));
    assert_eq!(
        (denied.status, &*denied.problem(), &denied.json()["exit"]),
        (403, "denied", &json!(77))
    );
    assert_eq!(world.fake.model().requests.len(), 0);
}

#[test]
fn a_gateway_that_starts_anew_finds_everything_again() {
    let mut world = World::new();
    let granted = world.client().put("/v1/requests/a", &json!({"needs": ["gpu"]})).json();
    world.start();
    let again = world.client().get("/v1/requests/a").json();
    assert_eq!((&again["state"], &again["taken"]), (&granted["state"], &granted["taken"]));
    assert_eq!(again["ttl_ms"], granted["ttl_ms"]);
    assert_eq!(world.client().delete("/v1/requests/a").json()["state"], "released");
}

#[test]
fn a_gateway_that_starts_anew_knows_one_request_from_another() {
    let mut world = World::new();
    let (asked, path) = (json!({"needs": ["gpu"], "ttl_ms": 5000}), "/v1/requests/a");
    let granted = world.client().put(path, &asked).json();
    world.start();
    for other in [
        json!({"needs": ["gpu:2"], "ttl_ms": 5000}),
        json!({"needs": ["gpu"], "ttl_ms": 6000}),
        json!({"needs": ["gpu"], "ttl_ms": 5000, "limit_ms": 9}),
        json!({"needs": ["gpu"], "ttl_ms": 5000, "reserve_ms": 9}),
    ] {
        let told = world.client().put(path, &other);
        assert_eq!((told.status, &*told.problem()), (409, "conflict"), "{other}");
    }
    // How long one waits for the answer, and what is said for people, is not what is asked for.
    let again =
        json!({"needs": ["gpu"], "ttl_ms": 5000, "wait_ms": 10, "queue": true, "reason": "x"});
    assert_eq!(world.client().put(path, &again).json()["taken"], granted["taken"]);
    assert_eq!(world.fake.model().asked, 1);
}
