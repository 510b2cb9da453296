//! `holdall cell`: cells that outlive their machine.

mod copy;
mod lead;
mod remove;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use comfy_table::{Table, presets};
use holdall_client::Client;
use holdall_log::Identity;
use holdall_log::etcd::{Address, EtcdStore, Options, WhenLed};
use holdall_wire::{
    Body, ClusterCall, ClusterView, HostCell, HostedView, MemberView, Reply, RequestNo,
};

use crate::failure::{CONFLICT, Failure};
use crate::reach::{Reach, block_on, call};
use crate::{print, say, show, usage};

/// How long it may take until a host leads.
const LEADS: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// How long a token is good for a host.
const TOKEN: Duration = Duration::from_secs(600);

/// Cells that outlive their machine: their log is in etcd, and one of several hosts leads them
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a cell, or have more machines host it; its pools are then asked for as POOL@NAME
    Add {
        /// What it is called after the @
        name: String,
        /// Where its log is: etcd://HOST:PORT,HOST:PORT, or etcds:// with ?ca=FILE for TLS
        #[arg(long, value_name = "ADDRESS")]
        store: String,
        /// The members that host it, one of which leads
        #[arg(long, value_name = "NAME,...", value_delimiter = ',', required = true)]
        hosts: Vec<String>,
        /// A fence that all of its own are to be above, if what it guards was guarded elsewhere before: as in HOLDALL_FENCE_..., or 7 for
        /// all of epoch 7
        #[arg(long, value_name = "FENCE", value_parser = fence)]
        fences_above: Option<u64>,
        #[command(flatten)]
        reach: Reach,
    },
    /// List the cells, and how it stands with each of their hosts
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one of them
    Show {
        /// Its name
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Let another of its hosts lead it; whoever holds or waits goes on
    Move {
        /// Its name
        name: String,
        /// The host that is to lead it
        host: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Go on with an etcd that was put back from a backup: what was granted since is forgotten, unless those who hold it say so
    Adopt {
        /// Its name
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// End a cell for good: its keys in etcd are deleted, and its hosts and all members forget it
    Remove {
        /// Its name
        name: String,
        /// Also if something is held or waits, which is given up then, or if none of its hosts leads it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Copy a cell, as it is now, into a file; it goes on
    Export {
        /// Its name
        name: String,
        /// The file, which must not be there
        file: PathBuf,
        #[command(flatten)]
        reach: Reach,
    },
    /// Put a copy into an etcd that has nothing of the cell, and have machines host it: what was granted since the copy is
    /// forgotten, unless those who hold it say so
    Import {
        /// Its name
        name: String,
        /// What `cell export` has written
        file: PathBuf,
        /// Where its log is to be, as in `cell add`
        #[arg(long, value_name = "ADDRESS")]
        store: String,
        /// The members that host it, one of which leads
        #[arg(long, value_name = "NAME,...", value_delimiter = ',', required = true)]
        hosts: Vec<String>,
        #[command(flatten)]
        reach: Reach,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        match &args.command {
            Command::Add { name, store, hosts, fences_above, reach } => {
                let client = reach.connect().await?;
                let (view, address) = may_add(name, store, hosts, &client).await?;
                let known = view.members.iter().find(|one| one.name == *name && !one.removed);
                let id = match known {
                    Some(_) if fences_above.is_some() => {
                        let why = "is there, and goes on with its own fences; --fences-above is for a new cell";
                        return Err(usage(format!("{name} {why}")));
                    }
                    Some(known) => same(known, store, address, &client).await?,
                    None => make(name, address, &view.name, fences_above.unwrap_or(0))?,
                };
                have_hosted(name, id, store, hosts, &view, &client).await?;
            }
            Command::List { json, reach } => {
                let client = reach.connect().await?;
                let cells = all(&client).await?;
                print(&if *json { show::json(&Cells { cells })? } else { table(&cells) })?;
            }
            Command::Show { name, json, reach } => {
                let client = reach.connect().await?;
                let mut cells = all(&client).await?;
                cells.retain(|cell| cell.name == *name);
                if cells.is_empty() {
                    return Err(unknown(name));
                }
                print(&if *json { show::json(&Cells { cells })? } else { told(&cells) })?;
            }
            Command::Move { name, host, reach } => {
                lead::move_to(name, host, &reach.connect().await?).await?;
            }
            Command::Adopt { name, reach } => {
                let client = reach.connect().await?;
                lead::begin_a_new_life(name, &client).await?;
            }
            Command::Remove { name, force, reach } => {
                remove::remove(name, *force, &reach.connect().await?).await?;
            }
            Command::Export { name, file, reach } => {
                copy::export(name, file, &reach.connect().await?).await?;
            }
            Command::Import { name, file, store, hosts, reach } => {
                copy::import(name, file, store, hosts, &reach.connect().await?).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A fence as a command sees it, or as people are shown it.
fn fence(text: &str) -> Result<u64, String> {
    let shown = || text.parse::<RequestNo>().map(|fence| fence.0);
    let fence = text.parse().or_else(|_| shown());
    let fence: u64 = fence.map_err(|_| "is no fence, like 30064771073 or 7-1, and no epoch")?;
    // No fence is as low as that, since epochs begin with 1: it is an epoch.
    let fence = if fence <= u64::from(u32::MAX) { fence << 32 } else { fence };
    // Those that come after it must have room, also where numbers have a sign.
    if fence >> 62 != 0 { Err("is too high for a fence".into()) } else { Ok(fence) }
}

#[derive(serde::Serialize)]
struct Cells {
    cells: Vec<HostedView>,
}

/// Whether a cell can be added here, as far as can be seen before anything is done.
async fn may_add(
    name: &str,
    store: &str,
    hosts: &[String],
    client: &Client,
) -> anyhow::Result<(ClusterView, Address)> {
    let address = Address::parse(store).map_err(|bad| usage(bad.to_string()))?;
    let view = members(client).await?;
    let is_machine = |host: &String| {
        host != name && view.members.iter().any(|one| !one.removed && one.name == *host)
    };
    if let Some(unknown) = hosts.iter().find(|host| !is_machine(host)) {
        return Err(usage(format!("no machine of the cluster is called '{unknown}'")));
    }
    if !view.members.iter().any(|one| one.own && one.signs) {
        let signers = view.members.iter().filter(|one| one.signs && !one.removed);
        let signers: Vec<_> = signers.map(|one| one.name.as_str()).collect();
        let why = "the key of the authority is not here, and a cell needs a certificate";
        return Err(usage(format!("{why}; say this at {}", signers.join(" or "))));
    }
    Ok((view, address))
}

/// Has members host a cell that is in etcd, and waits until one of them leads it.
async fn have_hosted(
    name: &str,
    id: String,
    store: &str,
    hosts: &[String],
    view: &ClusterView,
    client: &Client,
) -> anyhow::Result<()> {
    let mut is_known = view.members.iter().any(|one| one.name == name && !one.removed);
    for host in hosts {
        let whose = is_known.then(|| name.to_owned());
        let millis = TOKEN.as_millis() as u64;
        let token = ClusterCall::Token { millis, machines: 1, whose };
        let Reply::JoinToken(token) = call(client, Body::Cluster(token)).await? else {
            anyhow::bail!("the agent gave an unexpected reply");
        };
        let (at_signer, hosts) = (view.listens.clone(), hosts.to_vec());
        let (name, id, store) = (name.to_owned(), id.clone(), store.to_owned());
        let what = HostCell { name, id, store, hosts, at: at_signer, token };
        at(client, host, ClusterCall::Host(Box::new(what))).await?;
        is_known = true;
    }
    let led = lead::until_led(client, name, None, None).await?;
    say(format!("{} leads {name}; ask for what it guards as NAME@{name}", led.host));
    Ok(())
}

/// Makes the cell in etcd, or finds it there if nobody leads it: its id. Its fences are above this one.
fn make(name: &str, address: Address, host: &str, fence: u64) -> anyhow::Result<String> {
    let mut options = Options::new(name, host, "-");
    options.above = (fence >> 32) as u32; // The epoch that it was given in.
    (options.create, options.when_led) = (true, WhenLed::Refuse);
    let (mut log, opened) = EtcdStore::new(address, options).open_etcd()?;
    log.resign(None)?;
    Ok(opened.identity.to_string())
}

/// The id of a cell of the cluster, if that is what is at this address: of two logs of a cell, each would grant what the other has
/// granted.
async fn same(
    known: &MemberView,
    store: &str,
    address: Address,
    client: &Client,
) -> anyhow::Result<String> {
    let name = &known.name;
    let conflict = |why: String| anyhow::Error::from(Failure(CONFLICT, why));
    let hosts = all(client).await?.into_iter().filter(|one| one.name == *name);
    if let Some(other) = hosts.into_iter().find(|one| one.store != store) {
        let why = format!(
            "{name} is a cell of the cluster, and its log is at {}: add hosts to it with that --store; the log cannot be moved",
            other.store
        );
        return Err(conflict(why));
    }
    let there = EtcdStore::new(address, Options::new(name, "-", "-")).identity()?;
    if there.is_none_or(|there| there.to_string() != known.id) {
        let why = format!("{name} is a member of the cluster, and what {store} has is not its log");
        return Err(conflict(format!("{why}; choose another name for a new cell")));
    }
    Ok(known.id.clone())
}

/// The id of a member.
fn id_of(name: &str, view: &ClusterView) -> anyhow::Result<String> {
    let known = view.members.iter().find(|one| one.name == name && !one.removed);
    Ok(known.ok_or_else(|| unknown(name))?.id.clone())
}

fn identity(id: &str) -> anyhow::Result<Identity> {
    Ok(Identity(u128::from_str_radix(id, 16).context("the id of the cell is no id")?))
}

fn unknown(name: &str) -> anyhow::Error {
    let why = format!("no member that answers hosts {name}; `holdall cell list` lists them");
    Failure(CONFLICT, why).into()
}

async fn members(client: &Client) -> anyhow::Result<ClusterView> {
    match call(client, Body::Cluster(ClusterCall::Members)).await? {
        Reply::Cluster(view) => Ok(view),
        _ => anyhow::bail!("the agent gave an unexpected reply"),
    }
}

/// Says something to a cell.
async fn at(client: &Client, cell: &str, what: ClusterCall) -> anyhow::Result<Reply> {
    let question = Box::new(Body::Cluster(what));
    call(client, Body::At { cell: cell.to_owned(), question }).await
}

/// A cell that is hosted has a log, too, which the cluster knows nothing of: `cell remove` deletes that.
pub(crate) async fn refuse_hosted(client: &Client, member: &str) -> anyhow::Result<()> {
    let view = members(client).await?;
    let mut known = view.members.iter().filter(|one| !one.removed);
    let known = known.find(|one| one.name == member || one.id == member);
    let Some(known) = known else { return Ok(()) };
    if let Some(hosted) = all(client).await?.into_iter().find(|cell| cell.name == known.name) {
        let why = format!(
            "{} is hosted by {}, and its log is at {}; `holdall cell remove {0}` ends it and deletes that",
            known.name,
            hosted.hosts.join(", "),
            hosted.store
        );
        return Err(Failure(CONFLICT, why).into());
    }
    Ok(())
}

/// All replicated cells as their hosts see them that answer.
async fn all(client: &Client) -> anyhow::Result<Vec<HostedView>> {
    let view = members(client).await?;
    let mut all: Vec<HostedView> = Vec::new();
    let mut silent = Vec::new();
    for member in view.members.iter().filter(|member| !member.removed) {
        let reply = match member.own {
            true => call(client, Body::Cluster(ClusterCall::Hosted)).await,
            false if member.up => at(client, &member.name, ClusterCall::Hosted).await,
            false => {
                silent.push(member.name.as_str());
                continue;
            }
        };
        let Ok(Reply::Hosted(views)) = reply else { continue };
        for view in views {
            // A cell knows best itself.
            let is_itself = view.name == member.name;
            match all.iter_mut().find(|one| one.name == view.name && one.host == view.host) {
                Some(known) if is_itself => *known = view,
                Some(_) => {}
                None => all.push(view),
            }
        }
    }
    let mut missing = Vec::new();
    for one in &all {
        let unseen = one.hosts.iter().filter(|host| silent.contains(&host.as_str()));
        for host in
            unseen.filter(|host| !all.iter().any(|it| it.name == one.name && it.host == **host))
        {
            let trouble = Some("this host does not answer".to_owned());
            let (leads, leader) = (false, one.leader.clone());
            missing.push(HostedView { host: host.clone(), leads, leader, trouble, ..one.clone() });
        }
    }
    all.extend(missing);
    // What a host has noted of itself may be some seconds old.
    let terms: Vec<_> = all.iter().map(|one| (one.name.clone(), one.epoch)).collect();
    for one in &mut all {
        let latest = terms.iter().filter(|(name, _)| *name == one.name).map(|(_, epoch)| *epoch);
        one.leads &= latest.max() == Some(one.epoch);
    }
    all.sort_by(|one, other| (&one.name, &one.host).cmp(&(&other.name, &other.host)));
    all.dedup_by(|one, other| one.name == other.name && one.host == other.host);
    Ok(all)
}

fn state(view: &HostedView) -> String {
    let state = match (view.leads, &view.leader) {
        (true, _) => format!("leads, epoch {}", view.epoch),
        (false, Some(leader)) => format!("stands by for {leader}"),
        (false, None) => "stands by, nobody leads".into(),
    };
    match &view.trouble {
        Some(why) => format!("{state}; TROUBLE: {}", show::clean(why)),
        None => state,
    }
}

fn table(cells: &[HostedView]) -> String {
    if cells.is_empty() {
        return "no cell is hosted by several machines; `holdall cell add` makes one".into();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["cell", "host", "state"]);
    for view in cells {
        table.add_row([view.name.clone(), view.host.clone(), state(view)]);
    }
    table.trim_fmt()
}

fn told(cells: &[HostedView]) -> String {
    let records = cells.iter().find(|view| view.leads).map(|view| view.records);
    let store = cells.first().map(|view| view.store.as_str()).unwrap_or_default();
    let mut text = format!("log        {store}");
    if let Some(records) = records {
        text.push_str(&format!(" ({records} records)"));
    }
    for (n, view) in cells.iter().enumerate() {
        let head = if n == 0 { "hosts" } else { "" };
        text.push_str(&format!("\n{head:<10} {}: {}", view.host, state(view)));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_fence_is_told_as_a_number_as_people_see_it_or_as_an_epoch() {
        let all = ["30064771073", "7-1", "7-0", "7"].map(super::fence);
        let seven = 7 << 32;
        assert_eq!(all, [Ok(seven + 1), Ok(seven + 1), Ok(seven), Ok(seven)]);
        for wrong in ["7-", "x", "18446744073709551615", "1073741824", "4294967295-0"] {
            assert!(super::fence(wrong).is_err(), "{wrong}");
        }
    }
}
