use std::fs;
use std::io::Write;

use super::*;

fn line(at: u64) -> String {
    let who = r#"{"uid":1,"user":"anna","host":"h","pid":2,"from":{"command":"c","name":null,"reason":null}}"#;
    let taken = r#"[{"name":"gpu","units":[["gpu/0",18446744073709551615]]}]"#;
    format!(
        r#"{{"at":{at},"what":"granted","request":"1-{at}","who":{who},"needs":["gpu:2"],"taken":{taken}}}"#
    )
}

fn append(dir: &Path, text: &str) {
    let file = File::options().append(true).create(true).open(dir.join("audit.jsonl"));
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
}

fn add(dir: &Path, at: u64) {
    append(dir, &(line(at) + "\n"));
}

fn rotate(dir: &Path) {
    if dir.join("audit.jsonl.1").exists() {
        fs::rename(dir.join("audit.jsonl.1"), dir.join("audit.jsonl.2")).expect("moved");
    }
    fs::rename(dir.join("audit.jsonl"), dir.join("audit.jsonl.1")).expect("moved");
}

fn times(lines: &[Line]) -> Vec<u64> {
    lines.iter().map(|line| line.at).collect()
}

fn since(audit: &Audit, place: Place) -> Option<Vec<u64>> {
    let found = audit.after(place, None).expect("readable")?;
    assert_eq!(found.left_out, 0);
    Some(found.lines.iter().map(|(line, _)| line.at).collect())
}

#[test]
fn pages_lead_back_through_all_files_whatever_is_rotated_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let audit = Audit::new(dir.path());
    for at in 1..=6 {
        add(dir.path(), at);
        if at % 2 == 0 {
            rotate(dir.path());
        }
    }
    append(dir.path(), &(line(7) + "\nhalf a li"));
    let all = Wanted::default();
    let (lines, place) = audit.before(None, &all, &Reader::OfAll, 3).expect("readable");
    assert_eq!(times(&lines), [7, 6, 5]);
    assert_eq!(lines[0].taken[0].units[0].fence, "18446744073709551615");
    let (lines, place) = audit.before(place, &all, &Reader::OfAll, 1).expect("readable");
    assert_eq!(times(&lines), [4]);
    let place = place.map(|place| place.to_string().parse().expect("it is one"));
    let (lines, place) = audit.before(place, &all, &Reader::OfAll, 9).expect("readable");
    assert_eq!((times(&lines), place), (vec![3], None), "1 and 2 were deleted");
}

#[test]
fn whoever_listens_misses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let audit = Audit::new(dir.path());
    assert_eq!(since(&audit, audit.end().expect("readable")), Some(vec![]));
    add(dir.path(), 1);
    assert_eq!(since(&audit, Place::default()), Some(vec![1]), "it began before all");
    let place = audit.end().expect("readable");
    append(dir.path(), &(line(2) + "\n" + &line(3)));
    let found = audit.after(place, None).expect("readable").expect("known").lines;
    assert_eq!(found.iter().map(|(line, _)| line.at).collect::<Vec<_>>(), [2]);
    let place = found[0].1;
    assert_eq!(audit.end().expect("readable"), place, "half a line is none");
    append(dir.path(), "\n");
    rotate(dir.path());
    assert_eq!(since(&audit, place), Some(vec![3]), "there is no newest file for a moment");
    append(dir.path(), "");
    assert_eq!(since(&audit, audit.end().expect("readable")), Some(vec![]));
    add(dir.path(), 4);
    assert_eq!(since(&audit, place), Some(vec![3, 4]));
    // A crash may have cut a line off.
    append(dir.path(), "half a line\n");
    let upto = audit.end().expect("readable");
    add(dir.path(), 5);
    let found = audit.after(place, Some(upto)).expect("readable").expect("known");
    assert_eq!(found.lines.iter().map(|(line, _)| line.at).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(found.end, upto);
}

/// What was copied, or moved to another disk, has other inodes; what was restored from an older copy has
/// the same beginning, and goes on otherwise.
#[test]
fn places_are_known_by_what_is_written_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let audit = Audit::new(dir.path());
    let log = dir.path().join("audit.jsonl");
    (1..=3).for_each(|at| add(dir.path(), at));
    let copy = fs::read(&log).expect("readable");
    let third = audit.end().expect("readable");
    (4..=5).for_each(|at| add(dir.path(), at));
    let fifth = audit.end().expect("readable");
    fs::remove_file(&log).expect("removed");
    fs::write(&log, &copy).expect("restored");
    assert_eq!(since(&audit, third), Some(vec![]));
    assert_eq!(since(&audit, fifth), None, "it is not there any more");
    // They are as long as those that were there.
    (6..=8).for_each(|at| add(dir.path(), at));
    assert_eq!(since(&audit, third), Some(vec![6, 7, 8]));
    assert_eq!(since(&audit, fifth), None, "something else is there now");
    let (_, next) = audit.before(None, &Wanted::default(), &Reader::OfAll, 2).expect("readable");
    let (lines, _) = audit.before(next, &Wanted::default(), &Reader::OfAll, 2).expect("readable");
    assert_eq!(times(&lines), [6, 3]);
    let (lines, _) =
        audit.before(Some(fifth), &Wanted::default(), &Reader::OfAll, 2).expect("readable");
    assert_eq!(times(&lines), [0; 0]);
}

