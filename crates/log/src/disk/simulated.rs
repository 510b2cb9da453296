//! A disk that crashes on command.
//!
//! Every operation that changes something has a number. A [`Fault`] strikes at one of them: the
//! process ends there, with a write done up to some byte, or the operation fails. Then
//! [`SimulatedDisk::killed`] is the disk as the next process finds it, and
//! [`SimulatedDisk::unplugged`] as it is after the machine has lost power: of what was not synced
//! each write is there, or not, or torn at some byte, and each name is there or not, all of it
//! independently. That is more than real file systems do to anybody.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, Lock, Place};

/// What goes wrong, and when.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// At which operation.
    pub at: u64,
    /// How.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum FaultKind {
    /// The process ends; a write is done up to this byte, anything else not at all.
    Crash {
        /// How many bytes of it.
        bytes: usize,
    },
    /// The operation fails; a write is done by half. A sync takes what is not synced for clean, and
    /// nobody writes it any more: so does Linux.
    Fails,
}

/// One process's hold on a simulated disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// Which process this is; those before it can do nothing any more.
    process: u64,
}

#[derive(Default)]
struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    /// The names that survive the machine.
    synced_names: BTreeMap<String, usize>,
    name_changes: Vec<(String, Option<usize>)>,
    /// Who locks which files.
    locks: BTreeMap<usize, u64>,
    process: u64,
    boot: u128,
    randomness: u64,
    place: Place,
    operations: u64,
    fault: Option<Fault>,
    /// How many bytes fit.
    capacity: Option<u64>,
    /// The syncs of files whose names begin so are lost.
    unsynced: Option<String>,
    /// How many bytes each write had, by its number.
    writes: BTreeMap<u64, usize>,
    /// Whether no file can be opened.
    shut: bool,
}

#[derive(Clone, Default)]
struct FileState {
    name: String,
    content: Vec<u8>,
    synced: Vec<u8>,
    /// What happened since.
    changes: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Length(usize),
    Write(usize, Vec<u8>),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Length(length) => content.resize(*length, 0),
            Self::Write(at, bytes) => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new(1)
    }
}

