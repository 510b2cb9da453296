//! The servers themselves: programs of this machine, on loopback, each in a directory of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use super::Peer;
use crate::load;
use crate::process::Process;

/// How long a server may take to begin.
const START: Duration = Duration::from_secs(60);
/// Who PostgreSQL runs as if we are root, which it refuses to.
pub(super) const POSTGRES_USER: &str = "postgres";

/// A server that runs. It goes with this value, and its directory, too.
pub(super) struct Program {
    child: Child,
    pub(super) port: u16,
    dir: TempDir,
}

impl Program {
    pub(super) fn start(peer: Peer) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("holdall-bench-").tempdir()?;
        let (port, peer_port) = two_free_ports()?;
        let mut command = match peer {
            Peer::Etcd | Peer::EtcdLocks => etcd(dir.path(), port, peer_port),
            Peer::Postgres => postgres(dir.path(), port)?,
            Peer::Redis => redis(dir.path(), port),
            Peer::Zookeeper => zookeeper(dir.path(), port)?,
        };
        let log = fs::File::create(dir.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| not_installed(peer))?;
        let mut program = Self { child, port, dir };
        program.wait_for_start(peer)?;
        Ok(program)
    }

    fn wait_for_start(&mut self, peer: Peer) -> anyhow::Result<()> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            load::heed()?;
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                bail!("{} ({status}): {last}", not_installed(peer));
            }
            ensure!(start.elapsed() < START, "{peer} does not listen after {START:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(super) fn process(&self) -> Process {
        Process::new(self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn not_installed(peer: Peer) -> String {
    format!("{peer} cannot be started; `bench/peers` installs what is missing")
}

/// Two at once, so that they are not the same.
fn two_free_ports() -> std::io::Result<(u16, u16)> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (free()?, free()?);
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

/// A command that is killed when this process goes, whatever happens to it.
fn tied(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn etcd(dir: &Path, port: u16, peer_port: u16) -> Command {
    let (client, peer) =
        (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    let mut command = tied("etcd");
    command.arg("--data-dir").arg(dir.join("data")).args(["--name", "one"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("one={peer}"), "--log-level", "error"]);
    // As its operators are told to; otherwise every lock there ever was stays on its disk.
    command.args(["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1m"]);
    command
}

/// With the log that Redis can lose a second of: with one that it cannot, it is slower by far.
fn redis(dir: &Path, port: u16) -> Command {
    let mut command = tied("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "everysec"]).arg("--dir").arg(dir);
    command
}

fn zookeeper(dir: &Path, port: u16) -> anyhow::Result<Command> {
    let data = dir.join("data");
    let config = format!(
        "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         maxClientCnxns=0\nadmin.enableServer=false\n",
        data.display()
    );
    fs::create_dir(&data)?;
    fs::write(dir.join("zoo.cfg"), config)?;
    let mut command = tied("java");
    command.args(["-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar"]);
    command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(dir.join("zoo.cfg"));
    Ok(command)
}

fn postgres(dir: &Path, port: u16) -> anyhow::Result<Command> {
    let programs = postgres_programs()?;
    let data = dir.join("data");
    let as_other = rustix::process::geteuid().is_root();
    let tied = |program: &str| {
        let mut command = Command::new("setpriv");
        if as_other {
            command.args(["--reuid", POSTGRES_USER, "--regid", POSTGRES_USER, "--clear-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "--"]).arg(programs.join(program));
        command.current_dir(dir);
        command
    };
    if as_other {
        let (user, group) = (id(POSTGRES_USER, "-u")?, id(POSTGRES_USER, "-g")?);
        std::os::unix::fs::chown(dir, Some(user), Some(group))?;
    }
    let made = tied("initdb")
        .args(["--auth=trust", "--no-sync", "--username", POSTGRES_USER, "-D"])
        .arg(&data)
        .output()?;
    ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    let mut command = tied("postgres");
    command.arg("-D").arg(&data).arg("-k").arg(dir).args(["-p", &port.to_string()]);
    command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400"]);
    // A wide request takes many.
    command.args(["-c", "max_locks_per_transaction=1024"]);
    // What it shares in memory is a file in its directory, and goes with that though it is killed.
    command.args(["-c", "dynamic_shared_memory_type=mmap"]);
    Ok(command)
}

/// The newest that Debian has installed, or what is on the path.
fn postgres_programs() -> anyhow::Result<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = installed
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    all.sort();
    all.pop().with_context(|| not_installed(Peer::Postgres))
}

fn id(user: &str, what: &str) -> anyhow::Result<u32> {
    let told = Command::new("id").args([what, user]).output()?;
    let number = String::from_utf8_lossy(&told.stdout).trim().parse();
    number.with_context(|| {
        format!("there is no user {user}; `bench/peers` installs PostgreSQL with it")
    })
}
