//! What links cost: two members and some clients on this machine.
//!
//!     cargo run --release -p holdall-links --example speed

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdall_links::token::{ClientToken, For};
use holdall_links::{Above, Cell, CellId, Config, Event, Events, Home, Links, Way, client, join};
use tokio::net::TcpListener;

struct Anybody;

impl Above for Anybody {
    fn greeting(&self, _: &Cell) -> Vec<u8> {
        Vec::new()
    }

    fn welcome(&self, _: &Cell, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn client(&self, token: &str) -> Option<String> {
        Some(token.into())
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let lab1 = Cell { id: CellId(1), name: "lab1".parse()? };
    let lab2 = Cell { id: CellId(2), name: "lab2".parse()? };

    let home = Home::init(&one, &lab1, std::slice::from_ref(&address))?;
    let token = home.add_token(Duration::from_secs(60), For::New(1))?;
    let pin = home.pin();
    let (_a, mut a_events) =
        Links::start(home, Some(listener), Config::default(), Arc::new(Anybody))?;
    let begun = Instant::now();
    let home = join(&other, &lab2, &[], &address, &token).await?;
    println!("join: {:.1?}", begun.elapsed());
    let begun = Instant::now();
    let (b, mut b_events) = Links::start(home, None, Config::default(), Arc::new(Anybody))?;
    let a_way = until_up(&mut a_events).await?;
    let b_way = until_up(&mut b_events).await?;
    println!("a link, from the start of the second member: {:.1?}", begun.elapsed());

    round_trips(&a_way, &mut a_events, &b_way, &mut b_events).await?;
    for size in [100, 10_000] {
        one_way(&a_way, &b, &mut b_events, size).await?;
    }
    clients(&address, &ClientToken::new(pin, CellId(1), "laptop"), a_events).await
}

async fn until_up(events: &mut Events) -> Outcome<Way> {
    while let Some(event) = events.next().await {
        if let Event::Up { way, .. } = event {
            return Ok(way);
        }
    }
    Err("the links have ended".into())
}

async fn message(events: &mut Events) -> Vec<u8> {
    loop {
        match events.next().await {
            Some(Event::Message { bytes, .. }) => return bytes,
            Some(_) => {}
            None => return Vec::new(),
        }
    }
}

async fn round_trips(a: &Way, a_in: &mut Events, b: &Way, b_in: &mut Events) -> Outcome<()> {
    const ROUNDS: u32 = 10_000;
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        a.send(vec![0; 100])?;
        let heard = message(b_in).await;
        b.send(heard)?;
        message(a_in).await;
    }
    println!("a message there and back: {:.1?}", begun.elapsed() / ROUNDS);
    Ok(())
}

async fn one_way(a: &Way, b: &Links, b_in: &mut Events, size: usize) -> Outcome<()> {
    const MESSAGES: u32 = 100_000;
    const TOGETHER: u32 = 500;
    let begun = Instant::now();
    for _ in 0..MESSAGES / TOGETHER {
        for _ in 0..TOGETHER {
            a.send(vec![0; size])?;
        }
        for _ in 0..TOGETHER {
            message(b_in).await;
        }
    }
    let rate = f64::from(MESSAGES) / begun.elapsed().as_secs_f64();
    let lost: u64 = b.peers().iter().map(|peer| peer.dropped_in).sum();
    println!("{size} bytes, one way, {TOGETHER} at once: {rate:.0} messages/s, {lost} lost");
    Ok(())
}

async fn clients(address: &str, token: &ClientToken, mut events: Events) -> Outcome<()> {
    const CLIENTS: u32 = 500;
    // Those above take them and let them go.
    let taken = tokio::spawn(async move { while events.next().await.is_some() {} });
    let begun = Instant::now();
    for _ in 0..CLIENTS {
        drop(client::connect(address, token).await?);
    }
    println!("a client is welcomed: {:.1?}", begun.elapsed() / CLIENTS);
    taken.abort();
    Ok(())
}
