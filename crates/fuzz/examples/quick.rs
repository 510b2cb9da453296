//! `quick RUNS PROTOCOL...`: runs in both modes, turn by turn, until one fails. What `holdall fuzz` does,
//! without building the rest of the command: for mutants, of which there are many.

use std::process::ExitCode;

use holdall_fuzz::{Mode, Target};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let runs = args.next().and_then(|runs| runs.parse().ok()).expect("a number of runs");
    let targets: Vec<Target> =
        args.map(|name| Target::named(&name, &[]).expect("a protocol")).collect();
    for seed in 0..runs {
        for target in &targets {
            for mode in Mode::ALL {
                if let Err(failure) = target.run(mode, seed) {
                    eprintln!("{failure}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}
