//! Commands that should notice a change.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::copy::Built;

/// How often a command that runs is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// Commands, tried in turn.
pub(crate) struct Trial<'a> {
    root: &'a Path,
    commands: Vec<(&'a str, PathBuf, Vec<&'a str>)>,
    limit: Duration,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        root: &'a Path,
        commands: &'a [String],
        built: &Built,
        limit: Duration,
    ) -> Result<Self> {
        let find = |command: &'a String| {
            let mut words = command.split_whitespace();
            let name = words.next().context("an empty command")?;
            let path = built.get(name).with_context(|| {
                let names: Vec<_> = built.keys().map(String::as_str).collect();
                format!("'{name}' was not built, but: {}", names.join(", "))
            })?;
            Ok((command.as_str(), path.clone(), words.collect()))
        };
        let commands = commands.iter().map(find).collect::<Result<_>>()?;
        Ok(Self { root, commands, limit })
    }

    /// The first command that fails while a change is in force.
    pub(crate) fn killer(&self, mutant: usize) -> Result<Option<String>> {
        for (command, path, args) in &self.commands {
            match self.run(path, args, mutant)? {
                Some(true) => {}
                Some(false) => return Ok(Some((*command).to_string())),
                None => return Ok(Some(format!("{command} takes too long"))),
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
