use std::os::unix::fs::PermissionsExt;

use holdall_wire::RequestNo;

use super::*;
use crate::line::{Ask, How};
use crate::note::Note;
use crate::read;

fn ask(at: u64) -> Line {
    let needs = vec!["gpu".parse().expect("a need")];
    let name = Some("night".into());
    Line { at, what: What::Ask(Ask { r: Some(RequestNo(at)), name, needs, ..Ask::default() }) }
}

fn end(at: u64, r: u64) -> Line {
    Line { at, what: What::End { r: RequestNo(r), how: How::Withdrawn, user: None } }
}

fn asked(dir: &Path) -> Vec<u64> {
    read(dir).expect("a history").uses.iter().filter_map(|one| one.asked).collect()
}

#[test]
fn the_oldest_goes_when_there_are_too_many_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { bytes: 4000, ..Retention::default() };
    let mut keeper = Keeper::open(dir.path(), retention, 0).expect("writable");
    for at in 1..=500 {
        keeper.write([ask(at)], None, at).expect("writable");
        let files = files(dir.path()).expect("there");
        let bytes: u64 = files.iter().map(|(_, f)| fs::metadata(f).expect("there").len()).sum();
        assert!(bytes <= 4000 + 100, "{bytes}, and what is written at once");
    }
    let kept = asked(dir.path());
    let first = kept[0];
    assert!(kept.len() > 40 && kept == (first..=500).collect::<Vec<_>>(), "{kept:?}");
}

#[test]
fn pools_are_known_when_the_file_that_told_of_them_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { bytes: 4000, ..Retention::default() };
    let mut keeper = Keeper::open(dir.path(), retention, 0).expect("writable");
    let pool = |name: &str, units| {
        let pool = name.parse().expect("a name");
        Line { at: 1, what: What::Pool { pool, units } }
    };
    let first =
        [pool("gpu", Some(10)), pool("db", None), pool("old", Some(2)), pool("old", Some(0))];
    keeper.write(first, None, 1).expect("writable");
    (2..300).for_each(|at| keeper.write([ask(at)], None, at).expect("writable"));
    drop(keeper);
    let sizes = || -> Vec<_> {
        let history = read(dir.path()).expect("a history");
        history
            .pools()
            .iter()
            .map(|(name, pool)| (name.to_string(), pool.lock, pool.capacity()))
            .collect()
    };
    let expected = [("db".to_owned(), true, 1), ("gpu".to_owned(), false, 10)];
    assert_eq!(sizes(), expected);
    // Whoever goes on is told how it stands.
    let mut keeper = Keeper::open(dir.path(), retention, 300).expect("writable");
    [pool("gpu", Some(10)), pool("db", None)].iter().for_each(|line| keeper.notice(line));
    (300..400).for_each(|at| keeper.write([ask(at)], None, at).expect("writable"));
    assert_eq!(sizes(), expected);
    // There may be more than fit into a file.
    (0..100).for_each(|n| keeper.notice(&pool(&format!("pool{n}"), Some(1))));
    (400..500).for_each(|at| keeper.write([ask(at)], None, at).expect("writable"));
    assert_eq!(sizes(), [("gpu".to_owned(), true, 1)]);
    let told: Vec<_> = keeper.troubles().iter().map(ToString::to_string).collect();
    assert!(!told.is_empty() && told[0].contains("the 102 pools and locks"), "{told:?}");
}

#[test]
fn a_file_that_is_begun_tells_of_the_pools_whatever_goes_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { bytes: 800, ..Retention::default() };
    let mut keeper = Keeper::open(dir.path(), retention, 0).expect("writable");
    let (pool, units) = ("gpu".parse().expect("a name"), Some(10));
    keeper.write([Line { at: 1, what: What::Pool { pool, units } }], None, 1).expect("writable");
    // Whose file is unreadable cannot be told when it was begun, so that no room can be made. Root reads everything.
    let odd = dir.path().join("history-0.jsonl");
    fs::write(&odd, "\n").expect("written");
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o0)).expect("changed");
    let is_root = File::open(&odd).is_ok();
    (2..10).for_each(|at| keeper.write([ask(at)], None, at).expect("writable"));
    drop(fs::set_permissions(&odd, fs::Permissions::from_mode(0o600)));
    let all = files(dir.path()).expect("there");
    let tells = |(_, path): &(u64, PathBuf)| {
        fs::read_to_string(path).expect("there").contains(r#""pool":"gpu","units":10"#)
    };
    let begun = all.iter().filter(|(name, _)| *name > 0);
    assert!(all.len() > 2 && begun.clone().all(tells), "{all:?}");
    let crowded = |trouble: &Trouble| matches!(trouble, Trouble::Crowded(_));
    assert_eq!(keeper.troubles().iter().any(crowded), !is_root);
    assert!(keeper.troubles().is_empty(), "they are told once");
}

