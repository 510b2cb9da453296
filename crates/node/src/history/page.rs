//! The history for whoever may read it, a page at a time. Nothing is kept between two pages: a place says all.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use holdall_history::{files, is_of_later_version};
use holdall_wire::{HistoryPage, HistoryPlace};
use serde::Deserialize;

/// About how many bytes of the history are read for a page. A line that is longer is read whole.
const PAGE: usize = 1 << 20;

/// Whose a line is; what belongs to nobody may be seen by everybody.
#[derive(Deserialize)]
struct Owned<'a> {
    #[serde(rename = "k")]
    kind: &'a str,
    #[serde(rename = "u", borrow, default)]
    user: Option<std::borrow::Cow<'a, str>>,
}

/// A page of the history in a directory: everybody's, or one user's own.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn page(dir: &Path, from: HistoryPlace, own: Option<&str>) -> io::Result<HistoryPage> {
    let all = own.is_none();
    let files = files(dir)?;
    // What is in a file is older than the beginning of the next. One that is gone is followed by the next.
    let after = files.partition_point(|(begun, _)| *begun <= from.file);
    let exact = after > 0 && files[after - 1].0 == from.file;
    let (at, byte) = match from.byte {
        0 => (after.saturating_sub(1), 0),
        byte if exact => (after - 1, byte),
        _ => (after, 0),
    };
    let Some((begun, path)) = files.get(at) else {
        return Ok(HistoryPage { text: String::new(), all, next: None });
    };
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(byte))?;
    // Of what is of a later version only that is told: nobody knows whose its lines are.
    let most = if is_of_later_version(path)? { 1 } else { PAGE };
    let mut lines = BufReader::new(file);
    let (mut text, mut read) = (String::new(), 0);
    let mut line = Vec::new();
    while read < most {
        line.clear();
        let length = lines.by_ref().read_until(b'\n', &mut line)?;
        // One that is being written comes with the next page.
        if !line.ends_with(b"\n") {
            break;
        }
        read += length;
        if own.is_none_or(|own| may_see(&line, own)) {
            text.push_str(&String::from_utf8_lossy(&line));
        }
    }
    let byte = byte + read as u64;
    let next = match files.get(at + 1) {
        _ if read >= PAGE => Some(HistoryPlace { file: *begun, byte }),
        Some((next, _)) => Some(HistoryPlace { file: *next, byte: 0 }),
        None => None,
    };
    Ok(HistoryPage { text, all, next })
}

/// Whether a line is about a user, or about nobody.
fn may_see(line: &[u8], own: &str) -> bool {
    match serde_json::from_slice::<Owned<'_>>(line) {
        Ok(Owned { user: Some(user), .. }) => user == own,
        Ok(Owned { kind, user: None }) => {
            matches!(kind, "begin" | "pool" | "gap" | "mark" | "clock")
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(dir: &Path, own: Option<&str>) -> Vec<String> {
        let (mut from, mut all) = (HistoryPlace::default(), String::new());
        loop {
            let page = page(dir, from, own).expect("readable");
            all.push_str(&page.text);
            match page.next {
                Some(next) => from = next,
                None => return all.lines().map(str::to_owned).collect(),
            }
        }
    }

    #[test]
    fn everybody_is_shown_or_only_oneself() {
        let dir = tempfile::tempdir().expect("a directory");
        let begin = "{\"t\":1,\"k\":\"begin\",\"v\":1}\n";
        let ask = |n: u64, user: &str| {
            let command = "x".repeat(3000);
            format!(
                "{{\"t\":{n},\"k\":\"ask\",\"r\":\"1-{n}\",\"u\":\"{user}\",\"c\":\"{command}\",\"needs\":[]}}\n"
            )
        };
        let first: String = (1..500).map(|n| ask(n, "anna") + &ask(n, "ben\\n")).collect();
        std::fs::write(dir.path().join("history-1.jsonl"), begin.to_owned() + &first)
            .expect("kept");
        let nobody = "{\"t\":7,\"k\":\"end\",\"r\":\"1-1\",\"how\":\"left\"}\n";
        let torn = begin.to_owned() + &ask(600, "anna") + nobody + "{\"t\":";
        std::fs::write(dir.path().join("history-5.jsonl"), torn).expect("kept");
        assert_eq!(whole(dir.path(), None).len(), 2 * 499 + 4);
        assert_eq!(whole(dir.path(), Some("anna")).len(), 500 + 2);
        assert_eq!(whole(dir.path(), Some("ben\n")).len(), 499 + 2);
        let late = HistoryPlace { file: 9, byte: 0 };
        let late = page(dir.path(), late, None).expect("readable");
        assert_eq!(
            (late.text.lines().count(), late.next),
            (3, None),
            "what ended before is left out"
        );
        let gone = HistoryPlace { file: 3, byte: 70 };
        assert_eq!(page(dir.path(), gone, None).expect("readable").text.lines().count(), 3);
        let later = "{\"t\":1,\"k\":\"begin\",\"v\":2}\n".to_owned() + &ask(700, "anna");
        std::fs::write(dir.path().join("history-6.jsonl"), later).expect("kept");
        assert_eq!(whole(dir.path(), Some("anna")).len(), 500 + 3, "it is told, and not shown");
        assert_eq!(
            page(&dir.path().join("no"), gone, None).expect_err("none").kind(),
            io::ErrorKind::NotFound
        );
    }
}
