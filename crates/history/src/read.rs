//! Reading histories: files that a [`Keeper`](crate::Keeper) has written, the audit log of an agent, or logs of other sites.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::audit;
use crate::history::History;
use crate::join::Joiner;
use crate::keep;
use crate::line::{Line, VERSION, What};
use crate::note::Note;
use crate::replay::Replay;
use crate::swf::{BadSwf, Jobs};
use crate::text::{Allowance, TextLine, each_line};

/// Why there is no history to be had.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// There is neither a history nor an audit log.
    #[error("{} has no history: neither history-*.jsonl nor audit.jsonl", .0.display())]
    Nothing(PathBuf),
    /// It was written by a later version.
    #[error("{} is a history of version {version}, and this program knows {VERSION}: use a newer one", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It is something else.
    #[error("{} is no history: it begins neither with lines of a history nor with those of an audit log (`holdall sim --trace` and `--record` make one of \
             a log in the Standard Workload Format)", .0.display())]
    Other(PathBuf),
    /// It is no log of the Standard Workload Format, either.
    #[error("{}: {why}", path.display())]
    Swf {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: BadSwf,
    },
    /// It is packed, as archives serve their logs.
    #[error("{} is packed: unpack it first, with gunzip", .0.display())]
    Packed(PathBuf),
    /// There are more requests than fit.
    #[error("{} has more than {MOST_REQUESTS} requests: give a part of it, such as one of its files", .0.display())]
    TooMany(PathBuf),
}

/// So many requests are read of a history at most.
const MOST_REQUESTS: usize = 5_000_000;

/// Of a file that may be anything so many lines are looked at until one tells what it is: the first ones may be damaged.
const MOST_BAD: usize = 1000;

/// How a file begins that is packed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A history.
    History,
    /// The audit log of an agent.
    Audit,
}

/// What a file is, by one of its lines, if that tells.
fn kind_of(line: &str) -> Option<Kind> {
    let value = serde_json::from_str::<serde_json::Value>(line).ok()?;
    let kinds = [("k", Kind::History), ("what", Kind::Audit)];
    kinds.into_iter().find(|(key, _)| value.get(key).is_some()).map(|(_, kind)| kind)
}

/// Requests that were recorded.
#[derive(Debug)]
pub enum Recorded {
    /// By an agent.
    History(History),
    /// At another site.
    Replay(Replay),
}

/// Reads a file, or all files of a data directory, oldest first: the history, or where there is none the audit log.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn read(path: &Path) -> Result<History, Unreadable> {
    read_told(path, &|_| {})
}

/// The same; `told` is told now and then how many bytes were read.
///
/// # Errors
/// As for [`read`].
pub fn read_told(path: &Path, told: &dyn Fn(u64)) -> Result<History, Unreadable> {
    let mut reader = Reader::new(told, false);
    reader.read(path)?;
    reader.finish()
}

/// Reads a history like [`read_told`], or a log in the Standard Workload Format.
///
/// # Errors
/// If it is neither, or cannot be read.
pub fn read_trace(path: &Path, told: &dyn Fn(u64)) -> Result<Recorded, Unreadable> {
    let mut reader = Reader::new(told, true);
    reader.read(path)?;
    match reader.found.jobs.take() {
        Some(jobs) => {
            let replay = jobs.finish(&path.display().to_string());
            let replay = replay.map_err(|why| Unreadable::Swf { path: path.into(), why })?;
            Ok(Recorded::Replay(replay))
        }
        None => reader.finish().map(Recorded::History),
    }
}

/// Makes a history of the text of one, which is called this.
///
/// # Errors
/// If it is none, or of a later version.
pub fn parse(name: &str, text: &str) -> Result<History, Unreadable> {
    let mut reader = Reader::new(&|_| {}, false);
    reader.add(Path::new(name), text.as_bytes(), Some(Kind::History), true)?;
    reader.finish()
}

struct Reader<'a> {
    allowance: Allowance<'a>,
    found: Found,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    joiner: Joiner,
    notes: Vec<Note>,
    /// Whether it may be a log of another site, and if it is, its jobs.
    takes_swf: bool,
    jobs: Option<Jobs>,
    /// The first file of a later version, which is left out.
    later: Option<(PathBuf, u32)>,
    /// Whether there was anything else.
    any: bool,
}

