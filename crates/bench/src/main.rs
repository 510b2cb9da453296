//! `holdall bench` by itself, without the rest of the command: what it measures is built sooner.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// A load generator for the agent.
#[derive(Parser)]
#[command(name = "holdall-bench", version)]
struct Cli {
    #[command(flatten)]
    options: holdall_bench::Options,
}

fn main() -> anyhow::Result<ExitCode> {
    holdall_bench::run(&Cli::parse().options)
}
