//! What greedy clients cost others: the agent's memory, and the longest time for which somebody else
//! waits for a lock that is free. Needs a running agent.
//!
//! ```text
//! target/debug/holdall agent --socket /tmp/stress.sock &
//! cargo run -p holdall-client --example stress -- /tmp/stress.sock
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdall_client::wire::frame::{self, FROM_CLIENT_MAX};
use holdall_client::wire::{Ask, Body, Call, From, Lasting};
use holdall_client::{Client, Error};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const WAITERS: usize = 1000;
const SLOW_READERS: usize = 200;
const LARGE_REQUESTS: usize = 2000;

fn main() -> Outcome<()> {
    let socket: PathBuf = std::env::args().nth(1).ok_or("name the socket of an agent")?.into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        large_requests(&socket).await?;
        let client = Client::connect(&socket).await?;
        let names: Vec<String> = (0..10).map(|n| format!("{}{n}", "x".repeat(60))).collect();
        let _held = client.request(&names).await?;
        let waiting = waiters(&client, &names)?;
        println!("{WAITERS} wait; {}", memory(&client)?);
        status_calls(&socket, &client).await?;
        slow_readers(&socket, &client).await?;
        drop(waiting);
        Ok(())
    })
}

fn waiters(client: &Client, names: &[String]) -> Outcome<Vec<holdall_client::Waiting>> {
    let needs: Vec<_> = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    let (now, lasting, within) = (false, Lasting::Connection, None);
    let ask = Ask { needs, now, lasting, from: From::default(), within, limit: None, part: None };
    (0..WAITERS).map(|_| Ok(client.enqueue(ask.clone())?)).collect()
}

/// As many calls for the whole status as fit into 1.5 kB, sent at once.
async fn status_calls(socket: &Path, client: &Client) -> Outcome<()> {
    let watch = Bystander::start(socket).await?;
    let mut bytes = Vec::new();
    frame::greet(&mut bytes, frame::OLDEST);
    while bytes.len() < 1500 {
        let call =
            Call { id: bytes.len() as u64, body: Body::Status { names: Vec::new(), more: false } };
        frame::write(&call, FROM_CLIENT_MAX, &mut bytes)?;
    }
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&bytes).await?;
    let reading = tokio::spawn(async move {
        let mut sink = vec![0; 1 << 16];
        let mut all = 0;
        while let Ok(Ok(n @ 1..)) = tokio::time::timeout(
            Duration::from_secs(2),
            tokio::io::AsyncReadExt::read(&mut stream, &mut sink),
        )
        .await
        {
            all += n;
        }
        all
    });
    let read = reading.await?;
    println!(
        "1.5 kB of status calls ({} MB of replies): {}; {}",
        read >> 20,
        watch.end().await?,
        memory(client)?
    );
    Ok(())
}

/// Each asks three times for everything, and reads nothing.
async fn slow_readers(socket: &Path, client: &Client) -> Outcome<()> {
    let watch = Bystander::start(socket).await?;
    let mut bytes = Vec::new();
    frame::greet(&mut bytes, frame::OLDEST);
    for id in 0..3 {
        frame::write(
            &Call { id, body: Body::Status { names: Vec::new(), more: false } },
            FROM_CLIENT_MAX,
            &mut bytes,
        )?;
    }
    let mut streams = Vec::new();
    for _ in 0..SLOW_READERS {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(&bytes).await?;
        streams.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("{SLOW_READERS} slow readers: {}; {}", watch.end().await?, memory(client)?);
    Ok(())
}

async fn large_requests(socket: &Path) -> Outcome<()> {
    let client = Client::connect(socket).await?;
    let start = Instant::now();
    let tasks: Vec<_> = (0..LARGE_REQUESTS)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move {
                let names: Vec<_> = (0..5).map(|n| format!("{}{i}-{n}", "y".repeat(180))).collect();
                client.request(&names).await?.release().await
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    println!("{LARGE_REQUESTS} requests with long names at once: {:?}", start.elapsed());
    Ok(())
}

fn memory(client: &Client) -> Outcome<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.agent().pid))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    Ok(format!("agent: {}", line.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Somebody who takes and gives back a lock of its own all the time.
struct Bystander {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Duration, Error>>,
}

impl Bystander {
    async fn start(socket: &Path) -> Outcome<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (socket, stopped) = (socket.to_owned(), stop.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let client = Client::connect(&socket).await?;
                let mut longest = Duration::ZERO;
                while !stopped.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    client.request(&["bystander"]).await?.release().await?;
                    longest = longest.max(start.elapsed());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(longest)
            })
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(Self { stop, thread })
    }

    async fn end(self) -> Outcome<String> {
        self.stop.store(true, Ordering::Relaxed);
        let longest = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        let longest = longest.map_err(|_| "the bystander panicked")??;
        Ok(format!("another client waits {longest:?} at the longest"))
    }
}
