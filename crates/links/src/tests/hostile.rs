use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::linking::certify;
use super::*;
use crate::config::Places;
use crate::frame::{self, Frame, Purpose};
use crate::tls::{Stream, connect_as_nobody, told};
use crate::{Refusal, card};

const DAY: i64 = 86_400;

/// Waits until the other side has closed the connection; what it said before is of no interest.
async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed");
    drop(end);
}

/// A connection with the certificate of a member, on which nothing was said.
async fn connected(as_whom: &Home, to: &Node) -> Stream {
    let stream = TcpStream::connect(&to.address).await.expect("reached");
    as_whom.tls().expect("good").connect(stream).await.expect("believed").0
}

async fn still_serves(node: &mut Node) {
    let token = crate::token::ClientToken::new(node.home().pin(), node.id(), "hat_x");
    crate::client::connect(&node.address, &token).await.expect("it still serves");
}

#[tokio::test]
async fn garbage_is_turned_away() {
    let mut a = first(1, "a", quick()).await;
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 5000], &[255; 5000], hello] {
        let mut stream = TcpStream::connect(&a.address).await.expect("reached");
        drop(stream.write_all(garbage).await);
        drop(stream.shutdown().await);
        closed(&mut stream).await;
    }
    still_serves(&mut a).await;
}

#[tokio::test]
async fn half_a_handshake_is_not_waited_for() {
    let config = Config { handshake: Duration::from_millis(200), ..quick() };
    let mut a = first(1, "a", config).await;
    let mut silent = TcpStream::connect(&a.address).await.expect("reached");
    closed(&mut silent).await;
    let stream = TcpStream::connect(&a.address).await.expect("reached");
    let mut after_tls = connect_as_nobody(a.home().pin(), a.id(), stream).await.expect("believed");
    after_tls.write_all(&[9, 0, 0]).await.expect("sent");
    after_tls.flush().await.expect("sent");
    closed(&mut after_tls).await;
    still_serves(&mut a).await;
}

#[tokio::test]
async fn only_so_many_may_wait_to_show_who_they_are() {
    let config = Config { strangers: Places { all: 50, each: 3 }, handshake: HOUR, ..quick() };
    let a = first(1, "a", config).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(TcpStream::connect(&a.address).await.expect("reached"));
    }
    for _ in 0..2000 {
        let mut further = TcpStream::connect(&a.address).await.expect("reached");
        closed(&mut further).await;
    }
    let mut one = kept.pop().expect("there are three");
    one.write_all(b"garbage that ends its place").await.expect("sent");
    closed(&mut one).await;
    let token = crate::token::ClientToken::new(a.home().pin(), a.id(), "hat_x");
    timeout(PATIENCE, async { while crate::client::connect(&a.address, &token).await.is_err() {} })
        .await
        .expect("there is a place again");
}

#[tokio::test]
async fn what_is_too_long_or_out_of_place_ends_the_connection() {
    let mut a = first(1, "a", quick()).await;
    let dir = joined(&a, 2, "b", "127.0.0.1:9").await;
    let b = Home::open(&home_in(&dir)).expect("whole");
    let greeting = Frame::Greeting { start: 1, bytes: vec![] };
    let long = [u32::MAX.to_le_bytes(), [1; 4]].concat();
    let out_of_place = frame::encode(&greeting).expect("written");
    let unreadable = [vec![3, 0, 0, 0], vec![255; 3]].concat();
    for bad in [long, out_of_place, unreadable] {
        let mut stream = connected(&b, &a).await;
        frame::hello(&mut stream, Purpose::Link).await.expect("hello");
        frame::send(&mut stream, &greeting).await.expect("sent");
        let answer: Frame = frame::receive(&mut stream, 1000).await.expect("answered");
        assert!(matches!(answer, Frame::Greeting { .. }));
        frame::send(&mut stream, &Frame::Ready).await.expect("sent");
        a.up(CellId(2)).await;
        stream.write_all(&bad).await.expect("sent");
        stream.flush().await.expect("sent");
        a.down(CellId(2)).await;
        closed(&mut stream).await;
    }
    let mut stream = connected(&b, &a).await;
    stream.write_all(&[64, 0, 0, 0]).await.expect("sent");
    stream.write_all(&[1; 64]).await.expect("sent");
    stream.flush().await.expect("sent");
    closed(&mut stream).await;
}