#[test]
fn what_is_too_old_goes_and_nothing_younger() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { millis: 80, ..Retention::default() };
    let mut keeper = Keeper::open(dir.path(), retention, 0).expect("writable");
    for at in 1..=300 {
        keeper.write([ask(at)], None, at).expect("writable");
        let kept = asked(dir.path());
        assert!(kept[0] <= 1.max(at.saturating_sub(80)), "{at}: {kept:?}");
        assert!(kept[0] + 80 + 22 >= at, "{at}: {kept:?}");
    }
}

#[test]
fn it_goes_on_after_a_crash_and_tells_what_is_torn() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
    keeper.write([ask(6), ask(7)], None, 7).expect("writable");
    keeper.file.as_mut().expect("a file").0.write_all(b"{\"t\":8,\"k\":\"as").expect("torn");
    drop(keeper);
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
    keeper.write([end(10, 6)], None, 10).expect("writable");
    let history = read(dir.path()).expect("a history");
    assert_eq!((history.uses.len(), history.uses[0].ended), (2, Some(10)));
    assert!(matches!(history.notes[0], Note::Unreadable { line: 4, lines: 1, .. }));
    assert_eq!(files(dir.path()).expect("there").len(), 1);
}

#[test]
fn an_anonymous_history_has_no_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { anonymous: true, ..Retention::default() };
    let mut keeper = Keeper::open(dir.path(), retention, 5).expect("writable");
    keeper.write([ask(6)], None, 6).expect("writable");
    assert_eq!(read(dir.path()).expect("a history").uses[0].name, None);
}

#[test]
fn what_follows_the_last_mark_is_cut_off_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let mark = |upto| Mark { upto, of: "here".into() };
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
    assert_eq!(keeper.mark(), None);
    keeper.write([ask(6)], Some(mark(40)), 6).expect("writable");
    // More than is looked through at once.
    let long = (0..2 * CHUNK).map(|_| 'x').collect::<String>();
    let torn = ask(7).to_text().expect("JSON") + &long;
    keeper.file.as_mut().expect("a file").0.write_all(torn.as_bytes()).expect("torn");
    drop(keeper);
    let keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
    assert_eq!(keeper.mark(), Some(&mark(40)));
    let history = read(dir.path()).expect("a history");
    assert_eq!((history.uses.len(), &history.notes[..]), (1, &[][..]));
}

/// A file that counts how often it is read.
struct Counted<'a>(io::Cursor<&'a [u8]>, usize);

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        self.0.read(into)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_long_line_is_not_looked_through_again_and_again() {
    let mark = Mark { upto: 7, of: "here".into() };
    let line = Line { at: 7, what: What::Mark(mark.clone()) }.to_text().expect("JSON");
    for chunks in [1, 2, 3, 100, 500] {
        let text = line.clone() + &"x".repeat(chunks * CHUNK as usize + 5);
        let mut file = Counted(io::Cursor::new(text.as_bytes()), 0);
        let found = last_mark(&mut file).expect("readable");
        assert_eq!(found, Some((mark.clone(), line.len() as u64)));
        assert!(file.1 < 12, "{chunks}: read {} times", file.1);
    }
}

#[test]
fn a_new_file_goes_as_far_as_the_one_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { bytes: 800, ..Retention::default() };
    let mut keeper = Keeper::open(dir.path(), retention, 5).expect("writable");
    for at in 6..40 {
        let mark = Mark { upto: at, of: "here".into() };
        keeper.write([ask(at)], Some(mark.clone()), at).expect("writable");
        keeper = Keeper::open(dir.path(), retention, at).expect("writable");
        assert_eq!(keeper.mark(), Some(&mark));
    }
    assert!(files(dir.path()).expect("there").len() > 2);
}

#[test]
fn a_file_that_was_begun_and_not_written_does_not_hide_the_mark() {
    let dir = tempfile::tempdir().expect("a directory");
    let mark = |upto| Mark { upto, of: "here".into() };
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
    keeper.write([ask(6)], Some(mark(40)), 6).expect("writable");
    drop(keeper);
    for torn in ["", "{\"t\":7,\"k\":\"beg", "{\"t\":7,\"k\":\"begin\",\"v\":1}\n"] {
        fs::write(dir.path().join("history-7.jsonl"), torn).expect("written");
        let keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
        assert_eq!(keeper.mark(), Some(&mark(40)), "{torn}");
        assert_eq!(files(dir.path()).expect("there").len(), 1, "{torn}");
    }
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
    keeper.write([ask(10)], Some(mark(41)), 10).expect("writable");
    assert_eq!(asked(dir.path()), [6, 10]);
}

#[test]
fn a_file_that_cannot_be_begun_is_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
    fs::create_dir(dir.path().join(NEW)).expect("made");
    keeper.write([ask(6)], None, 6).expect_err("it cannot be begun");
    assert_eq!(files(dir.path()).expect("there").len(), 0);
    fs::remove_dir(dir.path().join(NEW)).expect("removed");
    keeper.write([ask(7)], None, 7).expect("writable");
    assert_eq!(asked(dir.path()), [7]);
}

