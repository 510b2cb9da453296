//! The agents: each the real program, with a directory, a socket and a port of its own.
//!
//! Their sockets are ours, as a supervisor's are: so nobody else starts an agent in the place of one that was killed, and
//! whoever connects meanwhile waits for the next.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;

use crate::ground::{Ground, Site};
use crate::process::{Process, command};

/// How long a command that is no run may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Gives the agent its socket as number 3, as systemd does.
const HAND_OVER: &str = r#"exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@""#;

/// The agent of a cell.
pub struct Agent {
    cell: usize,
    exe: PathBuf,
    dir: PathBuf,
    listener: UnixListener,
    /// Where it listens for other cells, and where these reach it.
    site: Site,
    ground: Ground,
    running: Option<(Child, Process)>,
    /// A restart that somebody has asked for.
    asked: Vec<Child>,
    /// Whether it is stopped.
    pub paused: bool,
}

impl Agent {
    /// Makes its directory and configuration.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn new(
        exe: &Path,
        work: &Path,
        cell: usize,
        lease_seconds: u64,
        ground: &Ground,
    ) -> anyhow::Result<Self> {
        let dir = work.join(format!("c{cell}"));
        std::fs::create_dir(&dir)?;
        let listener = UnixListener::bind(dir.join("agent.sock"))?;
        let site = ground.site(cell)?;
        let config = format!(
            "[cluster]\nlisten = \"{}\"\nadvertise = [\"{}\"]\nlease_seconds = {lease_seconds}\n\
             [pools.board]\nunits = 3\n[pools.scope]\nlock = true\n[pools.db]\nlock = true\n[pools.rig]\nlock = true\n\
             [pools.keep]\nlock = true\non_partition = \"wait\"\n",
            site.listens, site.reached
        );
        std::fs::write(dir.join("config.toml"), config)?;
        let (exe, ground) = (exe.to_owned(), ground.clone());
        let (running, asked, paused) = (None, Vec::new(), false);
        Ok(Self { cell, exe, dir, listener, site, ground, running, asked, paused })
    }

    /// Where clients reach it.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    /// What it has said so far.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn log(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(self.dir.join("log"))?).into_owned())
    }

    /// Starts it, unless it runs.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self) -> anyhow::Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("log"))?;
        let mut command = self.inside("sh");
        let child = command
            .args(["-c", HAND_OVER, "sh"])
            .arg(&self.exe)
            .arg("agent")
            .arg("--socket")
            .arg(self.socket())
            .arg("--data")
            .arg(self.dir.join("data"))
            .arg("--config")
            .arg(self.dir.join("config.toml"))
            .process_group(0)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(self.listener.try_clone()?)))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("the agent cannot be started")?;
        let process = Process::of(child.id())?;
        self.ground.know(self.cell, child.id());
        self.running = Some((child, process));
        self.paused = false;
        Ok(())
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        let running = self.running.as_mut();
        if running.is_some_and(|(child, _)| matches!(child.try_wait(), Ok(None))) {
            return true;
        }
        self.running = None;
        false
    }

    /// Sends it a signal, if it runs.
    pub fn signal(&self, signal: Signal) -> bool {
        self.running.as_ref().is_some_and(|(_, process)| process.signal(signal))
    }

    /// Kills it.
    pub fn kill(&mut self) -> bool {
        let Some((mut child, process)) = self.running.take() else { return false };
        let killed = process.kill();
        drop(child.wait());
        self.paused = false;
        killed
    }

    /// Stops it, or lets it go on.
    pub fn pause(&mut self, paused: bool) -> bool {
        self.paused = paused;
        self.signal(if paused { Signal::STOP } else { Signal::CONT })
    }

    /// Has it go on as itself, and does not wait for that.
    ///
    /// # Errors
    /// If nobody can be started to say so.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.say(&["agent", "restart"])
    }

    /// Says something to it, and does not wait for what comes of it.
    ///
    /// # Errors
    /// If nobody can be started to say so.
    pub fn say(&mut self, words: &[&str]) -> anyhow::Result<()> {
        self.asked.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let quiet = || Stdio::null();
        let mut command = self.command(words);
        self.asked.push(command.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn()?);
        Ok(())
    }

    /// A program in the network of this cell.
    fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        match &self.site.inside[..] {
            [] => command(program),
            [enter, words @ ..] => {
                let mut command = command(enter);
                command.args(words).arg(program);
                command
            }
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.inside(&self.exe);
        command
            .args(words)
            .env("HOLDALL_AGENT", self.socket())
            .env("HOLDALL_DATA", self.dir.join("data"));
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// Runs a command of its clients; what it has printed.
    ///
    /// # Errors
    /// If it fails, with what it said, or does not end.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        let (out, err) = (self.dir.join("asked.out"), self.dir.join("asked.err"));
        let mut command = self.command(words);
        let mut child = command.stdout(File::create(&out)?).stderr(File::create(&err)?).spawn()?;
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                bail!("`holdall {}` at c{} does not end", words.join(" "), self.cell);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = std::fs::read_to_string(&err)?;
        let told = || format!("`holdall {}` at c{}: {status}: {said}", words.join(" "), self.cell);
        ensure!(status.success(), told());
        Ok(std::fs::read_to_string(&out)?)
    }

    /// Makes a cluster of which it is the first member. The token for the others.
    ///
    /// # Errors
    /// If it does not.
    pub fn found(&self) -> anyhow::Result<String> {
        let (listens, name) = (self.site.listens.to_string(), format!("c{}", self.cell));
        let line = self.ask(&["cluster", "init", "--listen", &listens, "--name", &name])?;
        let token = line.split_whitespace().find(|word| word.starts_with("H1-"));
        Ok(token.with_context(|| format!("no token in what `cluster init` says: {line}"))?.into())
    }

    /// Joins the cluster of another.
    ///
    /// # Errors
    /// If it does not.
    pub fn join(&self, other: &Self, token: &str) -> anyhow::Result<()> {
        let at = other.site.reached.to_string();
        let (listens, name) = (self.site.listens.to_string(), format!("c{}", self.cell));
        self.ask(&[
            "cluster", "join", &at, "--token", token, "--listen", &listens, "--name", &name,
        ])?;
        Ok(())
    }

    /// How many grants and requests it knows.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn left(&self) -> anyhow::Result<(usize, usize)> {
        let status: serde_json::Value = serde_json::from_str(&self.ask(&["status", "--json"])?)?;
        let count = |what: &str| status[what].as_array().map(Vec::len);
        let counts = count("grants").zip(count("waiting"));
        counts.with_context(|| format!("unexpected: {status}"))
    }
}

impl Drop for Agent {
    /// Lets it end by itself, so that it leaves nothing behind, and not for long.
    fn drop(&mut self) {
        for child in &mut self.asked {
            drop(child.kill());
            drop(child.wait());
        }
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let until = Instant::now() + Duration::from_secs(5);
        while self.is_running() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }
}