#[tokio::test]
async fn records_beyond_the_bounds_end_the_link_and_are_not_kept() {
    let mut a = first(1, "a", quick()).await;
    let dir = joined(&a, 2, "b", "127.0.0.1:9").await;
    let b = Home::open(&home_in(&dir)).expect("whole");
    let mut stream = connected(&b, &a).await;
    frame::hello(&mut stream, Purpose::Link).await.expect("hello");
    let greeting = Frame::Greeting { start: 1, bytes: vec![] };
    frame::send(&mut stream, &greeting).await.expect("sent");
    frame::send(&mut stream, &Frame::Ready).await.expect("sent");
    a.up(CellId(2)).await;
    let about = crate::member::About { version: u64::MAX, bytes: vec![1] };
    let record = crate::member::Record { cell: CellId(2), part: crate::member::Part::About(about) };
    frame::send(&mut stream, &Frame::Told(vec![record])).await.expect("sent");
    let why = a.down(CellId(2)).await;
    assert!(why.contains("misbehaved"), "{why}");
    assert_eq!(a.links.about(CellId(2)), None);
}

#[tokio::test]
async fn who_was_removed_removes_nobody() {
    let mut a = first(1, "a", quick()).await;
    let dir = joined(&a, 2, "b", "127.0.0.1:9").await;
    let b = Home::open(&home_in(&dir)).expect("whole");
    // Not even a member may begin with that.
    let removed = Frame::Refused(Refusal::Removed);
    let mut stream = connected(&b, &a).await;
    frame::hello(&mut stream, Purpose::Link).await.expect("hello");
    frame::send(&mut stream, &removed).await.expect("sent");
    closed(&mut stream).await;
    assert!(!a.links.is_removed());
    a.links.remove(CellId(2)).await.expect("kept");
    let mut stream = connected(&b, &a).await;
    frame::hello(&mut stream, Purpose::Link).await.expect("hello");
    frame::send(&mut stream, &removed).await.expect("sent");
    let answer: Frame = frame::receive(&mut stream, 1000).await.expect("answered");
    assert_eq!(answer, removed);
    assert!(!a.links.is_removed());
    still_serves(&mut a).await;
}

#[tokio::test]
async fn who_was_removed_tells_nothing() {
    let a = first(1, "a", quick()).await;
    let _dir = joined(&a, 2, "b", "127.0.0.1:9").await;
    let hub = &a.links.hub;
    let about = crate::member::About { version: 1, bytes: vec![1] };
    let part = crate::member::Part::About(about);
    let told = |cell| vec![crate::member::Record { cell: CellId(cell), part: part.clone() }];
    assert!(hub.take(CellId(2), told(2)).is_ok());
    a.links.remove(CellId(2)).await.expect("kept");
    assert!(hub.take(CellId(2), told(3)).is_err());
    assert_eq!(a.links.about(CellId(3)), None);
    let request = crate::home::Asked::new().expect("a key").request;
    assert!(crate::renew::sign(hub, &cell(1, "a"), request.clone()).await.is_some());
    assert_eq!(crate::renew::sign(hub, &cell(2, "b"), request).await, None, "it is not renewed");
}

#[tokio::test]
async fn who_does_not_say_what_he_speaks_is_turned_away() {
    let a = first(1, "a", quick()).await;
    let stream = TcpStream::connect(&a.address).await.expect("reached");
    let config = crate::tls::believing(a.home().pin()).expect("good").with_no_client_auth();
    let mute = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = "cell.holdall.invalid".try_into().expect("a name");
    let mut stream = mute.connect(name, stream).await.expect("believed");
    let said = frame::hello(&mut stream, Purpose::Client).await;
    assert!(said.is_err(), "it is not talked to");
}

