//! Who is let in, over the Unix socket and over TCP, and how much of what it sends.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::client::{read, text};
use crate::world::World;
use holdall_http::{Config, token};
use holdall_wire::Right;
use serde_json::json;

#[test]
fn over_tcp_everything_but_the_page_needs_a_token() {
    let world = World::with_tcp(Config::default());
    let remote = world.remote();
    for open in ["/", "/openapi.json", "/healthz", "/readyz"] {
        let answer = remote.get(open);
        assert_eq!(answer.status, 200, "{open}");
        assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{open}");
    }
    let with = |token: &str| {
        let header = format!("authorization: Bearer {token}");
        remote.call("GET", "/v1/agent", "", &[&header])
    };
    let ci = token::add(world.dir.path(), "ci", &[Right::View, Right::Ask], None).expect("made");
    for closed in
        [remote.get("/v1/agent"), with("hat_guessed"), with(""), remote.get("/v1/nothing")]
    {
        assert_eq!((closed.status, &*closed.problem()), (401, "unauthenticated"));
        assert!(closed.head.contains("www-authenticate: bearer"));
    }
    assert_eq!(with(&ci).json()["you"], "token:ci");
    assert_eq!(with(&ci).json()["your_rights"], json!(["view", "ask"]));
    let header = format!("authorization: bearer {ci}");
    let body = json!({"needs": ["gpu"]}).to_string();
    let asked = remote.call("PUT", "/v1/requests/a", &body, &[&header]);
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_eq!(world.client().get("/v1/requests/a").status, 410, "ids are the token's own");
    let denied = remote.call("DELETE", "/v1/pools/gpu", "", &[&header]);
    assert_eq!((denied.status, &*denied.problem()), (403, "denied"));
    token::remove(world.dir.path(), "ci").expect("removed");
    assert_eq!(with(&ci).status, 401);
}

#[test]
fn pages_of_others_and_names_of_others_are_turned_away() {
    let world = World::with_tcp(Config { names: vec!["lab.example".into()], ..Config::default() });
    let remote = world.remote();
    let with = |headers: &[&str]| remote.call("GET", "/healthz", "", headers);
    assert_eq!(with(&["host: lab.example:7421"]).status, 200);
    let rebound = with(&["host: evil.example"]);
    assert_eq!((rebound.status, &*rebound.problem()), (421, "usage"));
    assert_eq!(with(&["host: localhost:1", "origin: http://localhost:1"]).status, 200);
    for door in [world.remote(), world.client()] {
        let foreign = door.call("GET", "/healthz", "", &["origin: http://evil.example"]);
        assert_eq!((foreign.status, &*foreign.problem()), (403, "usage"));
        assert!(!foreign.head.contains("access-control"), "there is no CORS");
    }
    assert_eq!(world.client().call("GET", "/healthz", "", &["host: whatever"]).status, 200);
}

