//! Histories that can be, and small changes after which they cannot.

use holdall_wire::holder::Record;
use holdall_wire::{From, Lasting, Need, Taken};
use proptest::prelude::*;

use super::*;
use crate::facts::How;
use crate::session::{Means, Secret};

fn asked(request: u64, needs: &[&str]) -> Fact {
    let needs: Vec<Need> = needs.iter().map(|need| need.parse().expect("a need")).collect();
    let (now, lasting, from, within) = (false, Lasting::Connection, From::default(), None);
    Fact::Asked {
        request: RequestNo(request),
        session: SessionId(1),
        call: CallNo(request),
        who: Arc::default(),
        ask: Arc::new(Ask { needs, now, lasting, from, within, limit: None, part: None }),
        at: 0,
    }
}

fn granted(request: u64, fence: u64, units: &[(&str, &str)]) -> Fact {
    let name = |text: &str| text.parse::<Name>().expect("a name");
    let mut taken: Vec<Taken> = Vec::new();
    for (pool, unit) in units {
        let unit = (name(unit), fence);
        match taken.iter_mut().find(|taken| taken.name == name(pool)) {
            Some(taken) => taken.units.push(unit),
            None => taken.push(Taken { name: name(pool), units: vec![unit] }),
        }
    }
    Fact::Granted {
        request: RequestNo(request),
        taken: taken.into(),
        since: 0,
        until: None,
        limit_at: None,
        overtook: 0,
    }
}

fn ended(request: u64) -> Fact {
    Fact::Ended { request: RequestNo(request), how: How::Released }
}

fn left(request: u64) -> Fact {
    Fact::Left { request: RequestNo(request), how: How::Released, call: None }
}

fn entered(facts: &[Fact]) -> Result<Books, Contradiction> {
    let mut books = Books::default();
    facts.iter().try_for_each(|fact| books.enter(fact))?;
    Ok(books)
}

#[test]
fn a_unit_has_one_holder_and_a_lock_one_or_those_who_share_it() {
    let two = [asked(1, &["gpu"]), asked(2, &["gpu"]), granted(1, 3, &[("gpu", "gpu/0")])];
    let twice = [&two[..], &[granted(2, 4, &[("gpu", "gpu/0")])]].concat();
    assert!(matches!(entered(&twice), Err(Contradiction::Double { .. })));
    let other = [&two[..], &[granted(2, 4, &[("gpu", "gpu/1")])]].concat();
    assert_eq!(entered(&other).expect("another unit").grants().count(), 2);
    let later = [&two[..], &[ended(1), granted(2, 4, &[("gpu", "gpu/0")])]].concat();
    assert_eq!(entered(&later).expect("it was given back").grants().count(), 1);

    let share = [asked(1, &["db:shared"]), asked(2, &["db:shared"]), asked(3, &["db"])];
    let db = [("db", "db")];
    let both = [&share[..], &[granted(1, 4, &db), granted(2, 4, &db)]].concat();
    assert!(entered(&both).is_ok());
    let fences = [&share[..], &[granted(1, 4, &db), granted(2, 5, &db)]].concat();
    assert!(matches!(entered(&fences), Err(Contradiction::Behind { .. })));
    for first in [1, 3] {
        let mixed = [&share[..], &[granted(first, 4, &db), granted(4 - first, 5, &db)]].concat();
        assert!(matches!(entered(&mixed), Err(Contradiction::Double { .. })));
    }
    let one_left = [&both[..], &[ended(1), granted(3, 5, &db)]].concat();
    assert!(matches!(entered(&one_left), Err(Contradiction::Double { .. })));
    let none_left = [&both[..], &[ended(1), ended(2), granted(3, 5, &db)]].concat();
    assert!(entered(&none_left).is_ok());
}

