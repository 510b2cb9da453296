//! `holdall token`: who may use the agent over HTTP from elsewhere.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use comfy_table::{Table, presets};
use holdall_http::token::{self, Error, Token};
use holdall_wire::{Body, Reply, Right, span};

use crate::failure::{CONFLICT, Failure};
use crate::reach::{Reach, block_on, call};
use crate::{print, show, usage};

/// Make, list and remove tokens, with which programs elsewhere use the agent over HTTP
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a token and print it: it is shown once, and kept nowhere
    Add {
        /// Its name; whoever uses it is called token:NAME
        name: String,
        /// What it may do: view, ask, reserve, pools, force, admin
        #[arg(long, value_name = "RIGHT,...", value_delimiter = ',', required = true,
              value_parser = right)]
        may: Vec<Right>,
        /// How long it is good [default: until it is removed]
        #[arg(long = "for", value_name = "TIME", value_parser = span)]
        lasts: Option<Duration>,
        #[command(flatten)]
        reach: Reach,
    },
    /// List the tokens, and what they may do
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove a token: it is good for nothing from now on
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
}

fn right(text: &str) -> Result<Right, String> {
    let found = Right::ALL.into_iter().find(|right| right.to_string() == text);
    let all = Right::ALL.map(|right| right.to_string()).join(", ");
    found.ok_or_else(|| format!("'{text}' is no right; there are {all}"))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Add { name, may, lasts, reach } => {
            let until = lasts.map(|lasts| show::now().saturating_add(lasts.as_millis() as u64));
            let data = &data(reach)?;
            std::fs::metadata(data).with_context(|| {
                format!("no agent has its files in {}; start one first", data.display())
            })?;
            print(&token::add(data, name, may, until).map_err(told)?)?;
        }
        Command::List { json, reach } => {
            let tokens = token::list(&data(reach)?).map_err(told)?;
            print(&if *json { show::json(&listed(&tokens))? } else { table(&tokens).trim_fmt() })?;
        }
        Command::Remove { name, reach } => {
            token::remove(&data(reach)?, name).map_err(told)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the agent has its files, if it says so: it may have been told otherwise than we were.
fn data(reach: &Reach) -> anyhow::Result<PathBuf> {
    let meant = reach.place()?.data.clone();
    block_on(async {
        let Ok(client) = reach.connect().await else { return Ok(meant) };
        match call(&client, Body::Agent).await {
            Ok(Reply::Agent(view)) => Ok(view.data.into()),
            _ => Ok(meant),
        }
    })
}

fn told(error: Error) -> anyhow::Error {
    match error {
        Error::Name(_) => usage(error.to_string()),
        Error::Exists(_) | Error::Missing(_) => Failure(CONFLICT, error.to_string()).into(),
        Error::File(..) => error.into(),
    }
}

#[derive(serde::Serialize)]
struct Listed<'a> {
    tokens: Vec<One<'a>>,
}

#[derive(serde::Serialize)]
struct One<'a> {
    name: &'a str,
    may: &'a [Right],
    made: u64,
    until: Option<u64>,
}

impl<'a> One<'a> {
    fn of(token: &'a Token) -> Self {
        Self { name: &token.name, may: &token.may, made: token.made, until: token.until }
    }
}

fn listed(tokens: &[Token]) -> Listed<'_> {
    Listed { tokens: tokens.iter().map(One::of).collect() }
}

fn table(tokens: &[Token]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["token", "may", "made", "good"]);
    for token in tokens {
        let may: Vec<_> = token.may.iter().map(ToString::to_string).collect();
        let good = match token.until {
            Some(until) if until <= show::now() => "no more".into(),
            Some(until) => show::until(until),
            None => "until it is removed".into(),
        };
        table.add_row([
            token.name.clone(),
            may.join(", "),
            format!("{} ago", show::ago(token.made)),
            good,
        ]);
    }
    table
}
