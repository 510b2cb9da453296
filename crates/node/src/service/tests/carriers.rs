//! Processes that are known by what is in their environment.

use std::process::{Child, Command};

use super::super::processes::carriers;
use super::*;

const GRANT: RequestNo = RequestNo((1 << 32) + 5);

/// A process with a grant in its environment, and the socket of the agent that it is of.
struct Carrier(Child);

impl Carrier {
    fn start(command: &mut Command, agent: &Path) -> Self {
        let command = command.env("HOLDALL_GRANT", GRANT.to_string());
        Self(command.env("HOLDALL_GRANT_AGENT", agent).spawn().expect("it starts"))
    }

    /// Waits until it is what it is to become; false if it does not.
    async fn sleeps(&mut self) -> bool {
        while self.0.try_wait().expect("ours").is_none() {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", self.0.id()));
            if name.is_ok_and(|name| name == "sleep\n") {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        false
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }
}

fn sleep() -> Command {
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    sleep
}

#[tokio::test]
async fn a_process_is_of_the_agent_that_it_sees() {
    let (_dir, dir) = directory();
    let (here, link, there) = (dir.join("here"), dir.join("link"), dir.join("there"));
    std::fs::create_dir(&here).expect("writable");
    std::fs::create_dir(&there).expect("writable");
    std::os::unix::fs::symlink(&here, &link).expect("writable");
    let mut ours = Carrier::start(&mut sleep(), &link.join("s"));
    let mut others = Carrier::start(&mut sleep(), &there.join("s"));
    let mut nobodys = Carrier::start(&mut sleep(), &here.join("t"));
    // In a container there is another directory of this name.
    let mut container = Command::new("unshare");
    let hide = format!("mount -t tmpfs none {} && exec sleep 1000", here.display());
    let mut hidden = Carrier::start(container.args(["-m", "sh", "-c", &hide]), &here.join("s"));
    for carrier in [&mut ours, &mut others, &mut nobodys] {
        assert!(carrier.sleeps().await);
    }
    // Only root may hide something.
    hidden.sleeps().await;
    let socket = here.join("s");
    let found = carriers(&socket, |grant| grant == GRANT).await.expect("a table of processes");
    assert_eq!(found.iter().map(|one| one.id().pid).collect::<Vec<_>>(), [ours.0.id()]);
    let found = carriers(&socket, |grant| grant != GRANT).await.expect("a table of processes");
    assert!(found.iter().all(|one| one.id().pid != ours.0.id()));
}
