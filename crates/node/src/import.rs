//! What an agent without a log has left: it is taken over once.
//!
//! `state.json` has pools that were made at run time, drained units and reservations; `holders.jsonl`
//! has what commands and programs hold, and how these are known.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use holdall_cell::engine::Reservation;
use holdall_cell::{Former, Import};
use holdall_holders::{Holder, Record, boot};
use holdall_wire::{Change, RequestNo};
use serde::Deserialize;

use crate::clock::{Reading, clamp};
use crate::containment::Containment;
use crate::directory::Directory;

pub(crate) const STATE: &str = "state.json";
pub(crate) const HOLDERS: &str = "holders.jsonl";
/// The newest form of `state.json` there was.
const SCHEMA: u32 = 3;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kept {
    schema: u32,
    clock: Anchor,
    pools: Vec<Change>,
    drained: Vec<Change>,
    reservations: Vec<Reservation>,
}

/// What the times meant: steady, counted from the boot of the machine.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Anchor {
    boot: String,
    base: i64,
    ahead: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Held(Box<Held>),
    Over(RequestNo),
}

#[derive(Deserialize)]
struct Held {
    grant: Reservation,
    holder: Record,
}

/// What there is to be taken over, for a cell whose time begins with that on the wall.
///
/// # Errors
/// If it cannot be read, or understood.
pub(crate) fn read(
    dir: &Directory,
    containment: &Containment,
    now: Reading,
) -> anyhow::Result<Import> {
    let kept = kept(dir)?;
    let shift = shift(&kept.clock, boot(), now);
    let moved = |time: u64| clamp((time as i64).saturating_add(shift));
    let wall = clamp(now.wall);
    let mut import = Import::default();
    for mut held in holders(dir)? {
        held.grant.since = moved(held.grant.since);
        let Some(holder) = containment.again(&held.holder, dir) else { continue };
        let abandoned = matches!(&holder, Holder::Family(family) if family.abandoned());
        import.held.push(Former { grant: held.grant, holder: held.holder, abandoned });
    }
    for mut reservation in kept.reservations {
        reservation.since = moved(reservation.since);
        reservation.until = reservation.until.map(moved);
        if reservation.until.is_none_or(|until| until > wall) {
            import.reservations.push(reservation);
        }
    }
    for change in kept.pools.into_iter().chain(kept.drained) {
        match change {
            Change::Add { name, kind } => import.pools.push((name, kind)),
            Change::Drain { name, mut drained } => {
                drained.until = drained.until.map(moved);
                import.drained.push((name, drained));
            }
            _ => {}
        }
    }
    Ok(import)
}

/// What is to be added to times that were kept.
fn shift(kept: &Anchor, boot: &str, now: Reading) -> i64 {
    if kept.boot == boot && !boot.is_empty() {
        now.wall.saturating_sub(now.boottime.saturating_add(kept.base))
    } else {
        kept.ahead
    }
}

fn kept(dir: &Directory) -> anyhow::Result<Kept> {
    let Some(content) = dir.read(STATE)? else { return Ok(Kept::default()) };
    let path = dir.path_of(STATE);
    let kept: Kept = serde_json::from_slice(&content).with_context(|| {
        format!(
            "{} cannot be understood; mend it, or delete it, and with it reservations and pools \
             that were made at run time",
            path.display()
        )
    })?;
    if kept.schema > SCHEMA {
        bail!("{} is of a newer holdall than this one; use that", path.display());
    }
    Ok(kept)
}

fn holders(dir: &Directory) -> anyhow::Result<Vec<Held>> {
    let text = dir.read(HOLDERS)?.unwrap_or_default();
    let mut held = BTreeMap::new();
    for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(Line::Held(one)) => drop(held.insert(one.grant.request, *one)),
            Ok(Line::Over(request)) => drop(held.remove(&request)),
            // Torn: nobody was told of that grant.
            Err(_) if !line.ends_with(b"\n") => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "line {} of {} cannot be understood; make sure that the command it is \
                         about does not run any more, and delete it",
                        at + 1,
                        dir.path_of(HOLDERS).display()
                    )
                });
            }
        }
    }
    Ok(held.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn times_go_on_as_they_were_meant() {
        let now = Reading { wall: 1000 * HOUR, boottime: 5 * HOUR };
        let kept = Anchor { boot: "one".into(), base: 100 * HOUR, ahead: 800 * HOUR };
        // By its own time it was 105 hours; an hour later than that is an hour later.
        assert_eq!(106 * HOUR + shift(&kept, "one", now), 1001 * HOUR);
        // After another boot there is only what the wall said.
        assert_eq!(106 * HOUR + shift(&kept, "two", now), 906 * HOUR);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_not_passed_over_unless_it_is_torn() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = Directory::private(dir.path()).expect("ours");
        let whole = r#"{"held":{"grant":{"request":"1-2","who":{"uid":0,"user":"u","host":"h","pid":7,"from":{"command":"","name":null,"reason":null}},"needs":[],"taken":[],"since":0,"until":null},"holder":{"boot":"b","cgroup":null,"leader":null,"others":[],"wrapper":null,"namespaces":{"pid":"","time":""},"lock":null}}}"#;
        let over = whole.replace("1-2", "1-3") + "\n{\"over\":\"1-3\"}";
        dir.replace(HOLDERS, format!("{whole}\n{over}\n{{\"held\":").as_bytes()).expect("written");
        let held = holders(&dir).expect("nobody was told of the last one");
        assert_eq!(
            held.iter().map(|held| held.grant.request.0).collect::<Vec<_>>(),
            [(1 << 32) + 2]
        );
        dir.replace(HOLDERS, format!("{whole}\n{{\"held\":\n").as_bytes()).expect("written");
        let told = holders(&dir).err().expect("somebody may hold it").to_string();
        assert!(told.contains("line 2"), "{told}");
    }

    #[test]
    fn what_a_newer_agent_has_kept_is_left_to_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = Directory::private(dir.path()).expect("ours");
        dir.replace(STATE, br#"{"schema":3}"#).expect("written");
        assert!(kept(&dir).is_ok());
        dir.replace(STATE, br#"{"schema":4}"#).expect("written");
        assert!(kept(&dir).is_err());
    }
}
