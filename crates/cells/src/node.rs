//! A machine: a cell with its log, its clock and its leases.

use std::collections::{BTreeMap, BTreeSet};

use holdall_cell::engine::{Member, TimerNo};
use holdall_cell::greeting::{First, Known, Presence, Stranger};
use holdall_cell::lease::Leases;
use holdall_cell::replay::{LOGIC, Recorded, Replay};
use holdall_cell::session::{CallNo, ConnNo};
use holdall_cell::{Cell, Cluster, Declared, Effect, Input, Limits, Out, Start};
use holdall_core::CellId;
use holdall_wire::{Kind, Reply};

use crate::late::Waiting;
use crate::{Mutant, TERMS};

/// What is on the disk of a machine.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    /// What the records before these led to, and the logic that wrote it.
    snapshot: Option<(u32, Vec<u8>)>,
    records: Vec<(u32, Vec<u8>)>,
    synced: usize,
    /// Where the log is late: how many records are written.
    written: usize,
    /// How many records there ever were before these.
    before: u64,
    epoch: u32,
    life: u128,
    /// Whether the machine has lost power since the last start.
    torn: bool,
    /// Whether others have known more of this life than these records tell, as they have said.
    behind: bool,
}

/// How long whoever is behind waits for what others hold: until somebody has seen to it.
const FOREVER: u64 = 1 << 45;

impl Disk {
    /// How many records there ever were.
    fn length(&self) -> u64 {
        self.before + self.records.len() as u64
    }
}

/// A cell that runs.
pub(crate) struct Running {
    pub(crate) cell: Cell,
    pub(crate) leases: Leases,
    pub(crate) timers: BTreeMap<TimerNo, u64>,
    /// The connection to each other cell, as far as this one knows.
    pub(crate) links: BTreeMap<usize, u64>,
    /// The connections over which another one has not said yet what it knows, and how it has greeted.
    pub(crate) meetings: BTreeMap<usize, (u64, Presence)>,
    /// What is known of the others.
    pub(crate) known: BTreeMap<usize, Presence>,
    pub(crate) last_beat: u64,
    pub(crate) nonce: u128,
    /// What waits for the log, if that is late.
    pub(crate) held: Waiting,
    /// Grants of which is not known yet until when they may be used.
    pub(crate) untold: Vec<(ConnNo, CallNo, Reply)>,
    /// How long the log was when it was last heard of what another one holds here, or that was taken from it.
    pub(crate) settled: BTreeMap<usize, u64>,
    /// The epoch of the start.
    epoch: u32,
    /// How many records there ever were when it started.
    began: u64,
}

/// A machine.
pub(crate) struct Node {
    pub(crate) member: Member,
    pub(crate) disk: Disk,
    /// A copy of its disk, from some time before.
    copy: Option<Disk>,
    pub(crate) running: Option<Running>,
    /// How many parts in a thousand its clock is fast.
    pub(crate) fast: i64,
    boots: u32,
    logic: u32,
    /// Whether there is a pool of which others keep what they have.
    pub(crate) waits: bool,
    /// It was started from a copy, and nobody has let it in yet; its clients wait for that.
    pub(crate) is_copy: bool,
    /// It was, once.
    pub(crate) was_copy: bool,
    /// Its next start is from another disk than the one before, which it sees.
    is_doubtful: bool,
    /// Who has let it in since.
    let_in_by: BTreeSet<usize>,
    /// The highest epoch that another one knew that did not let it in.
    refused: Option<u32>,
    /// It is gone for good.
    pub(crate) dead: bool,
    /// Others were told so.
    pub(crate) forgotten: bool,
    /// It has not joined yet.
    pub(crate) is_absent: bool,
    /// It says what it likes.
    pub(crate) is_hostile: bool,
    /// Its log is somewhere else, and written late.
    pub(crate) is_late: bool,
}

