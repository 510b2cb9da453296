//! A search on disk, from which it can be resumed after a limit, an interrupt or a crash.
//!
//! A checkpoint is written beside the file, synced, and put in its place at once, so that there is
//! always a whole one. The file is locked while a search is under way that saves to it. It says which
//! search it is of, and which build of the program wrote it: another build may number, order or decide
//! things differently, and the result would be that of neither.

mod records;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub(crate) use self::records::{RecordReader, RecordWriter, Unread};
use super::BadScope;

/// The first line, up to the version of what follows.
const TITLE: &str = "holdall search ";
const VERSION: &str = "1";

/// Where a search is saved, and how often.
pub struct Saving<'a> {
    /// The file.
    pub file: PathBuf,
    /// The time between two checkpoints. There is one at the end of a search that was cut off in any case.
    pub every: Duration,
    /// Is told of each checkpoint whether it was written. If it was not, the search goes on, and the last
    /// one that was stays in its place.
    pub told: &'a (dyn Fn(Result<(), &BadCheckpoint>) + Sync),
}

/// Why a search cannot be saved, or not resumed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message says it")]
pub enum BadCheckpoint {
    #[error("another program is at the search in {}", .0.display())]
    Busy(PathBuf),
    #[error("{} is damaged or not whole: the search cannot be resumed from it", .0.display())]
    Damaged(PathBuf),
    #[error(
        "{file} is there already: if a search was saved there, --resume {file} goes on with it; to \
         begin anew, name another file",
        file = .0.display()
    )]
    Exists(PathBuf),
    #[error("{} is no saved search", .0.display())]
    NoSearch(PathBuf),
    #[error(
        "{} was saved by another build of this program, which may behave otherwise: begin anew",
        .0.display()
    )]
    OtherProgram(PathBuf),
    #[error("{} is of another search: {saved}", file.display())]
    OtherSearch { file: PathBuf, saved: String },
    #[error("{} was saved in version {version} of the format; this program knows {VERSION}", file.display())]
    OtherVersion { file: PathBuf, version: String },
    #[error(transparent)]
    Scope(#[from] BadScope),
    #[error("cannot read {}: {why}", file.display())]
    Unreadable { file: PathBuf, why: io::Error },
    #[error("cannot save the search to {}: {why}", file.display())]
    Unwritable { file: PathBuf, why: io::Error },
}

/// Which search was saved, as on the command line of `check`.
///
/// # Errors
/// If there is none in this file, or this program cannot resume it.
pub fn saved_search(file: &Path) -> Result<String, BadCheckpoint> {
    let opened = open_plain(file)?;
    Ok(read_header(file, opened)?.1.search)
}

/// What is said first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// The checksum of the program.
    program: u32,
    search: String,
}

impl Header {
    fn of(search: String) -> io::Result<Self> {
        Ok(Self { program: program()?, search })
    }
}

/// The checkpoint of a search that is under way.
pub(crate) struct Checkpoint<'a> {
    saving: &'a Saving<'a>,
    /// The same file, whatever links lead to it.
    file: PathBuf,
    header: Header,
    /// Locked, so that no other search is saved there.
    held: File,
    last: Instant,
    resumed: Option<RecordReader>,
}

impl<'a> Checkpoint<'a> {
    /// For a search that begins.
    pub(crate) fn create(saving: &'a Saving<'a>, search: String) -> Result<Self, BadCheckpoint> {
        let file = saving.file.clone();
        let unwritable = |why| BadCheckpoint::Unwritable { file: file.clone(), why };
        let header = Header::of(search).map_err(unwritable)?;
        let held = match File::options().write(true).create_new(true).open(&file) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BadCheckpoint::Exists(file));
            }
            opened => opened.map_err(unwritable)?,
        };
        lock(&file, &held)?;
        Ok(Self { saving, file, header, held, last: Instant::now(), resumed: None })
    }

    /// For a search that goes on.
    pub(crate) fn open(saving: &'a Saving<'a>, search: &str) -> Result<Self, BadCheckpoint> {
        let named = &saving.file;
        let file = fs::canonicalize(named).map_err(|why| unreadable(named, why))?;
        let held = open_plain(named)?;
        lock(&file, &held)?;
        let read = held.try_clone().map_err(|why| unreadable(named, why))?;
        let (reader, header) = read_header(named, read)?;
        if header.search != search {
            let saved = header.search;
            return Err(BadCheckpoint::OtherSearch { file: named.clone(), saved });
        }
        let last = Instant::now();
        Ok(Self { saving, file, header, held, last, resumed: Some(reader) })
    }

    /// What is there of the search, if it goes on, by `read`.
    pub(crate) fn resume<T>(
        &mut self,
        read: impl FnOnce(&mut RecordReader) -> Result<T, Unread>,
    ) -> Result<Option<T>, BadCheckpoint> {
        let Some(mut reader) = self.resumed.take() else { return Ok(None) };
        let read = read(&mut reader).and_then(|it| reader.finish().map(|()| it));
        self.last = Instant::now();
        read.map(Some).map_err(|unread| self.unread(unread))
    }

    pub(crate) fn is_due(&self) -> bool {
        self.last.elapsed() >= self.saving.every
    }

    /// Writes a checkpoint, and tells whether it could.
    pub(crate) fn save(
        &mut self,
        write: impl FnOnce(&mut RecordWriter) -> io::Result<()>,
    ) -> Result<(), BadCheckpoint> {
        let saved = self.replace(write).map_err(|why| {
            let file = self.saving.file.clone();
            BadCheckpoint::Unwritable { file, why }
        });
        self.last = Instant::now();
        (self.saving.told)(saved.as_ref().copied());
        saved
    }

    /// Nothing of the search was saved, and nothing will be.
    pub(crate) fn discard(self) {
        let _ = fs::remove_file(&self.file);
    }

    fn replace(
        &mut self,
        write: impl FnOnce(&mut RecordWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        let beside = self.file.with_added_extension("partial");
        let written = self.write(fresh(&beside)?, write).and_then(|written| {
            fs::rename(&beside, &self.file)?;
            Ok(written)
        });
        match written {
            Ok(written) => self.held = written,
            Err(why) => {
                let _ = fs::remove_file(&beside);
                return Err(why);
            }
        }
        let directory = self.file.parent().filter(|directory| *directory != Path::new(""));
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }

    /// Writes a file that is locked as the one before is.
    fn write(
        &self,
        file: File,
        write: impl FnOnce(&mut RecordWriter) -> io::Result<()>,
    ) -> io::Result<File> {
        let _ = file.try_lock();
        let mut writer = RecordWriter::new(file, &format!("{TITLE}{VERSION}"))?;
        writer.put(&self.header)?;
        write(&mut writer)?;
        writer.finish()
    }

    fn unread(&self, unread: Unread) -> BadCheckpoint {
        unread_of(&self.saving.file, unread)
    }
}

