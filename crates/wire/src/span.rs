//! Spans of time as people write them.

use std::time::Duration;

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
    let span = number.parse::<f64>().ok().map(|n| n * seconds).filter(|s| *s <= 3.2e9);
    span.and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| {
        format!("'{text}' is no span of time; write it like 500ms, 30s, 5m, 1h or 2d")
    })
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
    }
}
