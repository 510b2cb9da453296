//! What clients and agents say to each other: bytes as they arrive, cut into frames, each read as everything that can
//! be in one.

use std::fmt::Debug;

use holdall_wire::frame::{self, FROM_CLIENT_MAX, Incoming};
use holdall_wire::holder::Record;
use holdall_wire::{
    Answer, Ask, Attach, Body, Call, From, Lasting, Leftovers, Name, Part, Refusal, Reply,
    RequestNo, Taken,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A client's or an agent's side of a connection.
pub(crate) fn run(bytes: &[u8]) -> bool {
    let mut incoming = Incoming::new(FROM_CLIENT_MAX);
    incoming.buffer().extend_from_slice(bytes);
    let mut read = false;
    while let Ok(Some(content)) = incoming.next_frame() {
        read |= frame::version(content).is_ok_and(|theirs| frame::common(theirs).is_some());
        read |= comes_back::<Call>(content);
        read |= comes_back::<Answer>(content);
        read |= comes_back::<Record>(content);
    }
    read
}

/// Whether it can be read; then it is the same once it is written and read again.
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(content: &[u8]) -> bool {
    let Ok(value) = frame::read::<T>(content) else { return false };
    let written = framed(&value);
    let again: T = frame::read(&written[4..]).expect("what was written can be read");
    assert_eq!(again, value, "it does not come back");
    true
}

fn framed<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(value, usize::MAX, &mut out).expect("it can be written");
    out
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let name = |text: &str| text.parse::<Name>().expect("a name");
    let from = From { command: "make".into(), name: Some("n".into()), reason: None };
    let needs = ["gpu:2", "board@lab1", "db:shared"].map(|need| need.parse().expect("a need"));
    let ask = Ask {
        needs: needs.into(),
        now: false,
        lasting: Lasting::Command(Leftovers::Wait),
        from,
        within: Some(RequestNo(3)),
        limit: Some(1),
        part: Some(Part { of: RequestNo(3), outlasts: true }),
    };
    let attach = Attach { session: 1, secret: 2, returns: true, heard: 0, lease: None };
    let bodies =
        [Body::Ask(ask), Body::Attach(attach), Body::Withdraw(7), Body::Agent, Body::Leave];
    let mut greeting = Vec::new();
    frame::greet(&mut greeting, frame::VERSION);
    let taken = vec![Taken { name: name("gpu"), units: vec![(name("gpu/0"), 7)] }];
    let granted = Reply::Granted {
        request: RequestNo(9),
        taken: taken.into(),
        place: None,
        variables: vec![("A".into(), "b".into())],
        limit: Some(1),
    };
    let replies = [granted, Reply::Done, Reply::Refused(Refusal::Busy("b".into()))];
    let calls = bodies.into_iter().map(|body| framed(&Call { id: 1, body }));
    let answers = replies.into_iter().map(|reply| framed(&Answer { id: 1, reply }));
    [greeting].into_iter().chain(calls).chain(answers).collect()
}
