use std::sync::atomic::Ordering;

use super::proxy::Proxy;
use super::*;
use crate::peer::Unsent;

/// Two members; the second has the smaller id and can be reached only through a proxy.
async fn behind_proxy(config: Config) -> (Node, Node, Proxy) {
    let mut a = first(2, "a", config.clone()).await;
    let (listener, address) = listen().await;
    let proxy = Proxy::before(address.clone()).await;
    // The other way leads nowhere, so that all there is goes through the proxy.
    let nowhere = ["127.0.0.1:9".to_owned()];
    a.links.set_addresses(&nowhere).expect("an address");
    let dir = joined(&a, 1, "b", &proxy.address).await;
    let mut b = Node::start(dir, listener, address, config);
    a.up(b.id()).await;
    b.up(a.id()).await;
    (a, b, proxy)
}

#[tokio::test]
async fn a_cut_link_is_noticed_by_both_and_comes_back() {
    for (inwards, outwards) in [(true, true), (true, false), (false, true)] {
        let (mut a, mut b, proxy) = behind_proxy(quick()).await;
        proxy.cut(inwards, outwards);
        let why = a.down(b.id()).await;
        assert!(why.contains("no answer") || why.contains("closed"), "{why}");
        b.down(a.id()).await;
        assert!(!a.peer(b.id()).up && a.peer(b.id()).why.is_some());
        proxy.cut(false, false);
        a.up(b.id()).await;
        b.up(a.id()).await;
        a.links.send(b.id(), b"back".to_vec()).expect("up");
        assert_eq!(b.message().await.1, b"back");
    }
}

#[tokio::test]
async fn a_slow_link_is_up_and_its_round_trip_is_told() {
    let (mut a, mut b, proxy) = behind_proxy(quick()).await;
    proxy.weather.delay.store(60, Ordering::Relaxed);
    let twice = Duration::from_millis(120);
    a.sees(|a| a.peer(CellId(1)).round_trip.is_some_and(|it| it >= twice)).await;
    assert!(a.peer(b.id()).up);
    a.links.send(b.id(), b"slow".to_vec()).expect("up");
    assert_eq!(b.message().await.1, b"slow");
}

#[tokio::test]
async fn queues_are_bounded_and_what_is_lost_is_counted() {
    let config = Config { queue_bytes: 1 << 20, ..quick() };
    let (a, b, proxy) = behind_proxy(config).await;
    proxy.cut(true, true);
    let big = vec![0; 256 << 10];
    let mut full = 0;
    // More than all buffers between the two can hold.
    for _ in 0..400 {
        match a.links.send(b.id(), big.clone()) {
            Ok(()) => {}
            Err(Unsent::Full) => full += 1,
            Err(Unsent::Down) => break,
            Err(Unsent::Long) => panic!("it is short enough"),
        }
        tokio::task::yield_now().await;
    }
    assert!(full > 0);
    assert_eq!(a.peer(b.id()).dropped_out, full);
}

#[tokio::test]
async fn of_what_those_above_do_not_take_in_a_beginning_arrives_and_the_link_ends() {
    let config = Config { inbox_frames: 4, ..quick() };
    let (mut a, mut b) = pair(config).await;
    for n in 0..50 {
        let _ = a.links.send(b.id(), vec![n]);
    }
    a.sees(|_| b.peer(CellId(1)).dropped_in > 0).await;
    let mut heard = Vec::new();
    let why = b.until(|event| match event {
        Event::Message { bytes, .. } => {
            heard.extend(bytes);
            None
        }
        Event::Down { why, .. } => Some(why),
        _ => None,
    });
    let why = why.await;
    assert!(why.contains("more than this cell can take in"), "{why}");
    assert_eq!(heard, (0..heard.len() as u8).collect::<Vec<_>>());
    b.up(a.id()).await;
}

#[tokio::test]
async fn a_member_that_is_not_there_is_tried_again_and_again() {
    let mut a = first(1, "a", quick()).await;
    let (listener, address) = listen().await;
    drop(listener);
    let dir = joined(&a, 2, "b", &address).await;
    a.sees(|a| a.links.peers().iter().any(|peer| peer.why.is_some())).await;
    let why = a.peer(CellId(2)).why.expect("it failed");
    assert!(why.contains(&address) && why.contains("refused"), "{why}");
    // Without a way of its own back to a, it waits to be reached.
    let home = Home::open(&home_in(&dir)).expect("whole");
    let listener = TcpListener::bind(&address).await.expect("free");
    let started = Links::start(home, Some(listener), quick(), Arc::new(Words::default()));
    let (_links, _events) = started.expect("started");
    a.up(CellId(2)).await;
}

#[tokio::test]
async fn another_cell_at_an_address_is_not_taken_for_the_one_looked_for() {
    let (mut a, b) = pair(quick()).await;
    let c = joined(&a, 3, "c", &b.address).await;
    let told = |why: &str| why.contains("the cell b") && why.contains("is there");
    a.sees(|a| a.links.peers().iter().any(|it| it.why.as_deref().is_some_and(told))).await;
    drop(c);
}
