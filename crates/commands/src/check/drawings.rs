//! What is drawn besides: a violation as a message sequence chart, and the state graph.

use std::path::{Path, PathBuf};

use holdall_lab::check::{Report, state_graph};

use super::what::Job;
use crate::{files, say, usage};

/// The most states that Graphviz is asked to draw.
const DOT_MOST: usize = 2000;
/// The most states that we draw.
const SVG_MOST: usize = 300;

/// What to draw, and where to.
#[derive(clap::Args)]
pub(super) struct Drawings {
    /// Draw the first violation, of something promised if there is one, as a message sequence
    /// chart (SVG)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "suite"])]
    chart_svg: Option<PathBuf>,
    /// Write the state graph of a scope of at most 2,000 states for Graphviz (`dot -Tsvg FILE`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "suite"])]
    dot: Option<PathBuf>,
    /// Draw the state graph of a scope of at most 300 states (SVG)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "suite"])]
    graph_svg: Option<PathBuf>,
}

impl Drawings {
    /// Better to say so before a long search than after it.
    pub(super) fn can_be_written(&self) -> anyhow::Result<()> {
        let named = [&self.chart_svg, &self.dot, &self.graph_svg].into_iter().flatten();
        files::try_all(None, &named.map(PathBuf::as_path).collect::<Vec<_>>())
    }

    pub(super) fn draw(&self, job: &Job, report: &Report) -> anyhow::Result<()> {
        if let Some(file) = &self.chart_svg {
            write_chart(file, report)?;
        }
        let graph = |option: &str, most: usize| {
            let graph = state_graph(&job.chosen, &job.scope, &job.settings, most).map_err(usage)?;
            graph.ok_or_else(|| {
                let at_least = if report.complete { "" } else { "at least " };
                usage(format!(
                    "{option}: there are {at_least}{} states, and at most {most} can be drawn; \
                     take a smaller scope",
                    report.states.max(most + 1)
                ))
            })
        };
        if let Some(file) = &self.dot {
            files::write(file, graph("--dot", DOT_MOST)?.dot())?;
        }
        if let Some(file) = &self.graph_svg {
            files::write(file, graph("--graph-svg", SVG_MOST)?.svg())?;
        }
        Ok(())
    }
}

/// Draws a violation of something promised, or else of anything.
fn write_chart(file: &Path, report: &Report) -> anyhow::Result<()> {
    let violated = || report.properties.iter().filter(|verdict| verdict.trace.is_some());
    let worst = violated().find(|verdict| verdict.promised).or_else(|| violated().next());
    let Some((verdict, trace)) = worst.and_then(|v| Some((v, v.trace.as_ref()?))) else {
        say(format!("nothing is violated, so {} is not written", file.display()));
        return Ok(());
    };
    let title = format!("{} {}: {}", report.protocol, report.scope, verdict.name);
    files::write(file, trace.chart_svg(&title))
}
