//! A directory of this machine.
//!
//! It is opened once, and its files are opened by name inside it; no link is followed. Files can be
//! read and written by their owner alone, so nobody else can lock them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Disk, DiskFile, Lock, Place};

/// A directory of this machine.
#[derive(Debug)]
pub struct RealDisk {
    fd: OwnedFd,
    path: PathBuf,
}

impl RealDisk {
    /// Opens a directory, which must be there.
    ///
    /// # Errors
    /// If it is none, or a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { fd, path: std::path::absolute(path)? })
    }

    fn open_at(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Whatever waits for a reader or a writer is no file of ours; do not wait with it.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))?;
        Ok(fd.into())
    }
}

impl Disk for RealDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn place(&self) -> io::Result<Place> {
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(Place { device: stat.st_dev, inode: stat.st_ino })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
            Ok(entry?.file_name().to_string_lossy().into_owned())
        };
        rustix::fs::Dir::read_from(&self.fd)?.map(name).collect()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        Ok(Arc::new(RealFile(self.open_at(name, flags)?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(self.open_at(name, OFlags::RDWR)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let file = self.open_at(name, OFlags::CREATE | OFlags::RDWR)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let stat = rustix::fs::fstat(&file)?;
        let lock = RealLock {
            _file: file,
            path: self.path.join(name),
            place: Place { device: stat.st_dev, inode: stat.st_ino },
        };
        // Somebody may have replaced it between the opening and the locking.
        Ok(lock.in_place().then(|| Box::new(lock) as Box<dyn Lock>))
    }

    fn boot(&self) -> io::Result<u128> {
        let path = "/proc/sys/kernel/random/boot_id";
        let text = std::fs::read_to_string(path)?.trim().replace('-', "");
        u128::from_str_radix(&text, 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {text}")))
    }

    fn random(&self) -> io::Result<u128> {
        random()
    }
}

/// A number that nobody else draws.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(u128::from_le_bytes(bytes))
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Start(0))?;
        (&self.0).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let allocate = || rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, length);
        match rustix::io::retry_on_intr(allocate) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
                let mut at = 0;
                while at < length {
                    let part = (length - at).min(ZEROS.len() as u64) as usize;
                    self.0.write_all_at(&ZEROS[..part], at)?;
                    at += part as u64;
                }
                Ok(())
            }
            allocated => Ok(allocated?),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn forget(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    fn has_name(&self) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|stat| stat.st_nlink > 0)
    }
}

struct RealLock {
    _file: File,
    path: PathBuf,
    place: Place,
}

impl Lock for RealLock {
    fn in_place(&self) -> bool {
        let found = rustix::fs::lstat(&self.path);
        let found = found.map(|stat| Place { device: stat.st_dev, inode: stat.st_ino });
        found == Ok(self.place)
    }
}
