//! `holdall token`: who may use the agent from elsewhere, over HTTP or, if it is a member of a cluster, with `holdall` itself.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use comfy_table::{Table, presets};
use holdall_http::token::{self, Error, Token};
use holdall_links::Home;
use holdall_links::token::ClientToken;
use holdall_wire::{Right, span};

use crate::failure::{CONFLICT, Failure};
use crate::reach::{Reach, block_on};
use crate::{print, show, usage};

/// Make, list and remove tokens, with which programs elsewhere use the agent
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a token and print it: it is shown once, and kept nowhere
    ///
    /// Over HTTP it is shown as it is printed. `holdall` on machines without an agent needs it in a longer form, which begins with HC1- and
    /// says whom to believe: that is told beside it if the agent is a member of a cluster, or printed alone with --client.
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
        /// Print the form for `holdall` on other machines, instead of that for HTTP
        #[arg(long)]
        client: bool,
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
        Command::Add { name, may, lasts, client, reach } => {
            let until = lasts.map(|lasts| show::now().saturating_add(lasts.as_millis() as u64));
            let data = &block_on(reach.data())?;
            std::fs::metadata(data).with_context(|| {
                format!("no agent has its files in {}; start one first", data.display())
            })?;
            let door = Door::of(data)?;
            if *client && door.is_none() {
                return Err(Failure(CONFLICT, ALONE.into()).into());
            }
            let token = token::add(data, name, may, until).map_err(told)?;
            match door.map(|door| (door.token(&token), door.address)) {
                Some((longer, _)) if *client => print(&longer)?,
                longer => {
                    print(&token)?;
                    if let Some((longer, address)) = longer {
                        crate::say(format!(
                            "for `holdall` on machines without an agent:\n\
                             export HOLDALL_AGENT=tls://{address}\nexport HOLDALL_TOKEN={longer}"
                        ));
                    }
                }
            }
        }
        Command::List { json, reach } => {
            let tokens = token::list(&block_on(reach.data())?).map_err(told)?;
            print(&if *json { show::json(&listed(&tokens))? } else { table(&tokens).trim_fmt() })?;
        }
        Command::Remove { name, reach } => {
            token::remove(&block_on(reach.data())?, name).map_err(told)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

const ALONE: &str = "the agent is no member of a cluster, and serves nobody on other machines but over HTTP; \
                     `holdall cluster init` makes one";

/// Where clients on other machines are let in, and by what they know it.
struct Door {
    home: Home,
    address: String,
}

impl Door {
    /// That of the agent with its files there, if it is a member of a cluster.
    fn of(data: &Path) -> anyhow::Result<Option<Self>> {
        let dir = data.join("cluster");
        if !Home::is_in(&dir) {
            return Ok(None);
        }
        let home = Home::open(&dir)?;
        let roster = home.roster()?;
        let own = roster.member(home.cell().id);
        let address = own.and_then(|own| own.addresses.first().cloned());
        Ok(address.map(|address| Self { home, address }))
    }

    fn token(&self, secret: &str) -> String {
        ClientToken::new(self.home.pin(), self.home.cell().id, secret).to_string()
    }
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
