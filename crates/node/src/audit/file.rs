//! The file of the audit log, and its lines. The log is rotated by size: `audit.jsonl.1` is the newest of
//! the old ones. A line is short however much was asked for, so that a few large requests do not push
//! out what was there.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::Context;
use holdall_wire::{Ask, Need, RequestNo, Taken, Who, needs_size};
use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use crate::directory::Directory;

const NAME: &str = "audit.jsonl";
/// About how many bytes of needs, and of units, a line has at most.
const LIST_MAX: usize = 2048;

/// One line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(super) at: u64,
    pub(super) what: &'static str,
    request: Option<RequestNo>,
    who: Option<Arc<Who>>,
    asked: Option<Arc<Ask>>,
    taken: Option<Arc<[Taken]>>,
    detail: Option<String>,
    left_out: usize,
}

impl Line {
    pub(crate) fn new(at: u64, what: &'static str) -> Self {
        Self { at, what, ..Self::default() }
    }

    pub(crate) fn about(self, request: RequestNo) -> Self {
        Self { request: Some(request), ..self }
    }

    pub(crate) fn of(self, who: Option<Arc<Who>>) -> Self {
        Self { who, ..self }
    }

    pub(crate) fn detail(self, detail: Option<String>) -> Self {
        Self { detail, ..self }
    }

    /// As many needs as there is room for.
    pub(crate) fn asks(mut self, ask: &Arc<Ask>) -> Self {
        let mut room = LIST_MAX;
        let fits = |need: &&Need| {
            let size = need.name.as_str().len() + 8;
            room.checked_sub(size).inspect(|left| room = *left).is_some()
        };
        let shown = ask.needs.iter().take_while(fits).count();
        self.left_out += ask.needs.len() - shown;
        self.asked = Some(if shown == ask.needs.len() {
            ask.clone()
        } else {
            Arc::new(Ask { needs: ask.needs[..shown].to_vec(), ..Ask::clone(ask) })
        });
        self
    }

    /// As many units as there is room for.
    pub(crate) fn taken(mut self, taken: &Arc<[Taken]>) -> Self {
        let size = |one: &Taken| -> usize {
            one.units.iter().map(|(name, _)| name.as_str().len() + 24).sum()
        };
        if taken.iter().map(size).sum::<usize>() <= LIST_MAX {
            self.taken = Some(taken.clone());
            return self;
        }
        let (mut room, mut some) = (LIST_MAX, Vec::new());
        for Taken { name, units } in taken.iter() {
            let fits = |unit: &&(_, u64)| {
                let (name, _): &(holdall_wire::Name, u64) = unit;
                room.checked_sub(name.as_str().len() + 24).inspect(|left| room = *left).is_some()
            };
            let shown: Vec<_> = units.iter().take_while(fits).cloned().collect();
            self.left_out += units.len() - shown.len();
            if !shown.is_empty() {
                some.push(Taken { name: name.clone(), units: shown });
            }
        }
        self.taken = Some(some.into());
        self
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let taken = self.taken.iter().flat_map(|taken| taken.iter());
        let taken: usize = taken.map(|taken| 64 + 64 * taken.units.len()).sum();
        let detail = self.detail.as_ref().map_or(0, String::len);
        let who = self.who.as_ref().map_or(0, |who| who.size());
        let needs = self.asked.as_ref().map_or(0, |ask| needs_size(&ask.needs));
        256 + needs + taken + detail + who
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct Log {
    dir: Arc<Directory>,
    file: File,
    length: u64,
    max: u64,
    files: u32,
    asked: Asked,
    /// Where a part of a line begins that could not be written whole, until it is cut off.
    torn: Option<u64>,
}

/// Those who asked lately, in words: most ask again and again.
#[derive(Debug, Default)]
struct Asked {
    /// By address.
    known: FxHashMap<usize, (Arc<Who>, Box<RawValue>)>,
    bytes: usize,
}

/// How many are kept, and how many bytes of words.
const ASKED_MAX: usize = 1024;
const ASKED_BYTES: usize = 1 << 20;

impl Asked {
    fn words(&mut self, who: &Arc<Who>) -> serde_json::Result<&RawValue> {
        if self.known.len() >= ASKED_MAX || self.bytes >= ASKED_BYTES {
            *self = Self::default();
        }
        // As long as it is here, nobody else is at its address.
        match self.known.entry(Arc::as_ptr(who).addr()) {
            Entry::Occupied(known) => Ok(&known.into_mut().1),
            Entry::Vacant(new) => {
                let words = serde_json::value::to_raw_value(&**who)?;
                self.bytes += words.get().len();
                Ok(&new.insert((who.clone(), words)).1)
            }
        }
    }
}

impl Log {
    /// Opens or begins a log that is rotated at `max` bytes, with so many old ones kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(dir: Arc<Directory>, max: u64, files: u32) -> anyhow::Result<Self> {
        let mut file = dir.append(NAME)?;
        let mut length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            dir.read_only(NAME)?.read_exact_at(&mut last, length - 1)?;
        }
        // What an agent that was killed has left of a line does not spoil the next. A full disk is no reason not to start.
        if last != [b'\n'] && file.write_all(b"\n").is_ok() {
            length += 1;
        }
        Ok(Self { dir, file, length, max, files, asked: Asked::default(), torn: None })
    }