/// A file that is being read.
struct Reading<'p> {
    path: &'p Path,
    /// What it is, if that is known.
    kind: Option<Kind>,
    /// Whether it is the last one, which may be written to.
    is_last: bool,
    /// Whether what comes is of a later version.
    is_later: bool,
    /// What cannot be read.
    bad: Bad,
}

impl<'a> Reader<'a> {
    fn new(told: &'a dyn Fn(u64), takes_swf: bool) -> Self {
        let found = Found { takes_swf, ..Found::default() };
        Self { allowance: Allowance::new(told), found }
    }

    fn read(&mut self, path: &Path) -> Result<(), Unreadable> {
        self.found.takes_swf &= !path.is_dir();
        let (files, kind) = files(path)?;
        for (at, path) in files.iter().enumerate() {
            let file = File::open(path);
            let file = file.map_err(|why| Unreadable::File { path: path.clone(), why })?;
            let mut file = BufReader::with_capacity(1 << 16, file);
            // What goes wrong here does so again when it is read.
            if file.fill_buf().is_ok_and(|begin| begin.starts_with(&GZIP)) {
                return Err(Unreadable::Packed(path.clone()));
            }
            self.add(path, file, kind, at + 1 == files.len())?;
        }
        Ok(())
    }

    /// Adds a file, which may be the last one, and may be of any kind if that is not known.
    fn add(
        &mut self,
        path: &Path,
        from: impl BufRead,
        kind: Option<Kind>,
        is_last: bool,
    ) -> Result<(), Unreadable> {
        let mut file = Reading { path, kind, is_last, is_later: false, bad: Bad::default() };
        let Self { allowance, found } = self;
        let take = |line: TextLine<'_>| found.line(&mut file, &line).map_err(Broken::Is);
        each_line(from, allowance, take).map_err(|broken| match broken {
            Broken::Is(error) => error,
            Broken::Io(why) => Unreadable::File { path: path.into(), why },
        })?;
        found.end(&file)
    }

    /// The history, unless all there is of it is of a later version.
    fn finish(self) -> Result<History, Unreadable> {
        let Found { joiner, notes, later, any, .. } = self.found;
        if let Some((path, version)) = later.filter(|_| !any) {
            return Err(Unreadable::Version { path, version });
        }
        let mut history = joiner.finish();
        history.notes.splice(..0, notes);
        Ok(history)
    }
}

impl Found {
    fn line(&mut self, file: &mut Reading<'_>, line: &TextLine<'_>) -> Result<(), Unreadable> {
        let TextLine { number, text, is_whole } = line;
        if text.trim().is_empty() {
            return Ok(());
        }
        if file.kind.is_none() && self.jobs.as_ref().is_none_or(Jobs::is_empty) {
            file.kind = kind_of(text);
        }
        let parsed = match file.kind {
            Some(Kind::Audit) => audit::line(text),
            Some(Kind::History) => serde_json::from_str::<Line>(text).map(Some),
            None => return self.unknown(file, *number, text),
        };
        if let Ok(Some(Line { what: What::Begin { v }, .. })) = &parsed {
            self.begin(file, *v);
        }
        if file.is_later {
            return Ok(());
        }
        self.any = true;
        match parsed {
            Ok(Some(line)) => self.joiner.add(line),
            Ok(None) => {}
            Err(_) if file.is_last && !is_whole => {
                self.notes.push(Note::Torn { file: file.name(), line: *number });
            }
            Err(_) => file.bad.add(*number),
        }
        match self.joiner.requests() > MOST_REQUESTS {
            true => Err(Unreadable::TooMany(file.path.into())),
            false => Ok(()),
        }
    }

    /// A line of a file of which it is not known what it is.
    fn unknown(
        &mut self,
        file: &mut Reading<'_>,
        number: usize,
        text: &str,
    ) -> Result<(), Unreadable> {
        file.bad.add(number);
        if self.takes_swf {
            let added = self.jobs.get_or_insert_default().add(number, text);
            return added.map_err(|why| Unreadable::Swf { path: file.path.into(), why });
        }
        match file.bad.lines > MOST_BAD {
            true => Err(Unreadable::Other(file.path.into())),
            false => Ok(()),
        }
    }

