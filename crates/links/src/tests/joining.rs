use super::linking::certify;
use super::*;
use crate::card;
use crate::join::Unjoined;
use crate::token::{JoinToken, NoGood};
use crate::{Pin, Refusal};

/// Tries to join with this token, from an empty directory.
async fn tried(at: &Node, id: u128, name: &str, token: &JoinToken) -> Result<Home, Unjoined> {
    let dir = tempfile::tempdir().expect("a directory");
    join(&home_in(&dir), &cell(id, name), &[], &at.address, token).await
}

fn refusal(tried: Result<Home, Unjoined>) -> Refusal {
    match tried.expect_err("refused") {
        Unjoined::Refused(_, refusal) => refusal,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_token_that_is_no_good_lets_nobody_in() {
    let a = first(1, "a", quick()).await;
    let home = a.home();
    let unknown = JoinToken { pin: home.pin(), maker: a.id(), secret: [7; 16] };
    assert_eq!(refusal(tried(&a, 2, "b", &unknown).await), Refusal::Token(NoGood::Unknown));
    let over = home.add_token(Duration::ZERO, For::New(1)).expect("made");
    assert_eq!(refusal(tried(&a, 2, "b", &over).await), Refusal::Token(NoGood::Expired));
    let revoked = home.add_token(HOUR, For::New(1)).expect("made");
    home.revoke_token(&home.tokens().expect("kept").last().expect("one").label()).expect("revoked");
    assert_eq!(refusal(tried(&a, 2, "b", &revoked).await), Refusal::Token(NoGood::Unknown));
    let used = home.add_token(HOUR, For::New(1)).expect("made");
    tried(&a, 2, "b", &used).await.expect("joined");
    assert_eq!(refusal(tried(&a, 3, "c", &used).await), Refusal::Token(NoGood::Used));
    tried(&a, 2, "b", &used).await.expect("the answer may have been lost");
    assert_eq!(a.links.members().len(), 2);
}

#[tokio::test]
async fn a_token_for_two_lets_two_in() {
    let a = first(1, "a", quick()).await;
    let token = a.home().add_token(HOUR, For::New(2)).expect("made");
    tried(&a, 2, "b", &token).await.expect("joined");
    tried(&a, 3, "c", &token).await.expect("joined");
    assert_eq!(refusal(tried(&a, 4, "d", &token).await), Refusal::Token(NoGood::Used));
}

#[tokio::test]
async fn names_and_ids_are_taken_once() {
    let a = first(1, "a", quick()).await;
    let token = || a.home().add_token(HOUR, For::New(1)).expect("made");
    let taken = refusal(tried(&a, 2, "a", &token()).await);
    assert_eq!(taken, Refusal::NameTaken("a".parse().expect("a name")));
    assert_eq!(refusal(tried(&a, 1, "b", &token()).await), Refusal::IdTaken);
    tried(&a, 2, "b", &token()).await.expect("joined");
    a.links.remove(CellId(2)).await.expect("kept");
    assert_eq!(refusal(tried(&a, 2, "b", &token()).await), Refusal::Removed);
    tried(&a, 3, "b", &token()).await.expect("the name is free, the id is not");
}

#[tokio::test]
async fn a_taken_id_stays_taken_however_often_a_token_is_shown() {
    let a = first(1, "a", quick()).await;
    let _b = joined(&a, 2, "b", "127.0.0.1:9").await;
    let before = a.links.members();
    let token = a.home().add_token(HOUR, For::New(1)).expect("made");
    for _ in 0..2 {
        assert_eq!(refusal(tried(&a, 2, "b", &token).await), Refusal::IdTaken);
    }
    assert_eq!(a.links.members(), before, "nobody speaks for the member");
    tried(&a, 3, "c", &token).await.expect("who was refused has not used it");
}

#[tokio::test]
async fn who_was_removed_lets_nobody_in() {
    let a = first(1, "a", quick()).await;
    let token = a.home().add_token(HOUR, For::New(1)).expect("made");
    assert!(a.links.hub.change(|roster| roster.remove(CellId(1), 0)));
    assert_eq!(refusal(tried(&a, 2, "b", &token).await), Refusal::Expelled);
}

#[tokio::test]
async fn another_cluster_is_known_by_its_digest() {
    let a = first(1, "a", quick()).await;
    let other = first(1, "a", quick()).await;
    let token = other.home().add_token(HOUR, For::New(1)).expect("made");
    let error = tried(&a, 2, "b", &token).await.expect_err("another authority").to_string();
    assert!(error.contains("another cluster") && error.contains(&a.address), "{error}");
    let token = JoinToken { pin: Pin([0; 32]), ..token };
    assert!(matches!(tried(&other, 2, "b", &token).await, Err(Unjoined::Unreachable(..))));
    assert_eq!(other.home().tokens().expect("kept")[0].used, [], "the secret was not shown");
}

#[tokio::test]
async fn only_who_made_the_token_is_shown_it() {
    let (a, b) = pair(quick()).await;
    // It could use the secret; perhaps it was removed, which whoever joins cannot know.
    b.home().import_key(&a.home().export_key().expect("here")).expect("its own");
    let token = a.home().add_token(HOUR, For::New(1)).expect("made");
    let error = tried(&b, 3, "c", &token).await.expect_err("another member");
    assert!(matches!(error, Unjoined::Unreachable(..)), "{error}");
    assert!(error.to_string().contains("b is there"), "{error}");
    tried(&a, 3, "c", &token).await.expect("joined");
}

#[tokio::test]
async fn a_member_without_the_key_says_who_has_it() {
    let (a, b) = pair(quick()).await;
    let token = a.home().add_token(HOUR, For::New(1)).expect("made");
    // It was made there when the key was.
    let token = JoinToken { maker: b.id(), ..token };
    let Refusal::NoKey(signers) = refusal(tried(&b, 3, "c", &token).await) else {
        panic!("another")
    };
    assert_eq!(signers, format!("a ({})", a.address));
    b.home().import_key(&a.home().export_key().expect("here")).expect("its own");
    let token = b.home().add_token(HOUR, For::New(1)).expect("made");
    tried(&b, 3, "c", &token).await.expect("joined");
}

#[tokio::test]
async fn guessing_is_bounded() {
    let a = first(1, "a", quick()).await;
    let guess = JoinToken { pin: a.home().pin(), maker: a.id(), secret: [7; 16] };
    for _ in 0..10 {
        assert_eq!(refusal(tried(&a, 2, "b", &guess).await), Refusal::Token(NoGood::Unknown));
    }
    assert_eq!(refusal(tried(&a, 2, "b", &guess).await), Refusal::Guessing);
    let good = a.home().add_token(HOUR, For::New(1)).expect("made");
    assert_eq!(refusal(tried(&a, 2, "b", &good).await), Refusal::Guessing, "also who is right");
}

#[tokio::test]
async fn a_directory_belongs_to_one_member() {
    let a = first(1, "a", quick()).await;
    let dir = joined(&a, 2, "b", "127.0.0.1:1").await;
    let token = a.home().add_token(HOUR, For::New(1)).expect("made");
    let other = join(&home_in(&dir), &cell(3, "c"), &[], &a.address, &token).await;
    assert!(matches!(other, Err(Unjoined::Home(crate::home::Error::Member(_)))));
    assert_eq!(Home::open(&home_in(&dir)).expect("whole").cell(), &cell(2, "b"));
}

#[tokio::test]
async fn who_was_away_too_long_comes_back_with_a_token_of_its_own() {
    let mut a = first(1, "a", quick()).await;
    let (listener, address) = listen().await;
    let dir = joined(&a, 2, "b", &address).await;
    let home = Home::open(&home_in(&dir)).expect("whole");
    certify(&a.home(), &home, card::now() - 40 * 86_400);
    let mut b = Node::start(dir, listener, address.clone(), quick());
    b.sees(|b| b.peer(CellId(1)).why.is_some_and(|why| why.contains("clocks"))).await;
    let Node { dir, links, .. } = b;
    drop(links);
    let again = |token: JoinToken| {
        let addresses = [address.clone(), "127.0.0.1:9".to_owned()];
        let (dir, at) = (home_in(&dir), a.address.clone());
        async move { join(&dir, &cell(2, "b"), &addresses, &at, &token).await }
    };
    let plain = a.home().add_token(HOUR, For::New(1)).expect("made");
    assert_eq!(refusal(again(plain).await), Refusal::IdTaken);
    let own = a.home().add_token(HOUR, For::Cell(CellId(2))).expect("made");
    again(own).await.expect("joined again");
    let listener = rebind(&address).await;
    let mut b = Node::start(dir, listener, address, quick());
    b.up(a.id()).await;
    a.up(b.id()).await;
    a.members(|all| all.iter().any(|(id, it)| *id == CellId(2) && it.addresses.len() == 2)).await;
}

#[tokio::test]
async fn a_cluster_that_was_begun_and_not_finished_is_no_hindrance() {
    let a = first(1, "a", quick()).await;
    let dir = tempfile::tempdir().expect("a directory");
    Home::init(&home_in(&dir), &cell(2, "b"), &[]).expect("made");
    std::fs::remove_file(home_in(&dir).join("cell.pem")).expect("it was the last");
    let token = a.home().add_token(HOUR, For::New(1)).expect("made");
    let home = join(&home_in(&dir), &cell(2, "b"), &[], &a.address, &token).await.expect("joined");
    assert!(!home.signs(), "the key of an authority that nobody knows");
}