    /// Writes lines, and tells how many of the first it has written.
    ///
    /// # Errors
    /// If the disk does not take the others. Of these nothing is left in the file.
    pub(super) fn write(&mut self, lines: &[Line]) -> (usize, anyhow::Result<()>) {
        let mut written = 0;
        let done = self.write_counted(lines, &mut written);
        (written, done)
    }

    fn write_counted(&mut self, lines: &[Line], written: &mut usize) -> anyhow::Result<()> {
        let mut text = Vec::new();
        for (before, line) in lines.iter().enumerate() {
            let end = text.len();
            self.put_into_words(line, &mut text)?;
            if self.length + end as u64 > 0 && self.length + text.len() as u64 > self.max {
                let last = text.split_off(end);
                self.append(&text)?;
                *written = before;
                self.rotate()?;
                text = last;
            }
        }
        self.append(&text)?;
        *written = lines.len();
        Ok(())
    }

    /// Three lines for each request are most of what is done here: they are put together by hand.
    fn put_into_words(&mut self, line: &Line, text: &mut Vec<u8>) -> serde_json::Result<()> {
        let Line { at, what, request, who, asked, taken, detail, left_out } = line;
        text.extend(b"{\"at\":");
        serde_json::to_writer(&mut *text, at)?;
        text.extend(b",\"what\":");
        serde_json::to_writer(&mut *text, what)?;
        if let Some(request) = request {
            text.extend(b",\"request\":");
            serde_json::to_writer(&mut *text, request)?;
        }
        let who = who.as_ref().map(|who| self.asked.words(who)).transpose()?;
        text.extend(b",\"who\":");
        text.extend(who.map_or("null", RawValue::get).as_bytes());
        if let Some(asked) = asked.as_ref().filter(|asked| !asked.needs.is_empty()) {
            text.extend(b",\"needs\":");
            serde_json::to_writer(&mut *text, &asked.needs)?;
        }
        if let Some(taken) = taken.as_ref().filter(|taken| !taken.is_empty()) {
            text.extend(b",\"taken\":");
            put_taken(taken, text)?;
        }
        if let Some(detail) = detail {
            text.extend(b",\"detail\":");
            serde_json::to_writer(&mut *text, detail)?;
        }
        if *left_out > 0 {
            text.extend(b",\"left_out\":");
            serde_json::to_writer(&mut *text, left_out)?;
        }
        text.extend(b"}\n");
        Ok(())
    }

    fn append(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let written = self.append_whole(text);
        written.with_context(|| format!("cannot write {}", self.dir.path_of(NAME).display()))
    }

    /// Writes all of it or, as far as can be seen, nothing: a part of a line would spoil the next.
    fn append_whole(&mut self, text: &[u8]) -> io::Result<()> {
        self.cut_off()?;
        self.length = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(text) {
            self.torn = Some(self.length);
            let _ = self.cut_off(); // Or before the next is written.
            return Err(error);
        }
        self.length += text.len() as u64;
        Ok(())
    }

