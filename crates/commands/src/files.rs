//! Files that people name for results. They are tried before the work begins, which may be long, and left
//! as they are until there is something to write.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{cannot_write, say, usage};

/// Whether all of these can be written, no two of them are the same file, and none of them is what is read, or in a directory that is:
/// nothing would be left of it.
///
/// # Errors
/// If not.
pub fn try_all(read: Option<&Path>, paths: &[&Path]) -> anyhow::Result<()> {
    read.map_or(Ok(()), |read| spare(read, paths))?;
    let opened: Vec<_> = paths.iter().map(|path| (path, Trial::open(path))).collect();
    let mut seen: Vec<(&Path, Number)> = Vec::new();
    for (path, trial) in &opened {
        let trial = trial.as_ref().map_err(|error| cannot_write(path.display(), error))?;
        let Some(file) = trial.file else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, before)| *before == file) {
            let (path, other) = (path.display(), other.display());
            return Err(usage(format!("{other} and {path} are one file: name two")));
        }
        seen.push((path, file));
    }
    Ok(())
}

/// Device and number, which tell files apart.
type Number = (u64, u64);

fn number(file: &fs::Metadata) -> Number {
    (file.dev(), file.ino())
}

fn spare(read: &Path, paths: &[&Path]) -> anyhow::Result<()> {
    let Ok(there) = fs::metadata(read) else { return Ok(()) };
    let is_read = |path: &&&Path| fs::metadata(path).is_ok_and(|to| number(&to) == number(&there));
    let is_inside = |path: &&&Path| {
        let inside = directory(path).and_then(|dir| fs::metadata(dir).ok());
        inside.is_some_and(|dir| number(&dir) == number(&there))
    };
    let read = read.display();
    if there.is_file()
        && let Some(path) = paths.iter().find(is_read)
    {
        return Err(usage(format!("{} is read: write to another file", path.display())));
    }
    if there.is_dir()
        && let Some(path) = paths.iter().find(is_inside)
    {
        return Err(usage(format!(
            "{} is in {read}, which is read: write elsewhere",
            path.display()
        )));
    }
    Ok(())
}

/// Where a file is, or would be made: that to which a link leads.
fn directory(path: &Path) -> Option<PathBuf> {
    match fs::canonicalize(path) {
        Ok(path) => path.parent().map(Path::to_owned),
        Err(_) => fs::canonicalize(Path::new(".").join(path).parent()?).ok(),
    }
}

/// Says that something is read until whoever writes it ends, which may never be, if it is no plain file.
pub fn tell_if_endless(path: &Path) {
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        say(format!(
            "{} is no plain file: it is read until whoever writes it ends",
            path.display()
        ));
    }
}

/// Writes a file.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    fs::write(path, bytes).map_err(|error| cannot_write(path.display(), error))
}

/// A file that was opened for writing. If it was not there before, it is not there after.
struct Trial {
    /// What is a plain file.
    file: Option<Number>,
    made: Option<PathBuf>,
}

impl Trial {
    fn open(path: &Path) -> io::Result<Self> {
        let before = fs::metadata(path);
        if before.as_ref().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            // To open a pipe would let its reader see the end of it.
            return Ok(Self { file: None, made: None });
        }
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        let made = before.is_err().then(|| fs::canonicalize(path)).transpose()?;
        Ok(Self { file: Some(number(&file.metadata()?)), made })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn trying_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
        fs::write(&old, "kept").expect("a file");
        try_all(None, &[&old, &new]).expect("both can be written");
        assert_eq!(fs::read(&old).expect("there"), b"kept");
        assert!(!new.exists());
        let link = dir.path().join("link");
        symlink(&new, &link).expect("a link");
        try_all(None, &[&link]).expect("what it leads to can be made");
        assert!(!new.exists() && link.is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let said = |path: &Path| try_all(None, &[path]).expect_err("it cannot").to_string();
        assert!(said(dir.path()).ends_with("Is a directory (os error 21)"));
        assert!(said(&dir.path().join("no/file")).contains("no/file: No such file or directory"));
        try_all(None, &[Path::new("/dev/full")]).expect("it is seen when something is written");
        write(Path::new("/dev/full"), "x").expect_err("it is full");
    }

    #[test]
    fn what_is_read_is_not_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let [read, link, other] = ["read", "link", "other"].map(|name| dir.path().join(name));
        let to = |paths: &[&Path]| try_all(Some(&read), paths);
        to(&[&read]).expect("it is not there");
        fs::write(&read, "kept").expect("a file");
        symlink(&read, &link).expect("a link");
        to(&[&other]).expect("something else");
        let null = Path::new("/dev/null");
        try_all(Some(null), &[null]).expect("it takes everything");
        let said = to(&[&other, &link]).expect_err("it is read").to_string();
        assert!(said.ends_with("link is read: write to another file"), "{said}");
        assert!(!other.exists());
    }

    #[test]
    fn nothing_is_written_into_a_directory_that_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let [read, inner] = ["read", "read/inner"].map(|name| dir.path().join(name));
        fs::create_dir_all(&inner).expect("directories");
        let [old, new] = ["history-1.jsonl", "new"].map(|name| read.join(name));
        let [outside, link] = ["outside", "link"].map(|name| dir.path().join(name));
        fs::write(&old, "kept").expect("a file");
        symlink(&old, &link).expect("a link");
        for path in [&old, &new, &link, &read.join("inner/../new")] {
            let said = try_all(Some(&read), &[path]).expect_err("it is read").to_string();
            assert!(said.ends_with("which is read: write elsewhere"), "{said}");
        }
        assert!(!new.exists());
        try_all(Some(&read), &[&outside, &inner.join("new")]).expect("elsewhere");
    }

    #[test]
    fn one_file_under_two_names_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let [file, link, hard] = ["file", "link", "hard"].map(|name| dir.path().join(name));
        let refused = |one: &Path, two: &Path| {
            let said = try_all(None, &[one, two]).expect_err("they are one").to_string();
            assert!(said.ends_with("are one file: name two"), "{said}");
        };
        refused(&file, &dir.path().join("./file"));
        symlink(&file, &link).expect("a link");
        refused(&file, &link);
        fs::write(&file, "").expect("a file");
        fs::hard_link(&file, &hard).expect("a link");
        refused(&link, &hard);
        try_all(None, &[Path::new("/dev/null"), Path::new("/dev/null")])
            .expect("it takes everything");
    }
}
