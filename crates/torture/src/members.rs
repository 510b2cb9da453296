//! Three members of etcd, for a cell whose log is there: real ones, in a directory of their own, which are killed and stopped, too.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::Context;
use rustix::process::Signal;

use crate::process::{Process, command};

/// How many there are: of three, one may be gone.
pub const COUNT: usize = 3;

/// All of them; they go with this.
pub struct Members {
    members: Vec<Member>,
    dir: PathBuf,
    at: Ipv4Addr,
    /// What is put before each command.
    inside: Vec<String>,
}

struct Member {
    client: u16,
    peer: u16,
    running: Option<(Child, Process)>,
}

impl Members {
    /// Starts them at an address of this machine, or of a namespace of it.
    ///
    /// # Errors
    /// If etcd cannot be started.
    pub fn start(dir: PathBuf, at: Ipv4Addr, inside: Vec<String>) -> anyhow::Result<Self> {
        std::fs::create_dir(&dir)?;
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // Free now, and hardly anybody takes them until they are used.
        let held = (0..2 * COUNT).map(|_| free()).collect::<Result<Vec<_>, _>>()?;
        let ports = held.iter().map(|one| Ok(one.local_addr()?.port()));
        let ports = ports.collect::<std::io::Result<Vec<_>>>()?;
        drop(held);
        let member = |ports: &[u16]| Member { client: ports[0], peer: ports[1], running: None };
        let members = ports.chunks(2).map(member).collect();
        let mut all = Self { members, dir, at, inside };
        (0..COUNT).try_for_each(|member| all.run(member))?;
        Ok(all)
    }

    /// Where a cell has its log.
    pub fn store(&self) -> String {
        let at = |member: &Member| format!("{}:{}", self.at, member.client);
        format!("etcd://{}", self.members.iter().map(at).collect::<Vec<_>>().join(","))
    }

    /// Starts a member, for the first time or again, unless it runs.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&mut self, member: usize) -> anyhow::Result<()> {
        if self.members[member].running.is_some() {
            return Ok(());
        }
        let url = |port: u16| format!("http://{}:{port}", self.at);
        let all = self.members.iter().enumerate();
        let all: Vec<_> = all.map(|(n, one)| format!("m{n}={}", url(one.peer))).collect();
        let Member { client, peer, .. } = self.members[member];
        let log = self.dir.join(format!("m{member}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let mut words = self.inside.iter().map(OsString::from).chain(["etcd".into()]);
        let mut command = command(words.next().unwrap_or_default());
        command.args(words).args(["--name", &format!("m{member}"), "--data-dir"]);
        command
            .arg(self.dir.join(format!("m{member}")))
            .args(["--initial-cluster", &all.join(",")]);
        command.args(["--listen-client-urls", &url(client)]);
        command.args(["--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer)]);
        command.args(["--initial-advertise-peer-urls", &url(peer)]);
        // It says more than is wanted, and is killed at any time: the log is its own.
        command.args(["--log-level", "error"]).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("etcd cannot be started: install etcd-server")?;
        let process = Process::of(child.id())?;
        self.members[member].running = Some((child, process));
        Ok(())
    }

    /// Kills one.
    pub fn kill(&mut self, member: usize) -> bool {
        let Some((mut child, process)) = self.members[member].running.take() else { return false };
        let killed = process.kill();
        drop(child.wait());
        killed
    }

    /// Stops one, or lets it go on.
    pub fn pause(&self, member: usize, paused: bool) {
        if let Some((_, process)) = &self.members[member].running {
            process.signal(if paused { Signal::STOP } else { Signal::CONT });
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}

/// Whether etcd is installed.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir: PathBuf| Path::is_file(&dir.join("etcd")))
}
