//! Completions for shells, and the manual page.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, print};

/// Print completions for a shell
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the manual page, for `man -l -`
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// Of this command only
    command: Option<String>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "holdall", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    if let Some(name) = &args.command {
        let known = command.find_subcommand(name).cloned();
        command = known.ok_or_else(|| {
            crate::usage(format!("there is no command '{name}'; --help lists them"))
        })?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// The commands that study protocols, which most people never need.
const RESEARCH: [&str; 10] = [
    "bench",
    "cells",
    "check",
    "explore",
    "fuzz",
    "locality",
    "play",
    "protocols",
    "sim",
    "figures",
];

/// Prints what there is, with a group of its own for research; on standard error if nothing was asked for.
pub(crate) fn help(unasked: bool) -> ExitCode {
    let mut command = Cli::command();
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(|one| one.get_about());
        format!("  {name:<12} {}", about.map(ToString::to_string).unwrap_or_default())
    };
    let research: Vec<_> = RESEARCH.into_iter().map(about).collect();
    for name in RESEARCH {
        command = command.mut_subcommand(name, |one| one.hide(true));
    }
    let text = command.after_help(format!("Research:\n{}", research.join("\n"))).render_help();
    // Nobody is left to tell if it cannot be printed.
    if unasked {
        let _ = writeln!(std::io::stderr(), "{text}");
    } else {
        let _ = print(&text.to_string());
    }
    ExitCode::from(if unasked { crate::USAGE } else { 0 })
}
