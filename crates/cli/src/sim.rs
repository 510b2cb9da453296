//! `holdall sim`.

use std::process::ExitCode;

/// Simulate
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
