//! `holdall figures`: the study, its figures and what becomes of the paper's claims.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdall_commands::{cannot_write, names};
use holdall_lab::figures::{
    self, BadTable, Failed, Row, Set, Study, Table, missing, paper_and_today, points,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{print, usage};

/// Measure response and messages against the number of conflicting users, and draw them.
///
/// Repeats the simulation study of Rhee's paper on modular resource allocation (Figures 7 to 11),
/// with its protocols and with others. Writes figures.csv, SVG figures, and claims.md, which sets
/// the paper's claims beside what was measured. What was interrupted goes on when the same command
/// is given again. The same command gives the same files. `docs/study.md` explains them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory to write to; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Simulate nothing: draw and judge what is in this table
    #[arg(long, value_name = "CSV", conflicts_with_all = ["quick", "graphs", "ticks", "seed", "per_request"])]
    from: Option<PathBuf>,

    /// Few graphs, short runs, fewer points: half a minute instead of half an hour
    #[arg(long)]
    quick: bool,
    /// One set of figures only: fixed and unequal, the paper's protocols with requests of one size
    /// and of unequal sizes, or today, what we would use today
    #[arg(long, value_name = "SET")]
    only: Option<String>,
    /// Compare these protocols instead, with requests of one size
    #[arg(long, value_name = "PROTOCOL,...", conflicts_with = "only")]
    protocols: Vec<String>,
    /// The most graphs for a point; it may be sure with fewer [default: 40, or 5 if quick]
    #[arg(long)]
    graphs: Option<u32>,
    /// Length of a run; the first fifth is warm-up [default: 600000, or 60000 if quick]
    #[arg(long)]
    ticks: Option<u64>,
    /// Pools in a request, a point for each [default: 1,2,3,4,5,6,8,10, or 1,2,4,6,8 if quick]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    per_request: Option<Vec<u32>>,
    /// Where all chance comes from [default: 1]
    #[arg(long)]
    seed: Option<u64>,
}

impl Args {
    fn study(&self) -> Study {
        let usual = if self.quick { Study::quick() } else { Study::full() };
        Study {
            per_request: self.per_request.clone().unwrap_or(usual.per_request),
            graphs: self.graphs.unwrap_or(usual.graphs),
            ticks: self.ticks.unwrap_or(usual.ticks),
            seed: self.seed.unwrap_or(usual.seed),
        }
    }

    fn sets(&self) -> anyhow::Result<Vec<Set>> {
        let all = paper_and_today();
        if !self.protocols.is_empty() {
            return Ok(vec![Set::own(&names(&self.protocols))]);
        }
        let Some(only) = &self.only else { return Ok(all.into()) };
        let names: Vec<_> = all.iter().map(|set| set.name.clone()).collect();
        match all.into_iter().find(|set| set.name == *only) {
            Some(set) => Ok(vec![set]),
            None => Err(usage(format!("no set '{only}'; there are: {}", names.join(", ")))),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sets = args.sets()?;
    let rows = match &args.from {
        Some(table) => {
            let rows = Table::read(table).map_err(usage)?;
            make(&args.out)?;
            rows
        }
        None => simulate(args, &sets)?,
    };
    let drawn: Vec<_> = sets.iter().flat_map(|set| figures::figures(set, &rows)).collect();
    for figure in &drawn {
        write(&args.out.join(&figure.name), &figure.svg)?;
    }
    write(&args.out.join("claims.md"), &figures::claims(&sets, &rows))?;
    let capped = rows.iter().filter(|row| row.capped).count();
    print(&format!(
        "{}: {} points, {capped} of them not sure within 5 %; {} figures; claims.md",
        args.out.display(),
        rows.len(),
        drawn.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Measures what is not in the table yet; returns all that is.
fn simulate(args: &Args, sets: &[Set]) -> anyhow::Result<Vec<Row>> {
    let study = args.study();
    if study.graphs == 0 || study.per_request.is_empty() {
        return Err(usage("nothing to run: let there be at least one graph and one point"));
    }
    let points = points(&study, sets);
    figures::can_be_measured(&study, &points).map_err(usage)?;
    make(&args.out)?;
    let (table, rows) = Table::open(&args.out, &study).map_err(usage)?;
    let bar = progress_bar(points.len() as u64);
    let missing = missing(points, &rows);
    bar.set_position(bar.length().unwrap_or(0) - missing.len() as u64);
    bar.reset_eta();
    let measured = figures::measure(&study, &missing, &|row| {
        table.append(&row)?;
        bar.inc(1);
        Ok(())
    });
    bar.finish_and_clear();
    measured.map_err(|failed| match failed {
        Failed::Name(_) | Failed::Sim(holdall_sim::Error::Settings(_)) => usage(failed),
        _ => failed.into(),
    })?;
    table.finish().map_err(|error: BadTable| error.into())
}

/// On stderr, and only if that is a terminal.
fn progress_bar(points: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} points, {eta} to go")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(points).with_style(style)
}

fn make(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).map_err(|why| cannot_write(dir.display(), why))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).map_err(|why| cannot_write(path.display(), why))
}
