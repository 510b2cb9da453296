//! Agents on other machines: a session over TLS is one like any other, with a lease.

use std::time::Duration;

use holdall_client::{Client, Error, News, heard_out};
use holdall_holders::boottime;
use holdall_links::Pin;
use tokio::time::timeout;

use crate::door::Door;
use crate::stand_in::{StandIn, Trouble};
use crate::{ask, on_one_thread, until};

const LEASE: Duration = Duration::from_secs(60);

#[test]
fn what_is_asked_over_tls_is_done_once_whatever_becomes_of_connections() {
    on_one_thread(async {
        let agent = StandIn::new(3, Trouble::default());
        let door = Door::to(&agent).await;
        let client = Client::remote(&door.remote(), LEASE).await.expect("it is let in");
        for turn in 0..20 {
            let grant = client.ask(ask("a", &format!("turn {turn}"))).await.expect("free");
            if turn % 4 == 0 {
                agent.cut_all();
            }
            grant.release().await.expect("it is held");
        }
        let waits = client.enqueue(ask("a", "first")).expect("asked");
        drop((waits, client));
        heard_out(Duration::from_secs(30)).await;
        until(|| agent.world.borrow().sessions() == 0).await;
        assert!(agent.world.borrow().is_quiet(), "the last words were heard");
    });
}

#[test]
fn why_one_is_not_let_in_is_told() {
    on_one_thread(async {
        let agent = StandIn::new(3, Trouble::default());
        let door = Door::to(&agent).await;
        let told = async |remote| match Client::remote(&remote, LEASE).await {
            Err(error @ Error::Unreachable(..)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let refused = told(door.with(door.pin(), "hat_bad")).await;
        assert!(refused.contains("refuses"), "{refused}");
        let stranger = told(door.with(Pin([1; 32]), "hat_good")).await;
        assert!(stranger.contains("another authority"), "{stranger}");
        assert_eq!(agent.world.borrow().connections, 0);
    });
}

#[test]
fn a_grant_is_lost_in_time_if_the_network_falls_silent_and_nobody_is_told() {
    on_one_thread(async {
        let agent = StandIn::new(3, Trouble::default());
        let door = Door::to(&agent).await;
        let lease = Duration::from_secs(3);
        let client = Client::remote(&door.remote(), lease).await.expect("it is let in");
        let mut grant = client.ask(ask("a", "held")).await.expect("free");
        let first = grant.deadline().expect("it has a lease");
        assert!(timeout(lease, grant.lost()).await.is_err(), "it is renewed");
        let then = grant.deadline().expect("it has a lease");
        assert!(then > first, "the deadline moves on");
        door.fall_silent(true);
        let silent = boottime();
        grant.lost().await;
        let deadline = silent + i64::try_from(lease.as_millis()).expect("short");
        assert!(
            boottime() < deadline,
            "it is lost before a lease has passed since anything came through"
        );
        door.fall_silent(false);
        // What is asked of the session that is over ends with it; the next belongs to another.
        let other = match client.ask(ask("b", "other")).await {
            Err(Error::Lost) => client.ask(ask("b", "other")).await,
            other => other,
        };
        let other = other.expect("free");
        other.release().await.expect("held");
    });
}

#[test]
fn what_an_agent_lends_is_lost_in_time_if_it_is_not_heard_of() {
    on_one_thread(async {
        let mut agent = StandIn::new(3, Trouble::default());
        let client = Client::connect(agent.socket()).await.expect("it listens");
        let mut grant = client.ask(ask("a", "held")).await.expect("free");
        assert_eq!(grant.deadline(), None, "what is here alone is not lent");
        agent.world.borrow_mut().lend(grant.number(), boottime() + 60_000);
        assert_eq!(grant.news().await, News::Deadline);
        let end = boottime() + 500;
        agent.world.borrow_mut().lend(grant.number(), end);
        assert_eq!(grant.news().await, News::Deadline);
        assert_eq!(grant.deadline(), Some(end));
        agent.kill().await;
        grant.lost().await;
        assert!(boottime() >= end, "not before");
    });
}

#[test]
fn what_an_agent_elsewhere_lends_is_counted_by_the_clock_here() {
    on_one_thread(async {
        let agent = StandIn::new(3, Trouble::default());
        agent.world.borrow_mut().clock = Some(5_000_000_000);
        let door = Door::to(&agent).await;
        let client = Client::remote(&door.remote(), LEASE).await.expect("it is let in");
        let mut grant = client.ask(ask("a", "held")).await.expect("free");
        agent.world.borrow_mut().lend(grant.number(), 5_000_000_700);
        while grant.news().await != News::Deadline {}
        let deadline = grant.deadline().expect("it is lent");
        assert!(deadline <= boottime() + 700, "{deadline}");
        grant.lost().await;
    });
}
