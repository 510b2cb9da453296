//! What commands hold, on disk: so that an agent that starts while some of them live waits for
//! those, and for nothing else.
//!
//! One line for each grant, before its command starts, and one for its end. They are written and
//! not synced: they survive the end of the agent, and with the machine end the commands.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use anyhow::Context;
use holdall_holders::Record;
use holdall_wire::RequestNo;
use serde::{Deserialize, Serialize};

use crate::directory::Directory;
use crate::engine::Reservation;

const NAME: &str = "holders.jsonl";
/// How many lines of what is over are left standing.
const OVER_MAX: usize = 4096;

/// A grant and who holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) grant: Reservation,
    pub(crate) holder: Record,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line<T> {
    Held(T),
    Over(RequestNo),
}

/// The file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    held: BTreeMap<RequestNo, Vec<u8>>,
    over: usize,
}

impl Journal {
    /// What a former agent has left.
    ///
    /// # Errors
    /// If it cannot be read, or understood.
    pub(crate) fn read(dir: &Directory) -> anyhow::Result<Vec<Held>> {
        let text = dir.read(NAME)?.unwrap_or_default();
        let mut held = BTreeMap::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Held(one)) => drop(held.insert(request(&one), one)),
                Ok(Line::Over(request)) => drop(held.remove(&request)),
                // Torn: nobody was told of that grant.
                Err(_) if !line.ends_with(b"\n") => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "{} cannot be understood; make sure that no command of the agent \
                             before runs, and delete it",
                            dir.path_of(NAME).display()
                        )
                    });
                }
            }
        }
        Ok(held.into_values().collect())
    }

    /// Begins it anew, with what is still held.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn begin(dir: &Directory, held: &[Held]) -> anyhow::Result<Self> {
        let lines: Result<BTreeMap<_, _>, _> =
            held.iter().map(|one| Ok::<_, serde_json::Error>((request(one), line(one)?))).collect();
        let held = lines?;
        dir.replace(NAME, &held.values().flatten().copied().collect::<Vec<_>>())?;
        Ok(Self { file: dir.append(NAME)?, held, over: 0 })
    }

    /// A command is about to use a grant, or has left others behind.
    ///
    /// # Errors
    /// If the disk does not take it. The command must not start then.
    pub(crate) fn hold(&mut self, held: &Held) -> anyhow::Result<()> {
        let line = line(held)?;
        self.file.write_all(&line).context("cannot note who holds it")?;
        self.held.insert(request(held), line);
        Ok(())
    }

    /// A grant is over.
    ///
    /// # Errors
    /// If the disk does not take it. A later agent finds out by itself that it is over.
    pub(crate) fn over(&mut self, dir: &Directory, request: RequestNo) -> anyhow::Result<()> {
        if self.held.remove(&request).is_none() {
            return Ok(());
        }
        self.over += 1;
        if self.over > OVER_MAX {
            dir.replace(NAME, &self.held.values().flatten().copied().collect::<Vec<_>>())?;
            self.file = dir.append(NAME)?;
            self.over = 0;
            return Ok(());
        }
        let mut line = serde_json::to_vec(&Line::<()>::Over(request))?;
        line.push(b'\n');
        Ok(self.file.write_all(&line)?)
    }
}

fn request(held: &Held) -> RequestNo {
    held.grant.request
}

fn line(held: &Held) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Line::Held(held))?;
    line.push(b'\n');
    Ok(line)
}
