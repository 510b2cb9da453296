//! `holdall agent install` and `uninstall`, with a stand-in for systemd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A directory of its own: for programs that stand in for systemd, and for an image.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(stage.0.path().join("bin")).expect("made");
        let script = format!(
            "#!/bin/sh\necho \"$(basename \"$0\") $*\" >>{}/ran\n",
            stage.0.path().display()
        );
        for program in ["systemctl", "systemd-sysusers"] {
            let path = stage.0.path().join("bin").join(program);
            fs::write(&path, &script).expect("written");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("ours");
        }
        stage
    }

    fn image(&self) -> std::path::PathBuf {
        self.0.path().join("image")
    }

    fn holdall(&self, args: &[&str]) -> Output {
        let path = format!("{}/bin:/usr/bin:/bin", self.0.path().display());
        Command::new(env!("CARGO_BIN_EXE_holdall"))
            .arg("agent")
            .args(args)
            .env_clear()
            .env("PATH", path)
            .output()
            .expect("it runs")
    }

    /// What a command that succeeds prints, without what differs from place to place.
    fn prints(&self, args: &[&str]) -> String {
        let out = self.holdall(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let program = fs::canonicalize(env!("CARGO_BIN_EXE_holdall")).expect("it is there");
        let text = String::from_utf8(out.stdout).expect("text");
        text.replace(&self.image().display().to_string(), "@IMAGE@")
            .replace(&program.display().to_string(), "@PROGRAM@")
    }

    fn ran(&self) -> Vec<String> {
        let ran = fs::read_to_string(self.0.path().join("ran")).unwrap_or_default();
        ran.lines()
            .map(|line| line.replace(&self.image().display().to_string(), "@IMAGE@"))
            .collect()
    }
}

#[test]
fn what_a_machine_gets_is_as_it_was_agreed() {
    let stage = Stage::new();
    let image = stage.image().display().to_string();
    let told = stage.prints(&["install", "--system", "--dry-run", "--root", &image]);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/install-system.txt");
    assert_eq!(told, fs::read_to_string(&golden).expect("it is there"), "{}", golden.display());
    assert!(!stage.image().exists() && stage.ran().is_empty(), "a dry run does nothing");
}

#[test]
fn systemd_is_told_in_order() {
    let stage = Stage::new();
    let lines = |text: String| {
        let run = text.lines().filter_map(|line| line.strip_prefix("run ").map(str::to_owned));
        run.collect::<Vec<_>>()
    };
    let machine = lines(stage.prints(&["install", "--system", "--dry-run", "--group", "lab"]));
    assert_eq!(
        machine,
        [
            "systemd-sysusers /etc/sysusers.d/holdall.conf",
            "systemctl daemon-reload",
            "systemctl enable --now holdall.socket"
        ]
    );
    let own = lines(stage.prints(&["install", "--dry-run"]));
    assert_eq!(
        own,
        ["systemctl --user daemon-reload", "systemctl --user enable --now holdall.socket"]
    );
}

#[test]
fn what_is_installed_can_be_uninstalled() {
    let stage = Stage::new();
    let image = stage.image().display().to_string();
    stage.prints(&["install", "--system", "--root", &image, "--group", "lab"]);
    let unit = |name: &str| stage.image().join("etc/systemd/system").join(name);
    let socket = fs::read_to_string(unit("holdall.socket")).expect("written");
    assert!(socket.contains("SocketGroup=lab\n") && socket.contains("SocketMode=0660\n"));
    let config = stage.image().join("etc/holdall.toml");
    fs::write(&config, "ephemeral = false\n").expect("ours");
    let again = stage.prints(&["install", "--system", "--root", &image]);
    assert!(again.contains("keep @IMAGE@/etc/holdall.toml"), "{again}");

    let gone = stage.prints(&["uninstall", "--system", "--root", &image]);
    assert!(gone.contains("keep @IMAGE@/etc/holdall.toml: while it is there"), "{gone}");
    assert!(config.exists() && !unit("holdall.socket").exists());
    assert!(!unit("holdall.service").exists());
    let enable = "systemctl --root=@IMAGE@ enable holdall.socket";
    let disable = "systemctl --root=@IMAGE@ disable holdall.socket holdall.service";
    assert_eq!(stage.ran(), [enable, enable, disable]);
    let nothing = stage.prints(&["uninstall", "--system", "--root", &image]);
    assert!(nothing.contains("nothing is installed"), "{nothing}");
}

#[test]
fn a_failing_systemctl_is_reported() {
    let stage = Stage::new();
    fs::write(stage.0.path().join("bin/systemctl"), "#!/bin/sh\nexit 3\n").expect("ours");
    let image = stage.image().display().to_string();
    let out = stage.holdall(&["install", "--system", "--root", &image]);
    let told = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(69), "{told}");
    assert!(told.contains("failed: exit status: 3"), "{told}");
}

#[test]
fn systemd_understands_the_units() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        return; // There is no systemd here to ask.
    };
    assert!(version.status.success());
    let stage = Stage::new();
    let image = stage.image().display().to_string();
    stage.prints(&["install", "--system", "--root", &image]);
    stage.prints(&["install", "--root", &image]);
    let home = nix::unistd::User::from_uid(nix::unistd::geteuid()).expect("known").expect("known");
    let home = home.dir.strip_prefix("/").expect("a full path").join(".config/systemd/user");
    let folders = [stage.image().join("etc/systemd/system"), stage.image().join(home)];
    for (folder, scope) in folders.iter().zip(["--system", "--user"]) {
        let units = ["holdall.socket", "holdall.service"].map(|unit| folder.join(unit));
        let out = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no", scope])
            .args(&units)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&out.stderr);
        // It may not be able to look at other units of this machine; ours must be beyond reproach.
        let ours: Vec<_> = told.lines().filter(|line| line.contains("holdall")).collect();
        assert!(ours.is_empty(), "{scope}: {told}");
    }
}
