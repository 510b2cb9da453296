use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::client::{ClientStream, Unserved, connect};
use crate::config::Places;
use crate::join::Unjoined;
use crate::token::ClientToken;
use crate::{Pin, Refusal};

async fn served(node: &mut Node) -> (String, ClientStream) {
    node.until(|event| match event {
        Event::Client { name, stream, .. } => Some((name, stream)),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_client_has_a_stream_of_bytes() {
    let mut a = first(1, "a", quick()).await;
    let token = ClientToken::new(a.home().pin(), a.id(), "hat_laptop");
    let mut laptop = connect(&a.address, &token).await.expect("welcome");
    let (name, mut stream) = served(&mut a).await;
    assert_eq!(name, "laptop");
    laptop.write_all(b"what is free?").await.expect("sent");
    laptop.flush().await.expect("sent");
    let mut heard = [0; 13];
    stream.read_exact(&mut heard).await.expect("heard");
    assert_eq!(&heard, b"what is free?");
    stream.write_all(&[7; 100_000]).await.expect("sent");
    stream.shutdown().await.expect("closed");
    let mut all = Vec::new();
    laptop.read_to_end(&mut all).await.expect("heard");
    assert_eq!(all, [7; 100_000]);
}

#[tokio::test]
async fn a_wrong_token_and_a_wrong_cluster_are_told_apart() {
    let a = first(1, "a", quick()).await;
    let pin = a.home().pin();
    let wrong = connect(&a.address, &ClientToken::new(pin, a.id(), "nonsense")).await;
    assert!(matches!(wrong, Err(Unserved::Refused(_, Refusal::Client))));
    let error = connect(&a.address, &ClientToken::new(Pin([0; 32]), a.id(), "hat_x")).await;
    let error = error.expect_err("another authority").to_string();
    assert!(error.contains("another cluster"), "{error}");
    for _ in 0..9 {
        drop(connect(&a.address, &ClientToken::new(pin, a.id(), "nonsense")).await);
    }
    let guessed = connect(&a.address, &ClientToken::new(pin, a.id(), "hat_x")).await;
    assert!(matches!(guessed, Err(Unserved::Refused(_, Refusal::Guessing))));
}

#[tokio::test]
async fn another_member_is_not_shown_the_token() {
    let (mut a, b) = pair(quick()).await;
    let token = ClientToken::new(a.home().pin(), a.id(), "hat_laptop");
    let error = connect(&b.address, &token).await.expect_err("it is for a").to_string();
    assert!(error.contains("b is there"), "{error}");
    connect(&a.address, &token).await.expect("welcome");
    assert_eq!(served(&mut a).await.0, "laptop");
}

#[test]
fn reasons_of_others_do_nothing_to_a_terminal() {
    let refusal = || Refusal::Failed("\u{1b}[2J".into());
    let unserved = Unserved::Refused("a:1".into(), refusal()).to_string();
    let unjoined = Unjoined::Refused("a:1".into(), refusal()).to_string();
    assert!(!unserved.contains('\u{1b}') && !unjoined.contains('\u{1b}'), "{unserved:?}");
}

#[tokio::test]
async fn there_is_room_for_so_many_clients() {
    let config = Config { clients: Places { all: 9, each: 2 }, ..quick() };
    let mut a = first(1, "a", config).await;
    let token = ClientToken::new(a.home().pin(), a.id(), "hat_laptop");
    let mut kept = Vec::new();
    for _ in 0..2 {
        drop(connect(&a.address, &token).await.expect("welcome"));
        kept.push(served(&mut a).await);
    }
    let third = connect(&a.address, &token).await.expect_err("no room").to_string();
    assert!(third.contains("too many clients"), "{third}");
    kept.pop();
    connect(&a.address, &token).await.expect("there is room again");
}
