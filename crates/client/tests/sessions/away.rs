//! Agents that are killed, stopped, or lose their memory.

use std::time::Duration;

use holdall_client::wire::{Body, Fault};
use holdall_client::{Error, Presence};
use tokio::time::timeout;

use crate::stand_in::{StandIn, Trouble};
use crate::{ask, connect, on_one_thread, until};

#[test]
fn a_killed_agent_takes_nothing_from_anybody_and_the_order_stays() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let other = client.another().await.expect("it listens");
        let mut held = client.ask(ask("a", "first")).await.expect("free");
        let mut second = other.enqueue(ask("a", "second")).expect("asked");
        assert!(timeout(Duration::from_millis(20), second.granted()).await.is_err());
        let third = client.enqueue(ask("a", "third")).expect("asked");
        let number = second.number().expect("it waits");
        for round in 0..3 {
            agent.kill().await;
            client.lost().await;
            drop(other.enqueue(ask("b", &format!("while it is away: {round}"))));
            assert!(timeout(Duration::from_millis(20), held.lost()).await.is_err());
            agent.start();
            client.presence().wait_for(|now| *now == Presence::Here).await.expect("it is back");
        }
        held.release().await.expect("it was held all the time");
        let second = second.granted().await.expect("its turn");
        assert_eq!(second.number(), number);
        drop((second, third));
        until(|| agent.world.borrow().is_quiet()).await;
        assert_eq!(agent.world.borrow().sessions(), 2);
        drop((client, other));
        until(|| agent.world.borrow().sessions() == 0).await;
    });
}

#[test]
fn what_was_taken_away_while_nobody_listened_is_lost() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let mut gone = client.ask(ask("a", "a")).await.expect("free");
        let mut held = client.ask(ask("b", "b")).await.expect("free");
        agent.kill().await;
        agent.world.borrow_mut().take_away(gone.number());
        agent.start();
        gone.lost().await;
        assert!(matches!(gone.release().await, Err(Error::Fault(Fault::Conflict(_)))));
        assert!(timeout(Duration::from_millis(20), held.lost()).await.is_err());
        agent.world.borrow_mut().take_away(held.number());
        held.lost().await;
    });
}

#[test]
fn an_agent_that_has_lost_its_memory_ends_what_was_held_and_what_waits() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let mut held = client.ask(ask("a", "held")).await.expect("free");
        let mut waiting = client.enqueue(ask("a", "waits")).expect("asked");
        assert!(timeout(Duration::from_millis(20), waiting.granted()).await.is_err());
        agent.kill().await;
        agent.world.borrow_mut().forget();
        agent.start();
        held.lost().await;
        assert!(matches!(waiting.granted().await, Err(Error::Lost)));
        let again = client.ask(ask("a", "again")).await.expect("it is free");
        assert!(matches!(held.release().await, Err(Error::Lost)), "it has nothing to give back");
        again.release().await.expect("held");
    });
}

#[test]
fn an_agent_that_knows_less_than_it_has_said_is_not_believed() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let mut held = client.ask(ask("a", "held")).await.expect("free");
        agent.kill().await;
        agent.world.borrow_mut().go_back();
        agent.start();
        held.lost().await;
        let again = client.ask(ask("a", "again")).await.expect("it is free");
        again.release().await.expect("held");
    });
}

#[test]
fn who_comes_first_is_told_that_there_is_no_room_and_who_comes_back_tries_again() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        agent.world.borrow_mut().no_room = 1;
        let refused = client.ask(ask("a", "refused")).await;
        assert!(matches!(refused, Err(Error::Fault(Fault::Conflict(_)))), "{refused:?}");
        let held = client.ask(ask("a", "held")).await.expect("free");
        agent.world.borrow_mut().no_room = 3;
        agent.cut_all();
        held.release().await.expect("it was held all the time");
        assert_eq!(agent.world.borrow().no_room, 0);
    });
}