/// Makes a file that was not there. What is left of one by a search that was killed is taken away; anything
/// else is in the way.
fn fresh(path: &Path) -> io::Result<File> {
    let make = || File::options().write(true).create_new(true).open(path);
    let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    match make() {
        Err(error) if exists(&error) && is_left_over(path) => {
            fs::remove_file(path)?;
            make()
        }
        Err(error) if exists(&error) => {
            Err(io::Error::other(format!("{} is in the way; move it", path.display())))
        }
        made => made,
    }
}

/// Whether a file is one of ours, or empty, and no search that runs has it.
fn is_left_over(path: &Path) -> bool {
    let is_plain = fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    let Some(file) = is_plain.then(|| File::open(path).ok()).flatten() else { return false };
    let empty = file.metadata().is_ok_and(|about| about.len() == 0);
    let free = file.try_lock().is_ok();
    let ours = || RecordReader::new(file).is_ok_and(|(_, title)| title.starts_with(TITLE));
    free && (empty || ours())
}

/// Opens a file to read it. A pipe would have to be waited for, and holds no search.
fn open_plain(path: &Path) -> Result<File, BadCheckpoint> {
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(BadCheckpoint::NoSearch(path.into())),
        _ => File::open(path).map_err(|why| unreadable(path, why)),
    }
}

fn unreadable(file: &Path, why: io::Error) -> BadCheckpoint {
    BadCheckpoint::Unreadable { file: file.into(), why }
}

fn unread_of(file: &Path, unread: Unread) -> BadCheckpoint {
    match unread {
        Unread::Damaged => BadCheckpoint::Damaged(file.into()),
        Unread::Io(why) => unreadable(file, why),
    }
}

/// Reads what a file is of, and makes sure that this program can go on with it.
fn read_header(path: &Path, file: File) -> Result<(RecordReader, Header), BadCheckpoint> {
    let (mut reader, title) = RecordReader::new(file).map_err(|why| unreadable(path, why))?;
    match title.strip_prefix(TITLE) {
        Some(VERSION) => {}
        Some(version) => {
            return Err(BadCheckpoint::OtherVersion { file: path.into(), version: version.into() });
        }
        None => return Err(BadCheckpoint::NoSearch(path.into())),
    }
    let header: Header = reader.get().map_err(|unread| unread_of(path, unread))?;
    if header.program != program().map_err(|why| unreadable(path, why))? {
        return Err(BadCheckpoint::OtherProgram(path.into()));
    }
    Ok((reader, header))
}

/// Lets nobody else save to a file. Where locks are not to be had, everybody may.
fn lock(path: &Path, file: &File) -> Result<(), BadCheckpoint> {
    let is_there = || {
        let (held, there) = (file.metadata().ok()?, fs::metadata(path).ok()?);
        Some((held.dev(), held.ino()) == (there.dev(), there.ino()))
    };
    let busy = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    // Between opening and locking it, another one may have taken its place.
    match busy || is_there() != Some(true) {
        true => Err(BadCheckpoint::Busy(path.into())),
        false => Ok(()),
    }
}

/// The checksum of this program, which is another one for another build.
fn program() -> io::Result<u32> {
    static PROGRAM: OnceLock<u32> = OnceLock::new();
    if let Some(sum) = PROGRAM.get() {
        return Ok(*sum);
    }
    let mut sum = Sum(0);
    let mut itself =
        File::open("/proc/self/exe").or_else(|_| File::open(std::env::current_exe()?))?;
    io::copy(&mut itself, &mut sum)?;
    Ok(*PROGRAM.get_or_init(|| sum.0))
}

struct Sum(u32);

impl io::Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = crc32c::crc32c_append(self.0, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