#[test]
fn of_very_many_the_last_are_told_over_all_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let audit = Audit::new(dir.path());
    // All are of the same length.
    let first = 10_000_000;
    add(dir.path(), first);
    let place = audit.end().expect("readable");
    let length = line(first).len() as u64 + 1;
    let many = CATCH_UP / length;
    for file in 1..=3 {
        let lines = (0..many / 2).map(|n| line(first + file * 1_000_000 + n) + "\n");
        append(dir.path(), &lines.collect::<String>());
        if file < 3 {
            rotate(dir.path());
        }
    }
    let found = audit.after(place, None).expect("readable").expect("known");
    let told = found.lines.len() as u64;
    assert!((many - 4..=many).contains(&told), "{told} of {many}");
    assert_eq!(found.end, audit.end().expect("readable"));
    assert!(found.left_out >= length * (many / 2 - 4), "{}", found.left_out);
}

#[test]
fn of_others_it_is_told_what_happened_and_not_who_they_were() {
    let dir = tempfile::tempdir().expect("a directory");
    let pool = r#"{"at":7,"what":"pool","who":null,"detail":"gpu by root"}"#;
    append(dir.path(), &(line(5) + "\n" + pool + "\n"));
    let read = |uid, user: &str, wanted: Wanted| {
        let reader = Reader::OfOwn { uid, user: user.into() };
        Audit::new(dir.path()).before(None, &wanted, &reader, 9).expect("readable").0
    };
    let own = read(1, "anna", Wanted::default());
    assert_eq!(own[1].who.as_ref().map(|who| &*who.user), Some("anna"));
    for (uid, user) in [(2, "bob"), (2, "anna"), (1, "bob")] {
        let told = read(uid, user, Wanted::default());
        assert_eq!(told[0].detail.as_deref(), Some("gpu by root"), "that is nobody's own");
        assert_eq!((&told[1].who, &told[1].detail), (&None, &None), "{user} {uid}");
        assert_eq!(told[1].taken, own[1].taken);
        // Nor can it be found out by asking for it.
        let text = Some("anna".to_owned());
        for wanted in [
            Wanted { text: text.clone(), ..Wanted::default() },
            Wanted { user: text, ..Wanted::default() },
        ] {
            assert_eq!(times(&read(uid, user, wanted)), [0; 0], "{user} {uid}");
        }
    }
}

#[test]
fn lines_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &(line(5) + "\n" + &line(9) + "\n"));
    let found = |wanted: Wanted| {
        let (lines, _) =
            Audit::new(dir.path()).before(None, &wanted, &Reader::OfAll, 9).expect("readable");
        times(&lines)
    };
    let any = Wanted::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(found(Wanted { since: 6, ..any() }), [9]);
    assert_eq!(found(Wanted { until: Some(9), ..any() }), [5]);
    assert_eq!(found(Wanted { pool: text("gpu"), ..any() }), [9, 5]);
    assert_eq!(found(Wanted { pool: text("gp"), ..any() }), [0; 0]);
    let change = |at: u64, detail: &str| {
        let detail = detail.replace('"', r#"\""#);
        append(dir.path(), &format!(r#"{{"at":{at},"what":"pool","detail":"{detail}"}}"#));
        append(dir.path(), "\n");
    };
    change(
        11,
        r#"{"Drain":{"name":"board/left","drained":{"reason":"gpu","by":"anna","until":null}}}"#,
    );
    change(12, r#"{"Resize":{"name":"gpu","units":5}}"#);
    change(13, "gpu");
    assert_eq!(found(Wanted { pool: text("board"), ..any() }), [11]);
    assert_eq!(found(Wanted { pool: text("gpu"), ..any() }), [12, 9, 5]);
    assert_eq!(found(Wanted { user: text("anna"), request: text("1-5"), ..any() }), [5]);
    assert_eq!(found(Wanted { text: text("GRANTED"), user: text("bob"), ..any() }), [0; 0]);
}
