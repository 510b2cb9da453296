//! `holdall explain`: what exactly a request waits for, and for whom.

use std::collections::{BTreeSet, VecDeque};
use std::process::ExitCode;

use holdall_client::Client;
use holdall_wire::{Body, Explanation, Reply, RequestNo};

use crate::reach::{Reach, block_on, call};
use crate::unreached::Unreached;
use crate::{print, show};

/// Follow the chain of waiting from a request to whoever it ends at
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The request, as `holdall status` shows it: 3-17
    request: RequestNo,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = args.reach.connect().await?;
        let body = Body::Explain { request: args.request, most: u32::MAX };
        let Reply::Explanation(explanation) = call(&client, body).await? else {
            anyhow::bail!("the agent gave an unexpected reply");
        };
        let elsewhere = follow(&client, &explanation).await;
        let text = if args.json {
            show::json(&Followed { explanation: &explanation, at_other_cells: &elsewhere })?
        } else {
            let parts = elsewhere.iter().map(|at| format!("\nat {}:\n{}", at.cell, at.told()));
            [told(&explanation)].into_iter().chain(parts).collect::<Vec<_>>().join("\n")
        };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// How many answers of other cells are shown at most.
const ELSEWHERE: usize = 16;

/// An explanation, and those of other cells.
#[derive(serde::Serialize)]
struct Followed<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    at_other_cells: &'a [At],
}

/// What another cell says.
#[derive(serde::Serialize)]
struct At {
    cell: String,
    explanation: Option<Explanation>,
    /// Why it says nothing.
    why: Option<String>,
}

impl At {
    fn told(&self) -> String {
        match &self.explanation {
            Some(explanation) => told(explanation),
            None => show::clean(self.why.as_deref().unwrap_or_default()),
        }
    }
}

/// Follows a chain of waiting to other cells: to those that guard what the request waits for, to the homes of those who are in its
/// way there, and so on.
async fn follow(client: &Client, first: &Explanation) -> Vec<At> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next = VecDeque::from(leads(first));
    while let Some((cell, id)) = next.pop_front() {
        if found.len() == ELSEWHERE || !seen.insert((cell.clone(), id.clone())) {
            continue;
        }
        let question = Box::new(Body::ExplainAs { id, most: u32::MAX });
        let (explanation, why) = match call(client, Body::At { cell: cell.clone(), question }).await
        {
            Ok(Reply::Explanation(explanation)) => {
                next.extend(leads(&explanation));
                (Some(explanation), None)
            }
            Ok(_) => (None, Some("it gave an unexpected reply".into())),
            Err(error) => (None, Some(error.to_string())),
        };
        // At its home it may have been granted since.
        if explanation.as_ref().is_none_or(|explanation| !explanation.held) {
            found.push(At { cell, explanation, why });
        }
    }
    found
}

/// Where an explanation leads to: each cell, and the id of the request that waits there.
fn leads(explanation: &Explanation) -> Vec<(String, Vec<u8>)> {
    let Some(elsewhere) = &explanation.elsewhere else { return Vec::new() };
    let guards = elsewhere.cells.iter().filter(|(_, holds)| !holds);
    let guards = guards.map(|(cell, _)| (cell.clone(), elsewhere.known_as.clone()));
    let homes = elsewhere.asked_at.iter().filter(|(request, ..)| *request != explanation.request);
    guards.chain(homes.map(|(_, cell, id)| (cell.clone(), id.clone()))).collect()
}

/// In words.
pub(crate) fn told(explanation: &Explanation) -> String {
    if explanation.held {
        return format!("{} waits for nothing: it is held", explanation.request);
    }
    let mut lines = Vec::new();
    for (i, wait) in explanation.chain.iter().enumerate() {
        lines.push(format!(
            "{}{} ({}) waits for {}, {} by now",
            if i == 0 { "" } else { "  " },
            wait.request,
            show::who(&wait.who),
            show::needs(&wait.needs),
            show::ago(wait.since)
        ));
        lines.push(format!("    {}", show::hindrances(&wait.hindrances, &Unreached::new())));
    }
    if explanation.circular {
        lines.push(
            "this chain comes back to itself: it does not end unless somebody gives up".into(),
        );
    }
    for (cell, holds) in explanation.elsewhere.iter().flat_map(|elsewhere| &elsewhere.cells) {
        lines.push(match holds {
            true => format!("  {cell} holds its part for it"),
            false => format!("  {cell} does not hold its part for it yet"),
        });
    }
    match &explanation.release[..] {
        [] => lines.push("nothing is held that it waits for".into()),
        grants => {
            lines.push("it ends at, and would go on with the release of:".into());
            for grant in grants {
                lines.push(format!(
                    "  {} ({}) holds {}, since {}",
                    grant.request,
                    show::who(&grant.who),
                    show::taken(&grant.taken),
                    show::ago(grant.since)
                ));
            }
        }
    }
    if let Some(outlook) = &explanation.outlook {
        lines.push(show::outlook(outlook));
    }
    if explanation.left_out > 0 {
        lines.push(format!("and {} more", explanation.left_out));
    }
    lines.join("\n")
}
