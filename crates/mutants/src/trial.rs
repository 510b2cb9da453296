//! Commands that should notice a change.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::copy::Built;
use crate::rewrite::Mutant;

/// How often a command that runs is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// Commands, tried in turn.
pub(crate) struct Trial<'a> {
    root: &'a Path,
    commands: Vec<Try<'a>>,
    limit: Duration,
}

/// A command.
struct Try<'a> {
    /// What the path of a file must contain for the command to be tried on changes to it.
    place: &'a str,
    text: &'a str,
    path: PathBuf,
    args: Vec<&'a str>,
}

impl<'a> Try<'a> {
    fn parse(text: &'a str, built: &Built) -> Result<Self> {
        let (place, command) = text.split_once(": ").unwrap_or(("", text));
        let mut words = command.split_whitespace();
        let name = words.next().context("an empty command")?;
        let path = built.get(name).with_context(|| {
            let names: Vec<_> = built.keys().map(String::as_str).collect();
            format!("'{name}' was not built, but: {}", names.join(", "))
        })?;
        Ok(Self { place, text: command, path: path.clone(), args: words.collect() })
    }
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        root: &'a Path,
        commands: &'a [String],
        built: &Built,
        limit: Duration,
    ) -> Result<Self> {
        let commands =
            commands.iter().map(|text| Try::parse(text, built)).collect::<Result<_>>()?;
        Ok(Self { root, commands, limit })
    }

    /// The first command that fails though nothing is changed.
    pub(crate) fn failing(&self) -> Result<Option<String>> {
        self.first_to_fail(0, |_| true)
    }

    /// The first command that fails while a change is in force.
    pub(crate) fn killer(&self, mutant: &Mutant) -> Result<Option<String>> {
        self.first_to_fail(mutant.number, |command| mutant.file.contains(command.place))
    }

    fn first_to_fail(
        &self,
        mutant: usize,
        tried: impl Fn(&Try<'_>) -> bool,
    ) -> Result<Option<String>> {
        for command in self.commands.iter().filter(|command| tried(command)) {
            match self.run(&command.path, &command.args, mutant)? {
                Some(true) => {}
                Some(false) => return Ok(Some(command.text.to_string())),
                None => return Ok(Some(format!("{} takes too long", command.text))),
            }
        }
        Ok(None)
    }

    /// Whether a command succeeds; nothing if it takes too long.
    fn run(&self, path: &Path, args: &[&str], mutant: usize) -> Result<Option<bool>> {
        let mut command = Command::new(path);
        command.args(args).current_dir(self.root).env("HOLDALL_MUTANT", mutant.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().with_context(|| path.display().to_string())?;
        let start = Instant::now();
        while start.elapsed() < self.limit {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status.success()));
            }
            std::thread::sleep(PAUSE);
        }
        killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL)?;
        child.wait()?;
        Ok(None)
    }
}
