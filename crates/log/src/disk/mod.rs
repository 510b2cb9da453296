//! What the file log needs of a disk and of the machine, so that it can run on a simulated one.
//!
//! A disk is one directory. What is written is seen at once by everybody on the machine and
//! outlives the process; it outlives the machine only after [`DiskFile::sync`], and a name only
//! after [`Disk::sync_names`].

mod real;
pub mod simulated;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use self::real::RealDisk;
pub(crate) use self::real::random;

/// What tells a directory from its copies, while the machine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// A directory, and the machine it is on.
pub trait Disk: Send + Sync {
    /// Its path, for people.
    fn path(&self) -> &Path;

    /// What tells it from its copies.
    ///
    /// # Errors
    /// If that cannot be told.
    fn place(&self) -> io::Result<Place>;

    /// The names in it.
    ///
    /// # Errors
    /// If they cannot be read.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes a file.
    ///
    /// # Errors
    /// Also if there is one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file.
    ///
    /// # Errors
    /// Also if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, and takes that from the one which has it.
    ///
    /// # Errors
    /// If it cannot be done.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name.
    ///
    /// # Errors
    /// Also if there is none.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// What names there are survives the machine.
    ///
    /// # Errors
    /// If that is not known.
    fn sync_names(&self) -> io::Result<()>;

    /// Locks a file, made if need be, until the lock is dropped or the process ends; none if
    /// another has locked it.
    ///
    /// # Errors
    /// If it cannot be done.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// What tells one run of the machine from another.
    ///
    /// # Errors
    /// If that cannot be told.
    fn boot(&self) -> io::Result<u128>;

    /// Random bits.
    ///
    /// # Errors
    /// If there are none.
    fn random(&self) -> io::Result<u128>;
}

/// A file.
pub trait DiskFile: Send + Sync {
    /// All of it.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Makes it so long, with zeros, and so that they can be written over without more room.
    ///
    /// # Errors
    /// Above all if there is no room.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Writes somewhere, from the first byte to the last.
    ///
    /// # Errors
    /// It is not known then how much was written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes it so short.
    ///
    /// # Errors
    /// If it cannot be done.
    fn cut(&self, length: u64) -> io::Result<()>;

    /// What was written survives the machine.
    ///
    /// # Errors
    /// It is not known then what does.
    fn sync(&self) -> io::Result<()>;

    /// Forgets what the machine remembers of it, as far as it can: what is read next is what the disk
    /// holds. It must have been synced.
    ///
    /// # Errors
    /// If it cannot be done.
    fn forget(&self) -> io::Result<()>;

    /// Whether it still has a name.
    fn has_name(&self) -> bool;
}

/// A lock on a file.
pub trait Lock: Send + Sync {
    /// Whether whoever looks for the file at its path finds this one.
    fn in_place(&self) -> bool;
}

/// Replaces a file so that after a crash it is either the old or the new one.
pub(crate) fn replace(disk: &dyn Disk, name: &str, content: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    let written = write_new(disk, &new, content).and_then(|()| disk.rename(&new, name));
    if written.is_err() {
        drop(disk.remove(&new)); // It may hold room that is lacked.
    }
    written?;
    disk.sync_names()
}

fn write_new(disk: &dyn Disk, name: &str, content: &[u8]) -> io::Result<()> {
    remove_if_there(disk, name)?;
    let file = disk.create(name)?;
    file.write_at(content, 0)?;
    file.sync()
}

/// Removes a name, if there is one.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
