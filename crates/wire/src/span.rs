//! Spans of time as people write them.

use std::time::Duration;

/// A hundred years.
const MOST_DAYS: f64 = 36_525.0;

/// Reads a span of time as people write it: `90`, `30s`, `5m`, `1h`, `2d`, `500ms`.
///
/// # Errors
/// If it is none.
pub fn span(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => f64::NAN,
    };
    let span = number.parse::<f64>().ok().map(|n| n * seconds).filter(|s| !s.is_nan());
    match span {
        None => Err(format!("'{text}' is no span of time; write it like 500ms, 30s, 5m, 1h or 2d")),
        Some(seconds) if seconds > MOST_DAYS * 86_400.0 => {
            Err(format!("'{text}' is too long: at most {MOST_DAYS}d"))
        }
        Some(seconds) => {
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("'{text}': {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        assert_eq!(span("90"), Ok(Duration::from_secs(90)));
        assert_eq!(span("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "s", "-1", "1y", "1e9", "99999999999999d", ".", "NaN"] {
            assert!(span(bad).is_err(), "{bad}");
        }
        assert!(span("36525d").is_ok());
        assert_eq!(span("36526d"), Err("'36526d' is too long: at most 36525d".into()));
    }
}