/// As a snapshot may say whose checksum is right all the same.
#[test]
fn books_that_contradict_themselves_are_noticed() {
    let (session, means) = (SessionId(1), Means::Connection);
    let facts = [
        Fact::Session { session, secret: Secret(1), uid: 0, means },
        asked(1, &["gpu"]),
        asked(2, &["gpu"]),
        granted(1, 3, &[("gpu", "gpu/0")]),
        granted(2, 4, &[("gpu", "gpu/1")]),
    ];
    let sound = entered(&facts).expect("it can be");
    assert_eq!(sound.check(), Ok(()));
    let wrong = |change: &dyn Fn(&mut Books)| {
        let mut books = sound.clone();
        change(&mut books);
        books.check().expect_err("it cannot be")
    };
    let two_have_it = |books: &mut Books| {
        let (kept, lost) = (RequestNo(1), RequestNo(2));
        let ended = books.requests[&lost].clone();
        books.give_back(lost, &ended);
        let taken = books.requests[&kept].held.as_ref().expect("held").taken.clone();
        books.take(lost, &taken);
        let lost = books.requests.get_mut(&lost).expect("held");
        lost.change(|granted| granted.held.as_mut().expect("held").taken = taken);
    };
    assert!(wrong(&two_have_it).starts_with("B1"));
    let no_fence_was_so_high = |books: &mut Books| books.highest = 3;
    assert!(wrong(&no_fence_was_so_high).starts_with("B2"));
    let nor_number = |books: &mut Books| {
        (books.highest, books.uses) = (1, Default::default());
        books.requests.values_mut().for_each(|entry| entry.change(|granted| granted.held = None));
    };
    assert!(wrong(&nor_number).starts_with("B2"));
}

#[test]
fn numbers_and_fences_only_grow() {
    let gpu = [("gpu", "gpu/0")];
    let back = [asked(5, &["gpu"]), granted(5, 5, &gpu)];
    assert!(matches!(entered(&back), Err(Contradiction::Behind { .. })));
    let again = [asked(5, &["gpu"]), granted(5, 9, &gpu), ended(5), asked(9, &["gpu"])];
    assert!(matches!(entered(&again), Err(Contradiction::Behind { .. })));
    assert_eq!(entered(&again[..3]).expect("they grow").highest(), 9);
}

#[test]
fn what_is_granted_is_what_was_asked_for_and_once() {
    let gpu = [("gpu", "gpu/0")];
    let ask = asked(1, &["gpu:2", "db"]);
    let wrong: [&[(&str, &str)]; 5] = [
        &gpu,
        &[("gpu", "gpu/0"), ("gpu", "gpu/1")],
        &[("gpu", "gpu/0"), ("db", "db")],
        &[("db", "db"), ("gpu", "gpu/0"), ("gpu", "gpu/1")],
        &[("gpu", "gpu/0"), ("gpu", "gpu/0"), ("db", "db")],
    ];
    for units in wrong {
        let facts = [ask.clone(), granted(1, 2, units)];
        assert_eq!(entered(&facts), Err(Contradiction::Other(RequestNo(1))), "{units:?}");
    }
    let one = asked(1, &["gpu"]);
    let another = [one.clone(), granted(1, 2, &[("fpga", "fpga/0")])];
    assert_eq!(entered(&another), Err(Contradiction::Other(RequestNo(1))));
    let twice = [one.clone(), granted(1, 2, &gpu), granted(1, 3, &[("gpu", "gpu/1")])];
    assert_eq!(entered(&twice), Err(Contradiction::Again(RequestNo(1))));
    let over = [one.clone(), ended(1), granted(1, 2, &gpu)];
    assert_eq!(entered(&over), Err(Contradiction::Unknown(RequestNo(1))));
    assert_eq!(entered(&over[..2]), Ok(Books { highest: 1, ..Books::default() }));
    let request = RequestNo(1);
    for early in [left(1), Fact::Used { request, holder: Box::default() }] {
        assert_eq!(entered(&[one.clone(), early]), Err(Contradiction::NotHeld(request)));
    }
}

#[test]
fn a_fact_that_cannot_be_changes_nothing() {
    let mut books = entered(&[
        asked(1, &["gpu"]),
        asked(2, &["db", "gpu"]),
        granted(1, 3, &[("gpu", "gpu/0")]),
    ])
    .expect("it can be");
    let before = books.clone();
    books.enter(&granted(2, 4, &[("db", "db"), ("gpu", "gpu/0")])).expect_err("it is held");
    assert_eq!(books, before);
}

