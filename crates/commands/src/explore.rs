//! `holdall explore`: goes through a scope by hand.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::bail;
use holdall_lab::check::{Explorer, Scope, explore};

use crate::search::SearchArgs;
use crate::{Protocols, cannot_write, usage};

/// No line that makes sense has more bytes.
const LONGEST: u64 = 100;
const HELP: &str =
    "a number: let that happen; b: back; c: chart of the way here; s: the state; q: quit";

/// Go through a small scope by hand: choose what happens next, go back, print the chart.
///
/// Reads a line for each choice: the number of an action; b to take the last step back; c for the way
/// so far as a message sequence chart; s for everything in the present state; q, or the end of the
/// input, to quit. The notation of scopes is that of `holdall check`.
#[derive(clap::Args)]
#[command(after_help = "Example:
  holdall explore ordered --without sorted --pools 1,1 --users '0+1/1+0'")]
pub struct Args {
    /// The protocol (`holdall protocols` lists them)
    protocol: String,
    /// Units of each pool, like 1,1,2; 0-2 is a pool whose units 0, 1, 2 may be asked for by name
    #[arg(long, value_name = "UNITS,...")]
    pools: String,
    /// What the users ask for, like '0+1/1+0,2/0:2*'; 0.1 is unit 1 of pool 0
    #[arg(long, value_name = "USERS")]
    users: String,
    /// The node each pool is on, like 0,0,1; by default each on its own
    #[arg(long, value_name = "NODE,...")]
    nodes: Option<String>,
    #[command(flatten)]
    search: SearchArgs,
}

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    let chosen = args.search.chosen(protocols, &args.protocol)?;
    let scope = Scope::parse(&args.pools, &args.users, args.nodes.as_deref()).map_err(usage)?;
    let said = explore(&chosen, &scope, &args.search.settings(), talk).map_err(usage)?;
    match said {
        Err(Trouble::Input(error)) => bail!("cannot read what to do next: {error}"),
        Err(Trouble::Output(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(cannot_write("what there is to see", error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Why somebody cannot be talked to.
enum Trouble {
    Input(io::Error),
    Output(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Until somebody quits.
fn talk(explorer: &mut Explorer<'_>) -> Result<(), Trouble> {
    let (mut out, input) = (io::stdout().lock(), io::stdin());
    writeln!(out, "{HELP}")?;
    list(explorer, &mut out)?;
    let mut line = Vec::new();
    loop {
        if input.is_terminal() {
            write!(out, "> ")?;
        }
        out.flush()?;
        line.clear();
        let mut input = input.lock();
        let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        if read.map_err(Trouble::Input)? == 0 {
            return Ok(());
        }
        if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
            input.skip_until(b'\n').map_err(Trouble::Input)?;
        }
        match String::from_utf8_lossy(&line).trim() {
            "" | "?" => writeln!(out, "{HELP}")?,
            "q" => return Ok(()),
            "c" => write!(out, "{}", explorer.trace().chart())?,
            "s" => writeln!(out, "{}", explorer.state())?,
            "b" if explorer.back() => list(explorer, &mut out)?,
            "b" => writeln!(out, "this is the start")?,
            text => match text.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
                Some(action) if explorer.take(action) => {
                    if let Some(step) = explorer.last_step() {
                        writeln!(out, "{}\n    {}", step.what, step.then)?;
                    }
                    list(explorer, &mut out)?;
                }
                _ => writeln!(out, "'{}' is none of these; {HELP}", text.escape_debug())?,
            },
        }
    }
}

fn list(explorer: &Explorer<'_>, out: &mut impl Write) -> io::Result<()> {
    let actions = explorer.actions();
    for (number, action) in (1..).zip(&actions) {
        writeln!(out, "{number:>4}. {action}")?;
    }
    match actions.is_empty() {
        true => writeln!(out, "nothing can happen any more"),
        false => Ok(()),
    }
}
