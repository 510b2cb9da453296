//! Registers in a mapped file: processes of one machine.
//!
//! The only `unsafe` of the crate. The file has a page of head and then whole pages for each
//! worker, so that a worker's pages could be protected from the others. The page cache is the
//! shared memory: it is coherent between processes and outlives them. It does not survive the
//! machine: throw the file away after a restart.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::MmapRaw;
use thiserror::Error;

use super::Memory;
use super::words::{WordRegisters, Words};
use crate::sync::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"holdall\x02");
const VERSION: u64 = 2;
/// Bytes of a page, and words in it.
const PAGE: usize = 4096;
const PAGE_WORDS: usize = PAGE / size_of::<u64>();

/// A mapped file of registers: [`Mapped::create`] has an example.
#[derive(Clone, Debug)]
pub struct Mapped {
    map: Arc<MmapRaw>,
    workers: usize,
    slots: usize,
}

/// Why a file cannot be mapped.
///
/// ```
/// use holdall_assign::registers::{Mapped, MappedError};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("registers");
/// Mapped::create(&path, 2, 8)?;
/// assert!(matches!(Mapped::create(&path, 2, 8), Err(MappedError::Io { .. })));
/// assert!(matches!(Mapped::open(&path, 3, 8), Err(MappedError::Other { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
pub enum MappedError {
    /// Creating, opening or mapping failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// It is not such a file, or one of other sizes.
    #[error("{} holds no registers for {workers} workers with {slots} each", .path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Workers wanted.
        workers: usize,
        /// Registers of each wanted.
        slots: usize,
    },
}

impl Mapped {
    /// Makes the file, all registers 0, and maps it.
    ///
    /// ```
    /// use holdall_assign::Assigner;
    /// use holdall_assign::registers::Mapped;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("registers");
    /// let layout = Assigner::builder(2).layout()?;
    /// let here = Assigner::over(layout, Mapped::create(&path, 2, layout.slots())?);
    /// // In another process:
    /// let there = Assigner::over(layout, Mapped::open(&path, 2, layout.slots())?);
    /// assert_ne!(here.worker(0)?.next(), there.worker(1)?.next());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it exists or cannot be made.
    pub fn create(path: &Path, workers: usize, slots: usize) -> Result<Self, MappedError> {
        let make = || -> io::Result<()> {
            // Complete before it has its name; a name that exists is not taken over.
            let new = path.with_extension(format!("new.{}", std::process::id()));
            let mut file = File::create(&new)?;
            let head = [MAGIC, VERSION, workers as u64, slots as u64];
            file.write_all(&head.map(u64::to_ne_bytes).concat())?;
            file.set_len(length(workers, slots) as u64)?;
            let named = fs::hard_link(&new, path);
            fs::remove_file(&new)?;
            named
        };
        make().map_err(|error| MappedError::Io { path: path.to_owned(), error })?;
        Self::open(path, workers, slots)
    }

    /// Maps a file that exists: [`Mapped::create`] has an example.
    ///
    /// # Errors
    /// If it cannot be mapped, or has other sizes.
    pub fn open(path: &Path, workers: usize, slots: usize) -> Result<Self, MappedError> {
        let open = || -> io::Result<_> {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            MmapRaw::map_raw(&file)
        };
        let map = open().map_err(|error| MappedError::Io { path: path.to_owned(), error })?;
        let mapped = Self { map: Arc::new(map), workers, slots };
        let head = [MAGIC, VERSION, workers as u64, slots as u64];
        let fits = mapped.map.len() == length(workers, slots)
            && (0..head.len()).all(|i| mapped.at(i).load(Ordering::Acquire) == head[i]);
        let other = || MappedError::Other { path: path.to_owned(), workers, slots };
        if fits { Ok(mapped) } else { Err(other()) }
    }

    #[inline]
    fn at(&self, at: usize) -> &AtomicU64 {
        assert!((at + 1) * size_of::<u64>() <= self.map.len(), "a word within the file");
        // SAFETY: `at` is within the mapping, as just asserted; a mapping starts at a page, so
        // the word is aligned; the mapping lives as long as `self`, and so longer than the
        // reference; every program that maps the file touches its words with atomic operations
        // only, and any bit pattern is a u64. Who cuts the file short meanwhile gets this process
        // a SIGBUS, not undefined behaviour.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(at)) }
    }
}

/// Words of one worker: whole pages.
#[inline]
fn stride(slots: usize) -> usize {
    slots.next_multiple_of(PAGE_WORDS)
}

fn length(workers: usize, slots: usize) -> usize {
    PAGE + workers * stride(slots) * size_of::<u64>()
}

impl Words for Mapped {
    #[inline]
    fn word(&self, owner: usize, slot: usize) -> &AtomicU64 {
        self.at(PAGE_WORDS + owner * stride(self.slots) + slot)
    }
}

impl Memory for Mapped {
    type Handle = WordRegisters<Self>;
    type Error = Infallible;

    fn workers(&self) -> usize {
        self.workers
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn handle(&self, worker: usize) -> Result<Self::Handle, Infallible> {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        Ok(WordRegisters::new(self.clone(), worker))
    }
}
