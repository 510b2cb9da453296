//! Runs every script in `tests/acceptance/`, with the path of the command in `HOLDALL`.

use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn the_acceptance_scripts_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scripts = std::fs::read_dir(root.join("tests/acceptance")).expect("the folder is there");
    let mut scripts: Vec<_> = scripts.map(|entry| entry.expect("readable").path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    // Named together at the end: one failure does not hide another.
    let mut failed = Vec::new();
    for script in scripts {
        // Whoever runs the tests in the background may have SIGINT ignored, and no script could undo it.
        let out = Command::new("env")
            .args(["--default-signal=INT,QUIT".as_ref(), script.as_os_str()])
            .current_dir(&root)
            .env("HOLDALL", env!("CARGO_BIN_EXE_holdall"))
            .output()
            .expect("the script starts");
        let (told, errors) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        print!("{told}{errors}");
        for line in errors.lines().filter(|line| line.contains("NOT TRIED")) {
            // Not captured, so that it is seen.
            writeln!(std::io::stderr(), "{line}").expect("open");
        }
        if !out.status.success() {
            failed.push(script);
        }
    }
    assert!(failed.is_empty(), "failed, to be run again with HOLDALL set: {failed:?}");
}
