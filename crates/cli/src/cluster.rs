//! `holdall cluster`: several machines that hand out together.

use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use holdall_links::join::Unjoined;
use holdall_node::cluster::{self, Made, Refused, TOKEN_HOURS};
use holdall_wire::{
    Body, ClusterCall, ClusterView, JoinTokenView, Kind, MemberView, Name, Reply, span,
};

use crate::failure::{CONFLICT, DENIED, Failure, UNAVAILABLE};
use crate::reach::{Reach, block_on, call};
use crate::{agent, cell, print, say, show, usage};

/// Make a cluster of several machines, or join one, and see to its members
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a cluster, with this agent as its first member, and print the line for the others
    Init {
        /// Where others reach it, like lab1:7420; with port 0, a free one is taken and kept
        #[arg(long, value_name = "ADDR:PORT")]
        listen: String,
        /// What it is called after the @ [default: the name of the machine]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Join the cluster of the member at an address
    Join {
        /// Where that member listens, like lab1:7420
        #[arg(value_name = "ADDR:PORT")]
        at: String,
        /// What `cluster init` or `cluster token` has printed there
        #[arg(long, value_name = "H1-...")]
        token: String,
        /// Where others reach this one [default: the name of the machine, port 7420]
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<String>,
        /// What it is called after the @ [default: the name of the machine]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show the members, which of them do not answer, and since when
    Members {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Make, list and revoke tokens with which machines join
    Token(TokenArgs),
    /// Take a member's certificate away for good: nobody talks to it any more
    Remove {
        /// Its name, or its id
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Give up what a member holds that will not come back; it stays a member
    Forget {
        /// Its name, or its id
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct TokenArgs {
    #[command(subcommand)]
    command: Option<TokenCommand>,
    /// For this member alone, which joins again under its own id
    #[arg(long = "for", value_name = "NAME", conflicts_with = "machines")]
    whose: Option<String>,
    /// How long it is good
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1h")]
    lasts: Duration,
    /// How many machines may join with it
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    machines: u32,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// List the tokens that there are
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Make a token good for nothing, at once
    Revoke {
        /// Its label, as the list shows it
        label: String,
        #[command(flatten)]
        reach: Reach,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        match &args.command {
            Command::Init { listen, name, reach } => {
                let data = &reach.data().await?;
                let made = cluster::init(data, name.as_deref(), listen).map_err(told)?;
                let at = go_on(reach, &made).await?;
                let token = made.token.as_deref().unwrap_or_default();
                say(format!("for {TOKEN_HOURS} hour, any machine joins with:"));
                print(&format!("holdall cluster join {at} --token {token}"))?;
            }
            Command::Join { at, token, listen, name, reach } => {
                let data = &reach.data().await?;
                let joined =
                    cluster::join(data, name.as_deref(), listen.as_deref(), at, token).await;
                let made = joined.map_err(told)?;
                go_on(reach, &made).await?;
                say(format!("this machine is '{}' of the cluster", made.name));
            }
            Command::Members { json, reach } => {
                let view = view(reach).await?;
                print(&if *json { show::json(&view)? } else { members(&view) })?;
            }
            Command::Token(args) => token(args).await?,
            Command::Remove { name, reach } => {
                let client = reach.connect().await?;
                cell::refuse_hosted(&client, name).await?;
                call(&client, Body::Cluster(ClusterCall::Remove(name.clone()))).await?;
                say(format!(
                    "nobody talks to {name} any more; what it held, others keep for it until its lease is over, and of \
                     pools that wait until `holdall cluster forget {name}`"
                ));
            }
            Command::Forget { name, reach } => {
                let client = reach.connect().await?;
                cell::refuse_hosted(&client, name).await?;
                call(&client, Body::Cluster(ClusterCall::Forget(name.clone()))).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Why this machine is no member, with a status that tells it.
fn told(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Refused>() {
        return usage(error.to_string());
    }
    match error.downcast_ref() {
        Some(Unjoined::Unreachable(..)) => Failure(UNAVAILABLE, error.to_string()).into(),
        Some(Unjoined::Refused(..)) => Failure(DENIED, error.to_string()).into(),
        Some(Unjoined::Home(_)) => Failure(CONFLICT, error.to_string()).into(),
        None => error,
    }
}

/// The agent goes on as a member: as itself if it runs, or it is started. Says where others reach it.
async fn go_on(reach: &Reach, made: &Made) -> anyhow::Result<String> {
    let gone_on = match reach.connect().await {
        Ok(_) => agent::restart(reach, None).await.map(drop),
        Err(_) => reach.connect_or_start().await.map(drop),
    };
    gone_on.map_err(|error| {
        let why = format!(
            "'{}' is a member of the cluster, at {}, but its agent does not run as one: {error:#}; start it",
            made.name, made.listens
        );
        Failure(UNAVAILABLE, why)
    })?;
    let own = view(reach).await?.members.into_iter().find(|member| member.own);
    if let Some(why) = own.as_ref().and_then(|own| own.why.as_ref()) {
        let why = format!(
            "'{}' is a member of the cluster, but nobody reaches it: {}; see to that, or write another address into {}, and say \
             `holdall agent restart`",
            made.name,
            show::clean(why),
            reach.data().await?.join("cluster/listen").display()
        );
        return Err(Failure(UNAVAILABLE, why).into());
    }
    let address = own.and_then(|own| own.addresses.into_iter().next());
    Ok(address.unwrap_or_else(|| made.listens.clone()))
}

async fn done(reach: &Reach, what: ClusterCall) -> anyhow::Result<()> {
    let client = reach.connect().await?;
    call(&client, Body::Cluster(what)).await.map(drop)
}

/// The cluster, as the agent knows it.
async fn view(reach: &Reach) -> anyhow::Result<ClusterView> {
    let client = reach.connect().await?;
    match call(&client, Body::Cluster(ClusterCall::Members)).await? {
        Reply::Cluster(view) => Ok(view),
        _ => anyhow::bail!("the agent gave an unexpected reply"),
    }
}

async fn token(args: &TokenArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(TokenCommand::List { json, reach }) => {
            let client = reach.connect().await?;
            let reply = call(&client, Body::Cluster(ClusterCall::Tokens)).await?;
            let Reply::JoinTokens(tokens) = reply else {
                anyhow::bail!("the agent gave an unexpected reply");
            };
            let shown = if *json { show::json(&Tokens { tokens })? } else { listed(&tokens) };
            print(&shown)
        }
        Some(TokenCommand::Revoke { label, reach }) => {
            done(reach, ClusterCall::Revoke(label.clone())).await
        }
        None => {
            let client = args.reach.connect().await?;
            let millis = args.lasts.as_millis() as u64;
            if millis == 0 {
                return Err(usage("a token that lasts no time lets nobody join"));
            }
            let (machines, whose) = (args.machines, args.whose.clone());
            let made = ClusterCall::Token { millis, machines, whose };
            match call(&client, Body::Cluster(made)).await? {
                Reply::JoinToken(token) => print(&token),
                _ => anyhow::bail!("the agent gave an unexpected reply"),
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Tokens {
    tokens: Vec<JoinTokenView>,
}

fn listed(tokens: &[JoinTokenView]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["token", "for", "used", "made", "good"]);
    for token in tokens {
        let whose = token.whose.clone();
        table.add_row([
            token.label.clone(),
            whose.unwrap_or_else(|| format!("{} new", token.machines)),
            token.used.to_string(),
            format!("{} ago", show::ago(token.made)),
            match token.until <= show::now() {
                true => "no more".into(),
                false => show::until(token.until),
            },
        ]);
    }
    table.trim_fmt()
}

/// What is said of a member that was removed.
pub(crate) const REMOVED: &str = "this member was removed: nobody talks to it any more. To join again, as a new member: stop this agent, \
     move `cluster` in its data directory away, and say `holdall cluster join` with a token that `holdall cluster token` makes elsewhere";

fn members(view: &ClusterView) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["member", "link", "since", "at", "pools"]);
    for member in &view.members {
        table.add_row([
            member.name.clone(),
            link(member),
            show::ago(member.since),
            member.addresses.join(" "),
            show::shorten(&pools(&member.pools), 60),
        ]);
    }
    let mut parts = vec![table.trim_fmt()];
    let long = view.members.iter().filter(|member| reason(member).chars().count() > REASON);
    let long: Vec<_> = long.map(|member| format!("{}: {}", member.name, reason(member))).collect();
    if !long.is_empty() {
        parts.push(long.join("\n"));
    }
    if view.removed {
        parts.push(REMOVED.into());
    }
    if !view.waits_for.is_empty() {
        parts.push(format!(
            "nothing is granted here before {} said what they hold: this cell may have forgotten it",
            view.waits_for.join(", ")
        ));
    }
    parts.join("\n\n")
}

/// How much of the reason for it is told beside a member; the rest is told below.
const REASON: usize = 60;

/// How it stands with a member.
fn link(member: &MemberView) -> String {
    let signs = if member.signs { ", signs" } else { "" };
    let why = match reason(member) {
        none if none.is_empty() => none,
        why => format!(": {}", show::shorten(&why, REASON)),
    };
    match member {
        MemberView { own: true, why: Some(_), .. } => format!("NOT REACHED{signs}{why}"),
        MemberView { own: true, .. } => format!("itself{signs}"),
        MemberView { removed: true, forgotten: true, .. } => "removed, forgotten".into(),
        MemberView { removed: true, .. } => "removed".into(),
        MemberView { up: true, round_trip: Some(micros), .. } => {
            format!("up, {:.1} ms{signs}", *micros as f64 / 1000.0)
        }
        MemberView { up: true, .. } => format!("up{signs}"),
        MemberView { forgotten: true, .. } => format!("forgotten{signs}{why}"),
        _ => format!("DOWN{signs}{why}"),
    }
}

/// Why it is not reached.
fn reason(member: &MemberView) -> String {
    member.why.as_deref().map(show::clean).unwrap_or_default()
}

fn pools(pools: &[(Name, Kind)]) -> String {
    let told = |(name, kind): &(Name, Kind)| match kind {
        Kind::Lock => name.to_string(),
        Kind::Numbered(units) => format!("{name}:{units}"),
        Kind::Named(units) => format!("{name}:{}", units.len()),
    };
    pools.iter().map(told).collect::<Vec<_>>().join(" ")
}