    fn cut_off(&mut self) -> io::Result<()> {
        if let Some(whole) = self.torn {
            self.file.set_len(whole)?;
            self.torn = None;
        }
        Ok(())
    }

    /// Another file, which takes lines or does not.
    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    fn rotate(&mut self) -> anyhow::Result<()> {
        let old = |n: u32| format!("{NAME}.{n}");
        for n in (1..self.files).rev() {
            if self.dir.has(&old(n)) {
                self.dir.rename(&old(n), &old(n + 1))?;
            }
        }
        if self.files == 0 {
            self.dir.remove(NAME)?;
        } else if self.dir.has(NAME) {
            // It is not there if it could not be made anew the last time.
            self.dir.rename(NAME, &old(1))?;
        }
        self.file = self.dir.append(NAME)?;
        self.length = 0;
        Ok(())
    }
}

/// What is held, as it is put into words everywhere.
fn put_taken(taken: &[Taken], text: &mut Vec<u8>) -> serde_json::Result<()> {
    let mut before = b'[';
    for Taken { name, units } in taken {
        text.push(before);
        before = b',';
        text.extend(b"{\"name\":");
        serde_json::to_writer(&mut *text, name)?;
        text.extend(b",\"units\":");
        serde_json::to_writer(&mut *text, units)?;
        text.push(b'}');
    }
    text.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    /// A line in words.
    #[derive(Serialize)]
    struct Words<'a> {
        /// When, in milliseconds since 1970.
        at: u64,
        /// What happened.
        what: &'static str,
        /// To which request; one that was turned away at the door has no number.
        #[serde(skip_serializing_if = "Option::is_none")]
        request: Option<RequestNo>,
        /// Whose it is.
        who: Option<&'a RawValue>,
        /// What was asked for.
        #[serde(skip_serializing_if = "<[Need]>::is_empty")]
        needs: &'a [Need],
        /// What is held.
        #[serde(skip_serializing_if = "<[Taken]>::is_empty")]
        taken: &'a [Taken],
        /// More about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
        /// How many needs and units there was no room for.
        #[serde(skip_serializing_if = "is_zero")]
        left_out: usize,
    }

    fn is_zero(n: &usize) -> bool {
        *n == 0
    }

    #[test]
    fn a_line_is_put_together_as_its_words_would_be() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut log = Log::open(own, 1 << 20, 1).expect("writable");
        let name = |text: &str| -> holdall_wire::Name { text.parse().expect("a name") };
        let who = Arc::new(Who { uid: 7, user: "a\"b".into(), ..Who::default() });
        let ask = Arc::new(Ask {
            needs: vec!["gpu:2".parse().expect("a need"), "db".parse().expect("a need")],
            now: false,
            lasting: holdall_wire::Lasting::Connection,
            from: holdall_wire::From::default(),
            within: None,
            limit: None,
            part: None,
        });
        let units = vec![(name("gpu/0"), 3 << 32), (name("gpu/1"), u64::MAX)];
        let db = Taken { name: name("db"), units: Vec::new() };
        let taken: Arc<[Taken]> = [Taken { name: name("gpu"), units }, db].into();
        let detail = |text: &str| Some(text.to_owned());
        let lines = [
            Line::default(),
            Line::new(5, "asked").about(RequestNo(3 << 32 | 17)).of(Some(who.clone())).asks(&ask),
            Line::new(6, "granted").about(RequestNo(1)).of(Some(who)).taken(&taken),
            Line::new(u64::MAX, "pool").detail(detail("{\"a\":\"\\n\u{1}ü\"}")),
            Line { left_out: 9, ..Line::new(7, "ended").taken(&[].into()) },
        ];
        for line in &lines {
            let Line { at, what, request, who, asked, taken, detail, left_out } = line;
            let who = who.as_ref().map(|who| serde_json::value::to_raw_value(&**who));
            let who = who.transpose().expect("JSON");
            let words = Words {
                at: *at,
                what,
                request: *request,
                who: who.as_deref(),
                needs: asked.as_ref().map_or(&[], |ask| &ask.needs),
                taken: taken.as_deref().unwrap_or_default(),
                detail: detail.as_deref(),
                left_out: *left_out,
            };
            let expected = serde_json::to_string(&words).expect("JSON") + "\n";
            let mut text = Vec::new();
            log.put_into_words(line, &mut text).expect("JSON");
            assert_eq!(String::from_utf8(text).expect("text"), expected);
        }
    }

    #[test]
    fn large_requests_do_not_push_the_others_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut log = Log::open(own, 1 << 20, 1).expect("writable");
        let name = |n: u32| format!("{}{n:04}", "x".repeat(190)).parse().expect("a name");
        let need = |n| Need { name: name(n), amount: holdall_wire::Amount::One };
        let ask = Arc::new(Ask {
            needs: (0..1000).map(need).collect(),
            now: false,
            lasting: holdall_wire::Lasting::Connection,
            from: holdall_wire::From::default(),
            within: None,
            limit: None,
            part: None,
        });
        let units = (0..60_000).map(|n| (name(n % 1000), u64::MAX)).collect();
        let all = [Taken { name: name(0), units }].into();
        // The first one is somebody else's.
        log.write(&[Line::new(0, "granted")]).1.expect("writable");
        for n in 1..101 {
            let line = Line::new(n, "granted").about(RequestNo(n)).asks(&ask).taken(&all);
            assert!(line.bytes() < 10_000);
            log.write(&[line]).1.expect("writable");
        }
        let text = std::fs::read_to_string(dir.path().join(NAME)).expect("it is there");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 101, "everything is still in one file");
        assert_eq!(lines[0].get("left_out"), None);
        let shown = lines[1]["needs"].as_array().expect("a list").len()
            + lines[1]["taken"][0]["units"].as_array().expect("a list").len();
        assert_eq!(lines[1]["left_out"].as_u64(), Some(61_000 - shown as u64));
        assert!(shown > 15);
    }

    #[test]
    fn the_log_is_rotated_and_old_ones_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut log = Log::open(own, 150, 2).expect("writable");
        for n in 0..6 {
            let line = Line::new(n, "asked").about(RequestNo(n)).detail(Some("x".repeat(40)));
            log.write(&[line]).1.expect("writable");
        }
        let at = |name: &str| -> Vec<u64> {
            let text = std::fs::read_to_string(dir.path().join(name)).expect("it is there");
            let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
            text.lines().map(|l| line(l)["at"].as_u64().expect("a number")).collect()
        };
        assert_eq!(at("audit.jsonl"), [5]);
        assert_eq!(at("audit.jsonl.1"), [4]);
        assert_eq!(at("audit.jsonl.2"), [3]);
        assert!(!dir.path().join("audit.jsonl.3").exists());
    }
    #[test]
    fn what_is_left_of_a_line_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = || Arc::new(Directory::private(dir.path()).expect("ours"));
        let path = dir.path().join(NAME);
        let lines = || std::fs::read_to_string(&path).expect("it is there").lines().count();
        let tear = || {
            let mut file = File::options().append(true).open(&path).expect("it is there");
            file.write_all(b"{\"at\":1").expect("writable");
        };
        let mut log = Log::open(own(), 1 << 20, 1).expect("writable");
        log.write(&[Line::new(0, "asked")]).1.expect("writable");
        // The disk is full after a part of the second.
        let full = File::options().append(true).open("/dev/full").expect("it is there");
        log.torn = Some(log.length);
        tear();
        let file = log.replace_file(full);
        let (written, done) = log.write(&[Line::new(1, "asked"), Line::new(1, "asked")]);
        assert!(written == 0 && done.is_err());
        log.replace_file(file);
        log.write(&[Line::new(2, "asked")]).1.expect("writable");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let whole = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        assert!(lines() == 2 && text.lines().all(whole), "{text}");
        // An agent was killed after a part of the third.
        tear();
        let mut log = Log::open(own(), 1 << 20, 1).expect("writable");
        log.write(&[Line::new(3, "asked")]).1.expect("writable");
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert!(lines() == 4 && text.lines().last().is_some_and(whole), "{text}");
    }
}
