//! Registers in a directory: one file a worker, replaced as a whole by rename.
//!
//! Only whole-object get and put are used: no lock, no exclusive create, no append, no
//! compare-and-swap. The same shape fits an object store. Puts are collected until the next fence
//! or publication and then written at once; gets of one worker's registers between two fences are
//! answered from one reading of its file. Both are allowed: the algorithms decide about each
//! worker from that worker's registers alone, in an order that one reading satisfies. So where
//! reading takes long, the files of all others are read at once, as soon as one is asked for.
//!
//! # What the file system must give
//! A rename is atomic, and whoever opens the name afterwards reads the new file. Local file
//! systems do; a network file system that caches names or contents may not, and then items are
//! handed out twice. What has been written survives the end of the process;
//! [`Durability::Disk`] makes it survive the machine as well. After a power failure without it,
//! some files may have gone back in time and others not: throw the store away.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::{Memory, Registers};

/// First words of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"holdall\x01");
const VERSION: u64 = 2;
/// If one file takes longer than this, it pays to start threads that read the others.
const SLOW: Duration = Duration::from_micros(300);
/// Words before the registers: magic, version, terms, check.
const HEAD: usize = 3 + TERMS;
const TERMS: usize = 4;

/// A directory of registers.
///
/// ```
/// use holdall_assign::registers::{Dir, Durability, Memory};
///
/// let dir = Dir::new("/tmp".as_ref(), 2, 8, [0; 4], Durability::Process);
/// assert_eq!((dir.workers(), dir.slots()), (2, 8));
/// ```
#[derive(Clone, Debug)]
pub struct Dir {
    path: PathBuf,
    workers: usize,
    slots: usize,
    terms: [u64; TERMS],
    durability: Durability,
    /// By how much every reading and writing of a file is slowed down.
    delay: Duration,
    /// Tells the files that this process is about to write from those of any other: process ids
    /// would not, between machines and containers.
    token: u64,
}

/// What a write must survive.
///
/// ```
/// use holdall_assign::registers::{Dir, Durability, Memory, Registers};
///
/// let store = tempfile::tempdir()?;
/// let synced = Dir::new(store.path(), 2, 8, [0; 4], Durability::Disk);
/// let mut regs = synced.handle(0)?;
/// regs.put(0, 1)?;
/// regs.fence()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process.
    Process,
    /// The end of the machine: every write is synced.
    Disk,
}

/// Why a directory cannot be used.
///
/// ```
/// use holdall_assign::registers::{Dir, DirError, Durability, Memory};
///
/// let store = tempfile::tempdir()?;
/// std::fs::write(Dir::file(store.path(), 0), "rubbish")?;
/// let dir = Dir::new(store.path(), 2, 8, [0; 4], Durability::Process);
/// assert!(matches!(dir.handle(0), Err(DirError::Damaged(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
pub enum DirError {
    /// A file was damaged, or is none of ours.
    #[error("{} is damaged or no worker's file", .0.display())]
    Damaged(PathBuf),
    /// Reading or writing failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// What was read or written.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// The file was written on other terms.
    #[error("{} was written on other terms: {found:?}, not {wanted:?}", .path.display())]
    Terms {
        /// The file.
        path: PathBuf,
        /// Its terms.
        found: [u64; TERMS],
        /// The terms wanted.
        wanted: [u64; TERMS],
    },
    /// The file was written by another version.
    #[error("{} has format {found}, this program writes {VERSION}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

impl Dir {
    /// Registers in the directory `path`, which must exist. The terms are written into every file;
    /// a file with other terms is refused.
    ///
    /// ```
    /// use holdall_assign::Assigner;
    /// use holdall_assign::registers::{Dir, Durability};
    ///
    /// let store = tempfile::tempdir()?;
    /// let layout = Assigner::builder(2).ring(16).layout()?;
    /// let dir = || Dir::new(store.path(), 2, layout.slots(), [0; 4], Durability::Process);
    /// let first = Assigner::over(layout, dir()).worker(0)?.try_next()?;
    /// // Another process, or this one started again: it goes on.
    /// let second = Assigner::over(layout, dir()).worker(0)?.try_next()?;
    /// assert_ne!(first, second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        path: &Path,
        workers: usize,
        slots: usize,
        terms: [u64; TERMS],
        durability: Durability,
    ) -> Self {
        let (delay, token) = (Duration::ZERO, RandomState::new().hash_one(std::process::id()));
        Self { path: path.to_owned(), workers, slots, terms, durability, delay, token }
    }

