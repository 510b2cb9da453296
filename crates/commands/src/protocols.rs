//! `holdall protocols`: what there is, what it assumes, what it promises.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use holdall_core::{About, Assumes, Known, Order};
use serde::Serialize;

use crate::{Protocols, print, usage};

/// List the protocols: where they come from, what they assume, what they promise
#[derive(clap::Args)]
pub struct Args {
    /// Only these, with their rules
    #[arg(value_name = "PROTOCOL")]
    names: Vec<String>,
    /// Print one JSON object per protocol
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let mut abouts = Vec::new();
    for name in &args.names {
        abouts.push(protocols.choose(name, &[]).map_err(usage)?.about);
    }
    if args.names.is_empty() {
        abouts = protocols.all().map_err(usage)?.into_iter().map(|chosen| chosen.about).collect();
    }
    if args.json {
        for about in &abouts {
            print(&serde_json::to_string(&Line { schema: 1, about })?)?;
        }
    } else if args.names.is_empty() {
        print(&overview(&abouts))?;
    } else {
        for about in &abouts {
            print(&portrait(about))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    #[serde(flatten)]
    about: &'a About,
}

fn overview(abouts: &[About]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["protocol", "what it does", "promises"]);
    for about in abouts {
        table.add_row([about.name.clone(), about.summary.into(), promises(about)]);
    }
    table.to_string()
}

fn promises(about: &About) -> String {
    let patient = about.with_patience.iter().map(|p| format!("{p} (with patient timers)"));
    let names: Vec<_> = about.promises.iter().map(ToString::to_string).chain(patient).collect();
    names.join(", ")
}

fn portrait(about: &About) -> String {
    let mut text = format!(
        "{}: {}\n  source:   {}\n  assumes:  {}\n  promises: {}\n",
        about.name,
        about.summary,
        about.source,
        assumptions(&about.assumes),
        promises(about)
    );
    for rule in &about.rules {
        text.push_str(&format!("  rule {:<10} {}\n", rule.name, rule.says));
    }
    text
}

fn assumptions(assumes: &Assumes) -> String {
    let most = assumes.needs_max.map_or_else(|| "any number of".into(), |n| format!("at most {n}"));
    [
        match assumes.order {
            Order::Fifo => "links in order",
            Order::Unordered => "links in any order",
        },
        if assumes.exactly_once { "each message once" } else { "duplicates tolerated" },
        if assumes.no_loss { "no loss" } else { "loss tolerated" },
        match assumes.participants {
            Known::Known => "known neighbours",
            Known::Unknown => "unknown participants",
        },
        &format!("{most} pools a request"),
        if assumes.units { "pools of several units" } else { "single units" },
        if assumes.named { "units by name" } else { "no units by name" },
        if assumes.departures { "departures at any stage" } else { "no departures" },
        if assumes.suspicions { "suspicions tolerated" } else { "no false suspicions" },
    ]
    .join(", ")
}
