//! The audit log, read from its files: newest first for whoever asks, and from a point on for those who
//! listen.
//!
//! The agent rotates it: `audit.jsonl` is the newest, `audit.jsonl.1` the one before. A place in it is the number of a
//! file (its inode) and an offset, so that it is found again after a rotation.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use holdall_wire as wire;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::view::{Taken, Who};

/// How much is read at once for those who listen; what is more is left out.
const CATCH_UP: u64 = 8 << 20;
/// How far the clock may have been set back between two lines.
const SET_BACK: u64 = 3_600_000;

/// A line of the audit log. What does not apply is left out.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Line {
    /// When, in milliseconds since 1970.
    pub(crate) at: u64,
    /// What happened: `asked`, `granted`, `released`, `pool`, ...
    pub(crate) what: String,
    /// To which request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) who: Option<Who>,
    /// What was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs: Vec<String>,
    /// What is held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taken: Vec<Taken>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// How many needs and units there was no room for.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A line as it is in the file.
#[derive(Deserialize)]
struct Kept {
    at: u64,
    what: String,
    request: Option<String>,
    who: Option<Who>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    taken: Vec<wire::Taken>,
    detail: Option<String>,
    #[serde(default)]
    left_out: u64,
}

impl Line {
    /// None for what is no line: a crash may have cut one off.
    fn read(text: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(text).ok()?;
        Some(Self {
            at: kept.at,
            what: kept.what,
            request: kept.request,
            who: kept.who,
            needs: kept.needs,
            taken: kept.taken.iter().map(Into::into).collect(),
            detail: kept.detail,
            left_out: kept.left_out,
        })
    }

    /// A line that says what is missing.
    pub(crate) fn missing(at: u64, detail: &str) -> Self {
        Self {
            at,
            what: "left-out".into(),
            request: None,
            who: None,
            needs: Vec::new(),
            taken: Vec::new(),
            detail: Some(detail.into()),
            left_out: 0,
        }
    }
}

/// A place in the log: before the line that begins there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    file: u64,
    offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}", self.file, self.offset)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (file, offset) = text.split_once('.').ok_or(())?;
        let number = |text| u64::from_str_radix(text, 16).map_err(drop);
        Ok(Self { file: number(file)?, offset: number(offset)? })
    }
}

/// Which lines are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) since: u64,
    pub(crate) until: Option<u64>,
    pub(crate) request: Option<String>,
    pub(crate) pool: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) text: Option<String>,
}

impl Wanted {
    fn takes(&self, line: &Line, text: &[u8]) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let of_pool = |pool: &str| {
            let inside = |name: &str| {
                let rest = name.strip_prefix(pool);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
            };
            line.needs.iter().any(|need| inside(need))
                || line.taken.iter().any(|taken| inside(&taken.name))
        };
        let has = |wanted: &str| {
            let text = String::from_utf8_lossy(text).to_lowercase();
            text.contains(&wanted.to_lowercase())
        };
        line.at >= self.since
            && self.until.is_none_or(|until| line.at < until)
            && is(&self.request, line.request.as_deref())
            && is(&self.user, line.who.as_ref().map(|who| who.user.as_str()))
            && self.pool.as_deref().is_none_or(of_pool)
            && self.text.as_deref().is_none_or(has)
    }
}

/// The files of the log.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    data: PathBuf,
}

struct Open {
    file: File,
    inode: u64,
    length: u64,
}

