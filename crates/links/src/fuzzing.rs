//! What bytes from strangers, from members and from files go through, without a connection: for the fuzzer.
//!
//! Each function takes any bytes and panics only if something is wrong here. It tells whether anything could be made of
//! them, so that a test sees that what is meant to be read is.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ca::{Authority, REQUEST_MAX};
use crate::card::{self, Card};
use crate::cell::{Cell, CellId};
use crate::frame::{self, ClientAnswer, Frame, Hello, JoinAnswer, Joining, STRANGER_MAX};
use crate::home::{self, Asked, Home, check_addresses};
use crate::member::{Record, Roster};
use crate::token::{self, ClientToken, JoinToken};
use crate::{store, tls};

/// What a stranger or a member sends, in whatever order: a hello, and frames of every kind.
pub fn frames(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut read = 0;
    while let Some(content) = next_frame(&mut rest) {
        let hello = Hello::from_bytes(&content).is_ok_and(|hello| {
            assert_eq!(Hello::from_bytes(&hello.to_bytes()).ok(), Some(hello));
            hello.common().is_ok()
        });
        let understood = [
            hello,
            comes_back::<Frame>(&content).is_some_and(|frame| {
                if let Frame::Told(records) = frame {
                    merges(&records);
                }
                true
            }),
            comes_back::<Joining>(&content)
                .is_some_and(|joining| check_addresses(&joining.addresses).is_ok()),
            comes_back::<JoinAnswer>(&content).is_some(),
            comes_back::<ClientAnswer>(&content).is_some(),
        ];
        read += usize::from(understood.contains(&true));
    }
    read > 0
}

fn next_frame(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let receiving = pin!(frame::receive_bytes(rest, STRANGER_MAX));
    match receiving.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(received) => received.ok(),
        Poll::Pending => unreachable!("bytes in memory are there"),
    }
}

/// A value of a frame, which is the same once it is written and read again.
fn comes_back<T: Serialize + DeserializeOwned + PartialEq>(content: &[u8]) -> Option<T> {
    let value: T = frame::decode(content).ok()?;
    let written = frame::encode(&value).expect("what was read can be written");
    let again: Option<T> = frame::decode(&written[4..]).ok();
    assert!(again.as_ref() == Some(&value), "it does not come back");
    Some(value)
}

/// What members tell is the same to whoever hears it, in whatever order, and is news only once.
fn merges(records: &[Record]) {
    let own = CellId(u128::MAX);
    if records.iter().any(|record| record.cell == own) {
        return;
    }
    let (mut one, mut other) = (Roster::new(own, Vec::new()), Roster::new(own, Vec::new()));
    if one.merge(records.to_vec()).is_err() {
        assert!(one.records().is_empty(), "something was taken of what is unsound");
        return;
    }
    assert!(one.merge(records.to_vec()).is_ok_and(|news| news.is_empty()), "news twice");
    let backwards = records.iter().rev().cloned().collect();
    assert!(other.merge(backwards).is_ok());
    assert_eq!(one, other, "the order matters");
    assert!(one.unknown_to(&other.known()).is_empty());
}

struct Bench {
    dir: PathBuf,
    home: Home,
    authority: Authority,
    asked: Asked,
}

/// A member with an authority of its own, made once.
static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("holdall-fuzzing-{}", std::process::id()));
    let cell = Cell { id: CellId(7), name: "lab1".parse().expect("a name") };
    let home = Home::init(&dir, &cell, &["lab1:7420".into()]).expect("a directory");
    let authority = home.authority().expect("its key");
    Bench { dir, home, authority, asked: Asked::new().expect("a key") }
});

/// A certificate, as a peer shows it; as the answer to who joins, or asks for another one; and as a request for one.
pub fn certificate(bytes: &[u8]) -> bool {
    let bench = &*BENCH;
    let certificate = CertificateDer::from(bytes);
    let card = Card::read(&certificate);
    if let Ok(card) = &card {
        let uri = card::uri(&card.cell);
        assert!(uri.len() < 200 && uri.is_ascii(), "{uri}");
        let _ = (card.is_stale(0), card.is_over(i64::MAX));
    }
    let signed = tls::check_signed(&certificate, bench.authority.certificate());
    assert!(signed.is_err(), "nobody has signed this");
    assert!(bench.home.renew(&bench.asked, &certificate).is_err(), "it is for no key of ours");
    let request = bytes.get(..REQUEST_MAX).unwrap_or(bytes);
    let issued = bench.authority.issue(bench.home.cell(), request, 1_800_000_000);
    if let Ok(issued) = &issued {
        let card = Card::read(issued).expect("what is issued can be read");
        assert_eq!(card.cell, *bench.home.cell(), "the signer says who it is");
    }
    card.is_ok() || issued.is_ok()
}

