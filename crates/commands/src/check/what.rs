//! What is to be explored: the protocol, the scope, and what may go wrong in it.

use clap::ValueEnum;
use holdall_core::CellId;
use holdall_lab::check::{Scope, Settings, Suite, every_assignment};
use holdall_registry::Chosen;

use crate::search::{DetectorArg, SearchArgs};
use crate::{Protocols, usage};

/// One search, or walk.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) chosen: Chosen,
    pub(super) scope: Scope,
    pub(super) settings: Settings,
}

#[derive(clap::Args, PartialEq)]
pub(super) struct What {
    /// The protocol (`holdall protocols` lists them); with --suite, all of them if left out
    #[arg(required_unless_present_any = ["suite", "resume"])]
    pub(super) protocol: Option<String>,
    /// Units of each pool, like 1,1,2; 0-2 is a pool whose units 0, 1, 2 may be asked for by name
    #[arg(long, value_name = "UNITS,...", requires = "users")]
    pools: Option<String>,
    /// What the users ask for, like '0+1/1+0,2/0:2*'; 0.1 is unit 1 of pool 0
    #[arg(long, value_name = "USERS", requires = "pools")]
    users: Option<String>,
    /// The node each pool is on, like 0,0,1; by default each on its own
    #[arg(long, value_name = "NODE,...", requires = "pools")]
    nodes: Option<String>,
    /// Every assignment of one request to each of C clients over R resources, up to renaming
    #[arg(long, value_name = "CxR", conflicts_with_all = ["pools", "suite"])]
    all: Option<String>,
    /// A prepared set of scopes
    #[arg(long, conflicts_with = "pools")]
    suite: Option<SuiteArg>,
    /// Let users depart at any stage
    #[arg(long)]
    departures: bool,
    /// Let this user stop silently at any stage
    #[arg(long, value_name = "USER")]
    crash: Option<usize>,
    /// What every manager is told of a user that stopped silently [default: departed]
    #[arg(long, requires = "crash")]
    detector: Option<DetectorArg>,
    /// Let it stop also in the middle of a step, when only the first of its messages have left
    #[arg(long, requires = "crash")]
    amid: bool,
    /// Let this user be taken for dead once, at any stage, although it lives
    #[arg(long, value_name = "USER")]
    suspect: Option<usize>,
    /// Let the next client of a user begin while the one before is still heard of
    #[arg(long)]
    overlap: bool,
    /// The cell each user comes from, like 0,0,1; by default all from cell 0
    #[arg(long, value_name = "CELL,...", requires = "users")]
    homes: Option<String>,
    /// Let this cell stop once with all its users, and come back without its memory
    #[arg(long, value_name = "CELL")]
    reboot: Option<u64>,
    /// Let the network deliver any message twice
    #[arg(long)]
    duplicates: bool,
    /// Let up to N messages be lost, in all
    #[arg(long, value_name = "N", default_value_t = 0)]
    loss: u32,
    /// Decide whether a settled request is overtaken more often than N times
    #[arg(long, value_name = "N")]
    overtaking: Option<u32>,
    /// Keep messages that their receivers say they will ignore
    #[arg(long)]
    keep_stale: bool,
    /// Search fewer states: let what may as well be received at once be so
    #[arg(long)]
    reduce: bool,
    #[command(flatten)]
    search: SearchArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum SuiteArg {
    /// Seconds
    Quick,
    /// Minutes
    Full,
}

impl What {
    /// All that is to be explored, one after another.
    pub(super) fn jobs(&self, protocols: &Protocols) -> anyhow::Result<Vec<Job>> {
        let chosen = match &self.protocol {
            Some(name) => vec![self.search.chosen(protocols, name)?],
            None => protocols.all().map_err(usage)?,
        };
        if let Some(suite) = self.suite {
            return Ok(chosen.iter().flat_map(|chosen| self.suite(suite, chosen)).collect());
        }
        let Some(chosen) = chosen.into_iter().next() else {
            return Err(usage("name a protocol; `holdall protocols` lists them"));
        };
        let scopes = match (&self.all, &self.pools, &self.users) {
            (Some(all), _, _) => every_assignment(all, &chosen.about).map_err(usage)?,
            (None, Some(pools), Some(users)) => {
                let scope = Scope::parse(pools, users, self.nodes.as_deref()).map_err(usage)?;
                vec![match &self.homes {
                    Some(homes) => scope.with_homes(homes).map_err(usage)?,
                    None => scope,
                }]
            }
            _ => {
                return Err(usage(
                    "name a scope: --pools 1,1 --users '0+1/1+0', or --all 3x3, or --suite quick",
                ));
            }
        };
        let job = |scope| Job { chosen: chosen.clone(), scope, settings: self.settings() };
        Ok(scopes.into_iter().map(job).collect())
    }

    fn suite(&self, suite: SuiteArg, chosen: &Chosen) -> Vec<Job> {
        let suite = match suite {
            SuiteArg::Quick => Suite::Quick,
            SuiteArg::Full => Suite::Full,
        };
        let settings = self.settings();
        let scopes = suite.scopes(chosen).into_iter().map(|(scope, faults)| Job {
            chosen: chosen.clone(),
            scope,
            settings: Settings {
                departures: faults.departures || settings.departures,
                crash: faults.crash.or(settings.crash),
                timers: faults.timers,
                ..settings.clone()
            },
        });
        scopes.collect()
    }

    fn settings(&self) -> Settings {
        Settings {
            departures: self.departures,
            crash: self.crash,
            crash_amid: self.amid,
            detector: self.detector.map(Into::into),
            suspect: self.suspect,
            overlap: self.overlap,
            reboot: self.reboot.map(CellId),
            duplicates: self.duplicates,
            loss: self.loss,
            overtaking: self.overtaking,
            keep_stale: self.keep_stale,
            reduce: self.reduce,
            ..self.search.settings()
        }
    }
}
