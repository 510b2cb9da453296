//! `holdall torture`: real agents and clients of several cells under faults.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use holdall_torture::check::{Figures, Spread};
use holdall_torture::section::{Section, section};
use holdall_torture::{Settings, Verdict, torture};

use crate::{print, say, usage};

/// Torture real agents: kill, stop and cut off, and see that nothing is used twice.
///
/// Starts agents of several cells on this machine, each with a directory and a port of its own, and clients that hold things of
/// several of them. For a while they are killed, stopped and cut off, as the seed says; then everything heals. A judge who knows
/// only what the commands have told looks whether a write was accepted out of fence order, two used something at the
/// same time, somebody was not served, or something is left. `docs/torture.md` says more. Ends with 1 if something is wrong, with the
/// command that tries it again; its directory is kept.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many cells
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=16))]
    cells: u64,
    /// How many clients
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    clients: u64,
    /// For how many seconds things go wrong
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Where all choices come from; drawn if it is not said
    #[arg(long)]
    seed: Option<u64>,
    /// How long a lease is, in seconds
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(4..=600))]
    lease: u64,
    /// Put each agent into a network namespace of its own, and set links down instead of using proxies; needs root and `ip`
    #[arg(long)]
    namespaces: bool,
    /// Have the agents host one more cell, whose log is in etcd, which is started for it; kill and stop who leads it, and members of etcd
    #[arg(long)]
    replicated: bool,
    /// The program to torture [default: this one]
    #[arg(long, value_name = "PATH")]
    exe: Option<PathBuf>,
    /// Where its directory is made [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Be the command of a run, which writes to the store at this path
    #[arg(long, hide = true, value_name = "PATH", requires_all = ["run", "home", "works"])]
    section: Option<PathBuf>,
    #[arg(long, hide = true)]
    run: Option<u64>,
    #[arg(long, hide = true)]
    home: Option<String>,
    #[arg(long, hide = true)]
    works: Option<u64>,
    #[arg(long, hide = true)]
    deaf: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let (Some(store), Some(run), Some(home), Some(works)) =
        (&args.section, args.run, &args.home, args.works)
    {
        let works = Duration::from_millis(works);
        section(&Section { store, run, home, works, deaf: args.deaf })?;
        return Ok(ExitCode::SUCCESS);
    }
    let torturer = std::env::current_exe()?;
    let exe = match &args.exe {
        Some(exe) => {
            exe.canonicalize().map_err(|error| usage(format!("{}: {error}", exe.display())))?
        }
        None => torturer.clone(),
    };
    let seed = args.seed.unwrap_or_else(|| {
        u64::from(rustix::process::getpid().as_raw_nonzero().get() as u32) ^ crate::show::now()
    });
    let settings = Settings {
        exe,
        torturer,
        parent: args.dir.clone().unwrap_or_else(std::env::temp_dir),
        cells: args.cells as usize,
        clients: args.clients as usize,
        seconds: args.seconds,
        lease_seconds: args.lease,
        seed,
        namespaces: args.namespaces,
        replicated: args.replicated,
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let verdict = torture(&settings, &stop, &mut |what| say(format!("seed {seed}: {what}")))?;
    tell(args, seed, &verdict)
}

fn tell(args: &Args, seed: u64, verdict: &Verdict) -> anyhow::Result<ExitCode> {
    if verdict.interrupted {
        say("interrupted; nothing is left of it");
        return Ok(ExitCode::from(130));
    }
    let Args { cells, clients, seconds, lease, .. } = args;
    let place = if args.namespaces { " --namespaces" } else { "" };
    let log = if args.replicated { " --replicated" } else { "" };
    let again = format!(
        "holdall torture --cells {cells} --clients {clients} --seconds {seconds} --lease {lease} --seed {seed}{place}{log}"
    );
    let (wrong, kept) = (&verdict.judged.wrong, &verdict.kept);
    if args.json {
        let told = serde_json::json!({
            "seed": seed,
            "command": again,
            "clean": wrong.is_empty(),
            "wrong": wrong,
            "directory": kept,
            "figures": verdict.judged.figures,
        });
        print(&told.to_string())?;
    } else {
        print(&summary(&verdict.judged.figures))?;
    }
    if wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for wrong in wrong.iter().take(20) {
        say(format!("WRONG: {wrong}"));
    }
    if wrong.len() > 20 {
        say(format!("WRONG: and {} more", wrong.len() - 20));
    }
    if let Some(kept) = kept {
        say(format!("its journal and the logs of its agents are in {}", kept.display()));
    }
    say(format!("to try it again: {again}"));
    Ok(ExitCode::FAILURE)
}

fn summary(it: &Figures) -> String {
    let seconds = |millis: u64| format!("{:.1} s", millis as f64 / 1000.0);
    let spread = |it: &Spread| {
        let (median, longest) = (seconds(it.median), seconds(it.longest));
        format!("half within {median}, all within {longest} (of {})", it.count)
    };
    format!(
        "{} runs, {} grants, {} of them with something of other cells, {} over several; {} taken away, {} did not reach their agent\n\
         {} writes, {} refused for their fence\n\
         clients: {} killed, {} stopped; agents: {} killed, {} stopped, {} restarted; machines that stood still: {}; network: {} cut, {} stalled, {} slow; members of etcd: {}\n\
         overlaps excused: {} (whoever was stopped by the torturer), and {} that began late\n\
         longest wait: {}; all was over {} after the last fault\n\
         back after an agent was started again: {}\n\
         back after a cut: {}",
        it.runs,
        it.grants,
        it.remote,
        it.spanning,
        it.taken_away,
        it.unreached,
        it.writes,
        it.refused_writes,
        it.kills,
        it.pauses,
        it.agents_killed,
        it.agents_paused,
        it.agents_restarted,
        it.machines_frozen,
        it.cuts,
        it.stalls,
        it.slow,
        it.members_hit,
        it.overlaps_excused,
        it.late_excused,
        seconds(it.longest_wait),
        seconds(it.healing),
        spread(&it.after_kill),
        spread(&it.after_cut),
    )
}
