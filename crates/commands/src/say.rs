//! What people are told: results on standard output, and on standard error what is wrong.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Bad input: one line that says what is wrong and how to mend it. Exit status [`USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

/// For `map_err`: what a person did wrong.
pub fn usage(what: impl Display) -> anyhow::Error {
    Usage(what.to_string()).into()
}

/// Something went wrong: the exit status, with the line that explains it.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub struct Failure(pub u8, pub String);

/// `EX_USAGE` of sysexits.h.
pub const USAGE: u8 = 64;
/// `EX_IOERR` of sysexits.h: a result or a file cannot be written.
pub const UNWRITTEN: u8 = 74;

/// Something cannot be written, whatever the reason. Exit status [`UNWRITTEN`].
pub fn cannot_write(what: impl Display, why: impl Display) -> anyhow::Error {
    Failure(UNWRITTEN, format!("cannot write {what}: {why}")).into()
}

/// What clap found wrong, and its advice, without the usage below.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    // After `--` it would be a need, or the command.
    let no_help = |line: &&str| line.starts_with("For more") || line.starts_with("tip: to pass '");
    let told: Vec<_> = lines.filter(|line| !line.is_empty() && !no_help(line)).collect();
    format!(
        "{} (--help tells more)",
        told.join("; ").replace(":; ", ": ").trim_start_matches("error: ")
    )
}

/// Says something to a person, on standard error. Nobody may be there to hear it: that is no error,
/// where `eprintln!` would panic.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}: {text}", program());
}

/// The name by which this program was called.
fn program() -> String {
    let called = std::env::args_os().next();
    let name = called.as_ref().and_then(|path| Path::new(path).file_name());
    name.map_or_else(|| "holdall".into(), |name| name.to_string_lossy().into_owned())
}

/// Prints a text and a line end. Whoever reads may stop reading: that is no error.
///
/// # Errors
/// If it cannot be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_to_reader(text).map(|_| ())
}

/// The same, and whether anybody reads on.
///
/// # Errors
/// If it cannot be written.
pub fn print_to_reader(text: &str) -> anyhow::Result<bool> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(cannot_write("the result", error)),
        Ok(()) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn a_wrong_value_is_not_made_something_else() {
        let command = Command::new("run").args([Arg::new("wait").short('w'), Arg::new("need")]);
        let told = command.try_get_matches_from(["run", "-w", "-1s"]).map_err(|e| one_line(&e));
        let told = told.expect_err("no option");
        assert!(told.contains("'-1'") && !told.contains("-- -1"), "{told}");
    }
}
