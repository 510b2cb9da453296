//! Sessions with many calls: an agent keeps the outcomes of 4,096 that were not heard of, and has to turn
//! nobody away for that.

use std::time::Duration;

use crate::stand_in::{StandIn, Trouble};
use crate::{ask, connect, on_one_thread, until};

/// More than an agent keeps.
const MANY: usize = 5000;

#[test]
fn what_has_been_heard_is_said_so_that_it_is_not_kept() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let held = client.ask(ask("held", "held")).await.expect("free");
        let _waits = client.enqueue(ask("held", "waits")).expect("asked");
        for round in 0..200 {
            let grant = client.ask(ask("a", &format!("{round}"))).await.expect("free");
            grant.release().await.expect("held");
        }
        assert!((3..12).contains(&agent.world.borrow().heard), "{}", agent.world.borrow().heard);
        held.release().await.expect("held");
    });
}

#[test]
fn what_was_given_up_while_the_agent_was_away_is_not_even_asked_for() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let held = client.ask(ask("held", "held")).await.expect("free");
        let dropped = client.ask(ask("dropped", "dropped")).await.expect("free");
        agent.kill().await;
        client.lost().await;
        for round in 0..MANY {
            drop(client.enqueue(ask("a", &format!("{round}"))).expect("asked"));
        }
        drop(dropped);
        let asked = client.enqueue(ask("a", "last"));
        agent.start();
        let last = asked.expect("asked").granted().await.expect("free");
        held.release().await.expect("it was held all the time");
        last.release().await.expect("held");
        until(|| agent.world.borrow().is_quiet()).await;
        let world = agent.world.borrow();
        assert_eq!((world.asked.len(), world.too_many), (3, 0));
    });
}

#[test]
fn any_number_of_grants_and_requests_can_be_dropped_at_once() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let mut all = Vec::new();
        for round in 0..MANY {
            all.push(
                client.ask(ask(&format!("lock-{round}"), &format!("{round}"))).await.expect("free"),
            );
        }
        // One by one from the last: none is passed over when the first is heard of.
        let waiting: Vec<_> = (0..MANY)
            .map(|round| client.enqueue(ask("lock-0", &format!("waits-{round}"))).expect("asked"))
            .collect();
        until(|| agent.world.borrow().asked.len() == 2 * MANY).await;
        waiting.into_iter().rev().for_each(drop);
        drop(all);
        until(|| agent.world.borrow().is_quiet()).await;
        assert_eq!(agent.world.borrow().too_many, 0);
        let again = client.ask(ask("lock-0", "again")).await.expect("free");
        again.release().await.expect("held");
    });
}

#[test]
fn one_call_that_takes_long_does_not_turn_others_away() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let slow = client.ask(ask("slow", "slow")).await.expect("free");
        agent.world.borrow_mut().keep_back = true;
        let slow = tokio::task::spawn_local(async move { slow.release().await });
        until(|| !agent.world.borrow().keep_back).await;
        let others = tokio::task::spawn_local(async move {
            for round in 0..MANY {
                let grant = client.ask(ask("a", &format!("{round}"))).await.expect("free");
                grant.release().await.expect("held");
            }
        });
        // They get as far as they may without the one that takes long.
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = agent.world.borrow().asked.len();
            if now > 1000 && now == before {
                break;
            }
            before = now;
        }
        assert!(!others.is_finished() && !slow.is_finished());
        agent.world.borrow_mut().finish_kept_back();
        slow.await.expect("no panic").expect("held");
        others.await.expect("no panic");
        until(|| agent.world.borrow().is_quiet()).await;
        assert_eq!(agent.world.borrow().too_many, 0);
    });
}