#[test]
fn all_that_is_needed_to_go_on_is_in_it() {
    let request = RequestNo(1);
    let name: Name = "gpu".parse().expect("a name");
    let holder = Box::new(Record::of_client("boot", "lock"));
    let (session, secret) = (SessionId(1), Secret(1));
    let books = entered(&[
        Fact::Session { session, secret, uid: 0, means: Means::Lease(1) },
        Fact::Pool { name: name.clone(), kind: Some(Kind::Numbered(2)), configured: true },
        asked(1, &["gpu"]),
        asked(2, &["gpu:2"]),
        asked(3, &["gpu"]),
        granted(1, 4, &[("gpu", "gpu/1")]),
        Fact::Renewed { request, until: 50 },
        Fact::Used { request, holder: holder.clone() },
        left(1),
    ])
    .expect("it can be");
    let bytes = postcard::to_allocvec(&books).expect("in bytes");
    let mut books: Books = postcard::from_bytes(&bytes).expect("the same again");
    books.check().expect("sound");
    let pool = Pool { kind: Kind::Numbered(2), configured: true };
    assert_eq!(books.pools().collect::<Vec<_>>(), [(&name, &pool)]);
    assert_eq!(books.next_due(), Some((50, request)));
    let (number, entry, held) = books.grants().next().expect("one is held");
    assert_eq!((number, entry.holder.as_deref(), held.until), (request, Some(&*holder), Some(50)));
    assert_eq!(entry.left.as_deref(), Some(&Left { how: How::Released, call: None }));
    assert_eq!(held.taken[0].units, [("gpu/1".parse().expect("a name"), 4)]);
    let waiting: Vec<u64> = books.waiting().map(|(request, _)| request.0).collect();
    assert_eq!(waiting, [2, 3], "in the order they came");
    books.enter(&Fact::Pool { name, kind: None, configured: false }).expect("it can be");
    assert_eq!(books.pools().count(), 0);
}

/// A simple cell: units are granted in the order of asking, as far as they are free.
fn history(choices: &[(u8, u8)]) -> Vec<Fact> {
    let (mut facts, mut number, mut waiting, mut held) = (Vec::new(), 0, Vec::new(), Vec::new());
    for (what, which) in choices {
        match what % 3 {
            0 => {
                number += 1;
                facts.push(asked(number, &["gpu"]));
                waiting.push(number);
            }
            1 if !waiting.is_empty() => {
                let free = (0..3).find(|unit| held.iter().all(|(_, taken)| taken != unit));
                let Some(unit) = free else { continue };
                let request = waiting.remove(0);
                number += 1;
                facts.push(granted(request, number, &[("gpu", &format!("gpu/{unit}"))]));
                held.push((request, unit));
            }
            2 if !held.is_empty() => {
                let (request, _) = held.remove(usize::from(*which) % held.len());
                facts.push(ended(request));
            }
            _ => {}
        }
    }
    facts
}

proptest! {
    #[test]
    fn what_can_be_is_entered_and_without_an_end_it_cannot_be(
        choices in prop::collection::vec((any::<u8>(), any::<u8>()), 1..80),
        place in any::<prop::sample::Index>(),
    ) {
        let facts = history(&choices);
        prop_assert!(entered(&facts).is_ok());
        // Without an end of its former holder, nobody can be granted a unit.
        let ends = |fact: &Fact| matches!(fact, Fact::Ended { .. });
        let all: Vec<usize> = (0..facts.len()).filter(|at| ends(&facts[*at])).collect();
        prop_assume!(!all.is_empty());
        let left_out = *place.get(&all);
        let Fact::Ended { request, .. } = facts[left_out] else { unreachable!("it ends") };
        let unit_of = |fact: &Fact| match fact {
            Fact::Granted { taken, .. } => Some(taken[0].units[0].0.clone()),
            _ => None,
        };
        let of_it = |fact: &&Fact| matches!(fact, Fact::Granted { request: one, .. } if *one == request);
        let unit = facts.iter().find(of_it).and_then(unit_of);
        let again = facts[left_out..].iter().any(|fact| unit_of(fact) == unit && unit.is_some());
        let without: Vec<_> = [&facts[..left_out], &facts[left_out + 1..]].concat();
        prop_assert_eq!(entered(&without).is_err(), again);
    }
}