impl SimulatedDisk {
    /// An empty disk; what is random on it follows from a seed.
    pub fn new(seed: u64) -> Self {
        let place = Place { device: 1, inode: seed };
        let state = State { boot: 1, randomness: seed, place, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), process: 0 }
    }

    /// Something shall go wrong.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock_state().fault = fault;
    }

    /// How many bytes fit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock_state().capacity = bytes;
    }

    /// Whether no file can be opened from now on, as if there were no descriptors left.
    pub fn fail_open(&self, shut: bool) {
        self.lock_state().shut = shut;
    }

    /// From now on nothing is synced whose name begins so: a disk that lies.
    pub fn lie_about(&self, prefix: &str) {
        self.lock_state().unsynced = Some(prefix.into());
    }

    /// How many bytes are used.
    pub fn used(&self) -> u64 {
        self.lock_state().used()
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// How many bytes each write had, by its number.
    pub fn writes(&self) -> BTreeMap<u64, usize> {
        self.lock_state().writes.clone()
    }

    /// The content of a file.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock_state();
        state.names.get(name).map(|at| state.files[*at].content.clone())
    }

    /// Changes a file behind everybody's back, also as far as it is synced.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock_state();
        if let Some(at) = state.names.get(name).copied() {
            let file = &mut state.files[at];
            change(&mut file.content);
            file.synced = file.content.clone();
            file.changes.clear();
        }
    }

    /// A copy of the directory in another place, as `cp -r` makes it.
    #[must_use]
    pub fn copied(&self) -> Self {
        let copy = self.as_it_is();
        copy.lock_state().place.inode += 1_000_000;
        copy
    }

    /// The disk as the next process finds it after this one was killed.
    #[must_use]
    pub fn killed(&self) -> Self {
        let mut state = self.lock_state();
        state.process += 1;
        state.fault = None;
        state.locks.clear();
        Self { state: self.state.clone(), process: state.process }
    }

    /// The disk after the machine has lost power, and has it again; what of the unsynced is there
    /// follows from a seed.
    #[must_use]
    pub fn unplugged(&self, seed: u64) -> Self {
        let disk = self.killed();
        let mut state = disk.lock_state();
        let mut chance = Chance(seed ^ 0x9e37_79b9_7f4a_7c15);
        for file in &mut state.files {
            for change in std::mem::take(&mut file.changes) {
                match (chance.below(4), change) {
                    (0, _) => {}
                    (1, Change::Write(at, mut bytes)) => {
                        bytes.truncate(chance.below(bytes.len() as u64 + 1) as usize);
                        Change::Write(at, bytes).apply(&mut file.synced);
                    }
                    (_, change) => change.apply(&mut file.synced),
                }
            }
            file.content = file.synced.clone();
        }
        let mut names = std::mem::take(&mut state.synced_names);
        for (name, file) in std::mem::take(&mut state.name_changes) {
            if chance.below(2) == 0 {
                match file {
                    Some(at) => drop(names.insert(name, at)),
                    None => drop(names.remove(&name)),
                }
            }
        }
        state.names = names.clone();
        state.synced_names = names;
        state.boot += 1;
        drop(state);
        disk
    }

    /// A disk of its own with the same content.
    #[must_use]
    pub fn as_it_is(&self) -> Self {
        let state = self.lock_state();
        let copy = State {
            files: state.files.clone(),
            names: state.names.clone(),
            synced_names: state.synced_names.clone(),
            name_changes: state.name_changes.clone(),
            boot: state.boot,
            randomness: state.randomness + 1,
            place: state.place,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(copy)), process: 0 }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a process that lives.
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock_state();
        if state.process == self.process { Ok(state) } else { Err(dead()) }
    }

    /// The state, for a change; and how much of it is done before the process ends.
    fn change(&self, bytes: usize) -> io::Result<(MutexGuard<'_, State>, Option<Cut>)> {
        let mut state = self.alive()?;
        state.operations += 1;
        let number = state.operations;
        if bytes > 0 {
            state.writes.insert(number, bytes);
        }
        let fault = state.fault.filter(|fault| fault.at == number);
        let cut = fault.map(|fault| match fault.kind {
            FaultKind::Crash { bytes } => {
                state.process += 1;
                Cut { bytes, error: dead() }
            }
            FaultKind::Fails => Cut { bytes: bytes / 2, error: io::Error::other("it failed") },
        });
        Ok((state, cut))
    }

    fn named(&self, change: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        let (mut state, cut) = self.change(0)?;
        match cut {
            Some(cut) => Err(cut.error),
            None => change(&mut state),
        }
    }
}

/// An operation that is not done to its end.
struct Cut {
    bytes: usize,
    error: io::Error,
}

impl State {
    fn used(&self) -> u64 {
        let mut files: Vec<usize> = self.names.values().copied().collect();
        files.sort_unstable();
        files.dedup();
        files.iter().map(|at| self.files[*at].content.len() as u64).sum()
    }

    fn name(&mut self, name: &str, file: Option<usize>) {
        match file {
            Some(at) => drop(self.names.insert(name.into(), at)),
            None => drop(self.names.remove(name)),
        }
        self.name_changes.push((name.into(), file));
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn has_room_for(&self, more: usize) -> bool {
        self.capacity.is_none_or(|capacity| self.used() + more as u64 <= capacity)
    }
}

impl Disk for SimulatedDisk {
    fn path(&self) -> &Path {
        Path::new("/simulated")
    }

