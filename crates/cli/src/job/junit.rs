//! A job as CI systems read it: the XML of JUnit.

use std::fmt::Write;
use std::io::{Read, Seek, SeekFrom};

use super::view::{State, View};

/// How much of the end of a failed task's log is told.
const TAIL: u64 = 4096;

pub(super) fn junit(view: &View) -> String {
    let (failed, skipped) = (view.count(State::Failed), view.count(State::Skipped));
    let open = view.count(State::Waiting) + view.count(State::Running);
    let (id, count) = (escaped(&view.id), view.tasks.len());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites><testsuite name=\"{id}\" \
         tests=\"{count}\" failures=\"{failed}\" errors=\"{open}\" skipped=\"{skipped}\">\n"
    );
    for line in &view.tasks {
        let body = match line.state {
            State::Failed => {
                let cause = escaped(line.cause.as_deref().unwrap_or_default());
                let end = line.log.as_deref().and_then(tail).unwrap_or_default();
                format!("<failure message=\"{cause}\">{}</failure>", escaped(&end))
            }
            State::Skipped => "<skipped/>".into(),
            State::Waiting | State::Running => "<error message=\"it has not ended\"/>".into(),
            State::Succeeded => String::new(),
        };
        let (name, time) = (escaped(&line.task), line.ran_ms as f64 / 1000.0);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "<testcase classname=\"{id}\" name=\"{name}\" time=\"{time:.3}\">{body}</testcase>"
        );
    }
    text + "</testsuite></testsuites>"
}

/// The end of a log.
fn tail(path: &std::path::Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut end = Vec::new();
    file.take(TAIL).read_to_end(&mut end).ok()?;
    Some(String::from_utf8_lossy(&end).into_owned())
}

/// As it may stand in XML: without what no XML may contain.
pub(super) fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            '\n' | '\t' => all.push(c),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => all.push('\u{fffd}'),
            c => all.push(c),
        }
    }
    all
}