fn asked_part(request: u64, of: u64, needs: &[&str]) -> Fact {
    let Fact::Asked { session, call, who, ask, at, .. } = asked(request, needs) else {
        unreachable!("it asks")
    };
    let part = Some(holdall_wire::Part { of: RequestNo(of), outlasts: false });
    let ask = Arc::new(Ask { part, ..(*ask).clone() });
    Fact::Asked { request: RequestNo(request), session, call, who, ask, at }
}

/// A part has what its grant has, alone or sharing it; and no grant ends before its parts.
#[test]
fn parts_are_within_their_grants() {
    let whole = [
        asked(1, &["gpu:2", "db"]),
        granted(1, 2, &[("gpu", "gpu/0"), ("gpu", "gpu/1"), ("db", "db")]),
        asked_part(3, 1, &["gpu", "db:shared"]),
        asked_part(4, 1, &["gpu", "db:shared"]),
        granted(3, 5, &[("gpu", "gpu/0"), ("db", "db")]),
    ];
    let with = |more: &[Fact]| entered(&[&whole[..], more].concat());
    let books = with(&[]).expect("it can be");
    assert_eq!(books.grants().count(), 2);
    let fences = |unit, fence| {
        let Fact::Granted { request, mut taken, since, until, limit_at, overtook } =
            granted(4, 6, &[("gpu", unit), ("db", "db")])
        else {
            unreachable!("it is granted")
        };
        if let Some(taken) = Arc::get_mut(&mut taken) {
            taken[1].units[0].1 = fence;
        }
        Fact::Granted { request, taken, since, until, limit_at, overtook }
    };
    with(&[fences("gpu/1", 5)]).expect("they share it under one fence");
    assert!(matches!(with(&[fences("gpu/1", 6)]), Err(Contradiction::Behind { .. })));
    assert!(matches!(with(&[fences("gpu/0", 5)]), Err(Contradiction::Double { .. })));
    assert!(matches!(with(&[fences("gpu/2", 5)]), Err(Contradiction::NotPart { .. })));
    assert_eq!(with(&[ended(1)]), Err(Contradiction::InParts(RequestNo(1))));
    with(&[ended(3), ended(1)]).expect("one after the other");
    let other = [asked(6, &["gpu"]), granted(6, 7, &[("gpu", "gpu/2")]), fences("gpu/2", 5)];
    assert!(matches!(with(&other), Err(Contradiction::NotPart { .. })), "it is another's");
    let closing = Fact::Closing { request: RequestNo(1), how: How::Released };
    let late = with(&[closing, fences("gpu/1", 5)]);
    assert!(matches!(late, Err(Contradiction::NotPart { .. })), "no part begins any more");
}

/// A part of what its grant shares carries the fence of all who share it.
#[test]
fn a_part_of_what_is_shared_has_the_same_fence() {
    let db = [("db", "db")];
    let whole = [asked(1, &["db:shared"]), granted(1, 2, &db), asked_part(3, 1, &["db:shared"])];
    let with = |fence| entered(&[&whole[..], &[granted(3, fence, &db)]].concat());
    with(2).expect("the same");
    assert!(matches!(with(4), Err(Contradiction::Behind { .. })));
}

#[test]
fn numbers_are_above_the_epoch() {
    let clock = Clock::default();
    let started = Fact::Started { epoch: 2, life: 1, at: 0, clock };
    let asks = |number| entered(&[started.clone(), asked(number, &["a"])]);
    assert!(matches!(asks(2 << 32), Err(Contradiction::Behind { .. })));
    asks((2 << 32) + 1).expect("it is above");
}
