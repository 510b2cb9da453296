//! While the agent is away.
//!
//! Nobody is granted anything then, so what is held is held: a command goes on, and whoever waits keeps its
//! place. The agent comes back by itself, or is started again, unless it was stopped on purpose.
//!
//! A command may end while the agent is away. If nothing of it is left, its wrapper ends with it, and the
//! grant is over all the same: the session is tied to the process of the wrapper, and an agent that comes
//! later finds on disk which one that was, sees that it has ended, and frees what it held. If something is
//! left, the wrapper waits: only it can say what is to become of that, and an agent that finds it gone would
//! kill what it has left behind.

use std::convert::Infallible;
use std::time::Duration;

use holdall_client::{Client, Presence};
use tokio::sync::watch::Receiver;

use super::mention;
use crate::reach::Reach;

/// After what time it is worth mentioning that an agent is away.
const NOTICED: Duration = Duration::from_millis(900);
/// How long to wait before anything is said.
const MOMENT: Duration = Duration::from_millis(100);
/// How long an agent may be away to restart, until whoever only has to give back does so without it.
const RESTART: Duration = Duration::from_millis(500);

/// What goes on meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// Something waits for the agent.
    Waiting,
    /// A command runs, which does not need it.
    Running,
    /// A reservation is watched, and does not need it.
    Watching,
}

/// Does something that the agent may be away from for a while: says so, and starts it again if it is
/// waited for.
pub(crate) async fn through<T>(
    reach: &Reach,
    client: &Client,
    meanwhile: Meanwhile,
    done: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let kept_alive = async {
        match meanwhile {
            Meanwhile::Waiting | Meanwhile::Watching => reach.keep_alive(client).await,
            Meanwhile::Running => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = done => done,
        never = tell(client, meanwhile) => match never {},
        never = kept_alive => match never {},
    }
}

/// Says when the agent is away, if that is not only for a moment, and when it is back.
async fn tell(client: &Client, meanwhile: Meanwhile) -> Infallible {
    let mut presence = client.presence();
    loop {
        away(&mut presence, NOTICED).await;
        // Whoever is about to end without the agent says nothing of it.
        tokio::time::sleep(MOMENT).await;
        let now = *presence.borrow();
        if now == Presence::Here {
            continue;
        }
        mention(match (meanwhile, now) {
            (Meanwhile::Running, _) => "the agent is away; the command goes on",
            (Meanwhile::Watching, Presence::Away) => "the agent is away; the reservation stays",
            (_, Presence::Stopped) => {
                "the agent was stopped; waiting until another command starts it"
            }
            _ => "the agent is away; waiting for it",
        });
        let _ = presence.wait_for(|now| *now == Presence::Here).await;
        mention("the agent is back");
    }
}

/// Waits until the agent is away, and does not come back as after a restart.
pub(super) async fn gone(client: &Client) {
    away(&mut client.presence(), RESTART).await;
}

/// Waits until the agent was stopped, or is away for so long.
async fn away(presence: &mut Receiver<Presence>, long: Duration) {
    loop {
        // The client is there, and so is what tells.
        let _ = presence.wait_for(|now| *now != Presence::Here).await;
        let changed = presence.wait_for(|now| *now != Presence::Away);
        match tokio::time::timeout(long, changed).await {
            Ok(Ok(now)) if *now == Presence::Here => {}
            _ => return,
        }
    }
}
