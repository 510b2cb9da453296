//! The clients: each runs one `holdall run` after the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use rand_pcg::Pcg64Mcg;

use crate::journal::{Journal, RunNo, What};
use crate::plan::{Course, Errand, errand, random};
use crate::process::{Process, command};

/// A run that goes on.
pub struct Run {
    child: Child,
    said: PathBuf,
    /// Its wrapper.
    pub wrapper: Arc<Process>,
    /// The cell of its agent.
    pub home: usize,
}

impl Run {
    /// What it has said so far.
    pub fn told(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().chars().take(600).collect()
    }
}

/// Where everything is.
pub struct Place<'a> {
    /// The program.
    pub exe: &'a Path,
    /// What has the commands of runs in it.
    pub torturer: &'a Path,
    /// The directory.
    pub work: &'a Path,
    /// The sockets of the agents.
    pub sockets: &'a [PathBuf],
    /// What happened.
    pub journal: &'a Journal,
}

/// All clients.
pub struct Clients {
    /// What goes on, by number; and which client it belongs to.
    pub runs: BTreeMap<RunNo, (usize, Run)>,
    drawn: Vec<Pcg64Mcg>,
    next: RunNo,
}

impl Clients {
    /// So many.
    pub fn new(count: usize, seed: u64) -> Self {
        let drawn = (0..count).map(|client| random(seed, 1 + client as u64)).collect();
        Self { runs: BTreeMap::new(), drawn, next: 1 }
    }

    /// Whoever does nothing asks for something.
    ///
    /// # Errors
    /// If nothing can be started.
    pub fn go_on(&mut self, course: &Course, place: &Place<'_>) -> io::Result<()> {
        let mut idle = vec![true; self.drawn.len()];
        for (client, _) in self.runs.values() {
            idle[*client] = false;
        }
        for client in (0..idle.len()).filter(|client| idle[*client]) {
            let home = client % course.cells;
            let errand = errand(course, home, &mut self.drawn[client]);
            self.start(client, home, &errand, place)?;
        }
        Ok(())
    }

    /// Starts a run. Its number.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        &mut self,
        client: usize,
        home: usize,
        errand: &Errand,
        place: &Place<'_>,
    ) -> io::Result<RunNo> {
        let run = self.next;
        self.next += 1;
        let said = place.work.join(format!("said-{run}"));
        let output = File::create(&said)?;
        let (works, number) = (errand.works.to_string(), run.to_string());
        let mut command = command(place.exe);
        command
            .args(["run", "-q", "--name"])
            .arg(format!("run-{run}"))
            .args(&errand.needs)
            .arg("--");
        command.arg(place.torturer).args(["torture", "--section"]).arg(place.work.join("store"));
        command.args(["--run", &number, "--home", &format!("c{home}"), "--works", &works]);
        command.args(errand.deaf.then_some("--deaf"));
        command.env("HOLDALL_AGENT", &place.sockets[home]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        place.journal.note(What::Asked { run, home, needs: errand.needs.join(" ") });
        let child = command.spawn()?;
        let wrapper = Arc::new(Process::of(child.id())?);
        self.runs.insert(run, (client, Run { child, said, wrapper, home }));
        Ok(run)
    }

    /// Takes note of those that are over.
    ///
    /// # Errors
    /// If what they said cannot be read.
    pub fn reap(&mut self, journal: &Journal) -> io::Result<()> {
        let mut over = Vec::new();
        for (number, (_, run)) in &mut self.runs {
            if let Some(status) = run.child.try_wait()? {
                over.push((*number, status));
            }
        }
        for (number, status) in over {
            let Some((_, run)) = self.runs.remove(&number) else { continue };
            let said = run.told();
            std::fs::remove_file(&run.said)?;
            let status = status.code().unwrap_or_else(|| -status.signal().unwrap_or(1));
            journal.note(What::Done { run: number, status, said });
        }
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for (_, run) in self.runs.values_mut() {
            run.wrapper.kill();
            drop(run.child.wait());
        }
    }
}
