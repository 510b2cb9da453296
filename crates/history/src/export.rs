//! A history for other programs: a line for each request.

use std::io::{self, Write};

use serde::Serialize;

use crate::history::{History, Period, Use};

/// A request as others read it. Times are milliseconds since 1970 by the clock on the wall, spans seconds.
#[derive(Serialize)]
struct Row<'a> {
    request: Option<String>,
    user: Option<&'a str>,
    name: Option<&'a str>,
    command: Option<&'a str>,
    needs: String,
    units: String,
    asked: Option<u64>,
    granted: Option<u64>,
    ended: Option<u64>,
    how: Option<&'static str>,
    waited: Option<f64>,
    held: Option<f64>,
    part_of: Option<String>,
}

/// What its fields are called.
const COLUMNS: [&str; 13] = [
    "request", "user", "name", "command", "needs", "units", "asked", "granted", "ended", "how",
    "waited", "held", "part_of",
];

fn row<'a>(history: &History, one: &'a Use) -> Row<'a> {
    let wall = |time: Option<u64>| time.map(|time| history.wall(time));
    let seconds = |span: Option<u64>| span.map(|span| span as f64 / 1000.0);
    let needs: Vec<_> = one.needs.iter().map(ToString::to_string).collect();
    let mut units: Vec<_> = one.got.values().flatten().map(ToString::to_string).collect();
    units.extend(one.more.iter().map(|(pool, more)| format!("{pool}:{more}")));
    Row {
        request: one.request.map(|request| request.to_string()),
        user: one.user.as_deref(),
        name: one.name.as_deref(),
        command: one.command.as_deref(),
        needs: needs.join(" "),
        units: units.join(" "),
        asked: wall(one.asked),
        granted: wall(one.granted),
        ended: wall(one.ended),
        how: one.how.map(crate::How::as_str),
        waited: seconds(one.waited().or_else(|| one.waited_in_vain())),
        held: seconds(one.held()),
        part_of: one.part_of.map(|whole| whole.to_string()),
    }
}

fn rows(history: &History, period: Period) -> impl Iterator<Item = Row<'_>> {
    let within = move |one: &&Use| {
        let last = one.ended.unwrap_or(period.to);
        one.first() < period.to && last >= period.from
    };
    history.uses.iter().filter(within).map(|one| row(history, one))
}

/// All requests of a period, one JSON object a line.
///
/// # Errors
/// If they cannot be written.
pub fn json_lines(history: &History, period: Period, out: &mut impl Write) -> io::Result<()> {
    for row in rows(history, period) {
        serde_json::to_writer(&mut *out, &row)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The same as a table in CSV.
///
/// # Errors
/// If it cannot be written.
pub fn csv(history: &History, period: Period, out: &mut impl Write) -> io::Result<()> {
    let mut table = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    // Also where there is no request.
    table.write_record(COLUMNS).map_err(io::Error::other)?;
    for row in rows(history, period) {
        table.serialize(row).map_err(io::Error::other)?;
    }
    out.write_all(&table.into_inner().map_err(csv::IntoInnerError::into_error)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Joiner;

    #[test]
    fn every_request_is_a_line() {
        let mut joiner = Joiner::default();
        for line in [
            r#"{"t":1000,"k":"ask","r":"1-1","u":"anna","n":"a, \"b\"","needs":["gpu:2"]}"#,
            r#"{"t":3000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1"]}}"#,
            r#"{"t":9000,"k":"end","r":"1-1","how":"released"}"#,
            r#"{"t":9000,"k":"ask","r":"1-2","needs":["gpu"]}"#,
            r#"{"t":9000,"k":"ask","r":"1-3","needs":["gpu"]}"#,
            r#"{"t":9500,"k":"end","r":"1-3","how":"withdrawn"}"#,
            r#"{"t":9600,"k":"ask","r":"2-1","needs":["gpu:9"]}"#,
            r#"{"t":9600,"k":"grant","r":"2-1","got":{"gpu":["gpu/0"]},"more":{"gpu":8}}"#,
        ] {
            joiner.add(serde_json::from_str(line).expect("a line"));
        }
        let history = joiner.finish();
        let all = history.period(None, None);
        let mut text = Vec::new();
        csv(&history, all, &mut text).expect("written");
        assert_eq!(
            String::from_utf8_lossy(&text),
            "request,user,name,command,needs,units,asked,granted,ended,how,waited,held,part_of\n\
             1-1,anna,\"a, \"\"b\"\"\",,gpu:2,gpu/0 gpu/1,1000,3000,9000,released,2.0,6.0,\n\
             1-2,,,,gpu,,9000,,9000,unknown,,,\n\
             1-3,,,,gpu,,9000,,9500,withdrawn,0.5,,\n\
             2-1,,,,gpu:9,gpu/0 gpu:8,9600,9600,,,0.0,,\n"
        );
        let mut text = Vec::new();
        json_lines(&history, all, &mut text).expect("written");
        let text = String::from_utf8_lossy(&text);
        assert_eq!(text.lines().count(), 4);
        let first: std::collections::BTreeMap<String, serde_json::Value> =
            serde_json::from_str(text.lines().next().expect("a line")).expect("an object");
        let mut columns = COLUMNS;
        columns.sort_unstable();
        assert_eq!(first.into_keys().collect::<Vec<_>>(), columns);
        let mut text = Vec::new();
        csv(&History::default(), all, &mut text).expect("written");
        assert_eq!(String::from_utf8_lossy(&text), COLUMNS.join(",") + "\n");
    }
}