#[test]
fn only_json_of_some_size_is_taken() {
    let world = World::new();
    let client = world.client();
    let body = json!({"needs": ["gpu"]}).to_string();
    let put = |body: &str, headers: &[&str]| client.call("PUT", "/v1/requests/a", body, headers);
    for kind in ["content-type: text/plain", "content-type: application/x-www-form-urlencoded"] {
        let form = put(&body, &[kind]);
        assert_eq!((form.status, &*form.problem()), (415, "usage"));
    }
    let cut = put("{\"needs\": [", &[]);
    assert_eq!((cut.status, &*cut.problem()), (400, "usage"));
    let large = put(&json!({"needs": ["x".repeat(300_000)]}).to_string(), &[]);
    assert_eq!((large.status, &*large.problem()), (413, "usage"));
    assert!(large.body.contains("262144 bytes"), "{large:?}");
    // Whoever asks first whether it may send that is told at once.
    let mut announced = client.connect();
    let lines =
        ["content-type: application/json", "content-length: 262145", "expect: 100-continue"];
    announced.write_all(text("PUT", "/v1/requests/a", "", &lines).as_bytes()).expect("sent");
    assert_eq!(read(&mut *announced).status, 413);
    let packed = put(&body, &["content-encoding: gzip"]);
    assert_eq!((packed.status, &*packed.problem()), (415, "usage"));
    let head = format!("x-long: {}", "x".repeat(200_000));
    assert_eq!(put(&body, &[&head]).status, 431);
    let many: Vec<String> = (0..100).map(|n| format!("x-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(put(&body, &many).status, 431);
    assert_eq!(world.fake.model().asked, 0);
}

#[test]
fn what_is_not_there_is_told() {
    let world = World::new();
    let client = world.client();
    for (path, status, kind) in [
        ("/v1/nothing", 404, "usage"),
        ("/nothing.js", 404, "usage"),
        ("/../Cargo.toml", 404, "usage"),
        ("/v1/pools/none", 404, "unknown"),
        ("/v1/explain/1-1", 404, "unknown"),
        ("/v1/explain/x", 400, "usage"),
        ("/v1/requests/..", 400, "usage"),
        ("/v1/pools/a%20b", 400, "usage"),
        ("/v1/status?pol=x", 400, "usage"),
        ("/v1/audit?limit=0", 400, "usage"),
        ("/v1/audit?cursor=x", 400, "usage"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, &*answer.problem()), (status, kind), "{path}");
    }
    let method = client.delete("/v1/status");
    assert_eq!((method.status, &*method.problem()), (405, "usage"));
    assert!(method.head.contains("allow: get"), "{method:?}");
}

#[test]
fn the_description_is_made_from_the_code() {
    let world = World::new();
    let described = world.client().get("/openapi.json").json();
    assert_eq!(described["openapi"], "3.1.0");
    let paths = described["paths"].as_object().expect("paths");
    for path in ["/v1/requests/{id}", "/v1/status", "/v1/events", "/v1/drains/{name}", "/readyz"] {
        assert!(paths.contains_key(path), "{path}");
    }
    let operations = paths.values().flat_map(|path| path.as_object().expect("methods").values());
    let mut names: Vec<_> = operations.map(|it| it["operationId"].to_string()).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!((all, names.len()), (22, 22), "each operation has a name of its own: {names:?}");
}

#[test]
fn a_page_is_not_sent_twice() {
    let world = World::new();
    let first = world.client().get("/");
    assert!(first.head.contains("text/html"), "{first:?}");
    let tag = first.head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
    let again = world.client().call("GET", "/", "", &[&format!("if-none-match: {tag}")]);
    assert_eq!((again.status, &*again.body), (304, ""));
}

#[test]
fn one_user_does_not_have_all_connections() {
    let world = World::new();
    let client = world.client();
    let mut idle: Vec<_> = (0..256).map(|_| client.connect()).collect();
    let full = client.get("/healthz");
    assert_eq!((full.status, &*full.problem()), (429, "limit"));
    // Those who are here are served.
    idle[0].write_all(text("GET", "/healthz", "", &[]).as_bytes()).expect("sent");
    assert_eq!(read(&mut *idle[0]).status, 200);
}

#[test]
fn tls_is_spoken_where_there_is_a_certificate() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("made");
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let world = World::with_tcp(Config {
        certificate: Some(certificate),
        key: Some(key),
        ..Config::default()
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut socket = world.remote().connect();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream
        .write_all(text("GET", "/healthz", "", &["origin: https://localhost"]).as_bytes())
        .expect("sent");
    assert_eq!(read(&mut stream as &mut dyn Read).status, 200);
    // In the clear there is nothing.
    let mut plain = world.remote().connect();
    plain.write_all(text("GET", "/healthz", "", &[]).as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
}

#[test]
fn a_token_that_is_removed_is_good_for_nothing_that_goes_on_either() {
    let world = World::with_tcp(Config::default());
    let may = [Right::View, Right::Ask];
    let ci = token::add(world.dir.path(), "ci", &may, None).expect("made");
    let header = format!("authorization: Bearer {ci}");
    let mut events = world.remote().listen("/v1/events", &[&header]);
    assert_eq!(events.next().expect("an event").kind, "snapshot");
    world.client().put("/v1/requests/mine", &json!({"needs": ["db"]}));
    let waits = json!({"needs": ["db"], "wait_ms": 300_000}).to_string();
    let mut waiting = world.remote().connect();
    waiting
        .write_all(text("PUT", "/v1/requests/theirs", &waits, &[&header]).as_bytes())
        .expect("sent");
    world.fake.until_there_are(2);
    token::remove(world.dir.path(), "ci").expect("removed");
    while events.next().is_some() {}
    let told = read(&mut *waiting);
    assert_eq!((told.status, &*told.problem()), (401, "unauthenticated"));
    // Who came over the Unix socket goes on.
    assert_eq!(world.client().get("/v1/requests/mine").status, 200);
}

#[test]
fn an_agent_is_not_ready_without_a_door_that_it_should_have() {
    let world = World::new();
    assert_eq!(world.client().get("/readyz").status, 200);
    world.fake.model().no_http = Some("no HTTP over TCP: somebody is there".into());
    let told = world.client().get("/readyz");
    assert_eq!((told.status, &*told.problem()), (503, "unreachable"));
    assert!(told.body.contains("somebody is there"));
    assert_eq!(world.client().get("/healthz").status, 200);
}

#[test]
fn who_is_answered_early_may_finish_what_it_says() {
    let world = World::with_tcp(Config::default());
    for client in [world.client(), world.remote()] {
        let mut stream = client.connect();
        let call = text("PUT", "/nope", "{}", &[]);
        stream.write_all(call.strip_suffix("{}").expect("its body").as_bytes()).expect("sent");
        assert!(read(&mut *stream).status >= 400);
        stream.write_all(b"{}").expect("it is heard");
    }
}
