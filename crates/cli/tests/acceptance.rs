//! Runs every script in `tests/acceptance/`, with the path of the command in `HOLDALL`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

/// How many scripts run at a time: most of what they do is to wait.
const AT_A_TIME: usize = 4;

/// Those that take longest begin first, so that the others fill the time beside them.
const LONGEST: [&str; 5] = ["docs.sh", "python.sh", "page.sh", "cluster.sh", "jobs.sh"];

#[test]
fn the_acceptance_scripts_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scripts = std::fs::read_dir(root.join("tests/acceptance")).expect("the folder is there");
    let mut scripts: Vec<_> = scripts.map(|entry| entry.expect("readable").path()).collect();
    scripts.sort_by_cached_key(|script| {
        (!LONGEST.iter().any(|long| script.ends_with(long)), script.clone())
    });
    assert!(!scripts.is_empty());
    let left = Mutex::new(scripts.into_iter());
    // Named together at the end: one failure does not hide another.
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(script) = { left.lock().expect("nobody panics").next() } {
                    if !passes(&root, &script) {
                        failed.lock().expect("nobody panics").push(script);
                    }
                }
            });
        }
    });
    let failed: Vec<PathBuf> = failed.into_inner().expect("nobody panics");
    assert!(failed.is_empty(), "failed, to be run again with HOLDALL set: {failed:?}");
}

fn passes(root: &Path, script: &Path) -> bool {
    let begun = Instant::now();
    // Whoever runs the tests in the background may have SIGINT ignored, and no script could undo it.
    let out = Command::new("env")
        .args(["--default-signal=INT,QUIT".as_ref(), script.as_os_str()])
        .current_dir(root)
        .env("HOLDALL", env!("CARGO_BIN_EXE_holdall"))
        .output()
        .expect("the script starts");
    let (told, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let seconds = begun.elapsed().as_secs();
    println!("{}: {}, {seconds} s\n{told}{errors}", script.display(), out.status);
    for line in errors.lines().filter(|line| line.contains("NOT TRIED")) {
        // Not captured, so that it is seen.
        writeln!(std::io::stderr(), "{line}").expect("open");
    }
    out.status.success()
}
