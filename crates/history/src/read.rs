//! Reading histories: files that a [`Keeper`](crate::Keeper) has written, or the audit log of an agent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::audit;
use crate::history::History;
use crate::join::Joiner;
use crate::keep;
use crate::line::{Line, VERSION, What};
use crate::note::Note;

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
    #[error("{} is no history: its first line is neither of a history nor of an audit log", .0.display())]
    Other(PathBuf),
}

/// What a file is, by its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A history.
    History,
    /// The audit log of an agent.
    Audit,
    /// Something else: no JSON.
    Other,
}

/// What a file with this text is.
pub fn kind_of(text: &str) -> Kind {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    match serde_json::from_str::<serde_json::Value>(first) {
        Ok(value) if value.get("k").is_some() => Kind::History,
        Ok(value) if value.get("what").is_some() => Kind::Audit,
        _ => Kind::Other,
    }
}

/// Reads a file, or all files of a data directory, oldest first: the history, or where there is none the audit log.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn read(path: &Path) -> Result<History, Unreadable> {
    let files = files(path)?;
    let mut joiner = Joiner::default();
    let mut notes = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let bytes = fs::read(file).map_err(|why| Unreadable::File { path: file.clone(), why })?;
        let text = String::from_utf8_lossy(&bytes);
        add(file, &text, at + 1 == files.len(), &mut joiner, &mut notes)?;
    }
    let mut history = joiner.finish();
    history.notes.splice(..0, notes);
    Ok(history)
}

/// Makes a history of the text of one, which is called this.
///
/// # Errors
/// If it is none, or of a later version.
pub fn parse(name: &str, text: &str) -> Result<History, Unreadable> {
    let (mut joiner, mut notes) = (Joiner::default(), Vec::new());
    add(Path::new(name), text, true, &mut joiner, &mut notes)?;
    let mut history = joiner.finish();
    history.notes.splice(..0, notes);
    Ok(history)
}

fn add(
    path: &Path,
    text: &str,
    last: bool,
    joiner: &mut Joiner,
    notes: &mut Vec<Note>,
) -> Result<(), Unreadable> {
    let file = || path.display().to_string();
    let kind = kind_of(text);
    if kind == Kind::Other && text.lines().nth(1).is_some() {
        return Err(Unreadable::Other(path.into()));
    }
    let (mut bad, mut first_bad) = (0, 0);
    let lines = text.split_inclusive('\n').zip(1..).filter(|(line, _)| !line.trim().is_empty());
    for (line, number) in lines {
        let parsed = match kind {
            Kind::Audit => audit::line(line),
            Kind::History | Kind::Other => serde_json::from_str::<Line>(line).map(Some),
        };
        match parsed {
            Ok(Some(Line { what: What::Begin { v }, .. })) if v > VERSION => {
                return Err(Unreadable::Version { path: path.into(), version: v });
            }
            Ok(Some(line)) => joiner.add(line),
            Ok(None) => {}
            Err(_) if last && !line.ends_with('\n') => {
                notes.push(Note::Torn { file: file(), line: number });
            }
            Err(_) => {
                first_bad = if bad == 0 { number } else { first_bad };
                bad += 1;
            }
        }
    }
    if bad > 0 {
        notes.push(Note::Unreadable { file: file(), line: first_bad, lines: bad });
    }
    Ok(())
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    let wrap = |why| Unreadable::File { path: path.into(), why };
    if !fs::metadata(path).map_err(wrap)?.is_dir() {
        return Ok(vec![path.into()]);
    }
    let kept = keep::files(path).map_err(wrap)?;
    if !kept.is_empty() {
        return Ok(kept.into_iter().map(|(_, file)| file).collect());
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
        audit.extend(number.map(|number| (number, entry.path())));
    }
    if audit.is_empty() {
        return Err(Unreadable::Nothing(path.into()));
    }
    audit.sort();
    Ok(audit.into_iter().rev().map(|(_, file)| file).collect())
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
        fs::write(&file, "{\"t\":1,\"k\":\"begin\",\"v\":99}\n").expect("written");
        assert!(matches!(read(&file), Err(Unreadable::Version { version: 99, .. })));
        assert!(matches!(read(&dir.path().join("no")), Err(Unreadable::File { .. })));
        fs::write(&file, "").expect("written");
        assert!(read(&file).expect("a history").is_empty());
    }
}
