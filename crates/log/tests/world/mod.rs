//! A process that uses a log on a simulated disk, what the world has seen of it, and what must be
//! true when the log is opened again.

use std::sync::Arc;

use holdall_log::disk::simulated::SimulatedDisk;
use holdall_log::epoch::Place;
use holdall_log::file::{Durability, FileLog, FileStore, Options};
use holdall_log::{
    Class, Entry, Error, Index, Life, Log, Lost, Memory, OpenError, Opened, SnapshotJob, Watch,
};

/// What a process does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Append {
        length: usize,
        class: Class,
        sync: bool,
    },
    Flush,
    /// What a thread would write while something is being synced.
    Write,
    Sync,
    RaiseEpoch,
    BeginSnapshot,
    KeepSnapshot,
    DropSnapshot,
    Seal,
    /// The process is killed, and another one starts.
    Kill,
    /// The machine loses power.
    Unplug(u64),
}

/// What the world has seen.
#[derive(Default)]
pub(crate) struct World {
    /// What was appended, by index.
    appended: Vec<u64>,
    drawn: u64,
    told: usize,
    synced: usize,
    epoch: u32,
    life: Option<Life>,
    /// How many records there were when memory was last said to be lost, or new.
    lost: Option<usize>,
    /// Whether the machine lost power since the log was last opened.
    unplugged: bool,
    sealed: bool,
    /// Whether an operation has failed since, perhaps a sync, in a process that was not killed by it.
    doubt: bool,
    /// Whether operations may fail without the process being killed.
    pub(crate) may_fail: bool,
    /// Whether an epoch may stay as it was, because the disk is full.
    pub(crate) full: bool,
    /// Where the epoch is kept besides.
    pub(crate) twin: SimulatedDisk,
}

/// A process.
pub(crate) struct Process {
    log: Option<Box<FileLog>>,
    watch: Watch,
    snapshot: Option<Box<dyn SnapshotJob>>,
}

fn store(disk: &SimulatedDisk, twin: &SimulatedDisk, options: Options) -> FileStore {
    let twin = Place::new(Arc::new(twin.clone()), "epoch-twin");
    FileStore::new(Arc::new(disk.clone()), Some(twin), options)
}

/// What a record with a number in it looks like.
fn payload(number: u64, length: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + length, number as u8);
    payload
}

fn number(payload: &[u8]) -> u64 {
    let (number, rest) = payload.split_at(8);
    let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
    assert!(rest.iter().all(|byte| *byte == number as u8), "a payload of another record");
    number
}

/// The state is the list of all numbers.
fn numbers(opened: &Opened) -> Vec<u64> {
    let mut state = snapshot_numbers(opened.snapshot.as_ref().map_or(&[], |s| &s.payload));
    let upto = opened.snapshot.as_ref().map_or(0, |snapshot| snapshot.upto.0);
    assert_eq!(state.len() as u64, upto, "a snapshot of another state");
    for record in &opened.records {
        assert_eq!(record.index, Index(state.len() as u64 + 1), "indexes have no gaps");
        state.push(number(&record.payload));
    }
    state
}

fn snapshot_numbers(payload: &[u8]) -> Vec<u64> {
    payload.chunks(8).map(|n| u64::from_le_bytes(n.try_into().expect("eight bytes"))).collect()
}

impl World {
    /// Opens the log, and sees whether it is as it must be.
    pub(crate) fn start(
        &mut self,
        disk: &SimulatedDisk,
        options: Options,
    ) -> Result<Result<Process, String>, OpenError> {
        let sealed = std::mem::take(&mut self.sealed); // Whoever tries to open it breaks the seal.
        let doubt = self.doubt;
        self.doubt |= self.may_fail; // A sync may fail.
        let (log, opened) = store(disk, &self.twin, options).open_file()?;
        self.doubt = doubt;
        self.sealed = sealed;
        Ok(self.judge(&opened, options.durability).map(|()| {
            let watch = log.watch();
            Process { log: Some(Box::new(log)), watch, snapshot: None }
        }))
    }