#[test]
fn an_agent_that_was_stopped_on_purpose_is_waited_for_and_not_called() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let held = client.ask(ask("a", "held")).await.expect("free");
        std::fs::write(agent.mark(), "").expect("marked");
        agent.kill().await;
        // As a supervisor would: it listens, and would start the agent for whoever comes.
        agent.start();
        let connections = agent.world.borrow().connections;
        client.presence().wait_for(|now| *now == Presence::Stopped).await.expect("it is seen");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(agent.world.borrow().connections, connections);
        std::fs::remove_file(agent.mark()).expect("unmarked");
        held.release().await.expect("it was held all the time");
    });
}

#[test]
fn whoever_leaves_while_the_agent_is_away_is_not_waited_for() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let held = client.ask(ask("a", "held")).await.expect("free");
        let waiting = client.enqueue(ask("a", "waits")).expect("asked");
        agent.kill().await;
        client.lost().await;
        drop((held, waiting, client));
        agent.start();
        until(|| agent.world.borrow().is_quiet() && agent.world.borrow().sessions() == 0).await;
    });
}

#[test]
fn whoever_needs_nothing_does_not_come_back() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        client.ask(ask("a", "a")).await.expect("free").release().await.expect("held");
        let idle = connect(&agent).await;
        idle.call(Body::Agent).await.expect("told");
        assert_eq!(agent.world.borrow().sessions(), 1, "who only looks has none");
        let connections = agent.world.borrow().connections;
        agent.kill().await;
        agent.start();
        client.lost().await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(agent.world.borrow().connections, connections);
        idle.call(Body::Agent).await.expect("told again");
        client.ask(ask("a", "b")).await.expect("free").release().await.expect("held");
        assert_eq!(agent.world.borrow().sessions(), 1, "it is the same");
    });
}

#[test]
fn whoever_is_a_stranger_when_it_comes_back_has_lost_what_it_held() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let mut held = client.ask(ask("a", "held")).await.expect("free");
        agent.world.borrow_mut().change_secrets();
        agent.cut_all();
        held.lost().await;
        let other = client.ask(ask("b", "other")).await.expect("it is somebody else now");
        other.release().await.expect("held");
    });
}

#[test]
fn an_agent_that_greets_and_hangs_up_is_not_called_without_a_pause() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        agent.world.borrow_mut().hangs_up = true;
        agent.cut_all();
        client.lost().await;
        let before = agent.world.borrow().connections;
        let mut presence = client.presence();
        let asked = tokio::task::spawn_local(async move { client.call(Body::Agent).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let tried = agent.world.borrow().connections - before;
        assert!((2..30).contains(&tried), "{tried} times in 300 ms");
        assert!(*presence.borrow_and_update() != Presence::Here, "it does not serve anybody");
        agent.world.borrow_mut().hangs_up = false;
        asked.await.expect("no panic").expect("it is told in the end");
    });
}

#[test]
fn a_client_whose_runtime_has_ended_fails_and_does_not_wait() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let first = runtime();
    let local = tokio::task::LocalSet::new();
    let (agent, client, mut held) = local.block_on(&first, async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        let held = client.ask(ask("a", "held")).await.expect("free");
        (agent, client, held)
    });
    drop((local, first));
    on_one_thread(async {
        held.lost().await;
        assert!(matches!(client.call(Body::Agent).await, Err(Error::Ended)));
        assert!(matches!(client.ask(ask("a", "more")).await, Err(Error::Ended)));
        drop((held, client));
    });
    drop(agent);
}

#[test]
fn what_is_said_by_requests_and_sessions_is_said_by_nobody_else() {
    on_one_thread(async {
        let agent = StandIn::new(1, Trouble::default());
        let client = connect(&agent).await;
        for body in [Body::Ask(ask("a", "a")), Body::Withdraw(1), Body::Heard(1), Body::Leave] {
            assert!(matches!(client.call(body).await, Err(Error::Protocol(_))));
        }
        assert_eq!(agent.world.borrow().sessions(), 0);
    });
}
