//! The client against a real agent, in a directory of its own.

use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

use holdall_client::wire::frame::{self, OLDEST, VERSION};
use holdall_client::wire::{
    AgentView, Ask, Body, Call, Fault, From, Lasting, Refusal, Reply, RequestNo, Status, TEXT_MAX,
};
use holdall_client::{Client, Error, Grant};
use holdall_node::{Config, Limits, Settings};
use tokio::time::timeout;

/// An agent on a thread, stopped at the end.
struct Agent {
    dir: tempfile::TempDir,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Agent {
    fn start() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let mut agent = Self { dir: tempfile::tempdir().expect("a directory"), thread: None };
        agent.run(config);
        agent
    }

    fn run(&mut self, config: Config) {
        let settings = Settings {
            socket: self.dir.path().join("agent.sock"),
            data: self.dir.path().join("data"),
            config,
            configured: false,
            metrics: None,
            idle_exit: None,
            background: false,
            hosted: None,
            adopt: false,
        };
        let run = move || holdall_node::run(&settings).expect("the agent runs");
        self.thread = Some(std::thread::spawn(run));
    }

    /// The next agent, with the files of the one before.
    fn start_again(&mut self) {
        self.run(Config::default());
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    async fn client(&self) -> Client {
        loop {
            match Client::connect(self.socket()).await {
                Ok(client) => return client,
                Err(Error::NoAgent(_) | Error::Unreachable(..)) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The lines of the audit log of one kind, when there are so many: they are written some
    /// moments after their client was told.
    async fn audited(&self, what: &str, count: usize) -> Vec<serde_json::Value> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let text = std::fs::read_to_string(self.dir.path().join("data/audit.jsonl"));
            let text = text.expect("it is there");
            let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            let lines: Vec<_> =
                lines.filter(|line: &serde_json::Value| line["what"] == what).collect();
            if lines.len() >= count || Instant::now() > deadline {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn stop(mut self) {
        self.stop_running().await;
    }

    async fn stop_running(&mut self) {
        let client = self.client().await;
        client.call(Body::Stop { now: true }).await.expect("it stops");
        client.lost().await;
        self.thread.take().expect("once").join().expect("it ends well");
    }
}

async fn status(client: &Client) -> Status {
    match client.status(&[], |_| false).await {
        Ok((status, false)) => status,
        other => panic!("{other:?}"),
    }
}

/// Waits until so many requests wait.
async fn until_waiting(client: &Client, waiting: usize) {
    while status(client).await.waiting.len() != waiting {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn dropping_a_grant_releases_it_and_dropping_a_future_withdraws_it() {
    let agent = Agent::start();
    let client = agent.client().await;
    let grant = client.request(&["a", "b"]).await.expect("free");
    assert_eq!(grant.units().count(), 2);
    assert_eq!(grant.fences("a"), grant.fences("b"));

    let mut waiting = Box::pin(client.request(&["b", "c"]));
    assert!(timeout(Duration::from_millis(20), &mut waiting).await.is_err());
    until_waiting(&client, 1).await;
    drop(waiting);
    until_waiting(&client, 0).await;

    let next = tokio::spawn({
        let client = client.clone();
        async move { client.request(&["a"]).await.expect("granted in the end").fences("a") }
    });
    until_waiting(&client, 1).await;
    let before = grant.fences("a");
    drop(grant);
    assert!(next.await.expect("no panic") > before);
    agent.stop().await;
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let agent = Agent::start();
    let client = agent.client().await;
    let mut tasks = Vec::new();
    for i in 0..64 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let names = [format!("fork-{i}"), format!("fork-{}", (i + 1) % 64)];
                let grant = client.request(&names).await.expect("granted in the end");
                tokio::task::yield_now().await;
                grant.release().await.expect("released");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no philosopher starves");
    }
    let left = status(&client).await;
    assert_eq!((left.grants.len(), left.waiting.len(), left.pools.len()), (0, 0, 0));
    agent.stop().await;
}

/// More than the socket takes in either direction, all at once.
#[tokio::test]
async fn many_large_requests_at_once_do_not_stick() {
    let agent = Agent::start();
    let client = agent.client().await;
    let mut tasks = Vec::new();
    for i in 0..2000 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            let long = |n: usize| format!("{}{i}-{n}", "x".repeat(180));
            let names: Vec<_> = (0..2).map(long).collect();
            client.request(&names).await.expect("free").release().await.expect("released");
        }));
    }
    for task in tasks {
        timeout(Duration::from_secs(60), task).await.expect("nobody is stuck").expect("no panic");
    }
    agent.stop().await;
}

#[tokio::test]
async fn refusals_say_why() {
    let agent = Agent::start();
    let client = agent.client().await;
    let never = client.request(&["gpu:2"]).await;
    assert!(matches!(never, Err(Error::Refused(Refusal::Never(_)))), "{never:?}");
    assert!(matches!(client.request(&["a b"]).await, Err(Error::Need(_))));
    agent.stop().await;
}

#[tokio::test]
async fn one_client_cannot_have_everything_but_can_still_look() {
    let limits = Limits { connections: 2, requests: 2, ..Limits::default() };
    let agent = Agent::with(Config { limits, ..Config::default() });
    let client = agent.client().await;
    let held = [client.request(&["a"]).await, client.request(&["b"]).await];
    assert!(held.iter().all(Result::is_ok));
    let closed = |asked: Result<Grant, Error>| match asked {
        Err(Error::Refused(Refusal::Closed(why))) => why,
        other => panic!("{other:?}"),
    };
    assert!(closed(client.request(&["c"]).await).contains("more than 2 requests"));
    let refused = agent.audited("refused", 1).await;
    let who = refused.last().expect("a line").get("who").expect("somebody");
    assert_eq!(who["pid"], std::process::id());
    assert_eq!(who["uid"], rustix::process::getuid().as_raw());
    let second = agent.client().await;
    let mut visitors = vec![agent.client().await];
    assert!(closed(visitors[0].request(&["c"]).await).contains("can look and release"));
    assert_eq!(status(&visitors[0]).await.grants.len(), 2);
    let release = Body::Release { request: RequestNo(1), force: false, reason: None };
    let told = visitors[0].call(release).await;
    assert!(matches!(told, Err(Error::Fault(Fault::Conflict(_)))), "it is listened to: {told:?}");
    let turned_away = loop {
        match Client::connect(agent.socket()).await {
            Ok(visitor) => visitors.push(visitor),
            Err(error) => break error,
        }
    };
    assert!(matches!(turned_away, Error::Unreachable(..)), "{turned_away}");
    drop((held, second, visitors));
    client.request(&["c"]).await.expect("there is room again");
    drop(client);
    agent.stop().await;
}

#[tokio::test]
async fn reservations_of_one_user_are_bounded_and_a_place_comes_back() {
    let limits = Limits { reservations: 2, ..Limits::default() };
    let agent = Agent::with(Config { limits, ..Config::default() });
    let client = agent.client().await;
    let hold = |name: &str| {
        let needs = vec![name.parse().expect("a need")];
        let (from, lasting) = (From::default(), Lasting::Reservation(3_600_000));
        client.ask(Ask { needs, now: true, lasting, from, within: None, limit: None, part: None })
    };
    let first = hold("a").await.expect("free");
    let request = first.number();
    first.keep();
    hold("b").await.expect("free").keep();
    let third = hold("c").await;
    assert!(matches!(third, Err(Error::Refused(Refusal::Closed(_)))), "{third:?}");
    client.call(Body::Release { request, force: false, reason: None }).await.expect("ours");
    hold("c").await.expect("there is room again").keep();
    drop(client);
    agent.stop().await;
}

#[tokio::test]
async fn what_is_kept_of_a_request_is_bounded() {
    let limits = Limits { memory_bytes: 400_000, ..Limits::default() };
    let agent = Agent::with(Config { limits, ..Config::default() });
    let client = agent.client().await;
    let ask = |reason: usize| {
        let from = From { reason: Some("x".repeat(reason)), ..From::default() };
        let needs = vec!["a".parse().expect("a need")];
        Ask {
            needs,
            now: false,
            lasting: Lasting::Connection,
            from,
            within: None,
            limit: None,
            part: None,
        }
    };
    let long = client.ask(ask(TEXT_MAX + 1)).await;
    assert!(matches!(long, Err(Error::Refused(Refusal::Senseless(_)))), "{long:?}");
    let before = about(&client).await.memory;
    let grant = client.ask(ask(TEXT_MAX)).await.expect("free");
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(client.enqueue(ask(TEXT_MAX)).expect("sent"));
    }
    until_waiting(&client, 8).await;
    let refused = loop {
        match timeout(Duration::from_millis(20), client.ask(ask(TEXT_MAX))).await {
            Ok(refused) => break refused,
            Err(_) => waiting.push(client.enqueue(ask(TEXT_MAX)).expect("sent")),
        }
        assert!(waiting.len() < 30, "there is no bound");
    };
    assert!(matches!(refused, Err(Error::Refused(Refusal::Closed(_)))), "{refused:?}");
    drop((waiting, grant));
    until_waiting(&client, 0).await;
    drop((agent.client().await, agent.client().await));
    let given_back = async {
        while about(&client).await.memory > before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_secs(20), given_back).await.expect("all of it is given back");
    agent.stop().await;
}

#[tokio::test]
async fn large_requests_do_not_rotate_the_audit_log_away() {
    let agent = Agent::with(Config { audit_bytes: 2 << 20, audit_files: 1, ..Config::default() });
    let client = agent.client().await;
    client.request(&["first"]).await.expect("free").release().await.expect("released");
    let names: Vec<_> = (0..1000).map(|n| format!("{}{n}", "x".repeat(190))).collect();
    for _ in 0..100 {
        client.request(&names).await.expect("free").release().await.expect("released");
    }
    let asked = agent.audited("asked", 101).await;
    assert_eq!(asked.len(), 101, "all are still there, in one file");
    assert_eq!(asked[0]["needs"], serde_json::json!(["first"]));
    assert!(asked[1]["left_out"].as_u64().expect("cut") > 900);
    agent.stop().await;
}

/// A stopped agent takes nothing from anybody, and the next one knows who holds and who waits.
#[tokio::test]
async fn what_is_held_and_waits_outlasts_the_agent() {
    let mut agent = Agent::start();
    let client = agent.client().await;
    let mut held = client.request(&["a"]).await.expect("free");
    let idle = agent.client().await;
    idle.request(&["b"]).await.expect("free").release().await.expect("released");
    let ask = |name: &str| {
        let (from, lasting) = (From::default(), Lasting::Connection);
        let needs = vec![name.parse().expect("a need")];
        Ask { needs, now: false, lasting, from, within: None, limit: None, part: None }
    };
    let mut second = idle.enqueue(ask("a")).expect("asked");
    until_waiting(&client, 1).await;
    agent.stop_running().await;
    client.lost().await;
    assert!(timeout(Duration::from_millis(50), held.lost()).await.is_err(), "it is still held");
    agent.start_again();
    let next = agent.client().await;
    let mut third = next.enqueue(ask("a")).expect("asked");
    until_waiting(&next, 2).await;
    next.request(&["b"]).await.expect("nobody uses it").release().await.expect("released");
    held.release().await.expect("it was held all the time");
    let second = second.granted().await.expect("its turn");
    assert!(timeout(Duration::from_millis(50), third.granted()).await.is_err());
    second.release().await.expect("released");
    third.granted().await.expect("its turn").release().await.expect("released");
    drop((client, idle, next));
    agent.stop().await;
}

/// An agent that grants and ends before anybody has heard of it.
#[tokio::test]
async fn a_grant_that_came_with_the_end_of_its_agent_is_held() {
    let mut agent = Agent::start();
    let client = agent.client().await;
    let first = client.request(&["a"]).await.expect("free");
    let mut asking = Box::pin(client.request(&["b"]));
    // Sent, and not looked at before the agent has ended.
    let sent = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending()));
    assert!(sent.await);
    until_held(&agent.client().await, 2).await;
    agent.stop_running().await;
    client.lost().await;
    agent.start_again();
    let second = asking.await.expect("it was granted");
    let next = agent.client().await;
    assert_eq!(status(&next).await.grants.len(), 2, "both are still used");
    drop((first, second));
    let both = timeout(Duration::from_secs(20), next.request(&["a", "b"])).await;
    both.expect("free").expect("granted").release().await.expect("released");
    drop((client, next));
    agent.stop().await;
}

