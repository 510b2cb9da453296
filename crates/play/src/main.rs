//! Plays protocols of `holdall-protocols`, like `holdall play`, and the probe that watches its world: for
//! whoever works on protocols and does not want to wait until all of `holdall` is built.

use std::process::ExitCode;

use clap::Parser;
use holdall_core::contract::Probe;
use holdall_play::{Bill, Cast, NoCast, Options, run, say};

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
    let listed: Vec<_> = holdall_protocols::names().collect();
    let find = |name: &str| cast(name, &options.without);
    match Bill::new(&protocols, &listed, &options.settings(), find) {
        Ok(bill) => {
            bill.left_out().for_each(say);
            holdall_play::exit(run(&bill, &options))
        }
        Err(error) => {
            say(error);
            ExitCode::from(64)
        }
    }
}

fn cast(name: &str, without: &[String]) -> Result<Cast, NoCast> {
    if name == "probe" { Cast::of::<Probe>(name, without) } else { Cast::named(name, without) }
}
