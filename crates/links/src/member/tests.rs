use proptest::prelude::*;

use super::*;

const CELLS: u128 = 4;

fn any_part() -> impl Strategy<Value = Part> {
    let member = (any::<bool>(), 0u64..4, 0u64..3, "[ab]", any::<bool>()).prop_map(
        |(removed, version, since, name, signs)| {
            let name = name.parse().expect("a name");
            let addresses = vec![format!("host:{since}")];
            Part::Member(Member { removed, version, since, name, addresses, signs })
        },
    );
    let bytes = || proptest::collection::vec(0u8..3, 0..3);
    let about =
        (0u64..4, bytes()).prop_map(|(version, bytes)| Part::About(About { version, bytes }));
    let forgotten =
        (0u64..4, bytes()).prop_map(|(version, word)| Part::Forgotten(Forgotten { version, word }));
    prop_oneof![member, about, forgotten]
}

fn any_records() -> impl Strategy<Value = Vec<Record>> {
    let record =
        (0..CELLS, any_part()).prop_map(|(cell, part)| Record { cell: CellId(cell), part });
    proptest::collection::vec(record, 0..12)
}

/// Somebody who is not among the cells that are told of.
fn stranger() -> Roster {
    Roster::new(CellId(99), Vec::new())
}

fn merged(parts: &[&[Record]]) -> Roster {
    let mut roster = stranger();
    for part in parts {
        roster.merge(part.to_vec()).expect("sound");
    }
    roster
}

/// What one may do alone.
#[derive(Clone, Debug)]
enum Deed {
    Address(u8),
    About(u8),
    Remove(u128),
    Forget(u128, u8),
    /// One tells another some of what it knows.
    Tell(u128, u128, u8),
    /// One goes on from what it knew at the start, as after a directory was put back.
    Restored(u128),
}

fn any_deed() -> impl Strategy<Value = (u128, Deed)> {
    let deed = prop_oneof![
        any::<u8>().prop_map(Deed::Address),
        any::<u8>().prop_map(Deed::About),
        (0..CELLS).prop_map(Deed::Remove),
        (0..CELLS, any::<u8>()).prop_map(|(cell, word)| Deed::Forget(cell, word)),
        (0..CELLS, 0..CELLS, any::<u8>()).prop_map(|(a, b, n)| Deed::Tell(a, b, n)),
        (0..CELLS).prop_map(Deed::Restored),
    ];
    (0..CELLS, deed)
}

fn founded() -> Vec<Roster> {
    let mut first = stranger();
    for cell in 0..CELLS {
        first.add(CellId(cell), &"a".parse().expect("a name"), &[], 0).expect("room");
    }
    (0..CELLS).map(|own| Roster::new(CellId(own), first.records())).collect()
}

/// One tells the other what it lacks, as over a link.
fn tell(all: &mut [Roster], from: usize, to: usize, limit: usize) {
    let mut lacking = all[from].unknown_to(&all[to].known());
    lacking.truncate(limit);
    all[to].merge(lacking).expect("sound");
}

proptest! {
    #[test]
    fn merging_commutes_associates_and_is_idempotent(
        a in any_records(), b in any_records(), c in any_records()
    ) {
        let all = merged(&[&a, &b, &c]);
        prop_assert_eq!(&merged(&[&c, &b, &a]), &all);
        prop_assert_eq!(&merged(&[&b, &merged(&[&c, &a]).records()]), &all);
        let mut again = all.clone();
        prop_assert_eq!(again.merge([a, b, c].concat()).expect("sound"), vec![]);
        prop_assert_eq!(again, all);
    }

    #[test]
    fn what_is_new_is_all_that_others_need(a in any_records(), b in any_records()) {
        let mut one = merged(&[&a]);
        let mut other = one.clone();
        let news = one.merge(b).expect("sound");
        other.merge(news).expect("sound");
        prop_assert_eq!(one, other);
    }

    #[test]
    fn all_come_to_know_the_same(deeds in proptest::collection::vec(any_deed(), 0..40)) {
        let mut all = founded();
        let mut removed = [false; CELLS as usize];
        for (who, deed) in deeds {
            let roster = &mut all[who as usize];
            match deed {
                Deed::Address(n) => drop(roster.say_member(&[format!("h:{n}")], n % 2 == 0)),
                Deed::About(n) => drop(roster.say_about(vec![n])),
                Deed::Remove(cell) => {
                    roster.remove(CellId(cell), 7);
                    removed[cell as usize] = true;
                }
                Deed::Forget(cell, n) => drop(roster.forget(CellId(cell), vec![n])),
                Deed::Tell(from, to, n) => tell(&mut all, from as usize, to as usize, n as usize),
                // What a cell alone knew is lost with its directory, so all are told before.
                Deed::Restored(cell) => {
                    for to in 0..CELLS as usize {
                        tell(&mut all, cell as usize, to, usize::MAX);
                    }
                    all[cell as usize] = founded().swap_remove(cell as usize);
                }
            }
        }
        let said: Vec<_> = all.iter().map(|it| (it.about(it.own).cloned(), it.member(it.own).cloned())).collect();
        // Around the ring twice there and back: a cell's last word about itself may take a second round.
        for _ in 0..4 {
            for from in 0..CELLS as usize {
                for to in 0..CELLS as usize {
                    tell(&mut all, from, to, usize::MAX);
                }
            }
        }
        for roster in &all {
            prop_assert_eq!(&roster.parts, &all[0].parts);
        }
        for (cell, (about, member)) in said.into_iter().enumerate() {
            let id = CellId(cell as u128);
            prop_assert_eq!(all[0].is_removed(id), removed[cell], "removed is for good");
            if let (Some(about), Some(known)) = (about, all[0].about(id)) {
                prop_assert_eq!(&about.bytes, &known.bytes, "a cell has the last word");
            }
            if !removed[cell] {
                let (member, known) = (member.expect("there"), all[0].member(id).expect("there"));
                prop_assert_eq!(&member.addresses, &known.addresses);
            }
        }
    }

    #[test]
    fn whoever_knows_the_same_is_told_nothing(a in any_records()) {
        let roster = merged(&[&a]);
        prop_assert_eq!(roster.unknown_to(&roster.known()), vec![]);
        prop_assert_eq!(roster.unknown_to(&[]), roster.records());
    }
}

