//! Who this agent is for others, kept beside its log.
//!
//! The directory of a member may be lost or moved away. The log still knows what this cell has given to others, and they to it, by its
//! id. Under another id, with that log, it would pass for somebody else: nobody would say what he holds of the one that it was, and it
//! would give that to others at once. So it is that one again; or another one when nothing is held by others any more.
//!
//! The directory of the agent may be lost as a whole. So a twin is kept beside it, as of the epoch, with how long others may use what
//! they had of this cell. Whoever finds the twin and nothing in the directory has lost all of it, and notes that ([`Loss`]). Alone it
//! grants nothing for so long; as a member again it begins with a log that is lost, and waits for what all others say.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use holdall_cell::books::Ties;
use holdall_links::{Cell, Home};

use super::place::Refused;
use crate::data::twin_of;
use crate::directory::Directory;
use crate::look::check_log;

pub(crate) const FILE: &str = "known-as";
/// That all of the directory was lost, and as whom.
const LOST: &str = "known-as.lost";

/// The directory of a member was lost, and what others had of it may still be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Who it was.
    pub(crate) member: Cell,
    /// For how long what was leased of it may be used.
    pub(crate) patience: Duration,
}

impl Loss {
    /// What was lost of this directory, if that is noted.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn noted(data: &Path) -> anyhow::Result<Option<Self>> {
        Self::read(&data.join(LOST))
    }

    fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let Some(text) = text_of(path)? else { return Ok(None) };
        let words = text.trim_end().rsplit_once(' ');
        let told = words.and_then(|(cell, millis)| Some((cell_in(cell)?, millis.parse().ok()?)));
        let (member, millis) = told.with_context(|| {
            format!(
                "{} is damaged: it says which member this agent was, and for how many milliseconds others may use what they had of it, as \
                 `NAME ID MILLIS`; remove it when nobody uses anything of this machine any more",
                path.display()
            )
        })?;
        Ok(Some(Self { member, patience: Duration::from_millis(millis) }))
    }

    fn text(&self) -> String {
        let Self { member, patience } = self;
        format!("{} {} {}\n", member.name, member.id, patience.as_millis())
    }

    /// Notes beside the directory who this is and for how long others may use what they have of it, if that is news.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub(crate) fn would_be(self, twin: &Path) -> anyhow::Result<()> {
        if Self::read(twin)?.as_ref() != Some(&self) {
            let name = twin.file_name().and_then(|name| name.to_str()).unwrap_or(FILE);
            let above = twin.parent().unwrap_or(twin);
            Directory::of_socket(above)?.replace(name, self.text().as_bytes())?;
        }
        Ok(())
    }

    /// Looks whether the directory was lost since it was that of a member, log and all, and notes it. Says whether it is the directory
    /// of that member again: then what was logged meanwhile is nothing to go on from.
    ///
    /// # Errors
    /// If something cannot be read or kept.
    pub(crate) fn look_for(dir: &Directory, twin: &Path, has_log: bool) -> anyhow::Result<bool> {
        if !has_log
            && !dir.has(LOST)
            && !dir.has(FILE)
            && let Some(loss) = Self::read(twin)?
        {
            dir.replace(LOST, loss.text().as_bytes())?;
            note(dir.path(), &loss.member)?;
        }
        let Some(loss) = Self::noted(dir.path())? else { return Ok(false) };
        let home = super::directory(dir.path());
        Ok(Home::is_in(&home) && Home::open(&home)?.cell().id == loss.member.id)
    }

    /// It is over: nobody uses anything any more of what was lost, or it is waited for in the log.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub(crate) fn is_over(dir: &Directory) -> anyhow::Result<()> {
        Ok(dir.remove(LOST)?)
    }

    /// Why nothing is granted, for people.
    pub(crate) fn told(&self, data: &Path, endless: bool) -> String {
        let name = &self.member.name;
        let path = data.join(LOST);
        let until = match endless {
            true => format!(
                "before it is that again, since there are pools with `on_partition = \"wait\"`. If nobody uses anything of them, stop the agent \
                 and remove {}",
                path.display()
            ),
            false => format!("for {} s, or before it is that again", self.patience.as_secs()),
        };
        format!(
            "this agent was the member '{name}', has lost its directory, and grants nothing {until}; the token that \
             `holdall cluster token --for {name}` prints elsewhere lets it join again"
        )
    }
}

