//! Completions for shells, and the manual page.

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