#[test]
fn what_is_of_a_later_version_is_not_touched_and_gone_on_behind() {
    let mark = |upto| Mark { upto, of: "here".into() };
    let line = |upto| Line { at: 7, what: What::Mark(mark(upto)) }.to_text().expect("JSON");
    let begin = "{\"t\":7,\"k\":\"begin\",\"v\":2}\n".to_owned();
    for (later, upto) in [
        (begin.clone() + &line(50) + "{\"t\":9,\"k\":\"new\"}\n{\"t\":9,\"k\":\"torn", 50),
        (begin.clone() + "{\"t\":8,\"k\":\"new\"}\n", 40),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
        keeper.write([ask(6)], Some(mark(40)), 6).expect("writable");
        drop(keeper);
        let path = dir.path().join("history-700.jsonl");
        fs::write(&path, &later).expect("written");
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
        assert_eq!(keeper.later(), Some((&*path, 2)));
        assert_eq!(keeper.mark(), Some(&mark(upto)));
        keeper.write([ask(10)], Some(mark(60)), 10).expect("writable");
        drop(keeper);
        assert_eq!(fs::read_to_string(&path).expect("there"), later, "it is as it was");
        assert_eq!(asked(dir.path()), [6, 10]);
        // What was begun behind it is gone on with.
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 11).expect("writable");
        assert_eq!((keeper.later(), keeper.mark()), (None, Some(&mark(60))));
        keeper.write([ask(12)], Some(mark(61)), 12).expect("writable");
        assert_eq!(
            (asked(dir.path()), files(dir.path()).expect("there").len()),
            (vec![6, 10, 12], 3)
        );
    }
}

#[test]
fn a_clock_that_goes_forward_and_back_removes_nothing() {
    const DAY: u64 = 24 * 3_600_000;
    let dir = tempfile::tempdir().expect("a directory");
    let (mut keeper, mut kept) = (None, Vec::new());
    for n in 0..40 {
        // Every other day the clock is ten years ahead for a while, and the agent starts again.
        let now = (20_000 + n) * DAY;
        for (k, at) in
            [now, now + 3650 * DAY, now + 3650 * DAY + 1, now + 2].into_iter().enumerate()
        {
            if n % 2 == 0 || keeper.is_none() {
                drop(keeper.take());
                keeper =
                    Some(Keeper::open(dir.path(), Retention::default(), at).expect("writable"));
            }
            let line = Line { what: ask(10 * n + k as u64).what, at };
            keeper.as_mut().expect("open").write([line], None, at).expect("writable");
            kept.push(10 * n + k as u64);
        }
    }
    let requests = |dir| {
        let history = read(dir).expect("a history");
        history.uses.iter().filter_map(|one| Some(one.request?.0)).collect::<Vec<_>>()
    };
    assert_eq!(requests(dir.path()), kept);
    // As time goes on, what is too old goes.
    for n in 40..300 {
        let at = (20_000 + n) * DAY;
        let line = Line { what: ask(10 * n).what, at };
        keeper.as_mut().expect("open").write([line], None, at).expect("writable");
    }
    let left = requests(dir.path());
    assert!((90..115).contains(&left.len()), "{left:?}");
}

#[test]
fn nothing_is_written_through_a_link() {
    let dir = tempfile::tempdir().expect("a directory");
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "theirs\n").expect("written");
    std::os::unix::fs::symlink(&elsewhere, dir.path().join("history-3.jsonl")).expect("a link");
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
    keeper.write([ask(6)], None, 6).expect("writable");
    assert_eq!(fs::read_to_string(&elsewhere).expect("there"), "theirs\n");
    assert_eq!(asked(dir.path()), [6]);
}

#[test]
fn files_of_whatever_times_are_kept_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in [1 << 62, u64::MAX] {
        for begun in [0, 1 << 63, u64::MAX] {
            let odd = dir.path().join(format!("history-{name}.jsonl"));
            let begin = format!("{{\"t\":{begun},\"k\":\"begin\",\"v\":1}}\n");
            fs::write(&odd, &begin).expect("written");
            let retention = Retention { millis: 80, ..Retention::default() };
            let mut keeper = Keeper::open(dir.path(), retention, 5).expect("writable");
            keeper.write([ask(6)], None, 6).expect("writable");
            keeper.write([ask(90)], None, 90).expect("writable");
            assert_eq!(asked(dir.path()).last(), Some(&90));
            for (_, path) in files(dir.path()).expect("there") {
                fs::remove_file(path).expect("removed");
            }
            assert_eq!(odd.exists(), name == u64::MAX, "it is none of a history");
            drop(fs::remove_file(odd));
        }
    }
}

#[test]
fn what_is_seldom_used_is_kept_until_five_more_files_are_begun() {
    const DAY: u64 = 24 * 3_600_000;
    let dir = tempfile::tempdir().expect("a directory");
    let mut keeper = Keeper::open(dir.path(), Retention::default(), 0).expect("writable");
    for n in 1..=12 {
        let at = n * 60 * DAY;
        keeper.write([ask(at)], None, at).expect("writable");
        let (kept, oldest) = (asked(dir.path()), n.saturating_sub(4).max(1));
        assert_eq!(kept, (oldest..=n).map(|n| n * 60 * DAY).collect::<Vec<_>>());
    }
}
