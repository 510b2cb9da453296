//! The file of all rows. Rows are appended as they come; a run that was interrupted goes on where
//! it stopped. When all is there, the file is sorted, so the end does not tell the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{Point, Row, Study};

/// What the file is called.
pub const FILE: &str = "figures.csv";

/// A file in which rows are kept.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    file: Mutex<File>,
}

/// Why the rows cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTable {
    /// The file cannot be read or written.
    #[error("cannot use {}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// It holds something else.
    #[error("{}: {why}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        why: csv::Error,
    },
    /// There is nothing in it.
    #[error("{} has no rows: nothing was measured", .0.display())]
    Empty(PathBuf),
    /// Somebody else works on it.
    #[error("{} is being written by another run: wait for its end, or use another directory", .0.display())]
    Busy(PathBuf),
    /// It is of another study.
    #[error(
        "{} was made with --seed {seed} --ticks {ticks} --graphs {graphs}: \
         use the same again, or another directory", path.display()
    )]
    Other {
        /// Which file.
        path: PathBuf,
        /// Its seed.
        seed: u64,
        /// Its ticks.
        ticks: u64,
        /// Its graphs.
        graphs: u32,
    },
}

impl Table {
    /// Opens the file in a directory, or makes it; returns the rows that it holds already. What was
    /// only half written is cut off.
    ///
    /// # Errors
    /// If the file cannot be used, or was made in another study.
    pub fn open(dir: &Path, study: &Study) -> Result<(Self, Vec<Row>), BadTable> {
        let path = dir.join(FILE);
        let wrap = |why| BadTable::File { path: path.clone(), why };
        let options = OpenOptions::new().read(true).append(true).create(true).clone();
        let mut file = options.open(&path).map_err(wrap)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(BadTable::Busy(path)),
            Err(TryLockError::Error(why)) => return Err(wrap(why)),
            Ok(()) => {}
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(wrap)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(wrap)?;
        let rows = parse(&path, &text[..whole])?;
        if let Some(row) = rows.iter().find(|row| !row.is_of(study)) {
            let Row { seed, ticks, graphs_max: graphs, .. } = *row;
            return Err(BadTable::Other { path, seed, ticks, graphs });
        }
        Ok((Self { path, file: Mutex::new(file) }, rows))
    }

    /// Reads a file of rows.
    ///
    /// # Errors
    /// If it cannot be read, is none, or is empty.
    pub fn read(path: &Path) -> Result<Vec<Row>, BadTable> {
        let wrap = |why| BadTable::File { path: path.into(), why };
        let rows = parse(path, &fs::read_to_string(path).map_err(wrap)?)?;
        if rows.is_empty() {
            return Err(BadTable::Empty(path.into()));
        }
        Ok(rows)
    }

    /// Keeps one more row.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&self, row: &Row) -> io::Result<()> {
        let mut file = self.file.lock().expect("nobody panics while writing");
        let first = file.seek(SeekFrom::End(0))? == 0;
        file.write_all(&format(std::slice::from_ref(row), first)?)
    }

    /// Sorts the rows; returns them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(self) -> Result<Vec<Row>, BadTable> {
        let rows = Self::read(&self.path)?;
        let rows: BTreeMap<Point, Row> = rows.into_iter().map(|row| (row.point(), row)).collect();
        let rows: Vec<Row> = rows.into_values().collect();
        let written = || {
            let new = self.path.with_extension("new");
            fs::write(&new, format(&rows, true)?)?;
            fs::rename(&new, &self.path)
        };
        written().map_err(|why| BadTable::File { path: self.path.clone(), why })?;
        Ok(rows)
    }
}

/// The points that are still to be measured, in order.
pub fn missing(points: BTreeSet<Point>, rows: &[Row]) -> Vec<Point> {
    let there: BTreeSet<Point> = rows.iter().map(Row::point).collect();
    points.into_iter().filter(|point| !there.contains(point)).collect()
}

fn parse(path: &Path, text: &str) -> Result<Vec<Row>, BadTable> {
    let rows: Result<_, _> = csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
    rows.map_err(|why| BadTable::Format { path: path.into(), why })
}

fn format(rows: &[Row], header: bool) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(header).from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(io::Error::other)?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}
