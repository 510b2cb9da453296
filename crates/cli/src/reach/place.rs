//! Which agent is meant.
//!
//! This is decided once in the life of a command, from its options, its environment and what is
//! installed here; never from who answers. Otherwise an agent that is just restarting, or turns
//! somebody away, would be passed over for another one, and two would grant the same names.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use holdall_client::Remote;

use crate::failure::{Failure, UNAVAILABLE};
use crate::usage;

/// The socket of the machine's agent.
pub(crate) const MACHINE_SOCKET: &str = "/run/holdall/agent.sock";
/// Its data directory.
pub(crate) const MACHINE_DATA: &str = "/var/lib/holdall";
/// Its configuration.
pub(crate) const MACHINE_CONFIG: &str = "/etc/holdall.toml";
/// What makes a supervisor listen for it.
pub(crate) const MACHINE_UNIT: &str = "/etc/systemd/system/holdall.socket";

/// Where an agent is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) data: PathBuf,
    /// Whether it is the machine's, which commands do not start.
    pub(crate) machine: bool,
    /// Whether it is the user's own, at a place that nobody has named.
    pub(crate) own: bool,
}

impl Place {
    /// Makes the directory of one's own agent, if need be. One that somebody has named may be
    /// misspelt, and is not made.
    pub(crate) fn make_own_directory(&self) -> anyhow::Result<()> {
        if let Some(dir) = self.socket.parent().filter(|_| self.own) {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|error| {
                Failure(UNAVAILABLE, format!("cannot make {}: {error}", dir.display()))
            })?;
        }
        Ok(())
    }
}

/// The agent of this machine that a command talks to: the one that is named; else the machine's, if there is one
/// here, running or not; else the user's own.
pub(super) fn meant(named: Option<PathBuf>) -> anyhow::Result<Place> {
    match named {
        Some(socket) => of_socket(&socket, None),
        None if installed(Path::new("/")) => of_socket(Path::new(MACHINE_SOCKET), None),
        None => own(None),
    }
}

/// Where `holdall agent` itself serves.
pub(crate) fn served(socket: Option<PathBuf>, data: Option<PathBuf>) -> anyhow::Result<Place> {
    match socket.or_else(|| variable("HOLDALL_AGENT")) {
        Some(socket) if Remote::is_meant(&socket.to_string_lossy()) => Err(usage(format!(
            "an agent serves at a socket of its machine, and {} is no path",
            socket.display()
        ))),
        Some(socket) => of_socket(&socket, data),
        None => own(data),
    }
}

/// Whether a machine's agent belongs here. What cannot be looked at may well be there.
fn installed(root: &Path) -> bool {
    let run = Path::new(MACHINE_SOCKET).parent().unwrap_or_else(|| Path::new("/"));
    [run, Path::new(MACHINE_CONFIG), Path::new(MACHINE_UNIT)].iter().any(|path| {
        let path = root.join(path.strip_prefix("/").unwrap_or(path));
        let absent = path.symlink_metadata().map_err(|error| error.kind());
        !matches!(absent, Err(std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory))
    })
}

fn of_socket(socket: &Path, data: Option<PathBuf>) -> anyhow::Result<Place> {
    let socket = std::path::absolute(socket)?;
    let machine = socket == Path::new(MACHINE_SOCKET);
    let data = match data.or_else(|| variable("HOLDALL_DATA")) {
        Some(data) => std::path::absolute(data)?,
        None if machine => MACHINE_DATA.into(),
        None => PathBuf::from(format!("{}.data", socket.display())),
    };
    Ok(Place { socket, data, machine, own: false })
}

/// The user's own agent: beside its files, in the home directory that the system knows. Sessions
/// differ in their environment (cron has nearly none), and must not differ in their agent. Each
/// machine has a directory of its own, since home directories are shared between machines.
fn own(data: Option<PathBuf>) -> anyhow::Result<Place> {
    let dir = own_state()?;
    let data = match data.or_else(|| variable("HOLDALL_DATA")) {
        Some(data) => std::path::absolute(data)?,
        None => dir.clone(),
    };
    Ok(Place { socket: dir.join("agent.sock"), data, machine: false, own: true })
}

/// What is the user's own on this machine.
pub(crate) fn own_state() -> anyhow::Result<PathBuf> {
    Ok(own_home()?.join(".local/state/holdall").join(machine_name()))
}

pub(crate) fn own_home() -> anyhow::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let user = nix::unistd::User::from_uid(uid.into())
        .with_context(|| format!("cannot find out the home directory of uid {uid}"))?;
    user.map(|user| user.dir).filter(|home| home.is_dir()).ok_or_else(|| {
        let text = format!(
            "uid {uid} has no home directory on this machine, where its agent would be; \
             name a socket with --agent or HOLDALL_AGENT"
        );
        Failure(UNAVAILABLE, text).into()
    })
}

/// What tells machines apart. A host may be renamed while its agent runs; its id stays.
fn machine_name() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    match id.trim() {
        id if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => id.to_owned(),
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}

pub(super) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_agent_is_known_by_what_is_installed() {
        let root = tempfile::tempdir().expect("a directory");
        assert!(!installed(root.path()));
        for path in ["run/holdall", "etc/holdall.toml", "etc/systemd/system/holdall.socket"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(&path).expect("made");
            assert!(installed(root.path()), "{}", path.display());
            std::fs::remove_dir(&path).expect("removed");
        }
        assert!(!installed(root.path()));
    }

    #[test]
    fn who_names_the_machines_socket_means_the_machines_agent() {
        let place = of_socket(Path::new(MACHINE_SOCKET), Some("/d".into())).expect("a place");
        assert!(place.machine && place.data == Path::new("/d"));
        assert!(!of_socket(Path::new("/tmp/a.sock"), None).expect("a place").machine);
    }
}
