//! Sessions: whatever becomes of connections and agents, every call is done once, and what is held is held.

mod away;
mod door;
mod lease;
mod many;
mod once;
mod remote;
mod stand_in;
mod version;

use std::time::Duration;

use holdall_client::Client;
use holdall_client::wire::{Ask, From, Lasting};
use tokio::task::LocalSet;
use tokio::time::timeout;

use stand_in::StandIn;

/// So long that whoever waits for it is stuck.
const STUCK: Duration = Duration::from_secs(60);

fn ask(lock: &str, name: &str) -> Ask {
    let from = From { name: Some(name.into()), ..From::default() };
    Ask {
        needs: vec![lock.parse().expect("a need")],
        now: false,
        lasting: Lasting::Connection,
        from,
        within: None,
        limit: None,
        part: None,
    }
}

fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let bounded = async { timeout(STUCK, future).await.expect("nobody is stuck") };
    LocalSet::new().block_on(&runtime.expect("a runtime"), bounded)
}

/// Connects, however often the connection is cut meanwhile.
async fn connect(agent: &StandIn) -> Client {
    loop {
        match Client::connect(agent.socket()).await {
            Ok(client) => return client,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
