//! What is measured, and how.

use std::path::PathBuf;
use std::time::Duration;

use crate::Bad;
use crate::case::{self, Case, Sets};
use crate::target;

/// The options of `holdall bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Cases, or groups of cases: scale, peers; wide, moderate, heavy, ring, hot, zipf, mixed.
    /// Without one, the options below say what is wanted
    #[arg(value_name = "CASE")]
    pub(crate) cases: Vec<String>,
    /// What is measured: agent, yardstick; with the feature `peers` also etcd, etcd-locks,
    /// postgres, redis and zookeeper, where they are installed
    #[arg(
        long,
        value_name = "TARGET,...",
        value_delimiter = ',',
        default_value = "agent,yardstick"
    )]
    pub(crate) on: Vec<String>,
    /// The socket of an agent that runs, instead of one of our own
    #[arg(long, value_name = "SOCKET")]
    pub(crate) agent: Option<PathBuf>,
    /// Ask for locks of this cell, through the agent: lock/1@NAME
    #[arg(long, value_name = "NAME", requires = "agent")]
    pub(crate) cell: Option<String>,
    /// The members of an etcd that runs, instead of one of our own
    #[cfg(feature = "peers")]
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// How many clients
    #[arg(long, default_value_t = 64, conflicts_with = "cases")]
    pub(crate) clients: usize,
    /// Over how many connections; each client has its own if nothing is said
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<usize>,
    /// How many locks there are
    #[arg(long, default_value_t = 64, conflicts_with = "cases")]
    pub(crate) resources: usize,
    /// How many of them each request is for
    #[arg(long, value_name = "K", default_value_t = 2, conflicts_with = "cases")]
    pub(crate) per_request: usize,
    /// Which: uniform, ring, zipf:POWER, hot:SHARE, wide:CLIENTS
    #[arg(long, value_parser = sets, default_value = "uniform", conflicts_with = "cases")]
    pub(crate) sets: Sets,
    /// For how long each is held, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0, conflicts_with = "cases")]
    pub(crate) hold: f64,
    /// How many requests wait beside them all the while, over 100 connections of their own
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "cases")]
    pub(crate) waiting: usize,
    /// These all wait for one lock, and not each for one of its own as well
    #[arg(long, requires = "waiting")]
    pub(crate) alike: bool,
    /// How long each target is measured in each round, after a fifth of it to warm up
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// How often each target is measured
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: usize,
    /// Of what is random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print a JSON object for each row
    #[arg(long)]
    pub(crate) json: bool,
}

/// Beyond this hardly anything but the first is drawn.
const ZIPF_MAX: f64 = 4.0;

fn sets(text: &str) -> Result<Sets, String> {
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    let number = || value.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    let bad = || format!("'{text}' is none of uniform, ring, zipf:1.1 (up to 4), hot:0.5, wide:4");
    match (kind, number()) {
        ("uniform", None) if value.is_empty() => Ok(Sets::Uniform),
        ("ring", None) if value.is_empty() => Ok(Sets::Ring),
        ("zipf", Some(power)) if power <= ZIPF_MAX => Ok(Sets::Zipf(power)),
        ("hot", Some(share)) if share <= 1.0 => Ok(Sets::Hot(share)),
        ("wide", Some(_)) => value.parse().map(Sets::Wide).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

impl Options {
    pub(crate) fn cases(&self) -> Result<Vec<Case>, Bad> {
        let named = |name: &String| case::named(name).ok_or_else(|| Bad::Case(name.clone()));
        let mut cases = match &self.cases[..] {
            [] => vec![self.own_case()],
            names => names.iter().map(named).collect::<Result<Vec<_>, _>>()?.concat(),
        };
        for case in &mut cases {
            case.connections = self.connections.unwrap_or(case.clients).min(case.clients);
            check(case)?;
        }
        let seconds = self.seconds.is_finite() && (0.01..=86_400.0).contains(&self.seconds);
        if !seconds {
            return Err(Bad::Number("--seconds is from 0.01 to 86400"));
        } else if self.rounds == 0 {
            return Err(Bad::Number("at least one round is needed"));
        }
        Ok(cases)
    }

    fn own_case(&self) -> Case {
        Case {
            name: format!("{}x{}", self.clients, self.resources),
            clients: self.clients,
            connections: self.clients,
            resources: self.resources,
            per_request: self.per_request,
            sets: self.sets,
            waiting: self.waiting,
            alike: self.alike,
            hold: Duration::try_from_secs_f64(self.hold / 1000.0).unwrap_or(Duration::MAX),
        }
    }

    pub(crate) fn targets(&self) -> Result<Vec<String>, Bad> {
        match self.on.iter().find(|name| !target::names().contains(&name.as_str())) {
            Some(unknown) => Err(Bad::Target(unknown.clone())),
            None => Ok(self.on.clone()),
        }
    }

    pub(crate) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn check(case: &Case) -> Result<(), Bad> {
    if case.clients == 0 || case.connections == 0 || case.resources == 0 || case.per_request == 0 {
        return Err(Bad::Number(
            "clients, connections, resources and --per-request are at least 1",
        ));
    } else if [case.clients, case.resources, case.waiting].iter().any(|n| *n > 1 << 24) {
        return Err(Bad::Number(
            "there are at most 16,777,216 clients, and as many resources and waiting requests",
        ));
    } else if case.per_request > case.resources {
        return Err(Bad::Number("a request is for at most all resources"));
    } else if case.hold > Duration::from_secs(3600) {
        return Err(Bad::Number("--hold is from 0 to an hour, in milliseconds"));
    }
    Ok(())
}
