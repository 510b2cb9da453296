//! The table of `docs/locality.md`: every protocol, a few conflict graphs, every detector.

use std::process::ExitCode;

use holdall_lab::check::{self, Detector, Locality, Scope, Settings, Timers};
use holdall_lab::registry::{self, Chosen};

use super::{Args, exit_code, measured};
use crate::search::bar;
use crate::{print, usage};

/// The conflict graphs: what a reader calls it, pools, users.
const GRAPHS: &[(&str, &str, &str)] = &[
    ("path of 3", "1,1", "0/0+1/1"),
    ("path of 4", "1,1,1", "0/0+1/1+2/2"),
    ("path of 5", "1,1,1,1", "0/0+1/1+2/2+3/3"),
    ("ring of 4", "1,1,1,1", "0+1/1+2/2+3/3+0"),
];

const DETECTORS: &[Detector] =
    &[Detector::None, Detector::Suspect, Detector::Reclaim, Detector::Departed];

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let protocols = match &args.protocol {
        Some(name) => vec![args.search.chosen(name)?],
        None => registry::all_chosen(),
    };
    let bar = bar();
    let progress = |states| bar.set_position(states as u64);
    let say = |line: &str| bar.suspend(|| print(line));
    let mut complete = true;
    for (name, pools, users) in GRAPHS {
        let scope = Scope::parse(pools, users, None).map_err(usage)?;
        if !args.json {
            say(&header(name, &scope))?;
        }
        for chosen in &protocols {
            let mut row = Row::new(chosen);
            for detector in DETECTORS {
                bar.set_message(format!("{} {scope}, detector {detector}", chosen.name));
                let settings = settings(args, chosen, *detector);
                // A protocol that does not serve the scope, or has nobody to tell, says so.
                let report = check::locality(chosen, &scope, &settings, &progress).ok();
                complete &= report.as_ref().is_none_or(|report| report.complete);
                match report {
                    Some(report) if args.json => say(&serde_json::to_string(&report)?)?,
                    report => row.add(report.as_ref()),
                }
            }
            if !args.json {
                say(&row.0)?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(exit_code(complete))
}

/// Timers are patient where the protocol promises more if they are.
fn settings(args: &Args, chosen: &Chosen, detector: Detector) -> Settings {
    let settings = Settings { detector: Some(detector), ..args.search.settings() };
    match chosen.about.with_patience.is_empty() {
        true => settings,
        false => Settings { timers: Timers::Quiet, ..settings },
    }
}

fn header(name: &str, scope: &Scope) -> String {
    let detectors: Vec<_> = DETECTORS.iter().map(ToString::to_string).collect();
    let rule = "---|".repeat(1 + 2 * DETECTORS.len());
    format!(
        "\n### A {name}: `{scope}`\n\n| protocol | {} |\n|{rule}",
        detectors.join(" | states | ") + " | states"
    )
}

/// A row of Markdown that grows to the right.
struct Row(String);

impl Row {
    fn new(chosen: &Chosen) -> Self {
        Self(format!("| `{}` |", chosen.name))
    }

    fn add(&mut self, report: Option<&Locality>) {
        self.0.push_str(&match report {
            Some(report) => format!(" {} | {} |", measured(report), report.states),
            None => " | |".into(),
        });
    }
}
