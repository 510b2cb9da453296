//! `holdall deal bench`.
use std::process::ExitCode;
/// Measure
#[derive(clap::Args)]
pub(super) struct Args {}
pub(super) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
