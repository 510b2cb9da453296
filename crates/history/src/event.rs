//! What has happened in an agent, as lines of a history.

use std::sync::Arc;

use holdall_wire::event::{Ending, What as Happened};
use holdall_wire::{Kind, Need, Refusal, RequestNo, Taken, Who};

use crate::line::{Ask, Grant, How, Line, What};

impl Line {
    /// The line for something that has happened at a time; nothing if it does not matter here.
    pub fn of_event(at: u64, happened: &Happened) -> Option<Self> {
        let what = match happened {
            Happened::Asked { request, who, ask: asked } => {
                let part_of = asked.part.map(|part| part.of);
                What::Ask(Ask { now: asked.now, part_of, ..ask(*request, who, &asked.needs) })
            }
            Happened::Granted { request, who, taken, until, limit, .. } => {
                What::Grant(Grant { limit: *limit, ..grant(*request, who, taken, *until) })
            }
            Happened::Restored { request, who, taken, until, .. } => {
                What::Grant(grant(*request, who, taken, *until))
            }
            Happened::Ended { request, who, how, .. } => end(*request, who, ended(*how)),
            Happened::Refused { request, who, why, .. } => {
                let withdrawn = matches!(why, Refusal::Withdrawn);
                end(*request, who, if withdrawn { How::Withdrawn } else { How::Refused })
            }
            Happened::Forced { request, who, .. } => end(*request, who, How::Forced),
            Happened::TakenAway { request, who, how: Ending::Overrun, .. } => {
                end(*request, who, How::Overrun)
            }
            Happened::Pool { name, kind, .. } => {
                let units = match kind {
                    Some(Kind::Numbered(units)) => Some(*units),
                    Some(Kind::Named(names)) => {
                        Some(u32::try_from(names.len()).unwrap_or(u32::MAX))
                    }
                    Some(Kind::Lock) => None,
                    None => Some(0),
                };
                What::Pool { pool: name.clone(), units }
            }
            Happened::ClockSet { by } => What::Clock { by: *by },
            Happened::Started { .. }
            | Happened::Queued { .. }
            | Happened::Runs { .. }
            | Happened::Renewed { .. }
            | Happened::TakenAway { .. }
            | Happened::Ending { .. }
            | Happened::Changed { .. } => return None,
        };
        Some(Self { at, what })
    }

    /// The line for somebody who was turned away at the door. Nothing has checked what it says: it is cut short.
    pub fn turned_away(at: u64, user: &str, ask: &holdall_wire::Ask) -> Self {
        let command = Some(&ask.from.command).filter(|command| !command.is_empty());
        let (command, name) = (command.map(|text| cut(text)), ask.from.name.as_deref().map(cut));
        let needs = ask.needs.iter().take(TURNED_AWAY_NEEDS).cloned().collect();
        let user = Some(user.into());
        Self { at, what: What::Ask(Ask { user, name, command, needs, ..Ask::default() }) }
    }
}

/// Of somebody who was turned away so many needs are told at most, and so many bytes of each text.
const TURNED_AWAY_NEEDS: usize = 24;
const TURNED_AWAY_TEXT: usize = 200;

fn cut(text: &str) -> String {
    if text.len() <= TURNED_AWAY_TEXT {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(TURNED_AWAY_TEXT)])
}

fn ask(request: RequestNo, who: &Arc<Who>, needs: &[Need]) -> Ask {
    let command = Some(who.from.command.clone()).filter(|command| !command.is_empty());
    Ask {
        r: Some(request),
        user: user(who),
        name: who.from.name.clone(),
        command,
        needs: needs.to_vec(),
        ..Ask::default()
    }
}

fn user(who: &Who) -> Option<String> {
    Some(who.user.as_ref().into())
}

fn end(r: RequestNo, who: &Who, how: How) -> What {
    What::End { r, how, user: user(who) }
}

/// So many units of a pool are named at most: a line stays short, however much is granted.
pub(crate) const NAMED: usize = 100;

