//! What can be measured.

mod agent;
pub(crate) mod yardstick;

use crate::Options;
use crate::case::Case;
use crate::figures::Figures;
use crate::load;
use crate::server::{Kind, Server, own_cpu};

/// What can be measured, by name.
pub(crate) const NAMES: [&str; 2] = ["agent", "yardstick"];

/// Measures one target in one case.
pub(crate) fn measure(
    target: &str,
    case: &Case,
    options: &Options,
    round: u64,
) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let seed = options.seed.wrapping_add(round << 32);
    let figures = local.block_on(&runtime, async {
        let server = match &options.agent {
            Some(socket) if target == "agent" => Server::running(socket).await?,
            _ => Server::start(Kind::named(target), case)?,
        };
        let sessions = agent::connect(server.socket(), case.connections).await?;
        let mut usage = Vec::new();
        let at = || usage.push((server.cpu(), own_cpu()));
        let mut figures = load::measure(case, &sessions, seed, options.span(), at).await?;
        let [(server_before, before), (server_after, after)] = usage[..] else {
            anyhow::bail!("nothing was measured");
        };
        let each = |seconds: f64| seconds * 1e6 / (figures.grants as f64).max(1.0);
        let client_us = each(after - before);
        let server_us = server_after.zip(server_before).map(|(a, b)| each(a - b));
        (figures.client_us, figures.server_us) = (client_us, server_us);
        figures.server_mb = server.megabytes();
        Ok(figures)
    });
    // What the clients say now is heard by nobody, or by one who does not mind.
    drop(local);
    figures
}
