//! `holdall agent install` and `uninstall`: an agent under systemd, for a user or for the machine.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use holdall_client::Client;

use super::units::{self, File};
use crate::failure::{Failure, NOT_NOW, UNAVAILABLE};
use crate::reach::{MACHINE_SOCKET, block_on, own_home, served};
use crate::{print, usage};

/// The unit that is enabled: it starts the service when somebody connects.
const UNIT: &str = "holdall.socket";

#[derive(clap::Args)]
pub(super) struct Args {
    /// The agent of the whole machine, instead of your own; takes root
    #[arg(long)]
    system: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Only write files, below this directory, as for an image
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(super) struct InstallArgs {
    #[command(flatten)]
    all: Args,
    /// Who may use the agent of the machine: a group, made if need be [default: holdall]
    #[arg(long, requires = "system")]
    group: Option<String>,
}

pub(super) fn install(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let group = args.group.as_deref().unwrap_or("holdall");
    let args = &args.all;
    let files = args.files(group)?;
    if !args.dry_run && args.root.is_none() {
        args.check_rights()?;
        args.check_program()?;
        args.check_idle()?;
    }
    for file in &files {
        args.write(file)?;
    }
    if args.system {
        args.run("systemd-sysusers", &["/etc/sysusers.d/holdall.conf"])?;
    }
    args.systemctl(&["daemon-reload"])?;
    args.systemctl(&["enable", "--now", UNIT])?;
    if args.system {
        print(&format!("members of the group '{group}' may use it: `usermod -aG {group} USER`"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn uninstall(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.dry_run && args.root.is_none() {
        args.check_rights()?;
    }
    let files = args.files("holdall")?;
    if !files.iter().any(|file| !file.theirs && args.below(&file.path).exists()) {
        print("nothing is installed")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.systemctl(&["disable", "--now", UNIT, "holdall.service"])?;
    for file in &files {
        args.remove(file)?;
    }
    args.systemctl(&["daemon-reload"])?;
    if args.system && !args.dry_run {
        // As long as its directory is there, commands mean the agent that was installed.
        let socket = args.below(Path::new(MACHINE_SOCKET));
        let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
        let _ = socket.parent().map(std::fs::remove_dir);
    }
    print("its data, and with it the fences, stay where they are")?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn files(&self, group: &str) -> anyhow::Result<Vec<File>> {
        let program = std::env::current_exe().context("cannot find out where this program is")?;
        if self.system {
            return Ok(units::for_machine(&program, group));
        }
        let own = served(None, None)?;
        let units = own_home()?.join(".config/systemd/user");
        Ok(units::for_user(&program, &units, &own.socket, &own.data))
    }

    fn check_rights(&self) -> anyhow::Result<()> {
        if self.system && !rustix::process::geteuid().is_root() {
            return Err(usage("--system takes root; without it, the agent is for you alone"));
        }
        Ok(())
    }

    /// Root must not run what somebody else can replace.
    fn check_program(&self) -> anyhow::Result<()> {
        let program = std::env::current_exe()?;
        if self.system && !only_root_replaces(&program)? {
            return Err(usage(format!(
                "others than root can replace {}; `install -m 755 {} /usr/local/bin/holdall`, and \
                 install that",
                program.display(),
                program.display()
            )));
        }
        Ok(())
    }

    /// The supervisor takes the socket; whoever listens there now would be out of reach.
    fn check_idle(&self) -> anyhow::Result<()> {
        let socket = if self.system { MACHINE_SOCKET.into() } else { served(None, None)?.socket };
        let runs = block_on(async { Ok(Client::connect(&socket).await.is_ok()) })?;
        if runs {
            let text = format!(
                "an agent runs already at {}; end it first with `holdall agent stop --agent {}`",
                socket.display(),
                socket.display()
            );
            return Err(Failure(NOT_NOW, text).into());
        }
        Ok(())
    }

    fn below(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.into(),
        }
    }

    fn write(&self, file: &File) -> anyhow::Result<()> {
        let path = self.below(&file.path);
        if file.theirs && path.exists() {
            return print(&format!("keep {}", path.display()));
        }
        print(&format!("write {}", path.display()))?;
        if self.dry_run {
            let lines = file.content.lines().map(|line| format!("    {line}"));
            return print(&lines.map(|line| line.trim_end().to_owned() + "\n").collect::<String>());
        }
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("/")))?;
            std::fs::write(&path, &file.content)?;
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    fn remove(&self, file: &File) -> anyhow::Result<()> {
        let path = self.below(&file.path);
        let Ok(found) = std::fs::read_to_string(&path) else { return Ok(()) };
        if file.theirs && found != file.content {
            let path = path.display();
            return print(&format!("keep {path}: while it is there, commands mean this agent"));
        }
        print(&format!("remove {}", path.display()))?;
        if self.dry_run {
            return Ok(());
        }
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// In an image nothing runs that could be told or started; there is only something to enable.
    fn systemctl(&self, args: &[&str]) -> anyhow::Result<()> {
        let mut all: Vec<String> = Vec::new();
        if let Some(root) = &self.root {
            if args == ["daemon-reload"] {
                return Ok(());
            }
            all.push(format!("--root={}", root.display()));
        }
        match (self.system, &self.root) {
            (false, Some(_)) => all.push("--global".into()),
            (false, None) => all.push("--user".into()),
            (true, _) => {}
        }
        let live = |arg: &&&str| **arg != "--now" || self.root.is_none();
        all.extend(args.iter().filter(live).map(ToString::to_string));
        self.run("systemctl", &all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<()> {
        if program != "systemctl" && self.root.is_some() {
            return Ok(()); // The image does that when it starts.
        }
        let line = format!("{program} {}", args.join(" "));
        print(&format!("run {line}"))?;
        if self.dry_run {
            return Ok(());
        }
        let status = std::process::Command::new(program).args(args).status();
        let status = status.map_err(|error| {
            Failure(UNAVAILABLE, format!("cannot run {program}: {error}; is systemd there?"))
        })?;
        if !status.success() {
            return Err(Failure(UNAVAILABLE, format!("`{line}` failed: {status}")).into());
        }
        Ok(())
    }
}

/// Whether nobody but root can write to a file, or to a directory above it.
fn only_root_replaces(path: &Path) -> std::io::Result<bool> {
    for part in path.ancestors() {
        let found = part.metadata()?;
        let sticky = found.is_dir() && found.mode() & 0o1000 != 0;
        let group = if found.is_dir() && found.gid() == 0 { 0 } else { 0o020 };
        if found.uid() != 0 || (found.mode() & (0o002 | group) != 0 && !sticky) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn a_program_below_somebody_elses_directory_is_somebody_elses() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root has what others cannot replace.
        }
        let work = tempfile::tempdir().expect("a directory");
        let (bin, program) = (work.path().join("bin"), work.path().join("bin/holdall"));
        std::fs::create_dir(&bin).expect("made");
        std::fs::write(&program, "").expect("made");
        assert!(only_root_replaces(&program).expect("there"));
        chown(&bin, Some(1234), None).expect("root may");
        assert!(!only_root_replaces(&program).expect("there"), "whose directory it is");
        chown(&bin, Some(0), Some(1234)).expect("root may");
        std::fs::set_permissions(&bin, PermissionsExt::from_mode(0o775)).expect("ours");
        assert!(!only_root_replaces(&program).expect("there"), "a group may write there");
    }
}
