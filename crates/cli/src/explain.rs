//! `holdall explain`: what exactly a request waits for, and for whom.

use std::process::ExitCode;

use holdall_wire::{Body, Explanation, Reply, RequestNo};

use crate::reach::{Reach, block_on, call};
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
        let text = if args.json { show::json(&explanation)? } else { told(&explanation) };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    })
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
        lines.push(format!("    {}", show::hindrances(&wait.hindrances)));
    }
    if explanation.circular {
        lines.push(
            "this chain comes back to itself: it does not end unless somebody gives up".into(),
        );
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
