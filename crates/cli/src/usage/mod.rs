//! `holdall usage`: who used what, and who waited for how long.

mod forecast;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use holdall_client::Client;
use holdall_commands::{BytesBar, cannot_write, files, say};
use holdall_history::usage::{By, Row, Usage, usage};
use holdall_history::{History, Note, Period, Unreadable, csv, json_lines, parse, read_told};
use holdall_lab::figures::{BarChart, BarRow};
use holdall_wire::{Body, HistoryPlace, Name, Reply, Status, UnitView, span};

use crate::reach::{Reach, block_on, call, look};
use crate::{print, show, usage as misuse};

/// Show who used what and for how long, who waited, and how busy everything was
///
/// Made from the history that the agent keeps, or from its audit log. Hours held count once for each unit. `docs/history.md` says what
/// each figure means.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// What to add up
    #[arg(long, value_enum, default_value = "pool")]
    by: Key,
    /// Print one JSON object; spans are in milliseconds
    #[arg(long, conflicts_with_all = ["csv", "export"])]
    json: bool,
    /// Print a table in CSV
    #[arg(long, conflicts_with = "export")]
    csv: bool,
    /// Draw the hours held and waited into FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Tell how often estimates of waits would have held, instead
    #[arg(long, conflicts_with_all = ["by", "csv", "export"])]
    forecast: bool,
    /// Print every request instead
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "svg")]
    export: Option<Format>,
}

/// Which history.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// How far back to look
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "30d", allow_hyphen_values = true)]
    pub(crate) since: Duration,
    /// The history to read: a file, or the data directory of an agent [default: that of your agent]
    #[arg(long, value_name = "PATH")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Key {
    User,
    Pool,
    Unit,
    /// The name of a request, or else its command
    Name,
    Day,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Csv,
    Jsonl,
}

/// What was read.
pub(crate) struct Recorded {
    pub(crate) history: History,
    /// The part of it that is meant.
    pub(crate) period: Period,
    /// Whether it is everybody's, and not only one's own.
    pub(crate) everybodys: bool,
}

impl Source {
    /// Whether all of these can be written, and none of them is what is read.
    pub(crate) fn try_all(&self, paths: &[&Path]) -> anyhow::Result<()> {
        let own = || self.reach.place().ok().map(|place| place.data.as_path());
        files::try_all(self.from.as_deref().or_else(own), paths)
    }

    /// The history, and the part of it that is meant. What is odd about it is said.
    pub(crate) fn read(&self) -> anyhow::Result<Recorded> {
        let since = u64::try_from(self.since.as_millis()).unwrap_or(u64::MAX);
        let (mut history, everybodys, now) = match &self.from {
            Some(path) => {
                files::tell_if_endless(path);
                (read_file(path).map_err(misuse)?, true, None)
            }
            None => {
                let now = show::now();
                let (history, everybodys) = self.of_agent(now.saturating_sub(since))?;
                (history, everybodys, Some(now))
            }
        };
        if now.is_some() {
            history.know_pools(self.pools());
        }
        Note::tell(&history.notes).iter().for_each(say);
        let period = history.period(now, Some(since));
        Ok(Recorded { history, period, everybodys })
    }

    /// The history of the agent that is meant, and whether it is everybody's: its files, or what it gives whoever may not read
    /// these.
    fn of_agent(&self, since: u64) -> anyhow::Result<(History, bool)> {
        if self.reach.elsewhere()?.is_some() {
            return block_on(async { from_agent(&self.reach.connect().await?, since).await });
        }
        let here = match read_file(&self.reach.place()?.data) {
            Ok(history) => return Ok((history, true)),
            Err(error) => error,
        };
        let is_elsewhere = match &here {
            Unreadable::Nothing(_) => true,
            Unreadable::File { why, .. } => {
                matches!(why.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound)
            }
            _ => false,
        };
        if !is_elsewhere {
            return Err(misuse(here));
        }
        block_on(async { from_agent(&self.reach.connect().await?, since).await })
    }

    /// The pools that the agent has now, if one runs.
    fn pools(&self) -> Vec<(Name, Option<Vec<Name>>)> {
        let asked = block_on(async {
            let client = self.reach.connect().await?;
            // Pools come first.
            let enough = |status: &Status| status.grants.len() + status.waiting.len() > 0;
            Ok(look(&client, &[], enough).await?.0.pools)
        });
        let declared = asked.unwrap_or_default().into_iter().filter(|pool| pool.declared);
        let names = |units: Vec<UnitView>| {
            let stay = units.into_iter().filter(|unit| !unit.retiring);
            stay.map(|unit| unit.name).collect()
        };
        declared.map(|pool| (pool.name, (!pool.lock).then(|| names(pool.units)))).collect()
    }
}

/// Reads a history, and shows how far it is.
fn read_file(path: &Path) -> Result<History, Unreadable> {
    let bar = BytesBar::new(&path.display().to_string());
    read_told(path, &|bytes| bar.sees(bytes))
}

