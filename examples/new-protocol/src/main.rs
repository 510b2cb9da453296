//! A protocol of one's own, with the commands of `holdall` that study protocols: `check`, `explore`,
//! `fuzz`, `locality`, `play`, `protocols` and `sim`.

mod gate;

use holdall_commands::Protocols;

fn main() -> std::process::ExitCode {
    let protocols = Protocols::known().and_asking::<gate::Gate>(gate::QUESTIONS);
    holdall_commands::main(&protocols)
}
