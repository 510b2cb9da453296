//! Lines of an agent's audit log, as lines of a history.

use holdall_wire::{Change, Kind, Need, RequestNo, Taken};
use serde::Deserialize;

use crate::line::{Ask, Grant, How, Line, What, in_the_calendar};

/// A line of the audit log, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Audited {
    #[serde(deserialize_with = "in_the_calendar")]
    at: u64,
    what: String,
    request: Option<RequestNo>,
    who: Option<Who>,
    #[serde(default)]
    needs: Vec<Need>,
    #[serde(default)]
    taken: Vec<Taken>,
    detail: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Who {
    user: Option<String>,
    from: From,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct From {
    command: Option<String>,
    name: Option<String>,
}

/// What a line of the audit log says; nothing if it does not matter here.
pub(crate) fn line(text: &str) -> serde_json::Result<Option<Line>> {
    let audited: Audited = serde_json::from_str(text)?;
    let at = audited.at;
    Ok(what(audited).map(|what| Line { at, what }))
}

fn what(audited: Audited) -> Option<What> {
    let Audited { what, request, who, needs, taken, detail, .. } = audited;
    match (what.as_str(), request) {
        ("asked", Some(_)) | ("refused", None) => {
            let Who { user, from } = who.unwrap_or_default();
            let command = from.command.filter(|command| !command.is_empty());
            Some(What::Ask(Ask {
                r: request,
                user,
                name: from.name,
                command,
                needs,
                ..Ask::default()
            }))
        }
        ("granted" | "restored", Some(r)) => {
            let units = |taken: Taken| {
                (taken.name, taken.units.into_iter().map(|(unit, _)| unit).collect())
            };
            let got = taken.into_iter().map(units).collect();
            Some(What::Grant(Grant { r, got, ..Grant::default() }))
        }
        ("renewed", _) => None,
        ("pool", _) => pool(&detail?),
        ("left-out", _) => {
            let lines = detail?.split(' ').next()?.parse().ok()?;
            Some(What::Gap { lines })
        }
        (word, Some(r)) => {
            let end = |how| What::End { r, how, user: None };
            Some(How::of(word).map_or(What::Other, end))
        }
        (_, None) => Some(What::Other),
    }
}

/// A change of the pools, as it is written there.
fn pool(detail: &str) -> Option<What> {
    let (pool, units) = match serde_json::from_str(detail).ok()? {
        Change::Add { name, kind: Kind::Numbered(units) } | Change::Resize { name, units } => {
            (name, Some(units))
        }
        Change::Add { name, kind: Kind::Named(units) } => {
            (name, Some(u32::try_from(units.len()).unwrap_or(u32::MAX)))
        }
        Change::Add { name, kind: Kind::Lock } => (name, None),
        Change::Remove { name, .. } => (name, Some(0)),
        Change::Drain { .. } | Change::Undrain { .. } => return None,
    };
    Some(What::Pool { pool, units })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_has_what_is_needed() {
        let who = r#"{"uid":1,"user":"anna","host":"h","pid":7,"from":{"command":"make","name":"n","reason":null}}"#;
        let said = |text: &str| {
            let line = line(text).expect("JSON").expect("it matters");
            line.to_text().expect("JSON").trim().to_owned()
        };
        assert_eq!(
            said(&format!(
                r#"{{"at":5,"what":"asked","request":"1-2","who":{who},"needs":["gpu:2"]}}"#
            )),
            r#"{"t":5,"k":"ask","r":"1-2","u":"anna","n":"n","c":"make","needs":["gpu:2"]}"#
        );
        assert_eq!(
            said(&format!(
                r#"{{"at":6,"what":"granted","request":"1-2","who":{who},"taken":[{{"name":"gpu","units":[["gpu/0",7],["gpu/1",8]]}}]}}"#
            )),
            r#"{"t":6,"k":"grant","r":"1-2","got":{"gpu":["gpu/0","gpu/1"]}}"#
        );
        assert_eq!(
            said(&format!(r#"{{"at":7,"what":"killed","request":"1-2","who":{who}}}"#)),
            r#"{"t":7,"k":"end","r":"1-2","how":"killed"}"#
        );
        assert_eq!(
            said(
                r#"{"at":8,"what":"pool","who":null,"detail":"{\"Resize\":{\"name\":\"gpu\",\"units\":6}}"}"#
            ),
            r#"{"t":8,"k":"pool","pool":"gpu","units":6}"#
        );
        assert_eq!(
            said(r#"{"at":8,"what":"left-out","who":null,"detail":"12 lines: they came faster"}"#),
            r#"{"t":8,"k":"gap","lines":12}"#
        );
        let never = format!(r#"{{"at":{},"what":"killed","request":"1-2"}}"#, u64::MAX);
        assert!(line(&never).is_err(), "no calendar has that");
    }
}