    /// The same directory, every reading and writing of a file slowed down: for measurements.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use holdall_assign::registers::{Dir, Durability};
    ///
    /// let (store, delay) = (tempfile::tempdir()?, Duration::from_millis(2));
    /// let slow = Dir::new(store.path(), 2, 8, [0; 4], Durability::Process).slowed(delay);
    /// let start = Instant::now();
    /// slow.declare(0)?;
    /// assert!(start.elapsed() >= 2 * delay, "it is read and written");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn slowed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The file of a worker.
    ///
    /// ```
    /// use holdall_assign::registers::Dir;
    ///
    /// assert_eq!(Dir::file("/tmp/store".as_ref(), 3).to_str(), Some("/tmp/store/worker-3"));
    /// ```
    pub fn file(path: &Path, worker: usize) -> PathBuf {
        path.join(format!("worker-{worker}"))
    }

    /// Writes the file of a worker that has none, so that others see the terms.
    ///
    /// ```
    /// use holdall_assign::registers::{Dir, Durability};
    ///
    /// let store = tempfile::tempdir()?;
    /// Dir::new(store.path(), 2, 8, [7; 4], Durability::Process).declare(1)?;
    /// assert_eq!(Dir::terms(store.path(), 1)?, Some([7; 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn declare(&self, worker: usize) -> Result<(), DirError> {
        thread::sleep(self.delay);
        if read_words(&Self::file(&self.path, worker))?.is_some() {
            return Ok(());
        }
        self.write(worker, &vec![0; self.slots])
    }

    /// Removes what earlier processes under this id were writing when they were killed. Only for
    /// who knows that no other process works under it.
    ///
    /// ```
    /// use holdall_assign::registers::{Dir, Durability};
    ///
    /// let store = tempfile::tempdir()?;
    /// let left = store.path().join(".worker-1.77");
    /// std::fs::write(&left, "cut sho")?;
    /// Dir::new(store.path(), 2, 8, [7; 4], Durability::Process).sweep(1)?;
    /// assert!(!left.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn sweep(&self, worker: usize) -> Result<(), DirError> {
        let ours = format!(".worker-{worker}.");
        let cannot = |error| DirError::Io { path: self.path.clone(), error };
        for entry in fs::read_dir(&self.path).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if entry.file_name().to_string_lossy().starts_with(&ours) {
                // Gone already is as good.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// The terms of a worker's file, if there is one.
    ///
    /// ```
    /// let store = tempfile::tempdir()?;
    /// assert_eq!(holdall_assign::registers::Dir::terms(store.path(), 0)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn terms(path: &Path, worker: usize) -> Result<Option<[u64; TERMS]>, DirError> {
        let file = Self::file(path, worker);
        Ok(read_words(&file)?.map(|words| terms_of(&words)))
    }

    fn read(&self, worker: usize) -> Result<Vec<u64>, DirError> {
        thread::sleep(self.delay);
        let path = Self::file(&self.path, worker);
        let Some(mut words) = read_words(&path)? else {
            return Ok(vec![0; self.slots]);
        };
        let found = terms_of(&words);
        if found != self.terms {
            return Err(DirError::Terms { path, found, wanted: self.terms });
        }
        if words.len() != HEAD + self.slots {
            return Err(DirError::Damaged(path));
        }
        words.drain(..HEAD);
        Ok(words)
    }

    fn write(&self, worker: usize, registers: &[u64]) -> Result<(), DirError> {
        let mut words = vec![MAGIC, VERSION];
        words.extend_from_slice(&self.terms);
        words.push(check(&self.terms, registers));
        words.extend_from_slice(registers);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let path = Self::file(&self.path, worker);
        // A name of this process's own: a second one under the same id must not write into it.
        let new = self.path.join(format!(".worker-{worker}.{:016x}", self.token));
        thread::sleep(self.delay);
        self.replace(&new, &path, &bytes).map_err(|error| DirError::Io { path, error })
    }

    fn replace(&self, new: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(new)?;
        file.write_all(bytes)?;
        if self.durability == Durability::Disk {
            file.sync_data()?;
        }
        fs::rename(new, path)?;
        if self.durability == Durability::Disk {
            File::open(&self.path)?.sync_all()?;
        }
        Ok(())
    }
}

