//! Calls about one request that do not want to wait equally long.

use serde_json::{Value, json};

use crate::client::{Both, Client, read};
use crate::world::World;

const PATH: &str = "/v1/requests/mine";

/// A world in which `db` is held, by `/v1/requests/other`.
fn busy() -> (World, Client) {
    let world = World::new();
    let client = world.client();
    client.put("/v1/requests/other", &json!({"needs": ["db"]}));
    (world, client)
}

fn ask(wait_ms: u64) -> Value {
    json!({"needs": ["db"], "wait_ms": wait_ms})
}

/// What somebody who waits hears once the other has given back.
fn heard_at_last(client: &Client, patient: &mut dyn Both) -> Value {
    assert_eq!(client.delete("/v1/requests/other").status, 200);
    read(patient).json()
}

#[test]
fn whoever_loses_patience_does_not_end_the_waiting_of_another() {
    let (world, client) = busy();
    let mut patient = client.begin("PUT", PATH, &ask(60_000));
    world.fake.until_there_are(2);
    for wait_ms in [0, 1] {
        let late = client.put(PATH, &ask(wait_ms));
        assert_eq!((late.status, &*late.problem()), (409, "timeout"));
    }
    assert_eq!(heard_at_last(&client, &mut *patient)["state"], "granted");
    assert_eq!(world.fake.model().asked, 2, "it has kept its place");
}

#[test]
fn whoever_polls_waits_as_well() {
    let (world, client) = busy();
    assert_eq!(client.put(PATH, &json!({"needs": ["db"], "queue": true})).status, 202);
    world.fake.until_alone();
    let mut polled = client.begin("GET", &format!("{PATH}?wait_ms=60000"), &Value::Null);
    world.fake.until_attached();
    let late = client.put(PATH, &ask(1));
    assert_eq!((late.status, &*late.problem()), (409, "timeout"));
    assert_eq!(heard_at_last(&client, &mut *polled)["state"], "granted");
}

#[test]
fn the_last_who_loses_patience_withdraws() {
    let (world, client) = busy();
    let mut first = client.begin("PUT", PATH, &ask(300));
    world.fake.until_there_are(2);
    for late in [client.put(PATH, &ask(1)), read(&mut *first)] {
        assert_eq!((late.status, &*late.problem()), (409, "timeout"));
    }
    assert_eq!(world.fake.model().requests.len(), 1, "nothing waits any more");
}

#[test]
fn whoever_comes_while_another_gives_up_asks_anew() {
    let (world, client) = busy();
    world.fake.model().dawdles = true;
    let mut late = client.begin("PUT", PATH, &ask(1));
    world.fake.until_there_have_been(2);
    world.fake.until_there_are(1);
    let gone = client.get(PATH);
    assert_eq!((gone.status, &*gone.problem()), (410, "lost"));
    let mut patient = client.begin("PUT", PATH, &ask(60_000));
    assert_eq!(read(&mut *late).problem(), "timeout");
    assert_eq!(heard_at_last(&client, &mut *patient)["state"], "granted");
    assert_eq!(world.fake.model().displaced, 0);
}

#[test]
fn what_is_refused_to_one_who_does_not_wait_is_not_refused_to_one_who_does() {
    let (world, client) = busy();
    world.fake.model().dawdles = true;
    let mut hasty = client.begin("PUT", PATH, &ask(0));
    world.fake.until_there_have_been(2);
    let mut patient = client.begin("PUT", PATH, &ask(60_000));
    assert_eq!(read(&mut *hasty).problem(), "busy");
    assert_eq!(heard_at_last(&client, &mut *patient)["state"], "granted");
}
