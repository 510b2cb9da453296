//! Explores what a command line of `holdall check` names, in process.

use std::slice::Iter;

use holdall_core::{CellId, Order};
use holdall_lab::check::{
    Detector, Outcome, Report, Scope, Settings, Timers, check, every_assignment,
};
use holdall_lab::registry::Chosen;

/// What is to be explored: `--all` names several scopes, everything else one.
pub(crate) struct Job {
    pub(crate) chosen: Chosen,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) settings: Settings,
}

impl Job {
    /// Reads a protocol and its options, as on the command line.
    ///
    /// # Panics
    /// If the line makes no sense.
    pub(crate) fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_else(|| panic!("a protocol begins '{line}'"));
        let words: Vec<&str> = words.map(|word| word.trim_matches('\'')).collect();
        let mut job = Options::default();
        let mut rest = words.iter();
        while let Some(option) = rest.next() {
            job.take(option, &mut rest).unwrap_or_else(|| panic!("{option} in '{line}'"));
        }
        job.finish(name).unwrap_or_else(|why| panic!("{why}: {line}"))
    }

    pub(crate) fn explore(&self) -> Vec<Report> {
        let check = |scope| check(&self.chosen, scope, &self.settings, &|_| {}).expect("served");
        self.scopes.iter().map(check).collect()
    }
}

/// The report on the only scope that a line names.
pub(crate) fn explore(line: &str) -> Report {
    let mut reports = Job::parse(line).explore();
    assert_eq!(reports.len(), 1, "{line}");
    reports.remove(0)
}

/// The violated properties, promised or not, each with the user it was denied to.
pub(crate) fn violated(report: &Report, promised: bool) -> Vec<(&'static str, Option<usize>)> {
    let violated = report.properties.iter().filter(|p| p.verdict == Outcome::Violated);
    violated.filter(|p| p.promised == promised).map(|p| (p.name, p.user)).collect()
}

#[derive(Default)]
struct Options {
    pools: Option<String>,
    users: Option<String>,
    nodes: Option<String>,
    homes: Option<String>,
    all: Option<String>,
    without: Vec<String>,
    as_printed: Option<Vec<String>>,
    settings: Settings,
}

impl Options {
    fn take(&mut self, option: &str, rest: &mut Iter<'_, &str>) -> Option<()> {
        let mut value = || rest.next().map(ToString::to_string);
        let settings = &mut self.settings;
        match option {
            "--pools" => self.pools = Some(value()?),
            "--users" => self.users = Some(value()?),
            "--nodes" => self.nodes = Some(value()?),
            "--homes" => self.homes = Some(value()?),
            "--all" => self.all = Some(value()?),
            "--without" => self.without.push(value()?),
            "--as-printed" => {
                self.as_printed = Some(value()?.split(',').map(ToString::to_string).collect());
            }
            "--departures" => settings.departures = true,
            "--duplicates" => settings.duplicates = true,
            "--keep-stale" => settings.keep_stale = true,
            "--reduce" => settings.reduce = true,
            "--amid" => settings.crash_amid = true,
            "--overlap" => settings.overlap = true,
            "--reboot" => settings.reboot = Some(CellId(value()?.parse().ok()?)),
            "--plain" => settings.canonical = Some(false),
            "--crash" => settings.crash = value()?.parse().ok(),
            "--crash-manager" => settings.crash_manager = value()?.parse().ok(),
            "--suspect" => settings.suspect = value()?.parse().ok(),
            "--loss" => settings.loss = value()?.parse().ok()?,
            "--overtaking" => settings.overtaking = value()?.parse().ok(),
            "--max-states" => settings.max_states = value()?.parse().ok()?,
            "--timers" => {
                settings.timers = if value()? == "quiet" { Timers::Quiet } else { Timers::Any };
            }
            "--order" => {
                settings.order =
                    Some(if value()? == "fifo" { Order::Fifo } else { Order::Unordered });
            }
            "--detector" => {
                settings.detector = Some(match value()?.as_str() {
                    "departed" => Detector::Departed,
                    "none" => Detector::None,
                    "reclaim" => Detector::Reclaim,
                    "suspect" => Detector::Suspect,
                    _ => return None,
                });
            }
            _ => return None,
        }
        Some(())
    }

    fn finish(self, name: &str) -> Result<Job, String> {
        let chosen = match &self.as_printed {
            Some(defects) => Chosen::as_printed(name, defects),
            None => Chosen::new(name, &self.without),
        };
        let chosen = chosen.map_err(|why| why.to_string())?;
        let scopes = match (&self.all, &self.pools, &self.users) {
            (Some(all), ..) => every_assignment(all, &chosen.about),
            (None, Some(pools), Some(users)) => {
                let scope = Scope::parse(pools, users, self.nodes.as_deref());
                let homes = |scope: Scope| match &self.homes {
                    Some(homes) => scope.with_homes(homes),
                    None => Ok(scope),
                };
                scope.and_then(homes).map(|scope| vec![scope])
            }
            _ => return Err("no scope is named".into()),
        };
        let scopes = scopes.map_err(|why| why.to_string())?;
        Ok(Job { chosen, scopes, settings: self.settings })
    }
}