async fn until_held(client: &Client, grants: usize) {
    while status(client).await.grants.len() != grants {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Somebody asks for a large status many times and reads nothing.
async fn does_not_read(agent: &Agent, calls: u64) -> tokio::net::UnixStream {
    let mut bytes = Vec::new();
    frame::greet(&mut bytes, OLDEST);
    for id in 0..calls {
        let call = Call { id, body: Body::Status { names: Vec::new(), more: false } };
        frame::write(&call, frame::FROM_CLIENT_MAX, &mut bytes).expect("short");
    }
    let mut stream = tokio::net::UnixStream::connect(agent.socket()).await.expect("it listens");
    tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await.expect("it reads");
    stream
}

#[tokio::test]
async fn who_does_not_read_costs_little_and_holds_nobody_up() {
    let tried = timeout(Duration::from_secs(60), unread_replies()).await;
    tried.expect("somebody is held up");
}

async fn unread_replies() {
    const MEMORY: usize = 8 << 20;
    let limits = Limits { memory_bytes: MEMORY, ..Limits::default() };
    let agent = Agent::with(Config { limits, ..Config::default() });
    let client = agent.client().await;
    let names: Vec<_> = (0..10).map(|n| format!("{}{n}", "x".repeat(180))).collect();
    let _held = client.request(&names).await.expect("free");
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let needs = names.iter().map(|name| name.parse().expect("a need")).collect();
        let (now, lasting, from) = (false, Lasting::Connection, From::default());
        let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
        waiting.push(client.enqueue(ask).expect("sent"));
    }
    until_waiting(&client, 200).await;
    let small = about(&client).await.memory;

    let one = does_not_read(&agent, 150).await;
    until_more_memory(&client, small).await;
    let cost = about(&client).await.memory - small;
    assert!(cost < 2 << 20, "one reply waits, not 150: {cost} bytes");

    let mut many = vec![one];
    for _ in 0..20 {
        many.push(does_not_read(&agent, 3).await);
        assert_eq!(status(&client).await.waiting.len(), 200, "whoever reads is served");
        let used = about(&client).await.memory;
        assert!(used <= MEMORY as u64 / 2, "{used} bytes");
    }
    drop((waiting, many));
    agent.stop().await;
}

async fn about(client: &Client) -> AgentView {
    match client.call(Body::Agent).await {
        Ok(Reply::Agent(view)) => *view,
        other => panic!("{other:?}"),
    }
}

async fn until_more_memory(client: &Client, than: u64) {
    while about(client).await.memory <= than + 10_000 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn strangers_and_other_versions_do_no_harm() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let agent = Agent::start();
    let client = agent.client().await;
    let (length, huge) = (12u32.to_le_bytes(), u32::MAX.to_le_bytes());
    let other_version = [&length[..], b"holdall\n", &4u32.to_le_bytes()].concat();
    let mut nonsense_after_greeting = Vec::new();
    frame::greet(&mut nonsense_after_greeting, OLDEST);
    nonsense_after_greeting.extend([5, 0, 0, 0, 255, 255, 255, 255, 255]);
    let said = [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], None),
        (&huge, None),
        (&other_version, Some(VERSION)),
        (&nonsense_after_greeting, Some(OLDEST)),
    ];
    for (bytes, version) in said {
        let mut stranger =
            tokio::net::UnixStream::connect(agent.socket()).await.expect("it listens");
        stranger.write_all(bytes).await.expect("it reads");
        let mut answer = Vec::new();
        stranger.read_to_end(&mut answer).await.ok();
        let told = version.map(|version: u32| version.to_le_bytes().to_vec()).unwrap_or_default();
        assert!(answer.ends_with(&told) && answer.is_empty() == told.is_empty(), "{answer:?}");
    }
    client.request(&["a"]).await.expect("it lives on").release().await.expect("released");
    agent.stop().await;
}
