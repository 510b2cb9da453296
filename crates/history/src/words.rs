//! Numbers and spans as people say them.

/// So many of something, of which several are told with an `s`.
pub(crate) fn count(number: impl TryInto<u64> + Copy, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("many {what}s"),
    }
}

/// A span of milliseconds in its two largest units, or seconds with one decimal.
pub(crate) fn span(millis: u64) -> String {
    match millis / 1000 {
        seconds @ 3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        seconds @ 86_400.. => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
        seconds @ 60.. => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{:.1}s", millis as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_several_and_spans() {
        assert_eq!(
            [0, 1, 2].map(|n: u32| count(n, "request")),
            ["0 requests", "1 request", "2 requests"]
        );
        assert_eq!(
            [50, 59_999, 60_000, 3_599_999, 7_260_000, 400 * 86_400_000].map(span),
            ["0.1s", "60.0s", "1m00s", "59m59s", "2h01m", "400d00h"]
        );
    }
}