/// The files of a member: each as it is, and with a checksum that is right.
pub fn files(bytes: &[u8]) -> bool {
    let Some((which, content)) = bytes.split_first() else { return false };
    let dir = &BENCH.dir;
    let (name, first) = [
        ("cell.pem", None),
        ("ca.pem", None),
        ("members", Some(home::FIRST)),
        ("tokens", Some(token::FIRST)),
    ][usize::from(which % 4)];
    let whole = std::fs::read(dir.join(name)).unwrap_or_default();
    let content = match first {
        Some(first) if which & 4 == 0 => {
            let sum = crc32c::crc32c(content).to_le_bytes();
            [first.as_bytes(), b"\n", &sum, content].concat()
        }
        _ => content.to_vec(),
    };
    std::fs::write(dir.join(name), content).expect("writable");
    let read = match name {
        "tokens" => BENCH.home.tokens().is_ok_and(|kept| {
            kept.iter().for_each(|one| assert!(!one.label().is_empty()));
            true
        }),
        _ => Home::open(dir).is_ok_and(|home| home.tls().is_ok() && home.roster().is_ok()),
    };
    store::replace(&dir.join(name), &whole).expect("writable");
    read
}

/// Tokens, as people paste them.
pub fn tokens(text: &str) -> bool {
    let join = text.parse::<JoinToken>();
    if let Ok(token) = &join {
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
    }
    let client = text.parse::<ClientToken>();
    if let Ok(token) = &client {
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
    }
    join.is_ok() || client.is_ok()
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    frame::encode(value).expect("written")
}

/// Bytes with which a search begins, and of which something can be made.
pub struct Seeds {
    /// For [`frames`].
    pub frames: Vec<Vec<u8>>,
    /// For [`certificate`].
    pub certificates: Vec<Vec<u8>>,
    /// For [`files`].
    pub files: Vec<Vec<u8>>,
}

/// With what searches begin.
///
/// # Panics
/// If no cluster can be made.
pub fn seeds() -> Seeds {
    let bench = &*BENCH;
    let framed = |value: &[u8]| [&(value.len() as u32).to_le_bytes(), value].concat();
    let records = bench.home.roster().expect("whole").records();
    let joining = Joining {
        secret: [1; 16],
        id: CellId(8),
        name: "lab2".parse().expect("a name"),
        addresses: vec!["lab2:7420".into()],
        request: bench.asked.request.clone(),
    };
    let certificate = bench.authority.issue(bench.home.cell(), &bench.asked.request, 1_800_000_000);
    let certificate = certificate.expect("its key is here").to_vec();
    let joined = JoinAnswer::Joined { certificate: certificate.clone(), records: records.clone() };
    let frames = vec![
        framed(&Hello::new(frame::Purpose::Link).to_bytes()),
        framed(&Hello::new(frame::Purpose::Join).to_bytes()),
        encoded(&Frame::Greeting { start: 9, bytes: b"hi".to_vec() }),
        encoded(&Frame::Told(records.clone())),
        encoded(&Frame::Known(BENCH.home.roster().expect("whole").known())),
        encoded(&Frame::Message(b"hi".to_vec())),
        encoded(&Frame::Renew(bench.asked.request.clone())),
        encoded(&joining),
        encoded(&joined),
        encoded(&ClientAnswer::Refused(crate::Refusal::Client)),
    ];
    let file = |which: u8, name: &str| {
        let content = std::fs::read(bench.dir.join(name)).expect("there");
        [&[which][..], &content].concat()
    };
    let members = postcard::to_stdvec(&records).expect("written");
    let files = vec![
        file(0, "cell.pem"),
        file(1, "ca.pem"),
        file(6, "members"),
        [&[2][..], &members].concat(),
        vec![3, 0],
    ];
    let certificates = vec![certificate, bench.asked.request.clone()];
    Seeds { frames, certificates, files }
}