#[test]
fn who_was_removed_stays_removed() {
    let mut all = founded();
    let news = all[0].remove(CellId(1), 5).expect("a member");
    assert!(all[0].remove(CellId(1), 6).is_none(), "only once");
    all[1].say_member(&["new:1".into()], true).expect("it does not know yet");
    let own = all[1].records();
    assert!(all[0].merge(own).expect("sound").is_empty());
    all[1].merge(vec![news]).expect("sound");
    assert!(all[1].is_removed(CellId(1)));
    assert!(all[1].say_member(&["other:1".into()], true).is_none());
    assert!(all[0].add(CellId(1), &"b".parse().expect("a name"), &[], 9).is_none());
    assert_eq!(all[0].named("a").count(), CELLS as usize - 1);
}

#[test]
fn what_is_beyond_the_bounds_is_refused_as_a_whole() {
    let mut roster = stranger();
    let good = Record { cell: CellId(1), part: Part::About(About { version: 1, bytes: vec![1] }) };
    let long = Part::About(About { version: 1, bytes: vec![0; ABOUT_MAX + 1] });
    let late = Part::Forgotten(Forgotten { version: u64::MAX, word: vec![] });
    for part in [long, late] {
        let bad = Record { cell: CellId(2), part };
        assert_eq!(roster.merge(vec![good.clone(), bad]), Err(Unsound(CellId(2))));
    }
    assert_eq!(roster.records(), vec![]);
}

#[test]
fn the_highest_version_makes_nobody_unsound() {
    let own = CellId(1);
    let mut roster = founded().swap_remove(1);
    roster.say_about(vec![1]).expect("new");
    let member = Member { version: VERSION_MAX, ..roster.member(own).expect("itself").clone() };
    let parts = [
        Part::Member(Member { addresses: vec!["h:1".into()], ..member }),
        Part::About(About { version: VERSION_MAX, bytes: vec![2] }),
        Part::Forgotten(Forgotten { version: VERSION_MAX, word: vec![] }),
    ];
    let told = parts.map(|part| Record { cell: own, part }).to_vec();
    roster.merge(told).expect("sound");
    roster.say_about(vec![3]).expect("new");
    roster.say_member(&["h:3".into()], true).expect("new");
    roster.forget(own, vec![3]).expect("room");
    roster.add(own, &"a".parse().expect("a name"), &[], 0).expect("room");
    assert!(roster.records().iter().all(|record| record.check().is_ok()));
    assert_eq!(roster.about(own).expect("said").bytes, [3]);
}

#[test]
fn no_more_cells_are_taken_than_fit() {
    let mut roster = stranger();
    let about = |cell| Record {
        cell: CellId(cell),
        part: Part::About(About { version: 1, bytes: vec![] }),
    };
    let told = (0..CELLS_MAX as u128 + 9).map(about).collect();
    assert_eq!(roster.merge(told).expect("sound").len(), CELLS_MAX);
    assert!(roster.forget(CellId(3), vec![]).is_some(), "one that is known");
    assert!(roster.forget(CellId(5000), vec![]).is_none());
}
