//! A cell whose log is in etcd, beside those of the machines, which host it: the last one, and nobody's home. Who leads it is killed,
//! stopped for longer than its lease in etcd, and told to hand over; members of etcd are killed and stopped, two at a time,
//! too. What is asked of it is judged as all else is.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::RngExt;

use crate::agents::Agent;
use crate::ground::Ground;
use crate::journal::{self, Journal, What};
use crate::members::{COUNT, Members, is_installed};
use crate::plan::{Course, random};
use crate::process::Process;

/// How long a leader is waited for that is not heard of, in milliseconds.
const LEASE: u64 = 5000;
/// How long etcd may take to begin.
const BEGINS: Duration = Duration::from_secs(60);

/// The locks that it guards, beside a board of three units.
const LOCKS: [&str; 3] = ["scope", "db", "keep"];

/// All that a cell like this one guards.
pub fn everything(name: &str) -> Vec<String> {
    let locks = LOCKS.map(|lock| format!("{lock}@{name}"));
    locks.into_iter().chain([format!("board@{name}:all")]).collect()
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Who leads is killed; its agent starts it again.
    KillLeader,
    /// Who leads is stopped for so many milliseconds.
    PauseLeader(u64),
    /// This machine is to lead.
    Move(usize),
    /// A member of etcd is killed, and started again after so many milliseconds.
    KillMember(usize, u64),
    /// So many of them are stopped for so many milliseconds.
    PauseMembers(usize, u64),
}

/// Something that is undone at its time.
enum Undo {
    Resume(Process),
    Start(usize),
    ResumeMember(usize),
}

/// The cell.
pub struct Replicated {
    members: Members,
    /// Its number, after those of all machines.
    cell: usize,
    /// Where its hosts can be reached, each as long as it leads.
    hosts: Vec<PathBuf>,
    planned: VecDeque<(u64, Fault)>,
    undo: Vec<(Instant, Undo)>,
    journal: Arc<Journal>,
}

/// All that is done, and when.
pub fn plan(course: &Course) -> VecDeque<(u64, Fault)> {
    let mut rng = random(course.seed, u64::MAX / 2);
    let (mut all, mut at) = (VecDeque::new(), 500);
    while at < course.millis {
        let member = rng.random_range(0..COUNT);
        let millis = rng.random_range(500..LEASE);
        let fault = match rng.random_range(0..10) {
            0..=2 => Fault::KillLeader,
            // Longer than it leads without being heard of: then two believe to lead.
            3..=4 => Fault::PauseLeader(LEASE + rng.random_range(500..4000)),
            5..=6 => Fault::Move(rng.random_range(0..course.cells)),
            7 => Fault::KillMember(member, millis),
            8 => Fault::PauseMembers(1, millis),
            _ => Fault::PauseMembers(2, millis),
        };
        all.push_back((at, fault));
        at += rng.random_range(1000..6000);
    }
    all
}