#[tokio::test]
async fn only_certificates_of_the_authority_are_accepted() {
    let mut a = first(1, "a", quick()).await;
    let other = first(2, "b", quick()).await;
    // It believes a, but its certificate is from elsewhere.
    let dir = joined(&a, 2, "b", "127.0.0.1:9").await;
    let foreign = Home::open(&home_in(&dir)).expect("whole");
    certify(&other.home(), &foreign, card::now());
    let why = refused(&foreign, &a).await;
    assert!(why.contains("another authority"), "{why}");
    still_serves(&mut a).await;
}

#[tokio::test]
async fn whoever_sends_the_certificate_of_the_authority_is_not_of_it_yet() {
    let a = first(1, "a", quick()).await;
    let other = first(2, "b", quick()).await;
    // Its chain has the right authority, which anybody can get, above a certificate that it did not sign.
    let (listener, address) = listen().await;
    let dir = joined(&a, 2, "b", &address).await;
    certify(&other.home(), &Home::open(&home_in(&dir)).expect("whole"), card::now());
    let rogue = Node::start(dir, listener, address, quick());
    let token = crate::token::ClientToken::new(a.home().pin(), rogue.id(), "hat_x");
    let error = crate::client::connect(&rogue.address, &token).await.expect_err("not believed");
    assert!(error.to_string().contains("another authority"), "{error}");
}

#[tokio::test]
async fn certificates_are_good_from_a_day_before_to_their_end() {
    let a = first(1, "a", quick()).await;
    let dir = joined(&a, 2, "b", "127.0.0.1:9").await;
    let b = Home::open(&home_in(&dir)).expect("whole");
    for bad in [card::now() - 31 * DAY, card::now() + 2 * DAY] {
        certify(&a.home(), &b, bad);
        let why = refused(&b, &a).await;
        assert!(why.contains("compare the clocks"), "{why}");
    }
    // Clocks may differ by some hours.
    certify(&a.home(), &b, card::now() + DAY / 2);
    let mut stream = connected(&b, &a).await;
    frame::hello(&mut stream, Purpose::Link).await.expect("it is good");
}

/// Why a member does not accept the certificate of another.
async fn refused(as_whom: &Home, to: &Node) -> String {
    let stream = TcpStream::connect(&to.address).await.expect("reached");
    let said = async {
        let (mut stream, _) = as_whom.tls().expect("good").connect(stream).await?;
        frame::hello(&mut stream, Purpose::Link).await
    };
    told(&said.await.expect_err("refused"))
}

#[tokio::test]
async fn who_shows_no_certificate_has_no_link() {
    let a = first(1, "a", quick()).await;
    let stream = TcpStream::connect(&a.address).await.expect("reached");
    let mut stream = connect_as_nobody(a.home().pin(), a.id(), stream).await.expect("believed");
    frame::hello(&mut stream, Purpose::Link).await.expect("hello");
    let answer: Frame = frame::receive(&mut stream, 1000).await.expect("answered");
    assert_eq!(answer, Frame::Refused(Refusal::Stranger));
}

#[tokio::test]
async fn another_version_is_told_and_turned_away() {
    let a = first(1, "a", quick()).await;
    let stream = TcpStream::connect(&a.address).await.expect("reached");
    let mut stream = connect_as_nobody(a.home().pin(), a.id(), stream).await.expect("believed");
    let future = b"\x0d\0\0\0hallink\n\x01\x07\x00\x09\x00";
    stream.write_all(future).await.expect("sent");
    stream.flush().await.expect("sent");
    let answer = frame::receive_bytes(&mut stream, 64).await.expect("a hello");
    assert_eq!(&answer[..9], b"hallink\n\x01", "it says which versions it speaks");
    closed(&mut stream).await;
}
