//! What cells say to each other keeps its bytes: agents of neighbouring versions talk.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdall_cell::peer::{Asserted, Assertion, Given, Order, PeerMessage, Term};
use holdall_core::{CellId, Home, Life, Need, Needs, PoolId, RequestId, UserId};
use holdall_protocols::house::{Marks, Round, Span, Stance, ToManager, ToUser};
use holdall_wire::{From, Name, Refusal, Taken, Who};

/// Of the cell 300, in its second life.
fn request() -> RequestId {
    let home = Home { cell: CellId(300), life: Life(2) };
    RequestId { user: UserId::first_at(home, 5), seq: 1 }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn order() -> Order {
    let from = From { command: "c".into(), name: Some("n".into()), reason: None };
    let who = Who { uid: 1000, user: "u".into(), host: "h".into(), pid: 300, from };
    let needs = ["board/1", "gpu:2", "db:shared", "all:all"];
    let needs = needs.map(|need| need.parse().expect("a need")).to_vec();
    Order { needs, who: Arc::new(who), now: true }
}

fn given() -> Given {
    let taken = [Taken { name: name("board"), units: vec![(name("board/1"), 300)] }];
    Given { taken: taken.into(), leased: true }
}

fn counts() -> Needs {
    let named = Need { pool: PoolId(7), units: 2, named: BTreeSet::from([1]) };
    Needs::new(vec![Need::any(PoolId(1 << 32), 1), named]).expect("needs")
}

fn to_manager(message: ToManager, order: Option<Order>) -> PeerMessage {
    PeerMessage::ToManager { message, order }
}

fn to_user(message: ToUser, given: Option<Given>) -> PeerMessage {
    PeerMessage::ToUser { message, given }
}

/// One of each, with all that they consist of.
fn all() -> Vec<(PeerMessage, &'static str)> {
    let (request, round) = (request(), Round::first(Default::default()));
    let stance = Stance {
        request,
        n: 3,
        round: round.plus(300),
        span: Span::try_from(4).expect("a span"),
        base: round,
        needs: counts(),
        parked: true,
    };
    let attempt = ToManager::Try { request, needs: counts(), solo: true, span: Span::ONE };
    let marks = Marks::from(BTreeSet::from([round.plus(1), round.plus(2), round.plus(5)]));
    let floor = round.plus(9);
    let yes = ToUser::Yes { request, n: 3, units: Default::default() };
    let term = Term { millis: 60_000, mark: 300 };
    let asserted = Asserted { request, order: order(), given: given(), term: Some(term) };
    let waiting = vec![(request, None), (request, Some(3))];
    let assertion = Assertion { waiting, held: vec![asserted], last: true };
    let mut all = vec![
        (
            to_manager(ToManager::Queue(stance), Some(order())),
            "0000ac02028080808080a0010103ac02040002808080801001000702010101010407626f6172642f31056770753a320964623a73686172656407616c6c3a616c6ce80701750168ac02016301016e0001",
        ),
        (to_manager(ToManager::Release(request), None), "0001ac02028080808080a0010100"),
        (
            to_manager(attempt, Some(order())),
            "0002ac02028080808080a001010280808080100100070201010101010407626f6172642f31056770753a320964623a73686172656407616c6c3a616c6ce80701750168ac02016301016e0001",
        ),
        (
            to_user(ToUser::No { request, n: 3, floor, marks }, None),
            "0100ac02028080808080a001010309020102050500",
        ),
        (to_user(ToUser::Over(request), None), "0101ac02028080808080a0010100"),
        (
            to_user(ToUser::Park { request, turn: 3, on: true }, None),
            "0102ac02028080808080a00101030100",
        ),
        (
            to_user(yes, Some(given())),
            "0103ac02028080808080a001010300010105626f6172640107626f6172642f31ac0201",
        ),
        (to_user(ToUser::Yield { request, n: 3 }, None), "0104ac02028080808080a001010300"),
        (PeerMessage::Keep { request, term }, "03ac02028080808080a00101e0d403ac02"),
        (
            PeerMessage::Assert(assertion),
            "0402ac02028080808080a0010100ac02028080808080a00101010301ac02028080808080a001010407626f6172642f31056770753a320964623a73686172656407616c6c3a616c6ce80701750168ac02016301016e00010105626f6172640107626f6172642f31ac020101e0d403ac0201",
        ),
        (PeerMessage::Kept { request, mark: 300 }, "05ac02028080808080a00101ac02"),
    ];
    let text = || "x".to_owned();
    let refusals = [
        (Refusal::Busy(text()), "02ac02028080808080a00101000178"),
        (Refusal::Withdrawn, "02ac02028080808080a0010101"),
        (Refusal::Never(text()), "02ac02028080808080a00101020178"),
        (Refusal::Senseless(text()), "02ac02028080808080a00101030178"),
        (Refusal::Closed(text()), "02ac02028080808080a00101040178"),
        (Refusal::Denied(text()), "02ac02028080808080a00101050178"),
        (Refusal::Conflict(text()), "02ac02028080808080a00101060178"),
    ];
    let refused = |(why, hex)| (PeerMessage::Refused { request, why }, hex);
    all.extend(refusals.map(refused));
    all
}

#[test]
fn what_cells_say_keeps_its_bytes() {
    for (message, expected) in all() {
        let written = postcard::to_stdvec(&message).expect("written");
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{message:?}");
        assert_eq!(postcard::from_bytes::<PeerMessage>(&written), Ok(message));
    }
}
