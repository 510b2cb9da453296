//! The client against a real agent, in a directory of its own.

use std::path::PathBuf;
use std::time::Duration;

use holdall_client::wire::{Body, Refusal, Reply, Status};
use holdall_client::{Client, Error};
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
        let dir = tempfile::tempdir().expect("a directory");
        let settings = Settings {
            socket: dir.path().join("agent.sock"),
            data: dir.path().join("data"),
            config,
            metrics: None,
            idle_exit: None,
        };
        let run = move || holdall_node::run(&settings).expect("the agent runs");
        Self { dir, thread: Some(std::thread::spawn(run)) }
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

    async fn stop(mut self) {
        let client = self.client().await;
        client.call(Body::Stop { now: true }).await.expect("it stops");
        client.lost().await;
        self.thread.take().expect("once").join().expect("it ends well");
    }
}

async fn status(client: &Client) -> Status {
    match client.call(Body::Status(Vec::new())).await {
        Ok(Reply::Status(status)) => status,
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
async fn refusals_say_why_and_a_lost_agent_is_noticed() {
    let agent = Agent::start();
    let client = agent.client().await;
    let never = client.request(&["gpu:2"]).await;
    assert!(matches!(never, Err(Error::Refused(Refusal::Never(_)))), "{never:?}");
    assert!(matches!(client.request(&["a b"]).await, Err(Error::Need(_))));
    let mut grant = client.request(&["a"]).await.expect("free");
    assert!(timeout(Duration::from_millis(20), grant.lost()).await.is_err(), "it still holds");
    agent.stop().await;
    grant.lost().await;
    let released = grant.release().await;
    assert!(matches!(released, Err(Error::Lost)), "{released:?}");
    let asked = client.request(&["a"]).await;
    assert!(matches!(asked, Err(Error::Lost)), "{asked:?}");
}

#[tokio::test]
async fn one_client_cannot_have_everything() {
    let limits = Limits { connections: 2, requests: 2, ..Limits::default() };
    let agent = Agent::with(Config { limits, ..Config::default() });
    let client = agent.client().await;
    let held = [client.request(&["a"]).await, client.request(&["b"]).await];
    assert!(held.iter().all(Result::is_ok));
    let third = client.request(&["c"]).await;
    assert!(matches!(third, Err(Error::Refused(Refusal::Closed(_)))), "{third:?}");
    let second = agent.client().await;
    let third = Client::connect(agent.socket()).await;
    assert!(matches!(third, Err(Error::Unreachable(..))), "{third:?}");
    drop((held, second));
    client.request(&["c"]).await.expect("there is room again");
    drop(client);
    agent.stop().await;
}

#[tokio::test]
async fn strangers_and_other_versions_do_no_harm() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let agent = Agent::start();
    let client = agent.client().await;
    let (length, huge) = (12u32.to_le_bytes(), u32::MAX.to_le_bytes());
    let other_version = [&length[..], b"holdall\n", &9u32.to_le_bytes()].concat();
    let mut nonsense_after_greeting = Vec::new();
    holdall_client::wire::frame::greet(&mut nonsense_after_greeting);
    nonsense_after_greeting.extend([5, 0, 0, 0, 255, 255, 255, 255, 255]);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &huge, &other_version, &nonsense_after_greeting] {
        let mut stranger =
            tokio::net::UnixStream::connect(agent.socket()).await.expect("it listens");
        stranger.write_all(bytes).await.expect("it reads");
        let mut answer = Vec::new();
        stranger.read_to_end(&mut answer).await.ok();
        assert!(answer.ends_with(b"\x01\0\0\0"), "it says which version it speaks: {answer:?}");
    }
    client.request(&["a"]).await.expect("it lives on").release().await.expect("released");
    agent.stop().await;
}
