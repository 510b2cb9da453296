//! Times in the future as people write them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdall_wire::span;
use jiff::Zoned;
use jiff::civil::{DateTime, Time};

use crate::show;

/// How long it is until then: `18:00`, today or tomorrow by the clock on the wall, `2026-11-16T18:00`, or a span like `2h`. That it
/// is tomorrow is said: whoever is a minute late means today.
///
/// # Errors
/// If it is none of these, or over already.
pub(crate) fn until(text: &str) -> Result<Duration, String> {
    let now = Zoned::now();
    let span = from(&now, text)?;
    if is_tomorrow(&now, text, span) && SAID.is_new(text) {
        let left = show::span(span.as_secs());
        crate::say(format!("{text} is over for today: until tomorrow, in {left}"));
    }
    Ok(span)
}

/// Of which times it was said that they are tomorrow: arguments may be looked at twice.
static SAID: Said = Said(Mutex::new(BTreeSet::new()));

struct Said(Mutex<BTreeSet<String>>);

impl Said {
    /// Whether this is said for the first time.
    fn is_new(&self, text: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned())
    }
}

/// Whether a time without a date is one of tomorrow.
fn is_tomorrow(now: &Zoned, text: &str, span: Duration) -> bool {
    let is_time = text.contains(':') && !text.contains(['-', 'T']);
    is_time && now.checked_add(span).is_ok_and(|then| then.date() != now.date())
}

fn from(now: &Zoned, text: &str) -> Result<Duration, String> {
    if !text.contains(':') {
        return span(text).map_err(|_| wrong(text));
    }
    let zone = now.time_zone();
    let then = match text.parse::<Time>() {
        Ok(time) if !text.contains(['-', 'T']) => {
            let today = now.date().to_datetime(time).to_zoned(zone.clone());
            let today = today.map_err(|_| far(text))?;
            if today > *now {
                today
            } else {
                let tomorrow = now.date().tomorrow().map_err(|_| far(text))?;
                tomorrow.to_datetime(time).to_zoned(zone.clone()).map_err(|_| far(text))?
            }
        }
        _ => {
            let date: DateTime = text.parse().map_err(|_| wrong(text))?;
            date.to_zoned(zone.clone()).map_err(|_| far(text))?
        }
    };
    let millis = then.timestamp().as_millisecond() - now.timestamp().as_millisecond();
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0);
    millis.map(Duration::from_millis).ok_or_else(|| format!("'{text}' is over already"))
}

fn wrong(text: &str) -> String {
    format!("'{text}' is no time; write it like 18:00, 2026-11-16T18:00 or 2h")
}

fn far(text: &str) -> String {
    format!("'{text}' is too far away")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_today_or_tomorrow_or_on_their_day() {
        let now: Zoned = "2026-03-28T17:00+01:00[+01:00]".parse().expect("a time");
        let hours = |text: &str| from(&now, text).map(|span| span.as_secs() / 3600);
        assert_eq!(hours("18:00"), Ok(1));
        assert_eq!(hours("17:00"), Ok(24));
        assert_eq!(hours("2026-03-30T17:00"), Ok(48));
        assert_eq!(hours("90m"), Ok(1));
        for bad in ["", "25:00", "soon", "2026-03-01T10:00", "18:", "-1:00"] {
            assert!(from(&now, bad).is_err(), "{bad}");
        }
        assert_eq!(hours("9999-12-31T23:59"), Err(far("9999-12-31T23:59")));
        let tomorrow = |text: &str| is_tomorrow(&now, text, from(&now, text).expect("a time"));
        assert_eq!(
            ["16:59", "17:00", "17:01", "24h", "2026-03-29T18:00"].map(tomorrow),
            [true, true, false, false, false]
        );
    }
    #[test]
    fn of_each_time_it_is_said_once_that_it_is_tomorrow() {
        let said = Said(Mutex::default());
        let new = ["16:59", "16:58", "16:59", "16:58"].map(|text| said.is_new(text));
        assert_eq!(new, [true, true, false, false]);
    }
}