impl Audit {
    pub(crate) fn new(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    /// The end of the log. This also tells whether there is anything new.
    pub(crate) fn end(&self) -> Place {
        let found = std::fs::metadata(self.data.join("audit.jsonl"));
        found.map(|it| Place { file: it.ino(), offset: it.size() }).unwrap_or_default()
    }

    /// All files, the newest first. If they are rotated meanwhile, one may be found twice.
    fn open(&self) -> io::Result<Vec<Open>> {
        let mut all: Vec<Open> = Vec::new();
        for n in 0.. {
            let name = if n == 0 { "audit.jsonl".into() } else { format!("audit.jsonl.{n}") };
            let file = match File::open(self.data.join(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            let (inode, length) = file.metadata().map(|it| (it.ino(), it.size()))?;
            if all.iter().all(|other| other.inode != inode) {
                all.push(Open { file, inode, length });
            }
        }
        Ok(all)
    }

    /// The newest lines before a place, newest first, and where to go on; nowhere if that was all.
    pub(crate) fn before(
        &self,
        place: Option<Place>,
        wanted: &Wanted,
        most: usize,
    ) -> io::Result<(Vec<Line>, Option<Place>)> {
        let mut lines = Vec::new();
        let files = self.open()?;
        let start = match place {
            None => 0,
            // What is not there any more was the oldest.
            Some(place) => {
                files.iter().position(|it| it.inode == place.file).unwrap_or(files.len())
            }
        };
        for mut open in files.into_iter().skip(start) {
            let end = place.filter(|place| place.file == open.inode).map(|place| place.offset);
            let end = end.unwrap_or(open.length).min(open.length);
            let mut text = Vec::with_capacity(end as usize);
            open.file.by_ref().take(end).read_to_end(&mut text)?;
            let mut upto = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
            while upto > 0 {
                let from =
                    text[..upto].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let line = Line::read(&text[from..upto]);
                let old = line.as_ref().is_some_and(|line| line.at + SET_BACK < wanted.since);
                lines.extend(line.filter(|line| wanted.takes(line, &text[from..upto])));
                let next = Place { file: open.inode, offset: from as u64 };
                if old {
                    return Ok((lines, None));
                } else if lines.len() >= most {
                    return Ok((lines, Some(next)));
                }
                upto = from.saturating_sub(1);
            }
        }
        Ok((lines, None))
    }

    /// The lines from a place on, with the place after each; none if the place is not known any more. Of
    /// very many the first are left out, which a line says.
    pub(crate) fn after(&self, place: Place) -> io::Result<Option<Vec<(Line, Place)>>> {
        let mut files = self.open()?;
        let Some(first) = files.iter().position(|it| it.inode == place.file) else {
            return Ok(None);
        };
        if files[first].length < place.offset {
            return Ok(None);
        }
        files.truncate(first + 1);
        let mut lines = Vec::new();
        for open in files.into_iter().rev() {
            let from = if open.inode == place.file { place.offset } else { 0 };
            let skipped = (open.length - from).saturating_sub(CATCH_UP);
            let mut at = from + skipped;
            let mut reader = BufReader::new(open.file);
            reader.seek(SeekFrom::Start(at))?;
            if skipped > 0 {
                at += reader.skip_until(b'\n')? as u64;
                let told = format!("{} bytes of lines: they came too fast", at - from);
                lines.push((Line::missing(0, &told), Place { file: open.inode, offset: at }));
            }
            let mut text = Vec::new();
            loop {
                text.clear();
                at += reader.read_until(b'\n', &mut text)? as u64;
                // What has no end yet is being written.
                if text.pop() != Some(b'\n') {
                    break;
                }
                let after = Place { file: open.inode, offset: at };
                lines.extend(Line::read(&text).map(|line| (line, after)));
            }
        }
        Ok(Some(lines))
    }
}

#[cfg(test)]
mod tests {
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

    fn rotate(dir: &Path) {
        if dir.join("audit.jsonl.1").exists() {
            std::fs::rename(dir.join("audit.jsonl.1"), dir.join("audit.jsonl.2")).expect("moved");
        }
        std::fs::rename(dir.join("audit.jsonl"), dir.join("audit.jsonl.1")).expect("moved");
    }

    fn times(lines: &[Line]) -> Vec<u64> {
        lines.iter().map(|line| line.at).collect()
    }

    #[test]
    fn pages_lead_back_through_all_files_whatever_is_rotated_meanwhile() {
        let dir = tempfile::tempdir().expect("a directory");
        let audit = Audit::new(dir.path());
        for at in 1..=6 {
            append(dir.path(), &(line(at) + "\n"));
            if at % 2 == 0 {
                rotate(dir.path());
            }
        }
        append(dir.path(), &(line(7) + "\nhalf a li"));
        let all = Wanted::default();
        let (lines, place) = audit.before(None, &all, 3).expect("readable");
        assert_eq!(times(&lines), [7, 6, 5]);
        assert_eq!(lines[0].taken[0].units[0].fence, "18446744073709551615");
        let (lines, place) = audit.before(place, &all, 1).expect("readable");
        assert_eq!(times(&lines), [4]);
        let place = place.map(|place| place.to_string().parse().expect("it is one"));
        let (lines, place) = audit.before(place, &all, 9).expect("readable");
        assert_eq!((times(&lines), place), (vec![3], None), "1 and 2 were deleted");
    }

    #[test]
    fn whoever_listens_misses_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let audit = Audit::new(dir.path());
        append(dir.path(), &(line(1) + "\n"));
        let place = audit.end();
        append(dir.path(), &(line(2) + "\n" + &line(3)));
        let lines = audit.after(place).expect("readable").expect("known");
        assert_eq!(lines.iter().map(|(line, _)| line.at).collect::<Vec<_>>(), [2]);
        let place = lines[0].1;
        append(dir.path(), "\n");
        rotate(dir.path());
        append(dir.path(), &(line(4) + "\n"));
        let lines = audit.after(place).expect("readable").expect("known");
        assert_eq!(lines.iter().map(|(line, _)| line.at).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(audit.after(Place { file: 1, offset: 0 }).expect("readable"), None);
    }

    #[test]
    fn lines_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        append(dir.path(), &(line(5) + "\n" + &line(9) + "\n"));
        let found = |wanted: Wanted| {
            let (lines, _) = Audit::new(dir.path()).before(None, &wanted, 9).expect("readable");
            times(&lines)
        };
        let any = Wanted::default;
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found(Wanted { since: 6, ..any() }), [9]);
        assert_eq!(found(Wanted { until: Some(9), ..any() }), [5]);
        assert_eq!(found(Wanted { pool: text("gpu"), ..any() }), [9, 5]);
        assert_eq!(found(Wanted { pool: text("gp"), ..any() }), [0; 0]);
        assert_eq!(found(Wanted { user: text("anna"), request: text("1-5"), ..any() }), [5]);
        assert_eq!(found(Wanted { text: text("GRANTED"), user: text("bob"), ..any() }), [0; 0]);
    }
}
