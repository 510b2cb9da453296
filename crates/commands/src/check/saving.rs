//! A search that is saved, and goes on another time.

use std::fs;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use holdall_lab::check::{self, BadCheckpoint, CutOff, Report, Saving, Watch};
use indicatif::ProgressBar;

use super::Args;
use super::what::{Job, What};
use crate::say::one_line;
use crate::search::time;
use crate::{Failure, UNWRITTEN, cannot_write, say, usage};

/// Where a search is saved.
#[derive(clap::Args)]
pub(super) struct Saved {
    /// Save the search to a new file: at intervals, and when it is cut off by a limit or by Ctrl-C.
    /// When it has come to its end, the file is removed
    #[arg(long, value_name = "FILE", group = "file")]
    #[arg(conflicts_with_all = ["all", "suite", "random_walk"])]
    save: Option<PathBuf>,
    /// Go on with a search that was saved, and save it to the same file. Protocol and scope need not be
    /// named; the limits are those of this run
    #[arg(long, value_name = "FILE", group = "file")]
    #[arg(conflicts_with_all = ["all", "suite", "random_walk"])]
    resume: Option<PathBuf>,
    /// How often to save, like 90s, 5m or 2h
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5m", requires = "file")]
    save_every: Duration,
}

/// What was saved, as it would be typed.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

impl Saved {
    pub(super) fn is_asked_for(&self) -> bool {
        self.file().is_some()
    }

    fn file(&self) -> Option<&Path> {
        self.save.as_deref().or(self.resume.as_deref())
    }

    /// What is explored by a search that goes on, unless it is named.
    pub(super) fn what(&self, named: &What) -> anyhow::Result<Option<What>> {
        let Some(file) = self.resume.as_ref().filter(|_| named.protocol.is_none()) else {
            return Ok(None);
        };
        let line = check::saved_search(file).map_err(bad)?;
        let words = line.split_whitespace().map(|word| word.trim_matches('\''));
        let parse = |words: &mut dyn Iterator<Item = &str>| {
            Line::try_parse_from(once("check").chain(words)).map(|line| line.args.what)
        };
        let nothing = parse(&mut ["--resume", "it"].into_iter());
        if nothing.is_ok_and(|nothing| *named != nothing) {
            return Err(usage(format!(
                "--resume goes on with what was saved, which is {line}: leave out what is to be \
                 explored, or name all of it"
            )));
        }
        parse(&mut words.into_iter()).map(Some).map_err(|error| usage(one_line(&error)))
    }

    /// Begins the search, or goes on with it. With what was found comes whether it was saved the last
    /// time that this was tried.
    pub(super) fn search(
        &self,
        job: &Job,
        bar: &ProgressBar,
        watch: Watch<'_>,
    ) -> anyhow::Result<(Report, bool)> {
        let Job { chosen, scope, settings } = job;
        let is_saved = AtomicBool::new(true);
        let told = |saved: Result<(), &BadCheckpoint>| {
            is_saved.store(saved.is_ok(), Ordering::Relaxed);
            if let Err(why) = saved {
                bar.suspend(|| say(why));
            }
        };
        let file = self.file().unwrap_or_else(|| Path::new("")).to_owned();
        let saving = Saving { file, every: self.save_every, told: &told };
        let report = match &self.resume {
            Some(_) => check::resume(chosen, scope, settings, &saving, watch),
            None => check::check_saving(chosen, scope, settings, &saving, watch),
        };
        Ok((report.map_err(bad)?, is_saved.into_inner()))
    }

    /// Says how to go on, or removes what is of no more use.
    pub(super) fn finish(&self, report: &Report, is_saved: bool) -> anyhow::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let file = path.display();
        match report.cut_off {
            None | Some(CutOff::BehindViolation) => {
                fs::remove_file(path).map_err(|why| cannot_write(file, why))
            }
            Some(_) if is_saved => {
                say(format!("the search is saved: `holdall check --resume {file}` goes on"));
                Ok(())
            }
            Some(_) => {
                let told = format!("{file} holds the search as it was before");
                Err(Failure(UNWRITTEN, told).into())
            }
        }
    }
}

fn bad(why: BadCheckpoint) -> anyhow::Error {
    match why {
        BadCheckpoint::Unwritable { .. } => Failure(UNWRITTEN, why.to_string()).into(),
        _ => usage(why),
    }
}
