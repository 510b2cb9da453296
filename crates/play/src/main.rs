//! Plays protocols of `holdall-protocols`, like `holdall play`, and the probe that watches its world: for
//! whoever works on protocols and does not want to wait until all of `holdall` is built.

use std::process::ExitCode;

use clap::Parser;
use holdall_core::contract::Probe;
use holdall_play::{Cast, NoCast, Options, run};

/// Play protocols, their roles in separate processes, over TCP.
#[derive(Parser)]
struct Program {
    /// Protocols, `all` of them, or `probe`
    #[arg(required = true)]
    protocols: Vec<String>,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Program { protocols, options } = Program::parse();
    let listed = holdall_protocols::names().map(str::to_owned);
    let protocols = if protocols == ["all"] { listed.collect() } else { protocols };
    let casts = protocols.iter().map(|name| cast(name, &options.without));
    let casts: Vec<_> = match casts.collect::<Result<_, _>>() {
        Ok(casts) => casts,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    holdall_play::exit(run(&casts, &options))
}

fn cast(name: &str, without: &[String]) -> Result<Cast, NoCast> {
    if name == "probe" { Cast::of::<Probe>(name, without) } else { Cast::named(name, without) }
}
