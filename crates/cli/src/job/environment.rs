//! The surroundings of a job: those of whoever submitted it, whoever goes on with it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use holdall_wire::speaks_of_a_grant;

/// The variables of this process, but for those of a grant inside which somebody was when a job was submitted, or resumed;
/// as they are kept: each ends with a zero byte.
pub(super) fn own() -> Vec<u8> {
    let mut text = Vec::new();
    for (name, mut value) in std::env::vars_os().filter(|(name, _)| !speaks_of_a_grant(name)) {
        // The agent that is meant does not depend on where a runner is started.
        if name == "HOLDALL_AGENT" || name == "HOLDALL_DATA" {
            value = std::path::absolute(&value).map_or(value, Into::into);
        }
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text
}

/// The variables that were kept in a file.
pub(super) fn kept(path: &Path) -> std::io::Result<Vec<(OsString, OsString)>> {
    let text = std::fs::read(path)?;
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let text = |part: &[u8]| OsString::from_vec(part.to_vec());
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    Ok(text.split(|byte| *byte == 0).filter_map(pair).collect())
}

/// The rights that files made by this process do not get.
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}
