use std::fmt::Debug;

use data_encoding::HEXLOWER;
use proptest::prelude::*;

use super::*;
use crate::member::{About, Forgotten, Kind, Member, Part};

fn lab1() -> CellName {
    "lab1".parse().expect("a name")
}

fn member() -> Record {
    let member = Member {
        removed: false,
        version: 3,
        since: 300,
        name: lab1(),
        addresses: vec!["lab1:7420".into()],
        signs: true,
    };
    Record { cell: CellId(7), part: Part::Member(member) }
}

/// These bytes are a promise to other versions: a change needs a new version, which still speaks this one.
fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, hex: &str) {
    let bytes = encode(value).expect("written");
    assert_eq!(HEXLOWER.encode(&bytes), hex.replace(' ', ""), "{value:?}");
    assert_eq!(&decode::<T>(&bytes[HEAD..]).expect("read"), value);
}

#[test]
fn frames_of_links_are_these_bytes() {
    let about = Part::About(About { version: 300, bytes: b"hi".to_vec() });
    let forgotten = Part::Forgotten(Forgotten { version: 1, word: b"w".to_vec() });
    golden(&Frame::Greeting { start: 9, bytes: b"hi".to_vec() }, "05000000 00 09 02 6869");
    golden(&Frame::Refused(Refusal::Crossed), "02000000 01 00");
    golden(&Frame::Ready, "01000000 02");
    golden(&Frame::Ping(1), "02000000 03 01");
    golden(&Frame::Pong(300), "03000000 04 ac02");
    golden(&Frame::Message(b"hi".to_vec()), "04000000 05 02 6869");
    let known = Known { cell: CellId(7), kind: Kind::About, sum: 5 };
    golden(&Frame::Known(vec![known]), "05000000 06 01 07 01 05");
    golden(
        &Frame::Told(vec![member()]),
        "19000000 07 01 07 00 00 03 ac02 04 6c616231 01 09 6c6162313a37343230 01",
    );
    let records =
        vec![Record { cell: CellId(7), part: about }, Record { cell: CellId(8), part: forgotten }];
    golden(&Frame::Told(records), "0e000000 07 02 07 01 ac02 02 6869 08 02 01 01 77");
    golden(&Frame::Renew(vec![1]), "03000000 08 01 01");
    golden(&Frame::Renewed(vec![1]), "03000000 09 01 01");
}

#[test]
fn refusals_are_these_bytes() {
    golden(&Refusal::Crossed, "01000000 00");
    golden(&Refusal::Removed, "01000000 01");
    golden(&Refusal::Expelled, "01000000 02");
    golden(&Refusal::Above("no".into()), "04000000 03 02 6e6f");
    golden(&Refusal::Stranger, "01000000 04");
    golden(&Refusal::Token(NoGood::Unknown), "02000000 05 00");
    golden(&Refusal::Token(NoGood::Expired), "02000000 05 01");
    golden(&Refusal::Token(NoGood::Used), "02000000 05 02");
    golden(&Refusal::Token(NoGood::Other), "02000000 05 03");
    golden(&Refusal::NameTaken(lab1()), "06000000 06 04 6c616231");
    golden(&Refusal::IdTaken, "01000000 07");
    golden(&Refusal::NoKey("a".into()), "03000000 08 01 61");
    golden(&Refusal::Full, "01000000 09");
    golden(&Refusal::Guessing, "01000000 0a");
    golden(&Refusal::Client, "01000000 0b");
    golden(&Refusal::Failed("a".into()), "03000000 0c 01 61");
}

#[test]
fn words_of_those_who_join_and_of_clients_are_these_bytes() {
    let joining = Joining {
        secret: [1; 16],
        id: CellId(7),
        name: lab1(),
        addresses: vec!["a:1".into()],
        request: vec![2],
    };
    golden(&joining, "1d000000 01010101010101010101010101010101 07 04 6c616231 01 03 613a31 01 02");
    golden(&JoinAnswer::Joined { certificate: vec![1], records: vec![] }, "04000000 00 01 01 00");
    golden(&JoinAnswer::Refused(Refusal::Full), "02000000 01 09");
    golden(&"hat_00".to_owned(), "07000000 06 6861745f3030");
    golden(&ClientAnswer::Welcome, "01000000 00");
    golden(&ClientAnswer::Refused(Refusal::Client), "02000000 01 0b");
}

#[test]
fn a_hello_is_these_bytes_for_ever() {
    let hello = Hello { purpose: Purpose::Join, oldest: 1, newest: 0x0203 };
    assert_eq!(HEXLOWER.encode(&hello.to_bytes()), "68616c6c696e6b0a0201000302");
    for purpose in [Purpose::Link, Purpose::Join, Purpose::Client] {
        let hello = Hello::new(purpose);
        assert_eq!(Hello::from_bytes(&hello.to_bytes()).expect("one"), hello);
    }
}

#[test]
fn the_newest_version_that_both_speak_is_spoken() {
    let hello = |oldest, newest| Hello { purpose: Purpose::Link, oldest, newest };
    assert_eq!(hello(OLDEST, VERSION + 1).common().expect("common"), VERSION);
    assert_eq!(hello(VERSION, VERSION).common().expect("common"), VERSION);
    assert!(matches!(hello(VERSION + 1, VERSION + 2).common(), Err(Bad::Version(..))));
    assert!(matches!(hello(0, OLDEST - 1).common(), Err(Bad::Version(..))));
    assert!(matches!(hello(5, 1).common(), Err(Bad::Version(..))));
}

#[tokio::test]
async fn not_more_is_read_than_belongs_to_a_frame() {
    let mut bytes = encode(&Frame::Ping(1)).expect("written");
    bytes.extend(b"what follows");
    let mut from = &bytes[..];
    assert_eq!(receive::<Frame>(&mut from, 64).await.expect("one"), Frame::Ping(1));
    assert_eq!(from, b"what follows");
}

#[tokio::test]
async fn what_is_too_long_or_cut_off_is_refused() {
    let long = u32::MAX.to_le_bytes();
    let error = receive::<Frame>(&mut &long[..], LINK_MAX).await.expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let cut = [9, 0, 0, 0, 1, 2];
    let error = receive::<Frame>(&mut &cut[..], LINK_MAX).await.expect_err("cut off");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(decode::<Frame>(&[2, 2]).is_err(), "something follows");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
        drop(Hello::from_bytes(&bytes));
        drop(decode::<Joining>(&bytes));
        drop(decode::<JoinAnswer>(&bytes));
        drop(decode::<ClientAnswer>(&bytes));
        if let Ok(frame) = decode::<Frame>(&bytes) {
            let written = encode(&frame).expect("written");
            prop_assert_eq!(decode::<Frame>(&written[HEAD..]).expect("read"), frame);
        }
    }

    #[test]
    fn a_changed_frame_is_read_without_panic(at in 0usize..24, to: u8) {
        let mut bytes = encode(&Frame::Told(vec![member()])).expect("written");
        let at = HEAD + at.min(bytes.len() - HEAD - 1);
        bytes[at] = to;
        drop(decode::<Frame>(&bytes[HEAD..]));
    }
}