fn grant(r: RequestNo, who: &Who, taken: &[Taken], until: Option<u64>) -> Grant {
    let named = |taken: &Taken| {
        let units = taken.units.iter().take(NAMED).map(|(unit, _)| unit.clone());
        (taken.name.clone(), units.collect())
    };
    let more = |taken: &Taken| {
        let more = taken.units.len().checked_sub(NAMED + 1)? + 1;
        Some((taken.name.clone(), u32::try_from(more).unwrap_or(u32::MAX)))
    };
    let (got, more) = (taken.iter().map(named).collect(), taken.iter().filter_map(more).collect());
    Grant { r, got, more, until, limit: None, user: user(who) }
}

pub(crate) fn ended(how: Ending) -> How {
    match how {
        Ending::Released => How::Released,
        Ending::Expired => How::Expired,
        Ending::Left => How::Left,
        Ending::Killed => How::Killed,
        Ending::Overrun => How::Overrun,
        Ending::Lost | Ending::WithItsGrant | Ending::Unrestored => How::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_a_request_is_told() {
        let request = RequestNo((3 << 32) | 17);
        let who = Arc::new(Who { user: "anna".into(), ..Who::default() });
        let taken: Arc<[Taken]> = [Taken {
            name: "gpu".parse().expect("a name"),
            units: vec![("gpu/1".parse().expect("a name"), 7)],
        }]
        .into();
        let happened = [
            Happened::Granted {
                request,
                who: who.clone(),
                taken: taken.clone(),
                asked: 1,
                until: Some(90),
                limit: Some(50),
                overtook: 0,
            },
            Happened::Ended { request, who: who.clone(), taken, since: 2, how: Ending::Killed },
            Happened::Refused {
                request,
                who,
                needs: Vec::new().into(),
                asked: 1,
                why: Refusal::Withdrawn,
            },
            Happened::Pool { name: "gpu".parse().expect("a name"), kind: None, configured: false },
        ];
        let lines: Vec<_> = happened
            .iter()
            .map(|what| Line::of_event(5, what).expect("it matters").to_text().expect("JSON"))
            .collect();
        assert_eq!(
            lines,
            [
                "{\"t\":5,\"k\":\"grant\",\"r\":\"3-17\",\"got\":{\"gpu\":[\"gpu/1\"]},\"until\":90,\"limit\":50,\"u\":\"anna\"}\n",
                "{\"t\":5,\"k\":\"end\",\"r\":\"3-17\",\"how\":\"killed\",\"u\":\"anna\"}\n",
                "{\"t\":5,\"k\":\"end\",\"r\":\"3-17\",\"how\":\"withdrawn\",\"u\":\"anna\"}\n",
                "{\"t\":5,\"k\":\"pool\",\"pool\":\"gpu\",\"units\":0}\n",
            ]
        );
        assert_eq!(Line::of_event(5, &Happened::Started { epoch: 1 }), None);
    }

    #[test]
    fn a_line_is_short_however_much_is_granted() {
        let name = |text: String| text.parse::<holdall_wire::Name>().expect("a name");
        let units = (0..65_536).map(|n| (name(format!("gpu/{n}")), 1)).collect();
        let all = [Taken { name: name("gpu".into()), units }];
        let grant = grant(RequestNo(1), &Who::default(), &all, None);
        assert_eq!((grant.got["gpu"].len(), grant.more["gpu"]), (100, 65_436));
        assert!(Line { at: 1, what: What::Grant(grant) }.to_text().expect("JSON").len() < 2000);
    }

    #[test]
    fn a_line_is_short_whatever_was_asked_by_somebody_who_was_turned_away() {
        let need: Need = "n".repeat(200).parse().expect("a need");
        let long = "ü".repeat(500_000);
        let (command, name) = (long.clone(), Some(long));
        let ask = holdall_wire::Ask {
            needs: vec![need; 5000],
            now: false,
            lasting: holdall_wire::Lasting::Connection,
            from: holdall_wire::From { command, name, reason: None },
            within: None,
            limit: None,
            part: None,
        };
        let text = Line::turned_away(1, "anna", &ask).to_text().expect("JSON");
        assert!(text.len() < 6000, "{}", text.len());
        assert!(text.contains("anna") && text.contains("üüü…"), "{text}");
    }
}