/// How a machine starts.
pub(crate) struct Starting {
    pub(crate) others: Vec<(usize, Member)>,
    /// Those who were given up.
    pub(crate) forgotten: Vec<CellId>,
    /// Its life, should it need another one.
    pub(crate) life: u128,
    pub(crate) nonce: u128,
    /// Whether it is another version, which builds its engine from the facts.
    pub(crate) upgrade: bool,
    /// How many boards its configuration has.
    pub(crate) boards: u32,
    /// For how long anybody has one at most.
    pub(crate) limit: Option<u64>,
}

/// How long a rung of a timer is.
fn delay(rung: u8) -> u64 {
    25 << rung.min(10)
}

impl Node {
    pub(crate) fn new(index: usize, fast: i64, waits: bool) -> Self {
        let name = format!("c{index}").parse().expect("a name");
        Self {
            member: Member { name, cell: CellId(100 + index as u64) },
            disk: Disk::default(),
            copy: None,
            running: None,
            fast,
            boots: 0,
            logic: LOGIC,
            waits,
            is_copy: false,
            was_copy: false,
            is_doubtful: false,
            let_in_by: BTreeSet::new(),
            refused: None,
            dead: false,
            forgotten: false,
            is_absent: false,
            is_hostile: false,
            is_late: false,
        }
    }

    /// Whether its clients have nothing to do.
    pub(crate) fn is_out_of_use(&self) -> bool {
        self.dead || self.is_absent || self.is_copy || self.is_hostile
    }

    /// The time by its own clock.
    pub(crate) fn clock(&self, at: u64) -> u64 {
        1_000_000 + at.saturating_add_signed(at as i64 * self.fast / 1000)
    }

    /// Pools: some boards and two locks everywhere.
    fn pools(boards: u32, limit: Option<u64>) -> Vec<Declared> {
        let pool =
            |name: &str, kind, limit| Declared { name: name.parse().expect("a name"), kind, limit };
        vec![
            pool("board", Kind::Numbered(boards), limit),
            pool("scope", Kind::Lock, None),
            pool("slow", Kind::Lock, None),
        ]
    }

    /// Starts: the log is replayed, and goes on.
    pub(crate) fn start(
        &mut self,
        at: u64,
        starting: Starting,
        mutant: Option<Mutant>,
    ) -> Result<Vec<Effect>, String> {
        let Starting { others, forgotten, life: fresh_life, nonce, upgrade, boards, limit } =
            starting;
        self.logic += u32::from(upgrade);
        let snapshot = self.disk.snapshot.as_ref().map(|(logic, bytes)| (*logic, &bytes[..]));
        let mut replay = Replay::new(self.logic, snapshot).map_err(|why| why.to_string())?;
        for (logic, record) in &self.disk.records {
            replay.take(*logic, record).map_err(|why| why.to_string())?;
        }
        let replayed = replay.finish().map_err(|why| why.to_string())?;
        if let Some(diverged) = replayed.diverged {
            return Err(diverged.to_string());
        }
        // An operator who declares the memory of a copy lost says which epoch others know.
        let beyond = self.refused.take().map_or(0, Presence::epoch_beyond);
        self.disk.epoch = self.disk.epoch.max(beyond);
        self.disk.epoch += 1;
        let lost = std::mem::take(&mut self.disk.torn);
        if lost && mutant != Some(Mutant::OldLife) || self.disk.life == 0 {
            (self.disk.life, self.disk.behind) = (fresh_life, false);
        }
        let is_behind = self.disk.behind;
        self.boots += u32::from(lost);
        let clock = self.clock(at);
        let patience = match mutant {
            Some(Mutant::NoRecovery) => 0,
            _ if is_behind => FOREVER,
            _ => TERMS.patience(),
        };
        let cells: Vec<_> = others.iter().map(|(_, other)| other.cell).collect();
        let ties = replayed.cell.books().ties();
        let known = others.iter().filter_map(|(at, other)| Some((*at, *ties.met(other.cell)?)));
        let known = known.collect();
        let members = others.into_iter().map(|(_, member)| member).collect();
        let start = Start {
            epoch: self.disk.epoch,
            life: self.disk.life,
            nonce,
            began: self.disk.length(),
            lost,
            doubtful: (std::mem::take(&mut self.is_doubtful) || is_behind)
                && mutant != Some(Mutant::CopyAccepted),
            boot: format!("boot{}", self.boots).into(),
            boottime: clock,
            wall: clock,
            rebuilt: replayed.from_facts,
            ephemeral: true,
            pools: Self::pools(boards, limit),
            limits: Limits::default(),
            cluster: Some(Cluster {
                own: self.member.clone(),
                members,
                forgotten,
                stopping: TERMS.stopping,
            }),
            patience,
            waits: if self.waits { vec!["slow".parse().expect("a name")] } else { Vec::new() },
        };
        let terms = match mutant {
            Some(Mutant::NoGrace) => holdall_cell::lease::Terms { grace: 0, ..TERMS },
            _ => TERMS,
        };
        let leases = Leases::new(terms, clock, cells);
        let (timers, links, meetings) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let cell = replayed.cell;
        let (last_beat, epoch, began) = (0, self.disk.epoch, self.disk.length());
        let (held, untold, settled) = (Waiting::new(), Vec::new(), BTreeMap::new());
        self.disk.written = self.disk.records.len();
        let running = Running {
            cell,
            leases,
            timers,
            links,
            meetings,
            known,
            last_beat,
            nonce,
            held,
            untold,
            settled,
            epoch,
            began,
        };
        self.running = Some(running);
        self.input(at, Input::Started(Box::new(start)))
    }

