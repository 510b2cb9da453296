//! The table of `docs/locality.md`: every protocol, a few conflict graphs, every detector.

use std::collections::BTreeSet;
use std::process::ExitCode;

use holdall_lab::check::{self, Detector, Locality, Scope, Settings, Timers};
use holdall_registry::Chosen;
use indicatif::ProgressBar;

use super::{Args, CUT_OFF, exit_code, measured};
use crate::search::{bar, tell};
use crate::{Protocols, print_to_reader, usage};

/// A conflict graph.
struct Graph {
    name: &'static str,
    pools: &'static str,
    users: &'static str,
    /// Which of those before it must have been seen completely if it is to be tried.
    after: Option<&'static str>,
}

const GRAPHS: &[Graph] = &[
    Graph { name: "path of 3", pools: "1,1", users: "0/0+1/1", after: None },
    Graph { name: "path of 4", pools: "1,1,1", users: "0/0+1/1+2/2", after: None },
    Graph {
        name: "path of 5",
        pools: "1,1,1,1",
        users: "0/0+1/1+2/2+3/3",
        after: Some("path of 4"),
    },
    Graph { name: "ring of 4", pools: "1,1,1,1", users: "0+1/1+2/2+3/3+0", after: None },
];

const DETECTORS: &[Detector] =
    &[Detector::None, Detector::Suspect, Detector::Reclaim, Detector::Departed];

pub(super) fn run(args: &Args, known: &Protocols) -> anyhow::Result<ExitCode> {
    let protocols = match &args.protocol {
        Some(name) => vec![args.search.chosen(known, name)?],
        None => known.all().map_err(usage)?,
    };
    let mut table = Table { args, bar: bar(), cut_off: BTreeSet::new() };
    for graph in GRAPHS {
        table.graph(graph, &protocols)?;
    }
    table.bar.finish_and_clear();
    Ok(exit_code(table.cut_off.is_empty()))
}

struct Table<'a> {
    args: &'a Args,
    bar: ProgressBar,
    /// What was not seen completely: graph, protocol, detector.
    cut_off: BTreeSet<(&'static str, String, Detector)>,
}

impl Table<'_> {
    /// Prints what belongs to one conflict graph, line by line, except rows that decide nothing.
    fn graph(&mut self, graph: &Graph, protocols: &[Chosen]) -> anyhow::Result<()> {
        let scope = Scope::parse(graph.pools, graph.users, None).map_err(usage)?;
        if !self.args.json {
            self.say(&header(graph.name, &scope))?;
        }
        for chosen in protocols {
            let mut row = format!("| `{}` |", chosen.name);
            let mut decided = false;
            for detector in DETECTORS {
                let report = self.measure(graph, &scope, chosen, *detector);
                decided |= report.as_ref().is_some_and(|report| report.exact);
                match &report {
                    Some(report) if self.args.json => self.say(&serde_json::to_string(report)?)?,
                    _ => row.push_str(&cells(chosen, *detector, report.as_ref())),
                }
            }
            if decided && !self.args.json {
                self.say(&row)?;
            }
        }
        Ok(())
    }

    /// Nothing, if the protocol does not serve the scope or has nobody to tell, or if it would be
    /// cut off in any case.
    fn measure(
        &mut self,
        graph: &Graph,
        scope: &Scope,
        chosen: &Chosen,
        detector: Detector,
    ) -> Option<Locality> {
        let key = |graph| (graph, chosen.name.clone(), detector);
        if graph.after.is_some_and(|after| self.cut_off.contains(&key(after))) {
            return None;
        }
        self.bar.set_message(format!("{} {scope}, detector {detector}", chosen.name));
        let progress = |progress| tell(&self.bar, progress);
        let patient = !chosen.about.with_patience.is_empty();
        let settings = Settings { detector: Some(detector), ..self.args.settings() };
        let timers = if patient { Timers::Quiet } else { settings.timers };
        let settings = Settings { timers, ..settings };
        let report = check::locality(chosen, scope, &settings, &progress).ok()?;
        if !report.complete {
            self.cut_off.insert(key(graph.name));
        }
        Some(report)
    }

    /// Nothing more is worth a search once nobody reads on.
    fn say(&self, line: &str) -> anyhow::Result<()> {
        match self.bar.suspend(|| print_to_reader(line))? {
            true => Ok(()),
            false => std::process::exit(CUT_OFF.into()),
        }
    }
}

fn header(name: &str, scope: &Scope) -> String {
    let detectors: String = DETECTORS.iter().map(|d| format!(" `{d}` | states |")).collect();
    let rule = "---|".repeat(1 + 2 * DETECTORS.len());
    format!("\n### A {name}: `{scope}`\n\n| protocol |{detectors}\n|{rule}")
}

/// The locality and the states. A dagger says that the protocol does not assume to be told so.
fn cells(chosen: &Chosen, detector: Detector, report: Option<&Locality>) -> String {
    let Some(report) = report else { return " | |".into() };
    let assumed = match detector {
        Detector::None => true,
        Detector::Departed => chosen.about.assumes.departures,
        Detector::Reclaim | Detector::Suspect => chosen.about.assumes.suspicions,
    };
    let dagger = if assumed { "" } else { " †" };
    let more = if report.complete { "" } else { "+" };
    format!(" {}{dagger} | {}{more} |", measured(report), grouped(report.states))
}

/// A number with its thousands set apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let (head, tail) = digits.split_at(digits.len() % 3);
    let tail: Vec<_> = (0..tail.len()).step_by(3).map(|at| &tail[at..at + 3]).collect();
    let groups = Some(head).filter(|head| !head.is_empty()).into_iter().chain(tail);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let shown = [7, 999, 1000, 123_456, 1_234_567].map(grouped);
        assert_eq!(shown, ["7", "999", "1,000", "123,456", "1,234,567"]);
    }
}
