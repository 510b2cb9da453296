//! How things are put into words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdall_wire::{Drained, Expected, Hindrance, Need, Outlook, RequestNo, Taken, Who};
use serde::Serialize;

use crate::unreached::Unreached;

/// The version of everything printed as JSON.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// One line of JSON with its version.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<String> {
    Ok(serde_json::to_string(&Versioned { schema: SCHEMA, value })?)
}

/// The time, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// How long ago something was.
pub(crate) fn ago(since: u64) -> String {
    span(now().saturating_sub(since) / 1000)
}

/// A span of time in its two largest units.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// What is left of a time, to whom that is told when it is nearly over.
pub(crate) fn soon(left: Duration) -> String {
    match left.as_millis() {
        0..1000 => "a moment".into(),
        millis => span((millis as u64).div_ceil(1000)),
    }
}

/// Until when, and how long that is.
pub(crate) fn until(millis: u64) -> String {
    let left = span(millis.saturating_sub(now()) / 1000);
    let at = jiff::Timestamp::from_millisecond(millis as i64);
    let at = at.map(|at| at.to_zoned(jiff::tz::TimeZone::system()));
    match at {
        Ok(at) => format!("until {} ({left})", at.strftime("%Y-%m-%d %H:%M:%S %Z")),
        Err(_) => format!("for {left}"),
    }
}

/// In how long something is, at the earliest and at the latest.
pub(crate) fn range((from, to): (u64, u64)) -> String {
    let (from, to) = (from.saturating_sub(now()), to.saturating_sub(now()));
    match (from / 1000, to / 1000) {
        (0, 0) => "now".into(),
        _ if from >= YEAR => "more than a year".into(),
        (from, _) if to >= YEAR => format!("{} or much later", span(from)),
        (from, to) if from == to => span(from),
        (from, to) => format!("{} to {}", span(from), span(to)),
    }
}

/// What may take longer is not told more exactly.
const YEAR: u64 = 366 * 24 * 3_600_000;

/// The same in a sentence.
fn within(times: (u64, u64)) -> String {
    match range(times) {
        now if now == "now" => now,
        range => format!("in {range}"),
    }
}

/// When a request will probably be granted.
pub(crate) fn outlook(outlook: &Outlook) -> String {
    match outlook {
        Outlook::Expected(Expected { made, half, nine, .. }) => format!(
            "probably granted {}, and in nine of ten cases {} (worked out {} ago)",
            within(*half),
            within(*nine),
            ago(*made)
        ),
        Outlook::Unknown(why) => format!("when it is granted cannot be told: {}", clean(why)),
    }
}

/// Needs as they were written.
pub(crate) fn needs(needs: &[Need]) -> String {
    let all: Vec<_> = needs.iter().map(ToString::to_string).collect();
    shorten(&all.join(" "), 60)
}

/// Units with their fences.
pub(crate) fn taken(taken: &[Taken]) -> String {
    let units = taken.iter().flat_map(|taken| &taken.units);
    let all: Vec<_> =
        units.map(|(unit, fence)| format!("{unit}#{}", self::fence(*fence))).collect();
    all.join(" ")
}

/// A fence as people read it: the start of the agent, and a number.
pub(crate) fn fence(fence: u64) -> RequestNo {
    RequestNo(fence)
}

/// Who somebody is, in a few words.
pub(crate) fn who(who: &Who) -> String {
    let name = who.from.name.as_ref().map(|name| format!("{}, ", clean(name))).unwrap_or_default();
    // Of whoever comes over a network, no process is known.
    let process = if who.pid == 0 { String::new() } else { format!("pid {}, ", who.pid) };
    format!("{name}{}, {process}{}", who.user, shorten(&who.from.command, 40))
}

/// What keeps a request, need by need.
pub(crate) fn hindrances(all: &[Hindrance], unreached: &Unreached) -> String {
    let each = all.iter().map(|hindrance| {
        let list = |requests: &[RequestNo], total: u32| {
            let some: Vec<_> = requests.iter().take(4).map(ToString::to_string).collect();
            let more = total.saturating_sub(4);
            some.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
        };
        let Hindrance { need, wanted, free, holders, ahead, drained, .. } = hindrance;
        let held = list(holders, hindrance.holders_total);
        let before = list(ahead, hindrance.ahead_total);
        let lacks = if *wanted > 1 { format!(" ({free} of {wanted} free)") } else { String::new() };
        let mut why = Vec::new();
        if !holders.is_empty() {
            why.push(format!("held by {held}"));
        }
        why.extend(drained.iter().map(|(unit, why)| format!("{unit} is {}", self::drained(why))));
        match (why.is_empty(), ahead.is_empty()) {
            (true, true) if need.name.cell().is_some() => {
                let cell = need.name.cell().unwrap_or_default();
                let why = unreached.get(cell).map_or("has not given it yet", String::as_str);
                format!("{need}: {cell} {why}")
            }
            (true, _) => format!("{need}: kept for {before}{lacks}"),
            (false, true) => format!("{need}: {}{lacks}", why.join(", ")),
            (false, false) => format!("{need}: {}, then {before}{lacks}", why.join(", ")),
        }
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The same in a table: of somebody who waits for other cells, nothing here may be in the way.
pub(crate) fn because(all: &[Hindrance], unreached: &Unreached) -> String {
    if all.is_empty() { "nothing here".into() } else { hindrances(all, unreached) }
}

/// Why a unit is given to nobody.
pub(crate) fn drained(drained: &Drained) -> String {
    let reason = shorten(&drained.reason, 60);
    let until =
        drained.until.map(|until| format!(", {} left", span(until.saturating_sub(now()) / 1000)));
    format!("drained by {}{}: {reason}", clean(&drained.by), until.unwrap_or_default())
}

/// A text of somebody else's, without what a terminal takes for a command: control characters,
/// and those that turn the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(harmless).collect()
}

/// A text of at most so many characters, without line ends.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_over_is_not_told_as_over() {
        let left = [0, 300, 1000, 5999, 60_000].map(|millis| soon(Duration::from_millis(millis)));
        assert_eq!(left, ["a moment", "a moment", "1s", "6s", "1m00s"]);
    }

    #[test]
    fn ranges_of_time_are_told_from_now_on() {
        let in_minutes = |from: u64, to: u64| {
            let at = |minutes: u64| now() + minutes * 60_000 + 500;
            range((at(from), at(to)))
        };
        assert_eq!(in_minutes(0, 0), "now");
        assert_eq!(in_minutes(5, 5), "5m00s");
        assert_eq!(in_minutes(0, 90), "0s to 1h30m");
        assert_eq!(in_minutes(5, 5_000_000), "5m00s or much later");
        assert_eq!(in_minutes(600_000, 5_000_000), "more than a year");
        assert_eq!(range((0, 1)), "now", "it is over already");
    }

    #[test]
    fn what_others_say_of_themselves_is_no_command_for_a_terminal() {
        let told = clean("red\u{1b}[31m\r\n1-1 forged\u{202e}\u{7}\u{9b}end");
        assert_eq!(told, "red [31m  1-1 forged   end");
        assert_eq!(shorten("\u{1b}[2J0123456789", 8), " [2J0...");
    }
}
