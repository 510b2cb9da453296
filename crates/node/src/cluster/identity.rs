//! Who this agent is for others, kept beside its log.
//!
//! The directory of a member may be lost or moved away. The log still knows what this cell has given to others, and they to it, by its
//! id. Under another id, with that log, it would pass for somebody else: nobody would say what he holds of the one that it was, and it
//! would give that to others at once. So it is that one again; or another one when nothing is held by others any more.

use std::path::Path;

use anyhow::Context;
use holdall_cell::books::Ties;
use holdall_links::Cell;

use super::place::Refused;
use crate::directory::Directory;
use crate::look::check_log;

const FILE: &str = "known-as";

/// Who the agent with this directory is for others, or was last.
///
/// # Errors
/// If that cannot be read.
pub(super) fn read(data: &Path) -> anyhow::Result<Option<Cell>> {
    let path = data.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("{}", path.display()))?,
    };
    let (name, id) = text.trim_end().split_once(' ').unwrap_or_default();
    match (name.parse(), id.parse()) {
        (Ok(name), Ok(id)) => Ok(Some(Cell { id, name })),
        _ => anyhow::bail!(
            "{} is damaged: it says which member this agent is, as `NAME ID`; `holdall cluster members --json` at another member tells both",
            path.display()
        ),
    }
}

/// Keeps who this agent is, if that is news.
///
/// # Errors
/// If it cannot be kept.
pub(super) fn note(data: &Path, own: &Cell) -> anyhow::Result<()> {
    if read(data)?.as_ref() != Some(own) {
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