    fn judge(&mut self, opened: &Opened, durability: Durability) -> Result<(), String> {
        let state = numbers(opened);
        let told = |wrong: &str| Err(format!("{wrong}: {:?}, {state:?}", opened.memory));
        if !self.appended.starts_with(&state) {
            return told("it is no prefix of what was appended");
        }
        let survives_only_synced =
            (self.unplugged || self.doubt) && durability == Durability::Written;
        let least = if survives_only_synced { self.synced } else { self.told };
        if state.len() < least {
            return told(&format!("{least} records must be there"));
        }
        let is_same_life = self.life == Some(opened.life);
        let is_well = match opened.memory {
            // Whoever was told of a loss has appended something since.
            Memory::Kept => {
                let is_all = state.len() >= self.told && !self.lost_at(state.len());
                is_same_life && !self.unplugged && is_all
            }
            Memory::New => self.told == 0 && !is_same_life,
            Memory::Lost(Lost::Adopted) => false,
            Memory::Lost(_) => {
                !is_same_life && (self.unplugged || self.doubt || self.lost_at(self.told))
            }
        };
        if !is_well {
            return told("that is not what became of its memory");
        }
        if opened.epoch < self.epoch || (opened.epoch == self.epoch && !self.full) {
            return told(&format!("epoch {} after {}", opened.epoch, self.epoch));
        }
        if self.sealed && !opened.sealed {
            return told("it was sealed");
        }
        self.appended.truncate(state.len());
        (self.told, self.synced) = (state.len(), state.len());
        (self.epoch, self.life) = (opened.epoch, Some(opened.life));
        self.lost = (opened.memory != Memory::Kept).then_some(state.len());
        (self.unplugged, self.doubt, self.sealed) = (false, false, false);
        Ok(())
    }

    /// Whether nobody can have acted on what was said of its memory, with so many records.
    fn lost_at(&self, records: usize) -> bool {
        self.life.is_none() || self.lost.is_some_and(|then| records <= then)
    }

    /// The machine has lost power.
    pub(crate) fn unplug(&mut self, disk: &SimulatedDisk, seed: u64) -> SimulatedDisk {
        self.unplugged = true;
        self.twin = self.twin.unplugged(seed);
        disk.unplugged(seed)
    }

    /// Sees what may have left.
    fn look(&mut self, process: &Process) {
        let progress = process.watch.progress();
        self.told = self.told.max(progress.may_leave.0 as usize);
        self.synced = self.synced.max(progress.synced.0 as usize);
        self.epoch = self.epoch.max(progress.epoch);
        self.doubt |= self.may_fail && matches!(progress.trouble, Some(Error::Unknown { .. }));
        assert!(self.told <= self.appended.len(), "nobody has appended that");
    }

    /// Does one step of a process.
    pub(crate) fn step(&mut self, process: &mut Process, step: &Step) -> Result<(), Error> {
        let done = self.try_step(process, step);
        self.look(process);
        done
    }

    fn try_step(&mut self, process: &mut Process, step: &Step) -> Result<(), Error> {
        let Some(log) = &mut process.log else { return Ok(()) };
        match step {
            Step::Append { length, class, sync } => {
                let payload = payload(self.drawn + 1, *length);
                let entry = Entry { class: *class, logic: 1, payload: &payload, sync: *sync };
                let index = log.append(entry)?;
                self.drawn += 1;
                self.appended.push(self.drawn);
                assert_eq!(index.0 as usize, self.appended.len(), "indexes have no gaps");
            }
            Step::Flush => log.flush()?,
            Step::Write => log.write_next(),
            Step::Sync => log.sync()?,
            Step::RaiseEpoch => log.raise_epoch(self.epoch + 1)?,
            Step::BeginSnapshot => process.snapshot = Some(log.begin_snapshot()?),
            Step::KeepSnapshot => {
                let Some(job) = process.snapshot.take() else { return Ok(()) };
                let history = job.history().map_err(|_| Error::Closed("the disk".into()))?;
                let mut state = snapshot_numbers(&history.0.map(|s| s.payload).unwrap_or_default());
                state.extend(history.1.iter().map(|record| number(&record.payload)));
                assert_eq!(state, self.appended[..job.upto().0 as usize], "its history");
                let bytes: Vec<u8> = state.iter().flat_map(|n| n.to_le_bytes()).collect();
                job.keep(1, &bytes)?;
            }
            Step::DropSnapshot => process.snapshot = None,
            Step::Seal => {
                let Some(log) = process.log.take() else { return Ok(()) };
                process.snapshot = None;
                log.seal()?;
                self.sealed = true;
                (self.told, self.synced) = (self.appended.len(), self.appended.len());
            }
            Step::Kill | Step::Unplug(_) => {}
        }
        Ok(())
    }
}
