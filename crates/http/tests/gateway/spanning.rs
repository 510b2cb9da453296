//! What other cells guard: it is good for as long as they have said, however long its lease is.

use serde_json::{Value, json};

use crate::client::read;
use crate::fake::Lent;
use crate::world::World;

const PATH: &str = "/v1/requests/mine";
const RENEW: &str = "/v1/requests/mine/renew";

/// A service whose clock says 100,000, and of which everything is guarded elsewhere.
fn world(lent: Lent) -> World {
    let world = World::new();
    (world.fake.model().boottime, world.fake.model().lent) = (100_000, lent);
    world
}

fn ask(ttl_ms: u64) -> Value {
    json!({"needs": ["gpu"], "ttl_ms": ttl_ms})
}

#[test]
fn it_is_valid_for_the_lesser_of_its_lease_and_what_is_left_of_the_others() {
    let world = world(Lent::Until(145_000));
    let client = world.client();
    let granted = client.put(PATH, &ask(600_000));
    assert_eq!((granted.status, &granted.json()["state"]), (200, &json!("granted")), "{granted:?}");
    let valid = |told: &Value| (told["valid_ms"].clone(), told["lent_ms"].clone());
    assert_eq!(valid(&granted.json()), (json!(45_000), json!(45_000)));
    world.fake.until_alone();
    world.fake.model().boottime = 110_000;
    let renewed = client.call("POST", RENEW, "", &[]);
    assert_eq!((renewed.status, &renewed.json()["state"]), (200, &json!("granted")));
    assert_eq!(valid(&renewed.json()), (json!(35_000), json!(35_000)));
    world.fake.confirm(170_000);
    assert_eq!(valid(&client.get(PATH).json()), (json!(60_000), json!(60_000)));
    world.fake.model().boottime = 170_001;
    assert_eq!(valid(&client.put(PATH, &ask(600_000)).json()), (json!(0), json!(0)));
    let short = client.put("/v1/requests/short", &ask(1000)).json();
    assert_eq!(valid(&short), (json!(0), json!(0)));
    world.fake.confirm(230_000);
    let short = client.put("/v1/requests/short", &ask(1000)).json();
    assert_eq!(valid(&short), (json!(1000), json!(59_999)));
}

#[test]
fn what_no_other_cell_guards_is_valid_for_its_lease() {
    let world = World::new();
    let client = world.client();
    let told = client.put(PATH, &ask(5000)).json();
    assert_eq!((&told["valid_ms"], &told["lent_ms"]), (&json!(5000), &Value::Null));
    let waits = client.put("/v1/requests/waits", &json!({"needs": ["gpu:2"], "queue": true}));
    assert_eq!((waits.status, &waits.json()["valid_ms"]), (202, &Value::Null));
    assert_eq!(client.delete(PATH).json()["valid_ms"], Value::Null);
}

#[test]
fn whoever_waits_for_its_end_is_told_how_long_it_is_valid_by_then_and_of_its_loss() {
    let world = world(Lent::Until(145_000));
    let client = world.client();
    client.put(PATH, &ask(600_000));
    world.fake.until_alone();
    let mut waits = client.begin("GET", &format!("{PATH}?wait_ms=500&until=ended"), &Value::Null);
    world.fake.until_attached();
    world.fake.confirm(155_000);
    let still = read(&mut *waits);
    assert_eq!((still.status, &still.json()["valid_ms"]), (200, &json!(55_000)), "{still:?}");
    let mut waits = client.begin("GET", &format!("{PATH}?wait_ms=60000&until=ended"), &Value::Null);
    world.fake.until_attached();
    world.fake.take_away();
    let lost = read(&mut *waits);
    assert_eq!((lost.status, &*lost.problem()), (410, "lost"));
}

#[test]
fn whether_it_is_held_still_is_not_said_before_it_is_known() {
    let world = world(Lent::Until(145_000));
    let client = world.client();
    let granted = client.put(PATH, &ask(600_000)).json();
    world.fake.until_alone();
    world.fake.model().lent = Lent::Unconfirmed;
    let mut renews = client.begin("POST", RENEW, &Value::Null);
    world.fake.until_attached();
    world.fake.confirm(160_000);
    let renewed = read(&mut *renews).json();
    assert_eq!((&renewed["state"], &renewed["taken"]), (&json!("granted"), &granted["taken"]));
    assert_eq!(renewed["valid_ms"], 60_000);
    world.fake.until_alone();
    world.fake.model().lent = Lent::Unconfirmed;
    for asked in [client.call("POST", RENEW, "", &[]), client.get(PATH)] {
        assert_eq!((asked.status, &*asked.problem()), (503, "unreachable"), "{asked:?}");
    }
    assert_eq!(client.delete(PATH).json()["state"], "released");
}
