//! What programs of other versions say is understood, and said in the same bytes.
//!
//! `golden/` has conversations of version 5 as they were recorded: the bytes of a client and those of the agent,
//! one connection after the other.

use std::fmt::Write as _;

use holdall_wire::frame::{self, FROM_NODE_MAX, Incoming};
use holdall_wire::{
    Answer, Attach, Body, Call, ClusterCall, ClusterView, Expected, Fault, HistoryPage,
    HistoryPlace, HostCell, HostedView, JoinTokenView, MemberView, Prospects, Refusal, Reply,
    RequestNo, Shutdown,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads frames, looks that each is written as it was read, but for what was `added` at its end since, and
/// returns them without the greetings.
fn read_back<T: Serialize + DeserializeOwned>(bytes: &[u8], added: fn(&T) -> &[u8]) -> Vec<T> {
    let mut incoming = Incoming::new(FROM_NODE_MAX);
    incoming.buffer().extend(bytes);
    let mut all = Vec::new();
    while let Some(content) = incoming.next_frame().expect("a frame") {
        if let Ok(version) = frame::version(content) {
            assert_eq!(version, 5);
            continue;
        }
        let value: T = frame::read(content).expect("it is understood");
        let mut written = Vec::new();
        frame::write(&value, FROM_NODE_MAX, &mut written).expect("it is written");
        let expected = [content, added(&value)].concat();
        assert_eq!(written[4..], expected, "it is written otherwise than it was read");
        all.push(value);
    }
    all
}

/// Version 6 says what an agent waits for, where it does not serve HTTP, and when a request will probably be
/// granted.
fn added_to_answer(answer: &Answer) -> &[u8] {
    match answer.reply {
        Reply::Agent(_) => &[0, 0, 0],
        Reply::Explanation(_) => &[0, 0],
        _ => &[],
    }
}

/// And why something is forced.
fn added_to_call(call: &Call) -> &[u8] {
    if matches!(call.body, Body::Release { .. }) { &[0] } else { &[] }
}

#[test]
fn a_command_of_version_5_is_understood() {
    let calls: Vec<Call> = read_back(include_bytes!("golden/v5-run.client"), |_| &[]);
    let bodies: Vec<_> = calls.iter().map(|call| &call.body).collect();
    assert!(matches!(bodies[..], [Body::Agent, Body::Ask(_), Body::End { .. }]), "{bodies:?}");
    assert_eq!(hex(&Body::Child { request: RequestNo(5), pid: 7 }), "010507");
    let answers: Vec<Answer> = read_back(include_bytes!("golden/v5-run.agent"), added_to_answer);
    let replies: Vec<_> = answers.iter().map(|answer| &answer.reply).collect();
    assert!(
        matches!(replies[..], [Reply::Agent(_), Reply::Granted { .. }, Reply::Done]),
        "{replies:?}"
    );
}

#[test]
fn what_else_version_5_says_is_understood() {
    let calls: Vec<Call> = read_back(include_bytes!("golden/v5-others.client"), added_to_call);
    let said = |is: fn(&Body) -> bool| calls.iter().any(|call| is(&call.body));
    assert!(said(|body| matches!(body, Body::Status { .. })));
    assert!(said(|body| matches!(body, Body::Explain { .. })));
    assert!(said(|body| matches!(body, Body::Change(_))));
    assert!(said(|body| matches!(body, Body::Drain { .. })));
    assert!(said(|body| matches!(body, Body::Renew { .. })));
    assert!(said(|body| matches!(body, Body::Release { .. })));
    assert!(said(|body| matches!(body, Body::Withdraw(_))));
    assert!(said(|body| matches!(body, Body::Stop { now: true })));
    let answers: Vec<Answer> = read_back(include_bytes!("golden/v5-others.agent"), added_to_answer);
    let told = |is: fn(&Reply) -> bool| answers.iter().any(|answer| is(&answer.reply));
    assert!(told(|reply| matches!(reply, Reply::Status { .. })));
    assert!(told(|reply| matches!(reply, Reply::Explanation(_))));
    assert!(told(|reply| matches!(reply, Reply::Queued(_))));
    assert!(told(|reply| matches!(reply, Reply::Refused(_))));
    assert!(told(|reply| matches!(reply, Reply::Failed(_))));
}

/// New variants are added at the end, and keep their bytes from then on.
#[test]
fn version_6_keeps_its_bytes() {
    let attach = Attach { session: 300, secret: 1, returns: true, heard: 7, lease: Some(60_000) };
    let bodies = [
        Body::Attach(attach),
        Body::Leave,
        Body::Heard(7),
        Body::Shutdown(Shutdown::AtOnce),
        Body::Shutdown(Shutdown::Dismiss),
        Body::Shutdown(Shutdown::Drain),
        Body::Restart { exe: Some("x".into()) },
        Body::Prospects,
        Body::History { from: HistoryPlace { file: 300, byte: 7 } },
        Body::Release { request: RequestNo(5), force: true, reason: Some("x".into()) },
        Body::Cluster(ClusterCall::Members),
        Body::Cluster(ClusterCall::Token { millis: 300, machines: 1, whose: Some("x".into()) }),
        Body::Cluster(ClusterCall::Tokens),
        Body::Cluster(ClusterCall::Revoke("x".into())),
        Body::Cluster(ClusterCall::Remove("x".into())),
        Body::Cluster(ClusterCall::Forget("x".into())),
        Body::At { cell: "x".into(), question: Box::new(Body::Agent) },
        Body::ExplainAs { id: vec![9], most: 7 },
        Body::Cluster(ClusterCall::Host(Box::new(host()))),
        Body::Cluster(ClusterCall::Hosted),
        Body::Cluster(ClusterCall::HandOver("x".into())),
        Body::Cluster(ClusterCall::Close(false)),
        Body::Cluster(ClusterCall::Close(true)),
    ];
    let expected = [
        "0dac0201010701e0d403",
        "0e",
        "0f07",
        "1000",
        "1001",
        "1002",
        "11010178",
        "12",
        "13ac0207",
        "090501010178",
        "1400",
        "1401ac0201010178",
        "1402",
        "14030178",
        "14040178",
        "14050178",
        "1501780a",
        "16010907",
        "1406017801690173020178017901610174",
        "1407",
        "14080178",
        "140900",
        "140901",
    ];
    assert_eq!(bodies.len(), expected.len());
    for (body, expected) in bodies.iter().zip(expected) {
        assert_eq!(hex(body), expected, "{body:?}");
    }
    let answers = vec![
        (1, Some(Reply::Queued(RequestNo(5)))),
        (2, None),
        (3, Some(Reply::Refused(Refusal::Withdrawn))),
    ];
    let attached = Reply::Attached { life: 9, last: 3, answers };
    assert_eq!(hex(&attached), "0c09030301010905020003010a01");
    assert_eq!(hex(&Reply::Failed(Fault::Forgotten)), "0204");
    let (request, unknown) = (RequestNo(5), "x".into());
    let expected = Expected { request, made: 300, half: (1, 2), nine: (3, 4) };
    let prospects = Prospects { expected: vec![expected], unknown };
    assert_eq!(hex(&Reply::Prospects(prospects)), "0d0105ac02010203040178");
    let next = Some(HistoryPlace { file: 300, byte: 7 });
    let page = HistoryPage { text: "x".into(), all: true, next };
    assert_eq!(hex(&Reply::History(page)), "0e01780101ac0207");
    assert_eq!(hex(&Reply::Until { request, boottime_millis: 300 }), "0f05ac02");
    let shown = "1001780179e0d4030001017a010178016901010179010000000500010301020300";
    assert_eq!(hex(&Reply::Cluster(cluster())), shown);
    assert_eq!(hex(&Reply::JoinToken("x".into())), "110178");
    let (label, made, until, machines, used, whose) = ("x".into(), 1, 2, 3, 4, Some("y".into()));
    let token = JoinTokenView { label, made, until, machines, used, whose };
    assert_eq!(hex(&Reply::JoinTokens(vec![token])), "1201017801020304010179");
    assert_eq!(hex(&Reply::Hosted(vec![hosted()])), "1301017801790173010179010101790307010174");
}

fn host() -> HostCell {
    HostCell {
        name: "x".into(),
        id: "i".into(),
        store: "s".into(),
        hosts: vec!["x".into(), "y".into()],
        at: "a".into(),
        token: "t".into(),
    }
}

fn hosted() -> HostedView {
    HostedView {
        name: "x".into(),
        host: "y".into(),
        store: "s".into(),
        hosts: vec!["y".into()],
        leads: true,
        leader: Some("y".into()),
        epoch: 3,
        records: 7,
        trouble: Some("t".into()),
    }
}

fn cluster() -> ClusterView {
    let member = MemberView {
        name: "x".into(),
        id: "i".into(),
        own: true,
        addresses: vec!["y".into()],
        signs: true,
        removed: false,
        forgotten: false,
        up: false,
        since: 5,
        why: None,
        round_trip: Some(3),
        frames: (1, 2, 3),
        pools: Vec::new(),
    };
    let (name, listens, waits_for) = ("x".into(), "y".into(), vec!["z".into()]);
    let (lease, removed, members) = (60_000, false, vec![member]);
    ClusterView { name, listens, lease, removed, waits_for, members }
}

fn hex(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    frame::write(value, FROM_NODE_MAX, &mut bytes).expect("short");
    bytes[4..].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
