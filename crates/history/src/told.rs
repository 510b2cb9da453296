//! What goes into a history: lines, and what has happened in an agent, which becomes a line as it is written.
//!
//! Nearly all that happens is that somebody asks, is granted what it asked for, and gives it back. These are put into words
//! from where they are: a [`Line`] of its own for each would be most of the work.

use holdall_wire::event::What as Happened;
use holdall_wire::{Need, Refusal, RequestNo, Taken, Who};
use serde::Serialize;

use crate::event::{NAMED, ended};
use crate::line::{How, Line};

/// One line, or what becomes one.
#[derive(Debug)]
pub struct Told<'a>(Kind<'a>);

#[derive(Debug)]
enum Kind<'a> {
    Line(Line),
    Often(u64, Often<'a>),
}

/// What happens often.
#[derive(Debug)]
enum Often<'a> {
    Asked(RequestNo, &'a Who, &'a [Need], bool, Option<RequestNo>),
    Granted(RequestNo, &'a Who, ByName<'a>, Option<u64>, Option<u64>),
    Ended(RequestNo, &'a Who, How),
}

impl From<Line> for Told<'_> {
    fn from(line: Line) -> Self {
        Self(Kind::Line(line))
    }
}

impl<'a> Told<'a> {
    /// What has happened at a time; nothing if it does not matter here.
    pub fn of_event(at: u64, happened: &'a Happened) -> Option<Self> {
        let often = match happened {
            Happened::Asked { request, who, ask } => {
                let part_of = ask.part.map(|part| part.of);
                Often::Asked(*request, who, &ask.needs, ask.now, part_of)
            }
            Happened::Granted { request, who, taken, until, limit, .. } => {
                let Some(taken) = by_name(taken) else {
                    return Line::of_event(at, happened).map(Self::from);
                };
                Often::Granted(*request, who, taken, *until, *limit)
            }
            Happened::Ended { request, who, how, .. } => Often::Ended(*request, who, ended(*how)),
            Happened::Refused { request, who, why: Refusal::Withdrawn, .. } => {
                Often::Ended(*request, who, How::Withdrawn)
            }
            _ => return Line::of_event(at, happened).map(Self::from),
        };
        Some(Self(Kind::Often(at, often)))
    }

    /// When it happened.
    pub fn at(&self) -> u64 {
        match &self.0 {
            Kind::Line(line) => line.at,
            Kind::Often(at, _) => *at,
        }
    }

    /// The line that it is, if it is one already.
    pub(crate) fn line(&self) -> Option<&Line> {
        match &self.0 {
            Kind::Line(line) => Some(line),
            Kind::Often(..) => None,
        }
    }

    /// Adds it to a text, perhaps without what tells people apart.
    pub(crate) fn write_to(self, anonymous: bool, text: &mut Vec<u8>) -> serde_json::Result<()> {
        match self.0 {
            Kind::Line(line) if anonymous => line.anonymous().write_to(text),
            Kind::Line(line) => line.write_to(text),
            Kind::Often(at, often) => often.write_to(at, anonymous, text),
        }
    }
}

/// What is held, by name.
type ByName<'a> = [Option<&'a Taken>; FEW];

/// So many pools are put in order without more ado.
const FEW: usize = 8;

/// Each pool in the order of their names, as they are in a line; none if there are many, if one is there twice, or if not all
/// units are told.
fn by_name(taken: &[Taken]) -> Option<ByName<'_>> {
    let mut sorted = [None; FEW];
    let some = sorted.get_mut(..taken.len())?;
    for (place, one) in some.iter_mut().zip(taken) {
        *place = Some(one);
    }
    some.sort_unstable_by(|one, next| name(one).cmp(&name(next)));
    let is_once = some.is_sorted_by(|one, next| name(one) < name(next));
    let is_plain = is_once && taken.iter().all(|one| one.units.len() <= NAMED);
    is_plain.then_some(sorted)
}

fn name<'a>(one: &Option<&'a Taken>) -> Option<&'a str> {
    one.map(|one| one.name.as_str())
}

impl Often<'_> {
    fn write_to(self, at: u64, anonymous: bool, text: &mut Vec<u8>) -> serde_json::Result<()> {
        let mut words = Words { text, anonymous };
        match self {
            Self::Asked(request, who, needs, now, part_of) => {
                words.begin(at, "ask", request)?;
                words.user(who)?;
                if let Some(name) = who.from.name.as_ref().filter(|_| !anonymous) {
                    words.field("n", name)?;
                }
                if !anonymous && !who.from.command.is_empty() {
                    words.field("c", &who.from.command)?;
                }
                words.field("needs", needs)?;
                if now {
                    words.field("now", &true)?;
                }
                if let Some(part_of) = part_of {
                    words.field("in", &part_of)?;
                }
            }
            Self::Granted(request, who, taken, until, limit) => {
                words.begin(at, "grant", request)?;
                words.key("got");
                words.got(taken.into_iter().flatten())?;
                if let Some(until) = until {
                    words.field("until", &until)?;
                }
                if let Some(limit) = limit {
                    words.field("limit", &limit)?;
                }
                words.user(who)?;
            }
            Self::Ended(request, who, how) => {
                words.begin(at, "end", request)?;
                words.field("how", how.as_str())?;
                words.user(who)?;
            }
        }
        text.extend(b"}\n");
        Ok(())
    }
}

