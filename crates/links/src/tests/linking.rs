use std::time::Duration;

use rcgen::KeyPair;

use super::*;
use crate::Unsaid;
use crate::card;
use crate::home::Asked;
use crate::peer::Unsent;

#[tokio::test]
async fn two_members_greet_and_talk_in_order() {
    let mut a = first(1, "a", quick()).await;
    let mut b = further(&a, 2, "b", quick()).await;
    assert_eq!(a.up(b.id()).await, b"b to a");
    assert_eq!(b.up(a.id()).await, b"a to b");
    for n in 0..200u8 {
        a.links.send(b.id(), vec![n]).expect("there is room");
        b.links.send(a.id(), vec![n; 1000]).expect("there is room");
    }
    for n in 0..200 {
        assert_eq!(b.message().await, (a.id(), vec![n]));
        assert_eq!(a.message().await, (b.id(), vec![n; 1000]));
    }
    a.sees(|a| a.peer(CellId(2)).round_trip.is_some()).await;
    let seen = a.peer(b.id());
    assert!(seen.up && seen.why.is_none() && seen.dropped_out == 0);
    assert!(seen.frames_sent >= 200 && seen.bytes_received > 200_000);
}

#[tokio::test]
async fn the_largest_message_is_carried_and_no_larger() {
    let (a, mut b) = pair(quick()).await;
    let large = vec![7; crate::MESSAGE_MAX];
    a.links.send(b.id(), large.clone()).expect("there is room");
    assert_eq!(b.message().await.1, large);
    assert_eq!(a.links.send(b.id(), vec![7; crate::MESSAGE_MAX + 1]), Err(Unsent::Long));
    assert_eq!(a.links.send(CellId(9), vec![1]), Err(Unsent::Down));
}

#[tokio::test]
async fn room_in_the_queue_comes_back() {
    let config = Config { queue_bytes: 4096, inbox_bytes: 4096, ..quick() };
    let (a, mut b) = pair(config).await;
    for n in 0..50 {
        a.links.send(b.id(), vec![n; 1024]).expect("there is room again");
        assert_eq!(b.message().await.1, [n; 1024]);
    }
}

#[tokio::test]
async fn who_connect_at_the_same_time_come_to_one_link() {
    let config = Config { retry_min: Duration::from_millis(1), ..quick() };
    let (mut a, mut b) = pair(config).await;
    for _ in 0..10 {
        (a, b) = tokio::join!(a.restart(), b.restart());
        heard_from(&mut a, &b.links).await;
        heard_from(&mut b, &a.links).await;
    }
}