    /// What comes is of this version.
    fn begin(&mut self, file: &mut Reading<'_>, version: u32) {
        file.is_later = version > VERSION;
        if file.is_later {
            self.notes.push(Note::Later { file: file.name(), version });
            self.later.get_or_insert_with(|| (file.path.to_owned(), version));
        }
    }

    /// There is no more of a file.
    fn end(&mut self, file: &Reading<'_>) -> Result<(), Unreadable> {
        let (lines, line) = (file.bad.lines, file.bad.first);
        match file.kind {
            // A log of another site, which tells itself what of it cannot be read.
            None if self.jobs.is_some() => return Ok(()),
            None if lines > 0 => return Err(Unreadable::Other(file.path.into())),
            _ => self.jobs = None,
        }
        let note = || Note::Unreadable { file: file.name(), line, lines };
        self.notes.extend((lines > 0).then(note));
        Ok(())
    }
}

impl Reading<'_> {
    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Lines that cannot be read: how many, and the number of the first.
#[derive(Default)]
struct Bad {
    lines: usize,
    first: usize,
}

impl Bad {
    fn add(&mut self, number: usize) {
        self.first = if self.lines == 0 { number } else { self.first };
        self.lines += 1;
    }
}

/// Why lines are not taken any more.
enum Broken {
    Is(Unreadable),
    Io(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The files that are to be read, oldest first, and what they are if their names tell.
fn files(path: &Path) -> Result<(Vec<PathBuf>, Option<Kind>), Unreadable> {
    let wrap = |why| Unreadable::File { path: path.into(), why };
    if !fs::metadata(path).map_err(wrap)?.is_dir() {
        return Ok((vec![path.into()], None));
    }
    let kept = keep::files(path).map_err(wrap)?;
    if !kept.is_empty() {
        return Ok((kept.into_iter().map(|(_, file)| file).collect(), Some(Kind::History)));
    }
    let mut audit: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(path).map_err(wrap)? {
        let entry = entry.map_err(wrap)?;
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix("audit.jsonl"));
        let number = rest.and_then(|rest| match rest.strip_prefix('.') {
            Some(number) => number.parse().ok(),
            None => rest.is_empty().then_some(0),
        });
        let number = number.filter(|_| entry.path().metadata().is_ok_and(|file| file.is_file()));
        audit.extend(number.map(|number| (number, entry.path())));
    }
    if audit.is_empty() {
        return Err(Unreadable::Nothing(path.into()));
    }
    audit.sort();
    Ok((audit.into_iter().rev().map(|(_, file)| file).collect(), Some(Kind::Audit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: &str = "{\"t\":1,\"k\":\"ask\",\"r\":\"1-1\",\"needs\":[\"db\"]}\n";

    #[test]
    fn damaged_files_are_read_as_far_as_they_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("history-1.jsonl");
        let text = format!("{ASK}what is this\n\n{{\"t\":2,\"k\":\"gr");
        fs::write(&file, text).expect("written");
        let history = read(dir.path()).expect("a history");
        assert_eq!(history.uses.len(), 1);
        let file = file.display().to_string();
        assert_eq!(
            history.notes,
            [
                Note::Torn { file: file.clone(), line: 4 },
                Note::Unreadable { file, line: 2, lines: 1 }
            ]
        );
    }

    #[test]
    fn a_file_whose_first_lines_are_damaged_is_read_all_the_same() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("history-5.jsonl");
        let damaged = "\0\0\0\n\u{fffd}{\"t\":\n";
        fs::write(&file, damaged.to_owned() + ASK).expect("written");
        let unreadable = Note::Unreadable { file: file.display().to_string(), line: 1, lines: 2 };
        let Recorded::History(traced) = read_trace(&file, &|_| {}).expect("a history") else {
            panic!("it is no log of another site")
        };
        for history in [read(&file).expect("a history"), traced] {
            assert_eq!((history.uses.len(), &history.notes[..]), (1, &[unreadable.clone()][..]));
        }
        // The agent's own files are what they are called, however damaged they are, and others are not lost for one.
        fs::write(dir.path().join("history-1.jsonl"), damaged).expect("written");
        fs::write(dir.path().join("history-9.jsonl"), ASK.replace("1-1", "1-2")).expect("written");
        let history = read(dir.path()).expect("a history");
        assert_eq!((history.uses.len(), history.notes.len()), (2, 2), "{history:?}");
        fs::write(&file, "what is this\n".repeat(2 * MOST_BAD) + ASK).expect("written");
        assert!(matches!(read(&file), Err(Unreadable::Other(_))), "it is something else");
    }

    #[test]
    fn the_audit_log_is_read_oldest_first_where_there_is_no_history() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(read(dir.path()), Err(Unreadable::Nothing(_))));
        let line = |at: u64, what: &str| {
            format!("{{\"at\":{at},\"what\":\"{what}\",\"request\":\"1-1\",\"who\":null}}\n")
        };
        for (name, text) in [
            ("audit.jsonl", line(30, "released")),
            ("audit.jsonl.1", line(20, "granted")),
            ("audit.jsonl.2", line(10, "asked")),
        ] {
            fs::write(dir.path().join(name), text).expect("written");
        }
        let history = read(dir.path()).expect("a history");
        assert_eq!((history.uses[0].waited(), history.uses[0].held()), (Some(10), Some(10)));
        fs::write(dir.path().join("history-1.jsonl"), ASK).expect("written");
        assert_eq!(read(dir.path()).expect("a history").uses[0].granted, None);
    }

