//! What holding costs: acquire plus release over the agent's socket beside bare ping-pongs over a
//! socket of the same kind, and `holdall run` beside `flock`, in turns within one run.
//!
//! ```text
//! cargo run -p holdall-client --example overhead -- target/debug/holdall
//! ```

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdall_client::Client;
use holdall_client::wire::Body;
use holdall_node::{Config, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 20;
const CALLS: usize = 500;
const COMMANDS: usize = 200;
/// About as long as a request and its reply.
const MESSAGE: usize = 48;

fn main() -> Outcome<()> {
    let command = std::env::args().nth(1).ok_or("name the holdall binary")?;
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("agent.sock");
    let settings = Settings {
        socket: socket.clone(),
        data: dir.path().join("data"),
        config: Config::default(),
        configured: false,
        metrics: None,
        idle_exit: None,
        background: false,
        hosted: None,
        adopt: false,
    };
    let agent = std::thread::spawn(move || holdall_node::run(&settings).map_err(|e| e.to_string()));
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(over_the_socket(&socket, &dir.path().join("echo.sock")))?;
    as_commands(&command, &socket, dir.path())?;
    runtime.block_on(async {
        Client::connect(&socket).await?.call(Body::Stop { now: true }).await?;
        Ok::<_, holdall_client::Error>(())
    })?;
    agent.join().map_err(|_| "the agent panicked")??;
    Ok(())
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

async fn over_the_socket(agent: &Path, echo: &Path) -> Outcome<()> {
    let listener = UnixListener::bind(echo)?;
    std::thread::spawn(move || serve_echo(&listener));
    let mut bare = UnixStream::connect(echo)?;
    let mut pong = tokio::net::UnixStream::connect(echo).await?;
    let client = Client::connect(agent).await?;
    let (mut bares, mut pings, mut holds) = (Vec::new(), Vec::new(), Vec::new());
    let mut message = [0; MESSAGE];
    for _ in 0..ROUNDS {
        for _ in 0..CALLS {
            let start = Instant::now();
            bare.write_all(&message)?;
            bare.read_exact(&mut message)?;
            bares.push(start.elapsed());
        }
        for _ in 0..CALLS {
            let start = Instant::now();
            pong.write_all(&message).await?;
            pong.read_exact(&mut message).await?;
            pings.push(start.elapsed());
        }
        for _ in 0..CALLS {
            let start = Instant::now();
            client.request(&["a", "b"]).await?.release().await?;
            holds.push(start.elapsed());
        }
    }
    let (bare, ping, hold) = (median(bares), median(pings), median(holds));
    println!("ping-pong, blocking client:         {:7.1} us", micros(bare));
    println!("ping-pong, tokio client:            {:7.1} us", micros(ping));
    println!("acquire and release of two locks:   {:7.1} us", micros(hold));
    let two = |one: Duration| micros(hold) / (2.0 * micros(one));
    println!(
        "  beside two ping-pongs:            {:.2}x tokio, {:.2}x blocking",
        two(ping),
        two(bare)
    );
    Ok(())
}

fn serve_echo(listener: &UnixListener) {
    for stream in listener.incoming().take(2) {
        let Ok(mut stream) = stream else { return };
        std::thread::spawn(move || {
            let mut message = [0; MESSAGE];
            while stream.read_exact(&mut message).and_then(|()| stream.write_all(&message)).is_ok()
            {
            }
        });
    }
}

fn as_commands(holdall: &str, agent: &Path, dir: &Path) -> Outcome<()> {
    let file = dir.join("x");
    let timed = |command: &mut Command| -> Outcome<Duration> {
        let start = Instant::now();
        let status = command.stdin(Stdio::null()).status()?;
        if status.success() { Ok(start.elapsed()) } else { Err("a command failed".into()) }
    };
    let (mut plain, mut flocks, mut holds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..COMMANDS {
        plain.push(timed(&mut Command::new("true"))?);
        flocks.push(timed(Command::new("flock").arg(&file).arg("true"))?);
        let run = ["run", "x", "--", "true"];
        holds.push(timed(Command::new(holdall).args(run).env("HOLDALL_AGENT", agent))?);
    }
    let (plain, flock, hold) = (median(plain), median(flocks), median(holds));
    println!("true:                               {:7.1} us", micros(plain));
    println!("flock x true:                       {:7.1} us", micros(flock));
    println!("holdall run x -- true:              {:7.1} us", micros(hold));
    println!("  beside flock:                     {:.2}x", micros(hold) / micros(flock));
    Ok(())
}