/// The history as the agent tells it, and whether it is everybody's.
async fn from_agent(client: &Client, since: u64) -> anyhow::Result<(History, bool)> {
    let (mut text, mut all) = (String::new(), true);
    let mut next = Some(HistoryPlace { file: since, byte: 0 });
    while let Some(from) = next {
        let Reply::History(page) = call(client, Body::History { from }).await? else {
            anyhow::bail!("the agent gave an unexpected reply");
        };
        text.push_str(&page.text);
        (all, next) = (page.all, page.next);
    }
    let history = parse("the history of the agent", &text).map_err(misuse)?;
    Ok((history, all))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.source.try_all(&args.svg.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let Recorded { history, period, everybodys } = args.source.read()?;
    if !everybodys {
        say("these are your own requests; `holdall agent status` shows who may see everybody's");
    }
    if let Some(format) = args.export {
        let mut out = Vec::new();
        match format {
            Format::Csv => csv(&history, period, &mut out)?,
            Format::Jsonl => json_lines(&history, period, &mut out)?,
        }
        return write_out(out);
    }
    if args.forecast {
        return forecast::run(&history, period, everybodys, args.json, args.svg.as_deref());
    }
    let by = match args.by {
        Key::User => By::User,
        Key::Pool => By::Pool,
        Key::Unit => By::Unit,
        Key::Name => By::Name,
        Key::Day => By::Day,
    };
    let used = usage(&history, period, by, &jiff::tz::TimeZone::system());
    if let Some(path) = &args.svg {
        draw(path, &used)?;
    }
    if args.csv {
        return write_out(used.csv()?.into_bytes());
    }
    print(&if args.json { show::json(&used)? } else { told(&used) })?;
    Ok(ExitCode::SUCCESS)
}

fn write_out(bytes: Vec<u8>) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let bytes = if out.is_terminal() { for_terminal(&bytes) } else { bytes };
    match out.write_all(&bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(cannot_write("the result", error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Lines for other programs, without what a terminal would take for commands: names are what somebody else has chosen.
fn for_terminal(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().flat_map(|line| [show::clean(line), "\n".into()]).collect::<String>().into()
}

fn headline(used: &Usage) -> String {
    let length = show::span(used.length / 1000);
    format!("{} to {} ({length})", moment(used.from), moment(used.to))
}

/// A time by the clock on the wall.
pub(crate) fn moment(millis: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(millis).unwrap_or(i64::MAX));
    let at = at.map(|at| at.to_zoned(jiff::tz::TimeZone::system()));
    at.map_or_else(|_| "?".into(), |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

/// A span as short as can be.
pub(crate) fn short(millis: Option<u64>) -> String {
    match millis {
        None => "-".into(),
        Some(0) => "0".into(),
        Some(millis @ 1..1000) => format!("{millis}ms"),
        Some(millis @ 1000..10_000) => format!("{:.1}s", millis as f64 / 1000.0),
        Some(millis) => show::span(millis / 1000),
    }
}

fn hours(millis: u128) -> String {
    match millis as f64 / 3_600_000.0 {
        0.0 => "0".into(),
        // A second is 0.0003 hours.
        few @ ..0.1 => format!("{few:.4}"),
        hours => format!("{hours:.1}"),
    }
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0))
}

fn name(row: &Row) -> String {
    row.key.as_deref().map_or_else(|| "-".into(), |key| show::shorten(key, 40))
}

fn told(used: &Usage) -> String {
    if used.total.requests == 0 && used.total.held == 0 && used.total.waited == 0 {
        return "nothing is recorded of this time: nobody asked for anything, held it or waited for it".into();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "",
        "requests",
        "given up",
        "hours held",
        "in use, %",
        "hours waited",
        "wait: half",
        "99 %",
        "longest",
        "longest use",
    ]);
    let total = (used.rows.len() > 1).then_some(("all".to_owned(), &used.total));
    for (key, row) in used.rows.iter().map(|row| (name(row), row)).chain(total) {
        table.add_row([
            key,
            row.requests.to_string(),
            row.given_up.to_string(),
            hours(row.held),
            percent(row.utilisation),
            hours(row.waited),
            short(row.waits.p50),
            short(row.waits.p99),
            short(row.waits.max),
            short(Some(row.longest)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n{}", headline(used), table.trim_fmt())
}

/// The most rows of a picture.
const ROWS: usize = 60;

fn draw(path: &Path, used: &Usage) -> anyhow::Result<()> {
    let row = |row: &Row| BarRow {
        name: name(row),
        values: [row.held, row.waited]
            .map(|millis| (millis as f64 / 3_600_000.0, hours(millis)))
            .to_vec(),
    };
    let mut notes = vec![headline(used)];
    if used.rows.len() > ROWS {
        notes.push(format!("the first {ROWS} of {}", used.rows.len()));
    }
    let chart = BarChart {
        title: "Usage".into(),
        notes,
        bars: vec!["hours held".into(), "hours waited".into()],
        label: "hours".into(),
        rows: used.rows.iter().take(ROWS).map(row).collect(),
    };
    files::write(path, chart.draw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_commands_for_a_terminal() {
        let shown = for_terminal("a,b\n1,\u{1b}]0;x\u{7}\u{9b}31m\n".as_bytes());
        assert_eq!(shown, b"a,b\n1, ]0;x  31m\n");
    }
}
