//! Every call is done once, wherever connections are cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use holdall_client::{Client, Error};
use proptest::prelude::*;

use crate::stand_in::{StandIn, Trouble};
use crate::{ask, connect, on_one_thread, until};

/// Asks, uses and gives back in one way or another, `rounds` times.
async fn work(
    client: Client,
    own: usize,
    rounds: usize,
    used: Rc<RefCell<BTreeMap<String, usize>>>,
) -> usize {
    let mut granted = 0;
    for round in 0..rounds {
        let lock = format!("lock-{}", (own + round) % 3);
        let mut tries = 0;
        let grant = loop {
            tries += 1;
            let mut waiting =
                client.enqueue(ask(&lock, &format!("{own}-{round}-{tries}"))).expect("asked");
            if round % 5 == 4 && tries == 1 {
                // Not patient; perhaps it was granted at the same time.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            match waiting.granted().await {
                Ok(grant) => break grant,
                Err(Error::Refused(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        granted += 1;
        assert_eq!(used.borrow_mut().insert(lock.clone(), own), None, "{lock} is held twice");
        tokio::task::yield_now().await;
        used.borrow_mut().remove(&lock);
        if round % 2 == 0 {
            grant.release().await.expect("it was held");
        } else {
            drop(grant);
        }
    }
    granted
}

/// Lets some clients work, and returns how many connections were cut.
fn exactly_once(seed: u64, trouble: Trouble) -> usize {
    let (clients, tasks, rounds) = (2, 3, 8);
    on_one_thread(async {
        let agent = StandIn::new(seed, trouble);
        let used = Rc::default();
        let mut all = Vec::new();
        for client in 0..clients {
            let connected = connect(&agent).await;
            for task in 0..tasks {
                let work = work(connected.clone(), client * tasks + task, rounds, Rc::clone(&used));
                all.push(tokio::task::spawn_local(work));
            }
        }
        let mut granted = 0;
        for task in all {
            granted += task.await.expect("no panic");
        }
        until(|| agent.world.borrow().is_quiet() && agent.world.borrow().sessions() == 0).await;
        let world = agent.world.borrow();
        assert_eq!(granted, clients * tasks * rounds);
        assert!(world.granted >= granted && world.ended == world.granted, "{world:?}");
        assert_eq!(world.left, clients);
        world.cuts
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, ..Default::default() })]

    /// Connections are cut before and after calls are taken and replies are sent, replies come twice,
    /// requests are turned away, and what is given back takes a while.
    #[test]
    fn every_call_is_done_once_however_connections_are_cut(
        seed: u64,
        cut in 6u64..100,
        twice in 0u64..5,
        turned_away in prop_oneof![Just(0), 2u64..9],
        slow in prop_oneof![Just(0), 2u64..9],
    ) {
        exactly_once(seed, Trouble { cut, twice, turned_away, slow });
    }
}

/// Asks while connecting until that succeeds, and gives back what it gets. Returns how many connections were cut.
fn asked_at_once(seed: u64, trouble: Trouble) -> usize {
    on_one_thread(async {
        let agent = StandIn::new(seed, trouble);
        let mut tries = 0;
        let mut asked = || {
            tries += 1;
            ask("lock", &tries.to_string())
        };
        for _ in 0..8 {
            let (client, mut waiting) = loop {
                match Client::connect_asking(agent.socket(), asked()).await {
                    Ok((client, waiting)) => break (client, waiting.expect("it knows sessions")),
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            let grant = loop {
                match waiting.granted().await {
                    Ok(grant) => break grant,
                    Err(Error::Refused(_)) => waiting = client.enqueue(asked()).expect("asked"),
                    Err(error) => panic!("{error}"),
                }
            };
            grant.release().await.expect("it was held");
        }
        until(|| agent.world.borrow().is_quiet() && agent.world.borrow().sessions() == 0).await;
        let world = agent.world.borrow();
        assert!(world.granted >= 8 && world.ended == world.granted, "{world:?}");
        world.cuts
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, ..Default::default() })]

    /// Of connections that are cut before the client knows that it is connected nothing is left, either.
    #[test]
    fn what_is_asked_while_connecting_is_held_once(
        seed: u64,
        cut in 6u64..40,
        turned_away in prop_oneof![Just(0), 2u64..9],
    ) {
        asked_at_once(seed, Trouble { cut, turned_away, ..Trouble::default() });
    }
}

#[test]
fn there_is_no_trouble_without_trouble_and_some_with() {
    assert_eq!(exactly_once(1, Trouble::default()), 0);
    assert_eq!(asked_at_once(1, Trouble::default()), 0);
    assert!(asked_at_once(1, Trouble { cut: 8, ..Trouble::default() }) > 5);
    let cuts = exactly_once(1, Trouble { cut: 10, ..Trouble::default() });
    assert!(cuts > 10, "{cuts}");
}