/// Who the agent with this directory is for others, or was last.
///
/// # Errors
/// If that cannot be read.
pub(super) fn read(data: &Path) -> anyhow::Result<Option<Cell>> {
    let path = data.join(FILE);
    let Some(text) = text_of(&path)? else {
        return Ok(lost_beside(data)?.map(|loss| loss.member));
    };
    let cell = cell_in(text.trim_end()).with_context(|| {
        format!(
            "{} is damaged: it says which member this agent is, as `NAME ID`; `holdall cluster members --json` at another member tells both",
            path.display()
        )
    });
    cell.map(Some)
}

/// What the twin beside the directory says.
fn lost_beside(data: &Path) -> anyhow::Result<Option<Loss>> {
    let twin = twin_of(data, FILE).map(|(above, name)| above.join(name));
    Ok(twin.as_deref().map(Loss::read).transpose()?.flatten())
}

fn text_of(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| format!("{}", path.display())),
    }
}

fn cell_in(text: &str) -> Option<Cell> {
    let (name, id) = text.split_once(' ')?;
    Some(Cell { id: id.parse().ok()?, name: name.parse().ok()? })
}

/// Keeps who this agent is, if that is news.
///
/// # Errors
/// If it cannot be kept.
pub(super) fn note(data: &Path, own: &Cell) -> anyhow::Result<()> {
    if !data.join(FILE).exists() || read(data)?.as_ref() != Some(own) {
        Directory::private(data)?.replace(FILE, format!("{} {}\n", own.name, own.id).as_bytes())?;
    }
    Ok(())
}

/// Whether others count on this cell being the one that it was, or it on them.
pub(super) fn is_counted_on(ties: &Ties) -> bool {
    ties.all_foreign().next().is_some()
        || ties.spanning().next().is_some()
        || !ties.recovery().missing.is_empty()
}

/// Says that it is another one from now on, if nothing is held any more as the one that it was.
///
/// # Errors
/// If something is, or nobody can tell. An agent without a log has promised nothing.
pub(super) fn refuse_another(data: &Path, before: &Cell) -> Result<(), Refused> {
    if data.join(LOST).exists() || !data.join(FILE).exists() {
        return Err(Refused(format!(
            "this agent was the member '{before}', has lost its directory, and others may still use something of it: be '{before}' again, \
             with the token that `holdall cluster token --for {before}` prints elsewhere; or start it, and wait until it grants again, which \
             `holdall agent status` tells"
        )));
    }
    let why = match check_log(data) {
        Ok(cell) if !is_counted_on(cell.books().ties()) => return Ok(()),
        Ok(_) => "something is held across cells as that".into(),
        Err(error) => format!("what is held across cells as that cannot be read ({error:#})"),
    };
    Err(Refused(format!(
        "this agent was the member '{before}', and {why}: be '{before}' again, with the token that \
         `holdall cluster token --for {before}` prints elsewhere; or end it first, with `holdall status` and \
         `holdall release --force`"
    )))
}

#[cfg(test)]
mod tests {
    use holdall_links::CellId;

    use super::*;

    #[test]
    fn whoever_has_a_log_that_cannot_be_read_becomes_nobody_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let before = Cell { id: CellId(7), name: "lab2".parse().expect("a name") };
        std::fs::write(dir.path().join(FILE), format!("{before} {}\n", before.id)).expect("ours");
        assert!(refuse_another(dir.path(), &before).is_ok(), "there is no log");
        std::fs::write(dir.path().join("snapshot-0000000000000001"), "torn").expect("ours");
        let refused = refuse_another(dir.path(), &before).expect_err("nobody can tell").to_string();
        assert!(refused.contains("cannot be read") && refused.contains("'lab2'"), "{refused}");
    }

    #[test]
    fn who_one_was_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(read(dir.path()).expect("nothing yet"), None);
        let own = Cell { id: CellId(7), name: "lab2".parse().expect("a name") };
        note(dir.path(), &own).expect("kept");
        assert_eq!(read(dir.path()).expect("kept"), Some(own));
        std::fs::write(dir.path().join(FILE), "lab2\n").expect("ours");
        assert!(read(dir.path()).expect_err("half of it").to_string().contains("is damaged"));
    }
}