    fn place(&self) -> io::Result<Place> {
        Ok(self.alive()?.place)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.alive()?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.named(|state| {
            if state.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.files.push(FileState { name: name.into(), ..FileState::default() });
            let at = state.files.len() - 1;
            state.name(name, Some(at));
            Ok(())
        })?;
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.alive()?;
        if state.shut {
            return Err(io::Error::other("no descriptors are left"));
        }
        let at = state.find(name)?;
        drop(state);
        Ok(Arc::new(SimulatedFile { disk: self.clone(), at }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.named(|state| {
            let at = state.find(from)?;
            state.name(to, Some(at));
            state.name(from, None);
            state.files[at].name = to.into();
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.alive()?.find(name)?;
        self.named(|state| {
            state.name(name, None);
            Ok(())
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.named(|state| {
            state.synced_names = state.names.clone();
            state.name_changes.clear();
            Ok(())
        })
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        if self.alive()?.find(name).is_err() {
            self.create(name)?;
        }
        let mut state = self.alive()?;
        let at = state.find(name)?;
        if state.locks.contains_key(&at) {
            return Ok(None);
        }
        state.locks.insert(at, self.process);
        Ok(Some(Box::new(SimulatedLock { disk: self.clone(), name: name.into(), at })))
    }

    fn boot(&self) -> io::Result<u128> {
        Ok(self.alive()?.boot)
    }

    fn random(&self) -> io::Result<u128> {
        let mut state = self.alive()?;
        let mut chance = Chance(state.randomness);
        let number = u128::from(chance.next()) << 64 | u128::from(chance.next());
        state.randomness = chance.0;
        Ok(number)
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    at: usize,
}

impl SimulatedFile {
    fn do_change(state: &mut State, at: usize, change: Change) {
        change.apply(&mut state.files[at].content);
        state.files[at].changes.push(change);
    }
}

impl DiskFile for SimulatedFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(self.disk.alive()?.files[self.at].content.clone())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let (mut state, cut) = self.disk.change(0)?;
        if let Some(cut) = cut {
            return Err(cut.error);
        }
        let more = (length as usize).saturating_sub(state.files[self.at].content.len());
        if !state.has_room_for(more) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Self::do_change(&mut state, self.at, Change::Length(length as usize));
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, cut) = self.disk.change(bytes.len())?;
        let end = offset as usize + bytes.len();
        if !state.has_room_for(end.saturating_sub(state.files[self.at].content.len())) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let done = cut.as_ref().map_or(bytes.len(), |cut| cut.bytes.min(bytes.len()));
        let change = Change::Write(offset as usize, bytes[..done].to_vec());
        Self::do_change(&mut state, self.at, change);
        cut.map_or(Ok(()), |cut| Err(cut.error))
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.disk.named(|state| {
            Self::do_change(state, self.at, Change::Length(length as usize));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, cut) = self.disk.change(0)?;
        if let Some(cut) = cut {
            if state.process == self.disk.process {
                state.files[self.at].changes.clear();
            }
            return Err(cut.error);
        }
        let lies = state.unsynced.clone();
        let file = &mut state.files[self.at];
        if lies.is_none_or(|prefix| !file.name.starts_with(&prefix)) {
            for change in std::mem::take(&mut file.changes) {
                change.apply(&mut file.synced);
            }
        }
        Ok(())
    }

    fn forget(&self) -> io::Result<()> {
        let mut state = self.disk.alive()?;
        let file = &mut state.files[self.at];
        if file.changes.is_empty() {
            file.content = file.synced.clone();
        }
        Ok(())
    }

    fn has_name(&self) -> bool {
        let state = self.disk.lock_state();
        state.names.values().any(|at| *at == self.at)
    }
}

struct SimulatedLock {
    disk: SimulatedDisk,
    name: String,
    at: usize,
}

impl Lock for SimulatedLock {
    fn in_place(&self) -> bool {
        self.disk.alive().is_ok_and(|state| state.names.get(&self.name) == Some(&self.at))
    }
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.locks.get(&self.at) == Some(&self.disk.process) {
            state.locks.remove(&self.at);
        }
    }
}

fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the process has ended")
}

/// Splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
