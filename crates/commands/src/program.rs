//! A whole program around the commands.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::say::one_line;
use crate::{Command, Failure, Protocols, USAGE, Usage, say};

/// Study protocols: check them, go through them by hand, simulate them, play them.
#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// A program that takes the commands of `holdall` that study protocols, and knows these protocols.
pub fn main(protocols: &Protocols) -> ExitCode {
    let Program { command } = match parse() {
        Ok(program) => program,
        Err(told) => return told,
    };
    command.run(protocols).unwrap_or_else(|error| {
        say(format!("{error:#}"));
        ExitCode::from(match error.downcast_ref() {
            Some(Failure(status, _)) => *status,
            None if error.is::<Usage>() => USAGE,
            None => 1,
        })
    })
}

/// Reads the arguments of the program; or says what is wrong with them, or prints the help that they
/// ask for, and returns the exit status.
///
/// # Errors
/// If there is nothing left to do.
pub fn parse<P: Parser>() -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        let no_command = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if error.use_stderr() && !no_command {
            say(one_line(&error));
            return ExitCode::from(USAGE);
        }
        // Help or version. Nobody is left to tell if it cannot be printed.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
    })
}
