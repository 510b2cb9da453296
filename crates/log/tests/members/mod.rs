//! A real etcd of three members on loopback, which can be killed, stopped and started again.

#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod proxy;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdall_log::etcd::Address;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Set where a machine without etcd is a failure and no reason to pass a test over.
const MUST: &str = "HOLDALL_TRY_ETCD";

/// A member.
struct Member {
    name: String,
    client: u16,
    peer: u16,
    child: Option<Child>,
}

/// All of them. They go with this value, and their directory, too.
pub(crate) struct Members {
    members: Vec<Member>,
    dir: TempDir,
    options: Vec<String>,
    /// The files that clients need, if they are to speak TLS.
    tls: Option<Files>,
}

/// Who signs, and a certificate with its key.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Whether there is an etcd to be tried here.
pub(crate) fn is_there() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os(MUST).is_none(), "etcd is missing: install etcd-server");
    if !found {
        eprintln!("passed over: there is no etcd here");
    }
    found
}

fn directory(within: &Path) -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix("holdall-etcd-").tempdir_in(within)
}

/// Where a cell is, behind ports of this machine.
pub(crate) fn address(ports: &[u16], cell: &str) -> Address {
    let all: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Address::parse(&format!("etcd://{}/{cell}", all.join(","))).expect("an address")
}

impl Members {
    /// Starts so many, with further options for each; in memory where that is possible, as a killed
    /// process loses nothing of it either.
    pub(crate) fn start(count: usize, options: &[&str]) -> Self {
        let dir = directory(Path::new("/dev/shm")).or_else(|_| tempfile::tempdir());
        Self::start_within(dir.expect("a directory"), count, options, None)
    }

    /// One that speaks TLS, and only with those who have a certificate.
    pub(crate) fn start_secure(tls: Files) -> Self {
        let path = |path: &Path| path.to_str().expect("a name").to_owned();
        let (ca, cert, key) = (path(&tls.ca), path(&tls.cert), path(&tls.key));
        let options = ["--trusted-ca-file", &ca, "--cert-file", &cert, "--key-file", &key];
        let options = [&options[..], &["--client-cert-auth"]].concat();
        Self::start_within(tempfile::tempdir().expect("a directory"), 1, &options, Some(tls))
    }

    /// One that begins with a backup.
    pub(crate) fn restored(backup: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut restore = Command::new("etcdctl");
        restore.env("ETCDCTL_API", "3").args(["snapshot", "restore", backup, "--name", "m0"]);
        restore.args(["--initial-cluster", "m0=http://127.0.0.1:1"]);
        restore.args(["--initial-advertise-peer-urls", "http://127.0.0.1:1", "--data-dir"]);
        let done = restore.arg(dir.path().join("m0")).output().expect("etcdctl");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Self::start_within(dir, 1, &[], None)
    }

    /// The same, on a disk.
    pub(crate) fn start_in(within: &Path, count: usize, options: &[&str]) -> Self {
        Self::start_within(directory(within).expect("a directory"), count, options, None)
    }

    fn start_within(dir: TempDir, count: usize, options: &[&str], tls: Option<Files>) -> Self {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let held: Vec<_> = (0..2 * count).map(|_| free()).collect();
        let port = |at: usize| held[at].local_addr().expect("it is bound").port();
        let member = |at: usize| Member {
            name: format!("m{at}"),
            client: port(2 * at),
            peer: port(2 * at + 1),
            child: None,
        };
        let members = (0..count).map(member).collect();
        let options = options.iter().map(ToString::to_string).collect();
        let mut members = Self { members, dir, options, tls };
        drop(held);
        for at in 0..count {
            members.run(at);
        }
        members.wait();
        members
    }

    /// Starts a member, for the first time or again.
    pub(crate) fn run(&mut self, at: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<_> =
            self.members.iter().map(|m| format!("{}={}", m.name, url(m.peer))).collect();
        let Member { name, client, peer, .. } = &self.members[at];
        let log = self.dir.path().join(format!("{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        let (mut client, peer) = (url(*client), url(*peer));
        if self.tls.is_some() {
            client = client.replace("http:", "https:");
        }
        // It is killed when this process goes, whatever happens to it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "etcd", "--name", name, "--data-dir"]);
        command.arg(self.dir.path().join(name)).args(["--initial-cluster", &all.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(&self.options).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a handle")).stderr(log);
        self.members[at].child = Some(command.spawn().expect("etcd starts"));
    }

    /// Waits until they serve.
    fn wait(&self) {
        for _ in 0..600 {
            let mut health = self.ctl();
            let health = health.args(["endpoint", "health"]).output().expect("etcdctl");
            if health.status.success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("etcd does not serve after a minute; see {}", self.dir.path().display());
    }

    /// `etcdctl`, for all of them.
    pub(crate) fn ctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        let all: Vec<_> = self.members.iter().map(|m| format!("127.0.0.1:{}", m.client)).collect();
        command.env("ETCDCTL_API", "3").args(["--endpoints", &all.join(",")]);
        if let Some(Files { ca, cert, key }) = &self.tls {
            command.arg("--cacert").arg(ca).arg("--cert").arg(cert).arg("--key").arg(key);
        }
        command
    }

    /// Where a cell is in it.
    pub(crate) fn address(&self, cell: &str) -> Address {
        address(&self.ports(), cell)
    }

    /// The ports that clients use.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.client).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    fn pid(&self, at: usize) -> Option<Pid> {
        let child = self.members[at].child.as_ref()?;
        Pid::from_raw(i32::try_from(child.id()).ok()?)
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it has ended");
        }
    }

    pub(crate) fn pause(&self, at: usize) {
        if let Some(pid) = self.pid(at) {
            kill_process(pid, Signal::STOP).expect("it runs");
        }
    }

    pub(crate) fn resume(&self, at: usize) {
        if let Some(pid) = self.pid(at) {
            kill_process(pid, Signal::CONT).expect("it runs");
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for at in 0..self.members.len() {
            self.kill(at);
        }
    }
}
