//! What systemd is told about an agent: a socket that is always there, and a service behind it.
//!
//! The supervisor listens, so nobody who connects notices a restart but by the wait.

use std::path::{Path, PathBuf};

use crate::reach::{MACHINE_CONFIG, MACHINE_DATA, MACHINE_SOCKET, MACHINE_UNIT};

/// A file that is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) content: String,
    /// Whether it is the administrator's once it is there: never overwritten, and removed only if
    /// it is still as we made it.
    pub(super) theirs: bool,
}

fn file(path: impl Into<PathBuf>, content: String) -> File {
    File { path: path.into(), content, theirs: false }
}

/// The files of a machine's agent.
pub(super) fn for_machine(program: &Path, group: &str) -> Vec<File> {
    let service = Path::new(MACHINE_UNIT).with_extension("service");
    let config = File { theirs: true, ..file(MACHINE_CONFIG, CONFIG.into()) };
    vec![
        config,
        file("/etc/sysusers.d/holdall.conf", format!("g {group} -\n")),
        file(MACHINE_UNIT, machine_socket(group)),
        file(service, machine_service(program)),
    ]
}

/// The files of a user's own agent.
pub(super) fn for_user(program: &Path, units: &Path, socket: &Path, data: &Path) -> Vec<File> {
    let (program, at, socket) = (word(program), rest_of_line(socket), word(socket));
    let listen = format!(
        "[Unit]\n\
         Description=Socket of the holdall agent\n\
         \n\
         [Socket]\n\
         ListenStream={at}\n\
         SocketMode=0600\n\
         DirectoryMode=0700\n\
         RemoveOnStop=yes\n\
         \n\
         [Install]\n\
         WantedBy=sockets.target\n"
    );
    let serve = format!(
        "{HEAD}\
         \n\
         [Service]\n\
         ExecStart={program} agent --socket {socket} --data {} --idle-exit 5m\n\
         {COMMON}\
         {UNPRIVILEGED}",
        word(data)
    );
    vec![file(units.join("holdall.socket"), listen), file(units.join("holdall.service"), serve)]
}

const CONFIG: &str = "\
# The agent of this machine. Who may connect is said in holdall.socket.
#
# ephemeral = false                       # refuses names that are not declared
#
# [pools.gpu]
# units = 4
#
# [rights]                                # its own user and root may do everything
# everybody = [\"view\", \"ask\", \"reserve\"]
# [rights.groups]
# lab = [\"pools\", \"force\"]
";

fn machine_socket(group: &str) -> String {
    format!(
        "[Unit]\n\
         Description=Socket of the holdall agent\n\
         \n\
         [Socket]\n\
         ListenStream={MACHINE_SOCKET}\n\
         SocketMode=0660\n\
         SocketGroup={group}\n\
         DirectoryMode=0755\n\
         RemoveOnStop=yes\n\
         \n\
         [Install]\n\
         WantedBy=sockets.target\n"
    )
}

fn machine_service(program: &Path) -> String {
    let run = Path::new(MACHINE_SOCKET).parent().unwrap_or_else(|| Path::new("/run"));
    let program = word(program);
    format!(
        "{HEAD}\
         \n\
         [Service]\n\
         ExecStart={program} agent --config {MACHINE_CONFIG} --socket {MACHINE_SOCKET} --data {MACHINE_DATA}\n\
         StateDirectory=holdall\n\
         StateDirectoryMode=0700\n\
         LimitNOFILE=65536\n\
         OOMScoreAdjust=-500\n\
         {COMMON}\
         {UNPRIVILEGED}\
         # It kills what outlives its grant, whoever's it is, looks at it, and moves it to a cgroup.\n\
         CapabilityBoundingSet=CAP_KILL CAP_SYS_PTRACE CAP_CHOWN CAP_DAC_OVERRIDE\n\
         ProtectSystem=strict\n\
         ReadWritePaths={}\n\
         ProtectHome=read-only\n\
         PrivateTmp=yes\n\
         PrivateDevices=yes\n\
         ProtectClock=yes\n\
         ProtectHostname=yes\n\
         ProtectKernelLogs=yes\n\
         ProtectKernelModules=yes\n\
         ProtectKernelTunables=yes\n\
         MemoryDenyWriteExecute=yes\n",
        run.display()
    )
}

const HEAD: &str = "\
[Unit]
Description=holdall agent: hands out sets of exclusive resources
Requires=holdall.socket
After=holdall.socket
";

/// `KillMode`: what runs under a grant is no part of the agent, and may outlive it.
const COMMON: &str = "\
Type=notify
Restart=on-failure
RestartSec=200ms
TimeoutStopSec=90s
KillMode=process
Delegate=yes
UMask=0077
";

/// What needs no rights to give up.
const UNPRIVILEGED: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
";

/// A path where systemd takes the rest of a line as it is, but for its specifiers.
fn rest_of_line(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

/// A path as one word of a unit file.
fn word(path: &Path) -> String {
    let text = path.display().to_string().replace('\\', "\\\\").replace('%', "%%");
    if text.contains([' ', '"', '\'', '$', ';']) {
        format!("\"{}\"", text.replace('"', "\\\"").replace('$', "$$"))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_are_written_as_systemd_reads_them() {
        let home = Path::new("/home/my $home/50%");
        let files = for_user(Path::new("/bin/holdall"), home, &home.join("a.sock"), home);
        assert!(files[0].content.contains("ListenStream=/home/my $home/50%%/a.sock\n"));
        assert!(files[1].content.contains("--socket \"/home/my $$home/50%%/a.sock\" "));
    }
}