    /// Takes an input, and logs what came of it. What follows may leave.
    pub(crate) fn input(&mut self, at: u64, input: Input) -> Result<Vec<Effect>, String> {
        let clock = self.clock(at);
        let Some(running) = &mut self.running else { return Ok(Vec::new()) };
        let writing = Recorded::begin(clock, &input).map_err(|why| why.to_string())?;
        let out: Out = running.cell.step(clock, input).map_err(|why| why.to_string())?;
        running.cell.books().check()?;
        self.disk.epoch = self.disk.epoch.max(running.cell.epoch());
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

    /// The agent ends when all that it did is in the log.
    pub(crate) fn stop(&mut self) {
        self.disk.written = self.disk.records.len();
        self.running = None;
    }

    /// The agent is killed; the machine goes on. Where the log is late, what is not written is gone.
    pub(crate) fn kill(&mut self) {
        self.running = None;
        if self.is_late {
            self.disk.records.truncate(self.disk.written);
        }
    }

    /// How many records there ever were.
    pub(crate) fn length(&self) -> u64 {
        self.disk.length()
    }

    /// How many of them others may hear of.
    pub(crate) fn written(&self) -> u64 {
        match self.is_late {
            true => self.disk.before + self.disk.written as u64,
            false => self.disk.length(),
        }
    }

    /// The log is written up to here; not if whoever has written that runs no more.
    pub(crate) fn is_written(&mut self, nonce: u128, length: u64) -> bool {
        let is_same = self.running.as_ref().is_some_and(|running| running.nonce == nonce);
        if is_same {
            let written = length.saturating_sub(self.disk.before) as usize;
            self.disk.written = self.disk.written.max(written);
        }
        is_same
    }

    /// The machine loses power: `kept` of a hundred records that were not synced are there afterwards, the first ones.
    pub(crate) fn lose_power(&mut self, kept: usize) {
        if self.is_late {
            return self.kill(); // Its log is not on this machine.
        }
        self.running = None;
        let unsynced = self.disk.records.len() - self.disk.synced;
        self.disk.records.truncate(self.disk.synced + unsynced * kept / 100);
        self.disk.synced = self.disk.records.len();
        self.disk.torn = true;
        self.is_copy = false;
    }

    /// The machine loses power, and all that is on its disk but the epoch.
    pub(crate) fn lose_log(&mut self) {
        self.running = None;
        self.disk = Disk { epoch: self.disk.epoch, torn: true, ..Disk::default() };
    }

    /// What it tells others of itself.
    pub(crate) fn presence(&self) -> Presence {
        let (life, length) = (self.disk.life, self.written());
        let running = self.running.as_ref();
        let start = running.map(|running| (running.epoch, running.nonce, running.began));
        let (epoch, nonce, began) = start.unwrap_or_default();
        Presence { life, epoch, nonce, began, length }
    }

    /// What was logged is kept as what it has led to.
    pub(crate) fn snapshot(&mut self) -> Result<(), String> {
        let is_all = self.length() == self.written();
        let Some(running) = self.running.as_ref().filter(|_| is_all) else { return Ok(()) };
        let bytes = running.cell.snapshot().map_err(|why| why.to_string())?;
        self.disk.before += self.disk.records.len() as u64;
        self.disk.records.clear();
        (self.disk.synced, self.disk.written) = (0, 0);
        self.disk.snapshot = Some((self.logic, bytes));
        Ok(())
    }

    /// Its disk is copied.
    pub(crate) fn back_up(&mut self) {
        let mut copy = self.disk.clone();
        if self.is_late {
            copy.records.truncate(copy.written);
        }
        self.copy = Some(copy);
    }

    /// It will start from a copy of its disk, and not know it.
    pub(crate) fn restore(&mut self) -> bool {
        let Some(copy) = self.copy.clone() else { return false };
        self.running = None;
        (self.disk, self.is_copy, self.was_copy, self.is_doubtful) = (copy, true, true, true);
        self.disk.torn = false;
        self.let_in_by.clear();
        true
    }

    /// What a copy of its disk would tell others, if it is of the life in which it is.
    pub(crate) fn would_be(&self) -> Option<Presence> {
        let copy = self.copy.as_ref().filter(|copy| copy.life == self.disk.life)?;
        let (life, epoch, length) = (copy.life, self.disk.epoch + 1, copy.length());
        Some(Presence { life, epoch, nonce: 0, began: length, length })
    }

    /// Its log is put back to what it was, and nothing of that can be seen at the start.
    pub(crate) fn put_back(&mut self) {
        let epoch = self.disk.epoch;
        if self.restore() {
            (self.is_copy, self.is_doubtful, self.disk.epoch) = (false, false, epoch);
        }
    }

    /// Whether its log is not all that another one knows of it, as that one says.
    pub(crate) fn misses(&self, by: CellId, known: &Known) -> Option<Stranger> {
        let running = self.running.as_ref()?;
        running.cell.books().check_known(by, known, self.length()).err()
    }

    /// What it knows of another one.
    pub(crate) fn knows_of(&self, other: CellId) -> Known {
        let running = self.running.as_ref();
        running.map_or_else(Known::default, |running| running.cell.books().ties().known_of(other))
    }

    /// What it says first to another one.
    pub(crate) fn first(&self, other: CellId) -> First {
        let known = self.knows_of(other);
        let running = self.running.as_ref();
        running.map_or_else(First::default, |it| it.cell.books().ties().first(known))
    }

    /// Others have known more of it than its log tells, and have said so.
    pub(crate) fn is_outdone(&mut self) {
        self.running = None;
        self.disk.behind = true;
    }

    /// Whether it talks to nobody.
    pub(crate) fn is_behind(&self) -> bool {
        self.disk.behind
    }

    /// It was let in by one of the others.
    pub(crate) fn is_let_in(&mut self, by: usize, all: &[usize]) {
        self.let_in_by.insert(by);
        self.is_copy &= !all.iter().all(|other| self.let_in_by.contains(other));
    }

    /// The copy of its disk is gone.
    pub(crate) fn lose_copy(&mut self) {
        self.copy = None;
    }

    /// It was not let in by somebody who knew this epoch; whether that is news.
    pub(crate) fn is_refused(&mut self, epoch: u32) -> bool {
        let before = self.refused;
        self.refused = before.max(Some(epoch));
        before.is_none()
    }

    /// Its memory is declared lost, whatever it remembers.
    pub(crate) fn declare(&mut self) {
        self.running = None;
        (self.disk.torn, self.is_copy) = (true, false);
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
