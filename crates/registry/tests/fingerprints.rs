//! What tells states apart, and what does not.

use holdall_core::{Clock, LinkStamp, ManagerId, Origin, RequestId, UserId};

use holdall_registry::roles::{Fingerprint, StateFingerprint};

fn state(parts: &[&Fingerprint]) -> (u64, u64) {
    let placed = parts.iter().enumerate().map(|(i, fingerprint)| (i as u64, *fingerprint));
    (StateFingerprint::plain(placed.clone()), StateFingerprint::default().relative(placed))
}

#[test]
fn a_shift_of_all_stamps_of_a_family_changes_only_the_plain_print() {
    let at = |a, b| {
        state(&[
            &Fingerprint::of(&(Clock::first(Origin::new(a)), 7u8)),
            &Fingerprint::of(&Clock::first(Origin::new(b))),
        ])
    };
    assert_eq!(at(3, 5).1, at(13, 15).1);
    assert_ne!(at(3, 5).0, at(13, 15).0);
    assert_ne!(at(3, 5).1, at(3, 6).1, "a gap is no shift");
}

#[test]
fn families_shift_apart() {
    let at = |clock, seq| {
        let request = RequestId { user: UserId::first(1), seq };
        state(&[
            &Fingerprint::of(&(Clock::first(Origin::new(clock)), request)),
            &Fingerprint::of(&Clock::first(Origin::new(9))),
        ])
        .1
    };
    assert_eq!(at(4, 1), at(4, 2));
    assert_ne!(at(4, 1), at(5, 1));
}

#[test]
fn links_shift_apart() {
    let stamp = |manager, times| {
        let first = LinkStamp::<0>::first(UserId::first(1), ManagerId(manager));
        (0..times).fold(first, |stamp, _| stamp.next())
    };
    let at = |a, b, c| {
        state(&[&Fingerprint::of(&(stamp(0, a), stamp(1, b))), &Fingerprint::of(&stamp(0, c))]).1
    };
    assert_eq!(at(2, 0, 3), at(7, 4, 8));
    assert_ne!(at(2, 0, 3), at(2, 0, 4));
}

#[test]
fn places_and_plain_numbers_count() {
    let (a, b) = (Fingerprint::of(&1u32), Fingerprint::of(&2u32));
    assert_ne!(state(&[&a, &b]), state(&[&b, &a]));
    assert_ne!(Fingerprint::of(&1u64), Fingerprint::of(&2u64));
}
