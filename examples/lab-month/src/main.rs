//! Prints a month of a lab that does not exist: `lab-month [SEED [DAYS]]`.

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (seed, days) = match (numbers.next(), numbers.next(), numbers.next()) {
        (None, None, None) => (1, 30),
        (Some(Ok(seed)), None, None) => (seed, 30),
        (Some(Ok(seed)), Some(Ok(days @ 1..=3650)), None) => (seed, days),
        _ => {
            // Nobody is left to tell if it cannot be said.
            let _ = writeln!(io::stderr(), "usage: lab-month [SEED [DAYS]], at most 3650 days");
            return ExitCode::from(64);
        }
    };
    let mut out = io::stdout().lock();
    for line in lab_month::workload(seed, days as u32) {
        if writeln!(out, "{line}").is_err() {
            return ExitCode::from(74);
        }
    }
    ExitCode::SUCCESS
}
