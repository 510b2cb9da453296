//! What can be measured.

mod agent;
pub(crate) mod yardstick;

use crate::Options;
use crate::case::Case;
use crate::crowd;
use crate::figures::Figures;
use crate::load::{self, Session};
use crate::peers::{self, Peers};
use crate::process::Process;
use crate::server::{Kind, Server};

/// What can be measured, by name.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names = vec!["agent", "yardstick"];
    names.extend(peers::NAMES);
    names
}

/// Measures one target in one case.
pub(crate) fn measure(
    target: &str,
    case: &Case,
    options: &Options,
    round: u64,
    peers: &mut Peers,
) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let seed = options.seed.wrapping_add(round << 32);
    let figures = local.block_on(&runtime, async {
        match peers.measure(target, case, options, seed).await {
            Some(measured) => measured,
            None => measure_own(target, case, options, seed).await,
        }
    });
    // What the clients say now is heard by nobody, or by one who does not mind.
    drop(local);
    figures
}

/// Measures the agent, or what speaks as it does.
async fn measure_own(
    target: &str,
    case: &Case,
    options: &Options,
    seed: u64,
) -> anyhow::Result<Figures> {
    let server = match &options.agent {
        Some(socket) if target == "agent" => Server::running(socket).await?,
        _ => Server::start(Kind::named(target), case)?,
    };
    let _crowd = crowd::wait(server.socket(), case.waiting, case.alike).await?;
    let sessions =
        agent::connect(server.socket(), case.connections, options.cell.as_deref()).await?;
    measured(case, &sessions, options, seed, Some(server.process())).await
}

/// Puts the load on some sessions and measures it and what it costs the server, if that is one process of this machine.
pub(crate) async fn measured<S: Session>(
    case: &Case,
    sessions: &[S],
    options: &Options,
    seed: u64,
    server: Option<Process>,
) -> anyhow::Result<Figures> {
    let mut usage = Vec::new();
    let at = || usage.push((server.and_then(Process::cpu), Process::own().cpu_alone()));
    let mut figures = load::measure(case, sessions, seed, options.span(), at).await?;
    let [(server_before, before), (server_after, after)] = usage[..] else {
        anyhow::bail!("nothing was measured");
    };
    let each =
        |(after, before): (f64, f64)| (after - before) * 1e6 / (figures.grants as f64).max(1.0);
    let (server_us, client_us) =
        (server_after.zip(server_before).map(each), after.zip(before).map(each));
    (figures.server_us, figures.client_us) = (server_us, client_us.unwrap_or(0.0));
    figures.server_mb = server.and_then(Process::megabytes);
    Ok(figures)
}
