//! Plays seeds: `seeds FIRST COUNT [CELLS [MUTANT]]`; with one seed, and `TOLD` in the environment, tells everything.

use holdall_cells::{Mutant, Report, Settings, play};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        args.get(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let mutant =
        args.get(3).and_then(|name| Mutant::ALL.into_iter().find(|one| one.name() == name));
    let told = std::env::var_os("TOLD").is_some();
    let cells = number(2, 3) as usize;
    let settings = Settings { cells, mutant, told, ..Settings::default() };
    let (first, count) = (number(0, 1), number(1, 100));
    let (mut all, mut failed) = (Report::default(), 0);
    for seed in first..first + count {
        match play(seed, &settings) {
            Ok(report) => {
                all.grants += report.grants;
                all.spanning += report.spanning;
                all.lost += report.lost;
                all.refused += report.refused;
                all.faults += report.faults;
                all.events += report.events;
            }
            Err(violation) => {
                failed += 1;
                println!("seed {seed}: {violation}");
                if failed >= 10 {
                    break;
                }
            }
        }
    }
    println!("{failed} failed; {all:?}");
}
