//! `holdall status`: who holds, since when and why; who waits, in order.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use holdall_client::Client;
use holdall_commands::print_to_reader;
use holdall_wire::{
    Body, ClusterCall, Expected, GrantView, Name, Outlook, Prospects, Reply, State, Status,
    WaitView,
};
use serde::Serialize;

use crate::pool;
use crate::reach::{Reach, block_on, call, look};
use crate::show;
use crate::unreached::{Unreached, unreached};

/// Show who holds what, since when and why, and who waits, in the order of service
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what concerns these pools and locks
    #[arg(value_name = "POOL")]
    names: Vec<Name>,
    /// Show all there is, however much that is, and at all cells
    #[arg(long)]
    all: bool,
    /// Print one JSON object, of all there is
    #[arg(long)]
    json: bool,
    /// Show it again every second, until interrupted
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = match args.reach.connect().await {
            Ok(client) => client,
            Err(error) => {
                // What is reserved is in force again when an agent runs.
                let Ok(place) = args.reach.place() else { return Err(error) };
                let reserved = holdall_node::reserved(&place.data);
                if !reserved.is_empty() {
                    let text = "reserved, and in force when an agent runs:";
                    print_to_reader(&format!("{text}\n\n{}", grants(&reserved).trim_fmt()))?;
                }
                return Err(error);
            }
        };
        loop {
            let all = args.all || args.json;
            let (status, more) = ask(&client, &args.names, all).await?;
            let prospects = prospects(&client, &status).await;
            let cells = if args.all { elsewhere(&client, &args.names).await? } else { Vec::new() };
            let text = if args.json {
                show::json(&Shown { status: &status, prospects, cells })?
            } else {
                let some = !args.names.is_empty();
                let needs = status.waiting.iter().flat_map(|wait| &wait.needs);
                let unreached = unreached(&client, needs).await;
                let here = told(&status, &prospects.unwrap_or_default(), &unreached, more, some);
                with_cells(here, &cells, some)
            };
            if args.watch && !args.json && rustix::termios::isatty(rustix::stdio::stdout()) {
                // Home, and clear below.
                write!(std::io::stdout(), "\x1b[H\x1b[J")?;
            }
            if !print_to_reader(&text)? || !args.watch {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// How many rows are shown unless all are wanted.
const ROWS: usize = 200;

/// What there is, and whether there is more of it.
async fn ask(client: &Client, names: &[Name], all: bool) -> anyhow::Result<(Status, bool)> {
    // Locks that are not declared come last, and are not shown by themselves.
    let locks = |status: &Status| {
        names.is_empty() && status.pools.iter().any(|pool| !pool.declared && !pool.removed)
    };
    let enough = |status: &Status| {
        let rows = status.pools.len() + status.grants.len() + status.waiting.len();
        !all && (rows >= ROWS || locks(status))
    };
    let (status, more) = look(client, names, enough).await?;
    let more = more && !locks(&status);
    Ok((status, more))
}

/// All that is shown.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a Status,
    /// What those who wait can expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    prospects: Option<Prospects>,
    /// All cells, if these are wanted and there are others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cells: Vec<Elsewhere>,
}

/// What there is at a cell.
#[derive(Serialize)]
struct Elsewhere {
    cell: String,
    /// Whether it is the one that was asked.
    own: bool,
    /// Whether there is a link to it, and since when that is so.
    up: bool,
    since: u64,
    /// Why it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// What there is at all cells, or nothing if the agent is a member of no cluster. Older agents know of none.
async fn elsewhere(client: &Client, names: &[Name]) -> anyhow::Result<Vec<Elsewhere>> {
    let Ok(Reply::Cluster(cluster)) = call(client, Body::Cluster(ClusterCall::Members)).await
    else {
        return Ok(Vec::new());
    };
    let mut cells = Vec::new();
    for member in cluster.members.into_iter().filter(|member| !member.removed) {
        let (cell, own, up, since) = (member.name, member.own, member.up, member.since);
        let (status, why) = match (own, up) {
            (true, _) => (None, None),
            (false, false) => (None, Some(member.why.unwrap_or_else(|| "there is no link".into()))),
            (false, true) => match at(client, &cell, names).await {
                Ok(status) => (Some(status), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        cells.push(Elsewhere { cell, own, up, since, why, status });
    }
    Ok(cells)
}

/// What there is at another cell.
async fn at(client: &Client, cell: &str, names: &[Name]) -> anyhow::Result<Status> {
    let (mut status, mut follows) = (Status::default(), false);
    loop {
        let question = Box::new(Body::Status { names: names.to_vec(), more: follows });
        let reply = call(client, Body::At { cell: cell.into(), question }).await?;
        let Reply::Status { mut page, more } = reply else {
            anyhow::bail!("{cell} gave an unexpected reply");
        };
        status.pools.append(&mut page.pools);
        status.grants.append(&mut page.grants);
        status.waiting.append(&mut page.waiting);
        if !more {
            return Ok(status);
        }
        follows = true;
    }
}

/// The same in words, one cell after the other.
fn with_cells(here: String, cells: &[Elsewhere], some: bool) -> String {
    if cells.is_empty() {
        return here;
    }
    let told = cells.iter().map(|one| match (&one.status, &one.why) {
        (None, None) => format!("{} (this cell)\n\n{here}", one.cell),
        (Some(status), _) => {
            format!(
                "{}\n\n{}",
                one.cell,
                told(status, &Prospects::default(), &Unreached::new(), false, some)
            )
        }
        (None, Some(why)) => silent(one, why),
    });
    told.collect::<Vec<_>>().join("\n\n")
}

/// Why a cell tells nothing. One with a link answers, and since when it does so says nothing of what is wrong.
fn silent(one: &Elsewhere, why: &str) -> String {
    let (cell, why) = (&one.cell, show::clean(why));
    match one.up {
        true => format!("{cell} tells nothing: {why}"),
        false => format!("{cell} does not answer, since {}: {why}", show::ago(one.since)),
    }
}

/// What those who wait can expect. Older agents do not tell.
async fn prospects(client: &Client, status: &Status) -> Option<Prospects> {
    if status.waiting.is_empty() {
        return None;
    }
    match call(client, Body::Prospects).await {
        Ok(Reply::Prospects(prospects)) => Some(prospects),
        _ => None,
    }
}

fn told(
    status: &Status,
    prospects: &Prospects,
    unreached: &Unreached,
    more: bool,
    some: bool,
) -> String {
    let mut parts = Vec::new();
    let pools = status.pools.iter().filter(|p| some || p.declared || p.removed);
    let pools: Vec<_> = pools.cloned().collect();
    if !pools.is_empty() {
        parts.push(pool::table(&pools).trim_fmt());
    }
    if status.grants.is_empty() {
        parts.push("nothing is held".into());
    } else {
        parts.push(grants(&status.grants).trim_fmt());
    }
    if !status.waiting.is_empty() {
        parts.push(waiting(&status.waiting, &prospects.expected, unreached).trim_fmt());
        parts.extend(when(status, prospects));
    }
    if more {
        let how_many = if some { String::new() } else { format!("{} ", status.left_out) };
        let how = "--all shows them, and with names of pools, what concerns them is shown";
        parts.push(format!("and {how_many}more: {how}"));
    }
    parts.join("\n\n")
}

fn grants(grants: &[GrantView]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["grant", "holds (unit#fence)", "state", "since", "who", "reason"]);
    for grant in grants {
        table.add_row([
            match grant.part_of {
                Some(whole) => format!("{} in {whole}", grant.request),
                None => grant.request.to_string(),
            },
            show::shorten(&show::taken(&grant.taken), 120),
            state(grant),
            show::ago(grant.since),
            show::who(&grant.who),
            show::clean(grant.who.from.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn state(grant: &GrantView) -> String {
    match (grant.state, grant.until) {
        (State::Held, Some(until)) => {
            format!("held, {} left", show::span(until.saturating_sub(show::now()) / 1000))
        }
        (State::Held, None) => "held".into(),
        (State::Stopped, _) => "held (stopped)".into(),
        (State::Ending, _) if !grant.parts.is_empty() => {
            let parts: Vec<_> = grant.parts.iter().take(8).map(ToString::to_string).collect();
            format!("ending, waits for {}", parts.join(", "))
        }
        (State::Ending, _) => {
            let pids: Vec<_> = grant.pids.iter().take(8).map(ToString::to_string).collect();
            let more = if grant.pids.len() > pids.len() { ", ..." } else { "" };
            let which = if pids.is_empty() { "what cannot be seen" } else { &pids.join(", ") };
            format!("ending, waits for {which}{more}")
        }
        (State::Reserved, Some(until)) => {
            format!("reserved, {} left", show::span(until.saturating_sub(show::now()) / 1000))
        }
        (State::Reserved, None) => "reserved".into(),
    }
}

/// How far to trust what is said of those who wait, or why nothing is.
fn when(status: &Status, prospects: &Prospects) -> Option<String> {
    let expected = prospects.expected.iter();
    let mut shown =
        expected.filter(|one| status.waiting.iter().any(|wait| wait.request == one.request));
    match shown.next() {
        Some(one) => Some(format!(
            "granted in: half of the cases (nine of ten), worked out {} ago",
            show::ago(one.made)
        )),
        None if prospects.unknown.is_empty() => None,
        None if status.waiting.iter().all(|wait| wait.part_of.is_some()) => {
            Some("when parts of grants are granted is not told".into())
        }
        None => Some(show::outlook(&Outlook::Unknown(prospects.unknown.clone()))),
    }
}

fn waiting(waiting: &[WaitView], expected: &[Expected], unreached: &Unreached) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["waiting", "for", "since", "granted in", "who", "because"]);
    let expected: BTreeMap<_, _> = expected.iter().map(|one| (one.request, one)).collect();
    let granted_in = |wait: &WaitView| match expected.get(&wait.request) {
        Some(one) => format!("{} ({})", show::range(one.half), show::range(one.nine)),
        None => "?".into(),
    };
    for wait in waiting {
        table.add_row([
            match wait.part_of {
                Some(whole) => format!("{} in {whole}", wait.request),
                None => wait.request.to_string(),
            },
            show::needs(&wait.needs),
            show::ago(wait.since),
            granted_in(wait),
            show::who(&wait.who),
            show::shorten(&show::because(&wait.hindrances, unreached), 120),
        ]);
    }
    table
}