impl Replicated {
    /// Starts etcd, and has all machines host the cell.
    ///
    /// # Errors
    /// If etcd is missing or does not begin, or the cell cannot be made.
    pub fn start(
        course: &Course,
        work: &std::path::Path,
        agents: &[Agent],
        ground: &Ground,
        journal: Arc<Journal>,
    ) -> anyhow::Result<Self> {
        ensure!(is_installed(), "--replicated needs etcd: install etcd-server");
        let (at, inside) = ground.beside()?;
        let members = Members::start(work.join("etcd"), at, inside)?;
        let cell = course.cells;
        let name = format!("c{cell}");
        let hosts: Vec<_> = (0..cell).map(|host| format!("c{host}")).collect();
        let (store, among) = (members.store(), hosts.join(","));
        let until = Instant::now() + BEGINS;
        let first = agents.first().context("there is no machine")?;
        while let Err(error) =
            first.ask(&["cell", "add", &name, "--store", &store, "--hosts", &among])
        {
            ensure!(Instant::now() < until, "{error:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
        first.ask(&["pool", "add", &format!("board@{name}"), "--units", "3"])?;
        for pool in LOCKS {
            first.ask(&["pool", "add", &format!("{pool}@{name}"), "--lock"])?;
        }
        let at = |host: &String| work.join(host).join("data/cells").join(&name).join("agent.sock");
        let hosts = hosts.iter().map(at).collect();
        Ok(Self { members, cell, hosts, planned: plan(course), undo: Vec::new(), journal })
    }

    /// Does what is due by now, `millis` after the beginning.
    ///
    /// # Errors
    /// If nothing can be started.
    pub fn go_on(&mut self, millis: u64, agents: &mut [Agent]) -> anyhow::Result<()> {
        while let Some((_, fault)) = self.planned.pop_front_if(|(at, _)| *at <= millis) {
            self.strike(fault, agents)?;
        }
        self.undo_what_is_due(Instant::now())
    }

    /// Nothing is wrong with it any more.
    ///
    /// # Errors
    /// If a member cannot be started.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        let longest = self.undo.iter().map(|(at, _)| *at).max();
        self.undo_what_is_due(longest.unwrap_or_else(Instant::now))
    }

    /// Who leads: whoever listens.
    fn leader(&self) -> Option<Process> {
        let listens = |host: &PathBuf| {
            let stream = UnixStream::connect(host).ok()?;
            let by = rustix::net::sockopt::socket_peercred(stream).ok()?;
            Process::of(by.pid.as_raw_nonzero().get() as u32).ok()
        };
        self.hosts.iter().find_map(listens)
    }

    fn note(&self, how: journal::Agent) {
        self.journal.note(What::Agent { cell: self.cell, how });
    }

    fn later(&mut self, millis: u64, undo: Undo) {
        self.undo.push((Instant::now() + Duration::from_millis(millis), undo));
    }

    fn strike(&mut self, fault: Fault, agents: &mut [Agent]) -> anyhow::Result<()> {
        match fault {
            Fault::KillLeader => {
                if let Some(leader) = self.leader() {
                    self.note(journal::Agent::Killed);
                    leader.kill();
                }
            }
            Fault::PauseLeader(millis) => {
                if let Some(leader) = self.leader() {
                    self.note(journal::Agent::Paused);
                    leader.pause();
                    self.later(millis, Undo::Resume(leader));
                }
            }
            Fault::Move(host) => {
                let (cell, host) = (format!("c{}", self.cell), format!("c{host}"));
                agents[0].say(&["cell", "move", &cell, &host])?;
            }
            Fault::KillMember(member, millis) => {
                if self.members.kill(member) {
                    self.note_member(member, journal::Agent::Killed);
                    self.later(millis, Undo::Start(member));
                }
            }
            Fault::PauseMembers(count, millis) => {
                for member in 0..count {
                    self.note_member(member, journal::Agent::Paused);
                    self.members.pause(member, true);
                    self.later(millis, Undo::ResumeMember(member));
                }
            }
        }
        Ok(())
    }

    fn note_member(&self, member: usize, how: journal::Agent) {
        self.journal.note(What::Member { member, how });
    }

    fn undo_what_is_due(&mut self, now: Instant) -> anyhow::Result<()> {
        let due: Vec<_> = self.undo.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, undo) in due {
            match undo {
                Undo::Resume(leader) => {
                    leader.resume();
                    self.note(journal::Agent::Resumed);
                }
                Undo::Start(member) => {
                    self.members.run(member)?;
                    self.note_member(member, journal::Agent::Started);
                }
                Undo::ResumeMember(member) => {
                    self.members.pause(member, false);
                    self.note_member(member, journal::Agent::Resumed);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Replicated {
    /// Nothing is left that stands still.
    fn drop(&mut self) {
        for (_, undo) in self.undo.drain(..) {
            if let Undo::Resume(leader) = undo {
                leader.resume();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COURSE: Course =
        Course { cells: 3, replicated: true, millis: 600_000, lease: 6000, seed: 7 };

    #[test]
    fn everything_is_done_to_it() {
        let plan = plan(&COURSE);
        let has = |of: &dyn Fn(&Fault) -> bool| plan.iter().any(|(_, fault)| of(fault));
        assert!(has(&|it| matches!(it, Fault::KillLeader)));
        assert!(has(&|it| matches!(it, Fault::PauseLeader(millis) if *millis > LEASE)));
        assert!(has(&|it| matches!(it, Fault::KillMember(..))));
        for count in 1..=2 {
            assert!(has(&|it| matches!(it, Fault::PauseMembers(of, _) if *of == count)));
        }
        for host in 0..3 {
            assert!(has(&|it| *it == Fault::Move(host)));
        }
        assert!(plan.iter().is_sorted_by_key(|(at, _)| *at));
        assert!(plan.iter().all(|(at, _)| *at < COURSE.millis));
    }
}
