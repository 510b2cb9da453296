//! Sessions: whatever becomes of connections and agents, every call is done once, and what is held is held.

mod stand_in;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use holdall_client::wire::{Ask, Body, Fault, From, Lasting, Shutdown};
use holdall_client::{Client, Error, Presence};
use proptest::prelude::*;
use tokio::task::LocalSet;
use tokio::time::timeout;

use stand_in::{StandIn, Trouble};

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

    /// Connections are cut before and after calls are taken and replies are sent, replies come twice, and
    /// requests are turned away.
    #[test]
    fn every_call_is_done_once_however_connections_are_cut(
        seed: u64,
        cut in 6u64..100,
        twice in 0u64..5,
        turned_away in prop_oneof![Just(0), 2u64..9],
    ) {
        exactly_once(seed, Trouble { cut, twice, turned_away });
    }
}

#[test]
fn there_is_no_trouble_without_trouble_and_some_with() {
    assert_eq!(exactly_once(1, Trouble::default()), 0);
    let cuts = exactly_once(1, Trouble { cut: 10, ..Trouble::default() });
    assert!(cuts > 10, "{cuts}");
}

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
        for _ in 0..3 {
            agent.kill().await;
            client.lost().await;
            let asked_while_away = other.enqueue(ask("b", &format!("{:?}", client.presence())));
            drop(asked_while_away);
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
fn a_lease_that_is_over_is_noticed_without_the_agent() {
    on_one_thread(async {
        let mut agent = StandIn::new(1, Trouble::default());
        let lease = Duration::from_millis(200);
        let client = Client::with_lease(agent.socket(), lease).await.expect("it listens");
        let mut held = client.ask(ask("a", "held")).await.expect("free");
        agent.cut_all();
        client.presence().wait_for(|now| *now == Presence::Here).await.expect("it is back");
        assert!(timeout(lease * 2, held.lost()).await.is_err(), "it was not away for long");
        agent.kill().await;
        held.lost().await;
        agent.start();
        let other = client.ask(ask("b", "other")).await.expect("free");
        drop(other);
    });
}

#[test]
fn an_agent_without_sessions_can_be_looked_at_and_stopped_but_not_asked() {
    use holdall_client::wire::frame::{self, Incoming};
    use holdall_client::wire::{AgentView, Answer, Call, Reply};
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("it listens");
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut out = Vec::new();
        frame::greet(&mut out, frame::OLDEST);
        let (mut incoming, mut greeted) = (Incoming::new(1000), false);
        loop {
            while let Some(content) = incoming.next_frame().expect("short") {
                if !std::mem::replace(&mut greeted, true) {
                    continue;
                }
                let Call { id, body } = frame::read(content).expect("a call");
                let reply = match body {
                    Body::Agent => Reply::Agent(AgentView::default()),
                    Body::Stop { now: true } => Reply::Done,
                    other => panic!("{other:?}"),
                };
                frame::write(&Answer { id, reply }, 1000, &mut out).expect("short");
            }
            stream.write_all(&out).expect("it reads");
            out.clear();
            let mut bytes = [0; 1000];
            match stream.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(read) => incoming.buffer().extend(&bytes[..read]),
            }
        }
    });
    on_one_thread(async {
        let client = Client::connect(&socket).await.expect("it listens");
        let asked = client.ask(ask("a", "a")).await;
        assert!(matches!(asked, Err(Error::Version { agent: 5 })), "{asked:?}");
        client.call(Body::Shutdown(Shutdown::AtOnce)).await.expect("it stops");
    });
    agent.join().expect("it has seen nothing that it does not know");
}
