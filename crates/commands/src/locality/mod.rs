//! `holdall locality`: how far away the crash of a user can be felt.

mod table;

use std::fmt::Write;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use holdall_lab::check::{self, Blocked, Crash, Detector, Distance, Locality, Scope, Settings};

use crate::search::{DetectorArg, LimitArgs, SearchArgs, bar, tell};
use crate::{Protocols, print, usage};

/// Measure how far away a user may be that is blocked for ever because another one crashed
///
/// Explores every interleaving of a small scope in which one user stops silently, at any point, and
/// all others end their uses. A user is blocked for ever if no path to its satisfaction is left, or
/// if a fair run never satisfies it. Users that share a pool are at distance 1; the failure locality
/// is the greatest distance of a blocked user, 0 if there is none. Scopes are written as for
/// `holdall check`.
///
/// Exit status: 0 if everything was seen, 3 if the search was cut off (the locality is then at least
/// what is printed), 64 on bad input.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  holdall locality ordered --pools 1,1 --users '0/0+1/1'
  holdall locality house --pools 1,1 --users '0/0+1/1' --crash 0 --detector reclaim --timers quiet
  holdall locality ordered --table")]
pub struct Args {
    /// The protocol (`holdall protocols` lists them); with --table, all of them if left out
    #[arg(required_unless_present = "table")]
    protocol: Option<String>,
    /// Units of each pool, like 1,1
    #[arg(long, value_name = "UNITS,...", required_unless_present = "table")]
    pools: Option<String>,
    /// What the users ask for, like '0/0+1/1'
    #[arg(long, value_name = "USERS", required_unless_present = "table")]
    users: Option<String>,
    /// The node each pool is on, like 0,0,1; by default each on its own
    #[arg(long, value_name = "NODE,...")]
    nodes: Option<String>,
    /// The user that crashes [default: each in turn]
    #[arg(long, value_name = "USER")]
    crash: Option<usize>,
    /// Let a manager stop for good instead of a user, at any time; nobody is told. Managers are
    /// numbered like pools, where each pool has one
    #[arg(long, value_name = "MANAGER", conflicts_with_all = ["crash", "detector", "idle"])]
    crash_manager: Option<usize>,
    /// What every manager is told of it [default: none]
    #[arg(long)]
    detector: Option<DetectorArg>,
    /// Let it crash also while it has no request under way
    #[arg(long)]
    idle: bool,
    /// Measure paths and a ring of users with every detector, and print Markdown; timers ring only
    /// when nothing else can move where the protocol promises more then
    #[arg(long, conflicts_with_all = ["pools", "users", "nodes", "crash", "crash_manager", "detector", "idle"])]
    table: bool,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// Print one JSON object per scope
    #[arg(long)]
    json: bool,
}

impl Args {
    fn settings(&self) -> Settings {
        self.limits.limit(self.search.settings())
    }
}

/// The exit status of a search that was cut off.
const CUT_OFF: u8 = 3;

pub(crate) fn run(args: &Args, protocols: &Protocols) -> anyhow::Result<ExitCode> {
    if args.table {
        return table::run(args, protocols);
    }
    let (Some(protocol), Some(pools), Some(users)) = (&args.protocol, &args.pools, &args.users)
    else {
        return Err(usage("name a protocol and a scope: ordered --pools 1,1 --users '0/0+1/1'"));
    };
    let chosen = args.search.chosen(protocols, protocol)?;
    let scope = Scope::parse(pools, users, args.nodes.as_deref()).map_err(usage)?;
    let settings = Settings {
        crash: args.crash,
        crash_manager: args.crash_manager,
        crash_idle: args.idle,
        detector: Some(args.detector.map_or(Detector::None, Into::into)),
        ..args.settings()
    };
    let bar = bar();
    bar.set_message(format!("{} {scope}", chosen.name));
    let report = check::locality(&chosen, &scope, &settings, &|progress| tell(&bar, progress))
        .map_err(usage)?;
    bar.finish_and_clear();
    print(&if args.json { serde_json::to_string(&report)? } else { in_full(&report) })?;
    Ok(exit_code(report.complete))
}

fn exit_code(complete: bool) -> ExitCode {
    if complete { ExitCode::SUCCESS } else { ExitCode::from(CUT_OFF) }
}

fn in_full(report: &Locality) -> String {
    let mut text = format!("{} {}\n", report.protocol, report.scope);
    let _ = writeln!(text, "failure locality: {}", measured(report));
    let seen = if report.complete { "complete" } else { "cut off" };
    let _ = writeln!(text, "{} states, {seen}", report.states);
    if !report.broken.is_empty() {
        let _ = writeln!(text, "broken on the way: {}", report.broken.join(", "));
    }
    let mut table = Table::new();
    let header = ["crash", "in stage", "no path is left for", "a fair run never satisfies"];
    table.load_style(presets::NOTHING).set_header(header);
    for crash in &report.crashes {
        for row in &crash.stages {
            let of = |counts: fn(&Blocked) -> bool| list(&row.blocked, counts);
            table.add_row([
                who(crash),
                row.stage.clone(),
                of(|blocked| blocked.no_path),
                of(|blocked| blocked.fair_run),
            ]);
        }
    }
    let _ = writeln!(text, "\n{table}");
    for crash in &report.crashes {
        for starving in &crash.starving_anyway {
            let who = who(crash);
            let _ = writeln!(
                text,
                "crash of {who}: u{starving} may starve in a fair run even if nobody crashes; \
                 counted only where no path is left"
            );
        }
    }
    if let Some(story) = &report.story {
        let _ = write!(text, "\nthe shortest way to the greatest distance:\n{story}");
    }
    text.truncate(text.trim_end().len());
    text
}

fn who(crash: &Crash) -> String {
    match (crash.user, crash.manager) {
        (None, Some(manager)) => format!("m{manager}"),
        (user, _) => format!("u{}", user.unwrap_or_default()),
    }
}

/// The locality in both senses, as far as it is known.
fn measured(report: &Locality) -> String {
    let Locality { locality, locality_no_path, .. } = report;
    if !report.exact {
        format!("at least {locality}")
    } else if locality == locality_no_path || !report.complete {
        locality.to_string()
    } else {
        format!("{locality} ({locality_no_path} where no path is left)")
    }
}

/// Users with their distances.
fn list(blocked: &[Blocked], counts: fn(&Blocked) -> bool) -> String {
    let counted = blocked.iter().filter(|blocked| counts(blocked));
    let place = |distance| match distance {
        Distance::Steps(n) => format!("at {n}"),
        Distance::Unconnected => "unconnected".into(),
    };
    let names: Vec<_> = counted.map(|b| format!("u{} {}", b.user, place(b.distance))).collect();
    if names.is_empty() { "-".into() } else { names.join(", ") }
}
