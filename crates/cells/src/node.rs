//! A machine: a cell with its log, its clock and its leases.

use std::collections::BTreeMap;

use holdall_cell::engine::{Member, TimerNo};
use holdall_cell::greeting::Presence;
use holdall_cell::lease::Leases;
use holdall_cell::replay::{LOGIC, Recorded, Replay};
use holdall_cell::{Cell, Cluster, Declared, Effect, Input, Limits, Out, Start};
use holdall_core::CellId;
use holdall_wire::Kind;

use crate::{Mutant, TERMS};

/// What is on the disk of a machine.
#[derive(Default)]
pub(crate) struct Disk {
    records: Vec<(u32, Vec<u8>)>,
    synced: usize,
    epoch: u32,
    life: u128,
    /// Whether the machine has lost power since the last start.
    torn: bool,
}

/// A cell that runs.
pub(crate) struct Running {
    pub(crate) cell: Cell,
    pub(crate) leases: Leases,
    pub(crate) timers: BTreeMap<TimerNo, u64>,
    /// The connection to each other cell, as far as this one knows.
    pub(crate) links: BTreeMap<usize, u64>,
    pub(crate) last_beat: u64,
}

/// A machine.
pub(crate) struct Node {
    pub(crate) member: Member,
    pub(crate) disk: Disk,
    pub(crate) running: Option<Running>,
    /// How many parts in a thousand its clock is fast.
    pub(crate) fast: i64,
    boots: u32,
    logic: u32,
    /// It is gone for good.
    pub(crate) dead: bool,
    /// Others were told so.
    pub(crate) forgotten: bool,
}

/// How long a rung of a timer is.
fn delay(rung: u8) -> u64 {
    25 << rung.min(10)
}

impl Node {
    pub(crate) fn new(index: usize, fast: i64) -> Self {
        let name = format!("c{index}").parse().expect("a name");
        let member = Member { name, cell: CellId(100 + index as u64) };
        let (disk, running, boots) = (Disk::default(), None, 0);
        Self { member, disk, running, fast, boots, logic: LOGIC, dead: false, forgotten: false }
    }

    /// The time by its own clock.
    pub(crate) fn clock(&self, at: u64) -> u64 {
        1_000_000 + at.saturating_add_signed(at as i64 * self.fast / 1000)
    }

    /// Pools: two boards and two locks everywhere.
    fn pools() -> Vec<Declared> {
        let pool =
            |name: &str, kind| Declared { name: name.parse().expect("a name"), kind, limit: None };
        vec![pool("board", Kind::Numbered(2)), pool("scope", Kind::Lock), pool("slow", Kind::Lock)]
    }

    /// Starts: the log is replayed, and goes on.
    pub(crate) fn start(
        &mut self,
        at: u64,
        others: Vec<Member>,
        (fresh_life, upgrade): (u128, bool),
        waits: bool,
        mutant: Option<Mutant>,
    ) -> Result<Vec<Effect>, String> {
        self.logic += u32::from(upgrade);
        let mut replay = Replay::new(self.logic, None).map_err(|why| why.to_string())?;
        for (logic, record) in &self.disk.records {
            replay.take(*logic, record).map_err(|why| why.to_string())?;
        }
        let replayed = replay.finish().map_err(|why| why.to_string())?;
        if let Some(diverged) = replayed.diverged {
            return Err(diverged.to_string());
        }
        self.disk.epoch += 1;
        let lost = std::mem::take(&mut self.disk.torn);
        if lost && mutant != Some(Mutant::OldLife) || self.disk.life == 0 {
            self.disk.life = fresh_life;
        }
        self.boots += u32::from(lost);
        let clock = self.clock(at);
        let patience = match mutant {
            Some(Mutant::NoRecovery) => 0,
            _ => TERMS.lease + TERMS.grace,
        };
        let cells: Vec<_> = others.iter().map(|other| other.cell).collect();
        let start = Start {
            epoch: self.disk.epoch,
            life: self.disk.life,
            lost,
            boot: format!("boot{}", self.boots).into(),
            boottime: clock,
            wall: clock,
            rebuilt: replayed.from_facts,
            ephemeral: true,
            pools: Self::pools(),
            limits: Limits::default(),
            cluster: Some(Cluster {
                own: self.member.clone(),
                members: others,
                patience,
                stopping: TERMS.stopping,
            }),
            waits: if waits { vec!["slow".parse().expect("a name")] } else { Vec::new() },
        };
        let terms = match mutant {
            Some(Mutant::NoGrace) => holdall_cell::lease::Terms { grace: 0, ..TERMS },
            _ => TERMS,
        };
        let leases = Leases::new(terms, clock, cells);
        let (timers, links) = (BTreeMap::new(), BTreeMap::new());
        let cell = replayed.cell;
        self.running = Some(Running { cell, leases, timers, links, last_beat: 0 });
        self.input(at, Input::Started(start))
    }

    /// Takes an input, and logs what came of it. What follows may leave.
    pub(crate) fn input(&mut self, at: u64, input: Input) -> Result<Vec<Effect>, String> {
        let clock = self.clock(at);
        let Some(running) = &mut self.running else { return Ok(Vec::new()) };
        let writing = Recorded::begin(clock, &input).map_err(|why| why.to_string())?;
        let out: Out = running.cell.step(clock, input).map_err(|why| why.to_string())?;
        running.cell.books().check()?;
        if out.is_new {
            let (logic, disk) = (self.logic, &mut self.disk);
            let written = writing.end(&out.facts).map_err(|why| why.to_string())?;
            let append = |payload: &[u8]| {
                disk.records.push((logic, payload.to_vec()));
                Ok::<_, std::convert::Infallible>(())
            };
            let Ok(()) = written.append(append);
        }
        if out.sync {
            self.disk.synced = self.disk.records.len();
        }
        for effect in &out.effects {
            match effect {
                Effect::Arm(timer, rung, since) => {
                    running.timers.insert(*timer, since + delay(*rung));
                }
                Effect::Disarm(timer) => drop(running.timers.remove(timer)),
                _ => {}
            }
        }
        Ok(out.effects)
    }

    /// The agent is killed; the machine goes on.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// The machine loses power: `kept` of a hundred records that were not synced are there afterwards, the first ones.
    pub(crate) fn lose_power(&mut self, kept: usize) {
        self.running = None;
        let unsynced = self.disk.records.len() - self.disk.synced;
        self.disk.records.truncate(self.disk.synced + unsynced * kept / 100);
        self.disk.synced = self.disk.records.len();
        self.disk.torn = true;
    }

    /// What it tells others of itself.
    pub(crate) fn presence(&self) -> Presence {
        let Disk { life, epoch, .. } = self.disk;
        let length = self.disk.records.len() as u64;
        Presence { life, epoch, nonce: u128::from(epoch), length }
    }

    /// The timers that ring by now.
    pub(crate) fn ringing(&mut self, at: u64) -> Vec<TimerNo> {
        let clock = self.clock(at);
        let Some(running) = &mut self.running else { return Vec::new() };
        let due = running.timers.iter().filter(|(_, due)| **due <= clock);
        let due: Vec<_> = due.map(|(timer, _)| *timer).collect();
        running.timers.retain(|timer, _| !due.contains(timer));
        due
    }
}
