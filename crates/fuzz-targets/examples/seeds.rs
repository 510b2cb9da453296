//! Writes the seeds of all targets into the corpus: `cargo run -p holdall-fuzz-targets --example seeds`.

fn main() -> std::io::Result<()> {
    for target in holdall_fuzz_targets::targets() {
        let dir = holdall_fuzz_targets::corpus(target.name);
        std::fs::create_dir_all(&dir)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