/// A line that is being written.
struct Words<'a> {
    text: &'a mut Vec<u8>,
    anonymous: bool,
}

impl Words<'_> {
    fn begin(&mut self, at: u64, kind: &str, request: RequestNo) -> serde_json::Result<()> {
        self.text.extend(b"{\"t\":");
        self.value(&at)?;
        self.field("k", kind)?;
        self.field("r", &request)
    }

    /// A key, which needs no escapes.
    fn key(&mut self, key: &str) {
        self.text.extend(b",\"");
        self.text.extend(key.as_bytes());
        self.text.extend(b"\":");
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *self.text, value)
    }

    fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        self.key(key);
        self.value(value)
    }

    fn user(&mut self, who: &Who) -> serde_json::Result<()> {
        if self.anonymous { Ok(()) } else { self.field("u", &*who.user) }
    }

    fn got<'a>(&mut self, taken: impl Iterator<Item = &'a Taken>) -> serde_json::Result<()> {
        self.text.push(b'{');
        for (at, Taken { name, units }) in taken.enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            self.value(name)?;
            self.text.extend(b":[");
            for (at, (unit, _)) in units.iter().enumerate() {
                if at > 0 {
                    self.text.push(b',');
                }
                self.value(unit)?;
            }
            self.text.push(b']');
        }
        self.text.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdall_wire::event::Ending;
    use holdall_wire::{From, Lasting, Name, Part};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn who(user: &str, command: &str, called: Option<&str>) -> Arc<Who> {
        let from =
            From { command: command.into(), name: called.map(Into::into), ..From::default() };
        Arc::new(Who { user: user.into(), from, ..Who::default() })
    }

    fn taken(pools: &[(&str, usize)]) -> Arc<[Taken]> {
        let pools = pools.iter().map(|(pool, count)| {
            let unit = |n| (name(&format!("{pool}/{n}")), 7);
            Taken { name: name(pool), units: (0..*count).map(unit).collect() }
        });
        pools.collect()
    }

    fn asked(who: &Arc<Who>, needs: &[&str], now: bool, part: Option<u64>) -> Happened {
        let needs = needs.iter().map(|need| need.parse().expect("a need")).collect();
        let part = part.map(|of| Part { of: RequestNo(of), outlasts: false });
        let (limit, within) = (Some(4), Some(RequestNo(1)));
        let (request, lasting) = (RequestNo((3 << 32) | 17), Lasting::Connection);
        let from = From::default();
        let ask = holdall_wire::Ask { needs, now, lasting, from, within, limit, part };
        Happened::Asked { request, who: who.clone(), ask: ask.into() }
    }

    fn granted(who: &Arc<Who>, taken: Arc<[Taken]>, times: [Option<u64>; 2]) -> Happened {
        let ([until, limit], who) = (times, who.clone());
        Happened::Granted { request: RequestNo(9), who, taken, asked: 1, until, limit, overtook: 3 }
    }

    #[test]
    fn what_happens_is_written_as_its_line_would_be() {
        let all = [
            who("anna", "make -j8 \"all\"", Some("nightly\n")),
            who("ünal \\ \u{1}", "", None),
            who("", "x", None),
        ];
        let mut happened = Vec::new();
        for who in &all {
            happened.push(asked(who, &["gpu:2", "db", "disk:all", "n:shared"], false, None));
            happened.push(asked(who, &[], true, Some(u64::MAX)));
            for pools in [&[][..], &[("a", 1)], &[("a", 2), ("b", 0)], &[("b", 1), ("a", 1)]] {
                happened.push(granted(who, taken(pools), [None, None]));
            }
            let many: Vec<String> = (0..9).rev().map(|n| format!("p{n}")).collect();
            let many: Vec<_> = many.iter().map(|pool| (pool.as_str(), 1)).collect();
            happened.push(granted(who, taken(&many[..8]), [None, None]));
            happened.push(granted(who, taken(&many), [None, None]));
            happened.push(granted(who, taken(&[("a", 1), ("a", 2)]), [Some(1), None]));
            for many in [99, 100, 101, 102] {
                happened.push(granted(who, taken(&[("a", many)]), [Some(1), Some(2)]));
            }
            for how in [Ending::Released, Ending::Killed, Ending::Unrestored, Ending::Overrun] {
                let (request, who, taken) = (RequestNo(7), who.clone(), taken(&[("a", 1)]));
                happened.push(Happened::Ended { request, who, taken, since: 2, how });
            }
            for why in [Refusal::Withdrawn, Refusal::Busy("no".into())] {
                let (request, who, needs) = (RequestNo(0), who.clone(), Vec::new().into());
                happened.push(Happened::Refused { request, who, needs, asked: 1, why });
            }
            happened.push(Happened::Queued { request: RequestNo(1) });
        }
        for what in &happened {
            let line = Line::of_event(5, what);
            for anonymous in [false, true] {
                let line = line.clone();
                let line = line.map(|line| if anonymous { line.anonymous() } else { line });
                let expected = line.map(|line| line.to_text().expect("JSON"));
                let told = Told::of_event(5, what).map(|told| {
                    let mut text = Vec::new();
                    told.write_to(anonymous, &mut text).expect("JSON");
                    String::from_utf8(text).expect("text")
                });
                assert_eq!(told, expected, "{what:?}");
            }
        }
    }
}
