//! The lease of a session that the agent cannot see the process of.
//!
//! The agent counts a lease from when it has lost the connection. Here it is counted from earlier, so that what is held
//! is known to be lost before the agent takes it for free:
//! - At a socket of this machine both ends see at once that a connection has ended. That may be noticed here
//!   long after, if this process was stopped meanwhile; so it is counted from when the connection was last seen.
//! - Over a network a connection may be dead and not look so. The client asks something again and again, and
//!   what it holds is its own for a lease from when it *sent* the last question that was answered, by a clock that
//!   goes on while the machine sleeps. The agent hears a question after it was sent, and drops who is silent.

use std::convert::Infallible;
use std::time::Duration;

use holdall_holders::{boottime, until_boottime};
use holdall_wire::{AgentView, Body, Reply};
use tokio::time::{Instant, timeout, timeout_at};

use crate::session::Shared;
use crate::{Presence, locked};

/// How often an agent on another machine is asked, at most. It drops who is silent for three times as long.
const BEAT: Duration = Duration::from_secs(10);
/// And at least, however short the time is for which it lends something.
const BEAT_MIN: Duration = Duration::from_secs(1);

/// So much of a lease is used; the rest is for clocks that do not run alike.
fn used(lease: Duration) -> Duration {
    lease / 10 * 9
}

/// Until when what a session holds is its own, in milliseconds since this machine booted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// By the lease of the session, if it has one that counts so.
    pub(crate) end: Option<i64>,
    /// By how much this machine's clock is at least ahead of the agent's, if both are known.
    ahead: Option<i64>,
    /// Until when the agent has lent what other cells guard, and for how many milliseconds that was when it last said so.
    lent: Option<(i64, i64)>,
}

impl Until {
    /// With an agent on this machine, whose clock is the same.
    pub(crate) const HERE: Self = Self { end: None, ahead: Some(0), lent: None };

    /// With one on another machine, which has answered what was sent then. It looked at its clock later than that.
    pub(crate) fn counted(sent: i64, lease: Duration, agent: &AgentView) -> Self {
        let used = i64::try_from(used(lease).as_millis()).unwrap_or(i64::MAX);
        let theirs = agent.boottime_millis.and_then(|millis| i64::try_from(millis).ok());
        let ahead = theirs.map(|theirs| sent - theirs);
        Self { end: Some(sent.saturating_add(used)), ahead, lent: None }
    }

    /// The agent says now that it lends something until then, by its clock.
    pub(crate) fn lends(&mut self, lent: i64, now: i64) {
        let until = self.ahead.map(|ahead| lent.saturating_add(ahead));
        self.lent = until.map(|until| (until, until.saturating_sub(now)));
    }

    /// How often the agent is asked: that it is gone, and back, is to be seen before anything ends that it lends.
    fn pace(&self, lease: Duration, now: i64) -> Duration {
        let lent = self.lent.filter(|(until, _)| now < *until);
        let lent = lent.map(|(_, millis)| Duration::from_millis(millis.max(0).unsigned_abs()) / 6);
        patience(lease).min(lent.map_or(BEAT, |lent| lent.max(BEAT_MIN)))
    }

    /// The end of what the agent lends until this time of its clock, or for good.
    pub(crate) fn of(&self, lent: Option<i64>) -> Option<i64> {
        let lent = lent.and_then(|lent| Some(lent.saturating_add(self.ahead?)));
        [self.end, lent].into_iter().flatten().min()
    }
}

/// How long the agent may take to answer.
fn patience(lease: Duration) -> Duration {
    BEAT.min(lease / 6)
}

fn is_here(presence: &Presence) -> bool {
    *presence == Presence::Here
}

impl Shared {
    /// Watches the lease, if there is one.
    pub(crate) async fn watch_lease(&self) -> Infallible {
        match self.lease {
            Some(lease) if self.at.is_remote() => tokio::select! {
                never = self.ask_again(lease) => never,
                never = self.lapse_in_time() => never,
            },
            Some(lease) => self.lapse_unseen(lease).await,
            None => std::future::pending().await,
        }
    }

    /// Counts from when the connection was last seen.
    async fn lapse_unseen(&self, lease: Duration) -> Infallible {
        let mut presence = self.presence.subscribe();
        let mut seen = Instant::now();
        loop {
            // The sender is ours: it does not go away.
            let gone = presence.wait_for(|presence| !is_here(presence));
            if timeout(lease / 20, gone).await.is_err() {
                seen = Instant::now();
                continue;
            }
            if timeout_at(seen + used(lease), presence.wait_for(is_here)).await.is_err() {
                locked(&self.state).lapse();
                let _ = presence.wait_for(is_here).await;
            }
            seen = Instant::now();
        }
    }

    /// Asks the agent again and again; a connection over which it does not answer in time is given up.
    async fn ask_again(&self, lease: Duration) -> Infallible {
        let mut presence = self.presence.subscribe();
        let mut until = self.until.subscribe();
        loop {
            let _ = presence.wait_for(is_here).await;
            let (sent, begun) = (boottime(), Instant::now());
            let next = || begun + self.until.borrow().pace(lease, boottime());
            let mut answer = {
                let mut state = locked(&self.state);
                let answer = state.calls.query(Body::Agent);
                self.send(state);
                answer
            };
            match timeout_at(begun + patience(lease), answer.recv()).await {
                Ok(Some(Reply::Agent(view))) => self.until.send_modify(|until| {
                    let lent = until.lent;
                    *until = Until { lent, ..Until::counted(sent, lease, &view) };
                }),
                Ok(_) => {} // The connection has ended meanwhile.
                Err(_) => locked(&self.state).close(),
            }
            // Something may be lent meanwhile.
            until.mark_unchanged();
            while timeout_at(next(), until.changed()).await.is_ok() {}
        }
    }

    /// What is held is lost when the lease is over.
    async fn lapse_in_time(&self) -> Infallible {
        let mut until = self.until.subscribe();
        loop {
            let end = until.borrow_and_update().end;
            let over = async {
                match end {
                    Some(end) => until_boottime(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = until.changed() => {}
                () = over => {
                    locked(&self.state).lapse();
                    self.until.send_modify(|until| until.end = None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_counts_by_the_clock_of_this_machine() {
        let lease = Duration::from_secs(10);
        let agent = AgentView { boottime_millis: Some(500_000), ..AgentView::default() };
        let until = Until::counted(20_000, lease, &agent);
        assert_eq!(until.of(None), Some(29_000));
        assert_eq!(until.of(Some(505_000)), Some(25_000), "as if it had looked when it was asked");
        assert_eq!(until.of(Some(600_000)), Some(29_000));
        assert_eq!((Until::HERE.of(None), Until::HERE.of(Some(7))), (None, Some(7)));
    }

    /// An agent that is gone and back within a short lease is found in time.
    #[test]
    fn the_agent_is_asked_as_often_as_it_lends() {
        let lease = Duration::from_secs(120);
        let agent = AgentView { boottime_millis: Some(500_000), ..AgentView::default() };
        let mut until = Until::counted(20_000, lease, &agent);
        assert_eq!(until.pace(lease, 20_000), BEAT);
        assert_eq!(until.pace(lease / 10, 20_000), lease / 60);
        until.lends(512_000, 23_000);
        assert_eq!(until.pace(lease, 23_000), Duration::from_millis(1500));
        until.lends(560_000, 20_000);
        assert_eq!(until.pace(lease, 23_000), BEAT);
        until.lends(504_000, 23_000);
        assert_eq!(until.pace(lease, 23_000), BEAT_MIN);
        assert_eq!(until.pace(lease, 24_000), BEAT, "it is over");
    }
}