fn read_words(path: &Path) -> Result<Option<Vec<u64>>, DirError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DirError::Io { path: path.to_owned(), error }),
    };
    let (chunks, rest) = bytes.as_chunks::<8>();
    let words: Vec<u64> = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
    if words.first() != Some(&MAGIC) || words.len() < HEAD || !rest.is_empty() {
        return Err(DirError::Damaged(path.to_owned()));
    }
    if words[1] != VERSION {
        return Err(DirError::Version { path: path.to_owned(), found: words[1] });
    }
    if words[HEAD - 1] != check(&words[2..HEAD - 1], &words[HEAD..]) {
        return Err(DirError::Damaged(path.to_owned()));
    }
    Ok(Some(words))
}

fn terms_of(words: &[u64]) -> [u64; TERMS] {
    std::array::from_fn(|i| words[2 + i])
}

/// FNV-1a over the words: against a torn or foreign file, not against malice.
fn check(terms: &[u64], registers: &[u64]) -> u64 {
    let mix = |sum: u64, word: &u64| (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    terms.iter().chain(registers).fold(0xcbf2_9ce4_8422_2325, mix)
}

impl Memory for Dir {
    type Handle = DirRegisters;
    type Error = DirError;

    fn workers(&self) -> usize {
        self.workers
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn handle(&self, worker: usize) -> Result<DirRegisters, DirError> {
        let own = self.read(worker)?;
        let cache = vec![None; self.workers];
        Ok(DirRegisters { dir: self.clone(), worker, own, dirty: false, cache, slow: false })
    }
}

/// A worker's handle to a [`Dir`].
///
/// ```
/// use holdall_assign::registers::{Dir, DirRegisters, Durability, Memory, Registers};
///
/// let store = tempfile::tempdir()?;
/// let dir = Dir::new(store.path(), 2, 8, [0; 4], Durability::Process);
/// let (mut a, mut b): (DirRegisters, DirRegisters) = (dir.handle(0)?, dir.handle(1)?);
/// a.put(3, 7)?;
/// a.fence()?;
/// assert_eq!(b.get(0, 3)?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DirRegisters {
    dir: Dir,
    worker: usize,
    own: Vec<u64>,
    dirty: bool,
    /// Files read since the last fence.
    cache: Vec<Option<Vec<u64>>>,
    /// Whether the last reading of one file took so long that several are read at once.
    slow: bool,
}

impl DirRegisters {
    /// Reads the file of `owner`; where that takes long, the files of all others beside it.
    fn read(&mut self, owner: usize) -> Result<(), DirError> {
        if !self.slow {
            let start = Instant::now();
            self.cache[owner] = Some(self.dir.read(owner)?);
            self.slow = start.elapsed() > SLOW;
            return Ok(());
        }
        let (dir, worker) = (&self.dir, self.worker);
        let missing = self.cache.iter_mut().enumerate();
        let missing = missing.filter(|(other, read)| *other != worker && read.is_none());
        let longest = thread::scope(|scope| {
            let read = |other: usize, place: &mut Option<Vec<u64>>| {
                let start = Instant::now();
                *place = Some(dir.read(other)?);
                Ok(start.elapsed())
            };
            let reading: Vec<_> =
                missing.map(|(other, place)| scope.spawn(move || read(other, place))).collect();
            let read = reading.into_iter().map(|thread| thread.join().expect("no panic in there"));
            read.collect::<Result<Vec<Duration>, DirError>>()
        })?;
        self.slow = longest.into_iter().max().is_some_and(|longest| longest > SLOW);
        Ok(())
    }
}

impl Registers for DirRegisters {
    type Error = DirError;

    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, DirError> {
        if owner == self.worker {
            return Ok(self.own[slot]);
        }
        if let Some(read) = &self.cache[owner] {
            return Ok(read[slot]);
        }
        self.read(owner)?;
        Ok(self.cache[owner].as_ref().map_or(0, |read| read[slot]))
    }

    fn put(&mut self, slot: usize, value: u64) -> Result<(), DirError> {
        self.dirty |= self.own[slot] != value;
        self.own[slot] = value;
        Ok(())
    }

    fn fence(&mut self) -> Result<(), DirError> {
        self.publish()?;
        self.cache.fill(None);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), DirError> {
        if self.dirty {
            self.dir.write(self.worker, &self.own)?;
            self.dirty = false;
        }
        Ok(())
    }
}
