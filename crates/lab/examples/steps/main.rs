//! `steps LINE...`: the states and steps of scopes, as JSON, one value a line, for `proofs/run`.
//!
//! A line is what `holdall check` is given, for one of the protocols of which there is a proof; `--walks N`
//! and `--seed S` before it take random walks instead of a search. The line `resized` stands for walks of `house`
//! in which pools change.

mod resized;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use holdall_core::Protocol;
use holdall_lab::check::{Steps, record};
use holdall_lab::registry::{Chosen, View};
use holdall_protocols::coordinator::{self, Coordinator};
use holdall_protocols::house::{self, House};
use holdall_protocols::ordered::{self, Ordered};
use serde::Serialize;
use serde_json::{Value, json};

#[path = "../../tests/check/common.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod common;

use common::Job;

/// How long a random walk is, at most.
const WALK: u64 = 400;

fn main() -> ExitCode {
    let mut walks: Option<u64> = None;
    let mut seed = 1;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number");
        match arg.as_str() {
            "--walks" => walks = Some(number()),
            "--seed" => seed = number(),
            "resized" => {
                for seed in 0..walks.unwrap_or(1) {
                    if !ends_well(written(|tell| resized::run(seed, tell))) {
                        return ExitCode::FAILURE;
                    }
                }
            }
            line => {
                let walk = |walks| Steps::Walks { walks, steps: WALK, seed };
                if !ends_well(tell(line, walks.map_or(Steps::All, walk))) {
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// Whether all was written, or nobody reads any more.
fn ends_well(written: io::Result<()>) -> bool {
    match written {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            eprintln!("{why}");
            false
        }
        _ => true,
    }
}

fn tell(line: &str, steps: Steps) -> io::Result<()> {
    let Job { chosen, scopes, settings } = Job::parse(line);
    let chosen = viewed(&chosen).expect("a protocol of which there is a proof");
    for scope in &scopes {
        written(|tell| {
            let complete = record(&chosen, scope, &settings, steps, tell).expect("served");
            tell(&json!({ "complete": complete }));
        })?;
    }
    Ok(())
}

/// Writes what is told, one value a line.
fn written(telling: impl FnOnce(&mut dyn FnMut(&Value))) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    telling(&mut |value| {
        if written.is_ok() {
            written = writeln!(out, "{value}");
        }
    });
    written.and_then(|()| out.flush())
}

/// The protocol with a view of what its proof is about; none if there is no proof of it.
fn viewed(chosen: &Chosen) -> Option<Chosen> {
    let (name, without) = (&chosen.name, &chosen.options.without);
    match name.split(':').next()? {
        House::FAMILY => {
            let user = |user: &house::User| seen(user.seen());
            Chosen::viewed::<House>(name, without, View { user, manager: |m| seen(m.seen()) })
        }
        Coordinator::FAMILY => {
            let user = |user: &coordinator::User| seen(user.seen());
            Chosen::viewed::<Coordinator>(name, without, View { user, manager: |m| seen(m.seen()) })
        }
        Ordered::FAMILY => {
            let user = |user: &ordered::User| seen(user.seen());
            Chosen::viewed::<Ordered>(name, without, View { user, manager: |m| seen(m.seen()) })
        }
        _ => return None,
    }
    .ok()
}

/// What is seen of a role.
fn seen(of: impl Serialize) -> Value {
    serde_json::to_value(of).expect("maps have numbers as keys")
}