    #[test]
    fn what_is_no_history_or_too_new_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "1 2 3\n4 5 6\n").expect("written");
        assert!(matches!(read(&file), Err(Unreadable::Other(_))));
        fs::write(&file, b"\x1f\x8b\x08\x00\n").expect("written");
        assert!(matches!(read(&file), Err(Unreadable::Packed(_))));
        assert!(matches!(read_trace(&file, &|_| {}), Err(Unreadable::Packed(_))));
        fs::write(&file, "{\"t\":1,\"k\":\"begin\",\"v\":99}\n").expect("written");
        assert!(matches!(read(&file), Err(Unreadable::Version { version: 99, .. })));
        assert!(matches!(read(&dir.path().join("no")), Err(Unreadable::File { .. })));
        fs::write(&file, "").expect("written");
        assert!(read(&file).expect("a history").is_empty());
    }

    #[test]
    fn what_is_of_a_later_version_is_left_out_beside_what_is_not() {
        let later = "{\"t\":1,\"k\":\"begin\",\"v\":2}\n{\"t\":1,\"k\":\"ask\",\"r\":\"1-9\",\"needs\":[\"x\"]}\n";
        let ours = format!("{{\"t\":1,\"k\":\"begin\",\"v\":1}}\n{ASK}");
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in [("history-1.jsonl", &*ours), ("history-2.jsonl", later)] {
            fs::write(dir.path().join(name), text).expect("written");
        }
        // As files, and as an agent tells it.
        let told = parse("it", &format!("{later}{ours}{later}")).expect("a history");
        let histories = [(read(dir.path()).expect("a history"), 1), (told, 2)];
        for (history, left_out) in histories {
            assert_eq!(history.uses.len(), 1, "{history:?}");
            assert!(matches!(history.notes[0], Note::Later { version: 2, .. }));
            assert_eq!(history.notes.len(), left_out);
        }
    }

    #[test]
    fn whatever_is_given_it_comes_to_an_end() {
        let too_large = |error: &Unreadable| matches!(error, Unreadable::File { why, .. } if why.kind() == io::ErrorKind::FileTooLarge);
        let told = std::cell::Cell::new(0);
        let zeros = read_told(Path::new("/dev/zero"), &|bytes| told.set(bytes));
        assert!(too_large(&zeros.expect_err("it has no end")));
        assert!(told.get() > 1 << 29, "{}", told.get());
        let noise = read_trace(Path::new("/dev/urandom"), &|_| {});
        assert!(matches!(noise, Err(Unreadable::Swf { .. })), "{noise:?}");
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_passed_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = std::process::Command::new("mkfifo")
            .args(["history-5.jsonl", "audit.jsonl"].map(|name| dir.path().join(name)))
            .status();
        assert!(made.expect("mkfifo").success());
        assert!(matches!(read(dir.path()), Err(Unreadable::Nothing(_))));
        fs::write(dir.path().join("history-1.jsonl"), ASK).expect("written");
        assert_eq!(read(dir.path()).expect("a history").uses.len(), 1);
    }
}