/// Hears something from the other, who says it until it is heard: links may lose.
async fn heard_from(node: &mut Node, other: &Links) {
    let own = node.id();
    let said = async {
        loop {
            let _ = other.send(own, b"hi".to_vec());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        heard = node.message() => assert_eq!(heard.0, other.own().id),
        () = said => {}
    }
}

#[tokio::test]
async fn a_link_ends_with_the_certificate_of_the_peer() {
    let a = first(1, "a", quick()).await;
    let (inbox, _events) = crate::event::inbox(9, 9);
    let hub = crate::hub::Hub::new(a.home(), quick(), a.words.clone(), inbox).expect("made");
    let over = card::Card { cell: cell(2, "b"), from: 0, until: card::now() - 1 };
    let (line, _outgoing) = hub.admit(&over, CellId(2), 1).await.expect("admitted");
    let ending = timeout(PATIENCE, crate::link::watch_over(&hub, &line)).await.expect("it ends");
    assert_eq!(ending.to_string(), "its certificate has expired");
}

#[tokio::test]
async fn what_is_said_reaches_all_and_stays() {
    let mut a = first(1, "a", quick()).await;
    let mut b = further(&a, 2, "b", quick()).await;
    b.links.set_about(b"boards".to_vec()).expect("short");
    let mut c = further(&a, 3, "c", quick()).await;
    c.sees(|c| c.peer(CellId(1)).up && c.peer(CellId(2)).up).await;
    for node in [&mut a, &mut c] {
        node.sees(|node| node.links.about(CellId(2)).as_deref() == Some(b"boards")).await;
    }
    b.members(|all| all.len() == 3).await;
    a.links.forget(c.id(), b"life 7".to_vec()).await.expect("kept");
    for node in [&mut a, &mut b, &mut c] {
        let heard = node.until(|event| match event {
            Event::Forget { cell, word } => Some((cell, word)),
            _ => None,
        });
        assert_eq!(heard.await, (CellId(3), b"life 7".to_vec()));
    }
    b.links.set_about(b"scopes".to_vec()).expect("short");
    let heard = c.until(|event| match event {
        Event::About { cell, bytes } if bytes == b"scopes" => Some(cell),
        _ => None,
    });
    assert_eq!(heard.await, CellId(2));
    let c = c.restart().await;
    assert_eq!(c.links.about(CellId(2)).as_deref(), Some(&b"scopes"[..]), "it is on disk");
    assert_eq!(c.links.members().len(), 3);
}

async fn forgotten(node: &mut Node) -> (CellId, Vec<u8>) {
    node.until(|event| match event {
        Event::Forget { cell, word } => Some((cell, word)),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn what_is_forgotten_is_told_again_at_each_start() {
    let mut a = first(1, "a", quick()).await;
    let _b = joined(&a, 2, "b", "127.0.0.1:9").await;
    a.links.forget(CellId(2), b"life 7".to_vec()).await.expect("kept");
    for _ in 0..2 {
        // Perhaps those above were ended before they heard of it.
        a = a.restart().await;
        assert_eq!(forgotten(&mut a).await, (CellId(2), b"life 7".to_vec()));
    }
}

#[tokio::test]
async fn what_those_above_hear_is_on_disk() {
    let mut a = first(1, "a", quick()).await;
    let _b = joined(&a, 2, "b", "127.0.0.1:9").await;
    a.members(|all| all.len() == 2).await;
    // In its way, as a full disk would be.
    let in_its_way = home_in(&a.dir).join("members.new");
    std::fs::create_dir(&in_its_way).expect("made");
    let error = a.links.remove(CellId(2)).await.expect_err("not on disk").to_string();
    assert!(error.contains("members"), "{error}");
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::remove_dir(in_its_way).expect("there");
    });
    let removed = |all: &[(CellId, Member)]| all.iter().any(|(_, it)| it.removed);
    a.until(|event| matches!(event, Event::Members(all) if removed(&all)).then_some(())).await;
    assert!(a.home().roster().expect("whole").is_removed(CellId(2)));
    later.await.expect("done");
}

#[tokio::test]
async fn who_was_not_there_hears_of_it_later() {
    let (a, mut b) = pair(quick()).await;
    let (dir, address) = (b.dir, b.address);
    drop((b.links, b.events));
    a.links.set_about(b"news".to_vec()).expect("short");
    let listener = rebind(&address).await;
    b = Node::start(dir, listener, address, quick());
    b.sees(|b| b.links.about(CellId(1)).as_deref() == Some(b"news")).await;
}

#[tokio::test]
async fn those_above_may_refuse_and_both_know_why() {
    let mut a = first(1, "a", quick()).await;
    let mut b = further(&a, 2, "b", quick()).await;
    *a.words.refused.lock().expect("whole") = Some("b".into());
    // Perhaps there was a link already; there is none again.
    b = b.restart().await;
    let said = |peer: PeerView| peer.why.is_some_and(|why| why.contains("b is not wanted"));
    b.sees(|b| said(b.peer(CellId(1)))).await;
    assert!(!b.peer(a.id()).up);
    let told = b.until(|event| match event {
        Event::Refused { peer, why } => Some((peer, why)),
        _ => None,
    });
    assert_eq!(told.await, (a.id(), "b is not wanted".into()));
    *a.words.refused.lock().expect("whole") = None;
    b.up(a.id()).await;
    a.sees(|a| a.peer(CellId(2)).up).await;
}

#[tokio::test]
async fn a_member_that_is_started_anew_gets_another_link_at_once() {
    let mut config = quick();
    config.dead = Duration::from_secs(3600);
    let (mut a, b) = pair(config).await;
    let mut b = b.restart().await;
    a.down(b.id()).await;
    a.up(b.id()).await;
    b.up(a.id()).await;
    a.links.send(b.id(), b"hi".to_vec()).expect("up");
    assert_eq!(b.message().await.1, b"hi");
}

#[tokio::test]
async fn who_is_removed_has_no_links_and_never_comes_back() {
    let mut a = first(1, "a", quick()).await;
    let mut b = further(&a, 2, "b", quick()).await;
    let mut c = further(&a, 3, "c", quick()).await;
    b.up(c.id()).await;
    a.up(c.id()).await;
    // What the directory was before, so that it does not know of its own removal.
    let members = home_in(&c.dir).join("members");
    let before = std::fs::read(&members).expect("there");
    b.links.remove(c.id()).await.expect("kept");
    assert!(b.links.remove(c.id()).await.is_err(), "it is none any more");
    for node in [&mut a, &mut b] {
        node.sees(|node| !node.peer(CellId(3)).up).await;
        node.members(|all| all.iter().any(|(id, it)| *id == CellId(3) && it.removed)).await;
    }
    // What is told is on disk.
    let hears =
        |all: &[(CellId, Member)]| all.iter().any(|(id, it)| *id == CellId(3) && it.removed);
    c.until(|event| matches!(event, Event::Members(all) if hears(&all)).then_some(())).await;
    assert!(c.links.is_removed());
    let (dir, address) = (c.dir, c.address);
    drop((c.links, c.events));
    std::fs::write(&members, before).expect("written");
    let listener = rebind(&address).await;
    let mut c = Node::start(dir, listener, address, quick());
    assert!(!c.links.is_removed(), "its old directory knows nothing");
    c.sees(|c| c.links.is_removed()).await;
    assert!(!a.peer(c.id()).up && !b.peer(c.id()).up);
    assert!(b.links.remove(b.id()).await.is_err(), "nobody removes itself");
}

#[tokio::test]
async fn members_are_found_by_name_or_id() {
    let (a, b) = pair(quick()).await;
    assert_eq!(a.links.named("b").expect("one"), b.id());
    assert_eq!(a.links.named(&b.id().to_string()).expect("one"), b.id());
    assert!(matches!(a.links.named("c"), Err(Unsaid::Nobody(_))));
    // As if another signer had let it join at the same moment.
    let twin = "b".parse().expect("a name");
    assert!(a.links.hub.change(|roster| roster.add(CellId(3), &twin, &[], 0)));
    assert!(matches!(a.links.named("b"), Err(Unsaid::Several(2, _))));
    a.links.remove(CellId(3)).await.expect("kept");
    assert_eq!(a.links.named("b").expect("one again"), b.id());
}

#[tokio::test]
async fn addresses_that_change_are_told_and_used() {
    let (mut a, b) = pair(quick()).await;
    let (listener, address) = listen().await;
    drop((b.links, b.events));
    let mut b = Node::start(b.dir, listener, address.clone(), quick());
    b.links.set_addresses(std::slice::from_ref(&address)).expect("an address");
    b.up(a.id()).await;
    a.members(|all| all.iter().any(|(_, it)| it.addresses == [address.clone()])).await;
    assert!(b.links.set_addresses(&["nowhere".into()]).is_err());
}

/// Gives a member a certificate that was made at another time.
pub(super) fn certify(signer: &Home, home: &Home, at: i64) {
    let asked = Asked::new().expect("a key");
    let certificate = signer.authority().expect("here").issue(home.cell(), &asked.request, at);
    home.put(&asked, &certificate.expect("issued")).expect("its key");
}

const DAY: i64 = 86_400;

#[tokio::test]
async fn stale_certificates_are_renewed_by_those_who_sign() {
    let a = first(1, "a", quick()).await;
    let (signer, old) = (a.home(), card::now() - 25 * DAY);
    let (listener, address) = listen().await;
    let dir = joined(&a, 2, "b", &address).await;
    certify(&signer, &Home::open(&home_in(&dir)).expect("whole"), old);
    let mut b = Node::start(dir, listener, address, quick());
    assert_eq!(b.links.certificate().from, old - DAY);
    b.sees(|b| b.links.certificate().from > old).await;
    assert!(!b.home().tls().expect("good").card.is_stale(card::now()), "it is on disk");
    certify(&signer, &signer, old);
    let mut a = a.restart().await;
    a.sees(|a| a.links.certificate().from > old).await;
    b.sees(|b| b.peer(CellId(1)).up).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_asked_for_is_not_taken() {
    let (a, b) = pair(quick()).await;
    let before = b.links.certificate();
    let key = KeyPair::generate().expect("a key");
    let request = crate::ca::request(&key).expect("a request");
    let other = a.home().issue(b.links.own(), &request).expect("issued");
    let hub = crate::hub::Hub::new(b.home(), quick(), b.words.clone(), crate::event::inbox(1, 1).0);
    let hub = hub.expect("made");
    crate::renew::renewed(&hub, a.id(), other.to_vec()).await;
    assert_eq!(hub.tls().card, before);
    let request = hub.papers.request(a.id()).expect("a key");
    let authority = a.home().authority().expect("here");
    let good = authority.issue(b.links.own(), &request, card::now() + 9).expect("issued");
    crate::renew::renewed(&hub, CellId(3), good.to_vec()).await;
    crate::renew::renewed(&hub, a.id(), other.to_vec()).await;
    assert_eq!(hub.tls().card, before, "of another, or for another key");
    crate::renew::renewed(&hub, a.id(), good.to_vec()).await;
    assert!(hub.tls().card.until > before.until, "the request was still there");
}
