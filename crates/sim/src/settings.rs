//! What to simulate.

use serde::Serialize;
use std::str::FromStr;

use holdall_core::{NodeId, Pool, UserId};

use super::workload::{WIDE, WIDE_EVERY};

/// A system, its users and what happens to them. The default is the set-up of Rhee's simulation
/// ("A modular algorithm for resource allocation", section 6), with a service time of 50 and two
/// pools a request, which the paper varies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// How many users there are at a time.
    pub users: u32,
    /// How many pools.
    pub resources: u32,
    /// How many pools a request names.
    pub per_request: u32,
    /// How many pools a user may ask for at all, if each of its requests names some of these at
    /// random.
    pub of: Option<u32>,
    /// Whether the number of pools is uniform on `1..=2 * per_request - 1` instead.
    pub unequal: bool,
    /// Whether a user always asks for the same.
    pub sets: Sets,
    /// Which pools users ask for.
    pub workload: Workload,
    /// Units of each pool; a request needs one of each pool it names.
    pub units: u32,
    /// The probability that a need is for a certain unit, by name. If it is above 0, pools are listed.
    pub named: f64,
    /// Mean time a pool is used: uniform on `0..=2 * service`. A use lasts for the sum over its
    /// pools.
    pub service: u32,
    /// Whether the time of a use has nothing to do with how many pools it is of: the sum over as many as
    /// another request might name.
    pub apart: bool,
    /// Whether users know how long such uses take, and say so when they ask.
    pub told: Option<Told>,
    /// Mean time a message takes: uniform on `1..=2 * delay - 1`, or nothing if 0.
    pub delay: u32,
    /// Mean time between a use and the next request: uniform on `0..=2 * think`.
    pub think: u32,
    /// How many nodes the pools are dealt to in turn; `None` is a node for each.
    pub nodes: Option<u32>,
    /// Whether users live on these nodes as well, dealt to them in turn; otherwise each is on a
    /// machine of its own.
    pub colocated: bool,
    /// How long a run is.
    pub ticks: u64,
    /// How many runs, each with other sets and other times.
    pub graphs: u32,
    /// Where all chance comes from.
    pub seed: u64,
    /// Whether a role handles at most one event a tick.
    pub one_per_tick: bool,
    /// Users that fail.
    pub faults: Vec<Fault>,
    /// How long it takes to notice that a user has stopped.
    pub detect: u32,
    /// What managers are told then.
    pub detector: Detector,
    /// The probability that a message is lost.
    pub loss: f64,
    /// The probability that a message which is not lost arrives twice.
    pub duplicates: f64,
    /// Messages that take long.
    pub spikes: Option<Spikes>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            users: 100,
            resources: 100,
            per_request: 2,
            of: None,
            unequal: false,
            sets: Sets::Fixed,
            workload: Workload::Uniform,
            units: 1,
            named: 0.0,
            service: 50,
            apart: false,
            told: None,
            delay: 50,
            think: 25,
            nodes: None,
            colocated: false,
            ticks: 100_000,
            graphs: 1,
            seed: 1,
            one_per_tick: false,
            faults: Vec::new(),
            detect: 1000,
            detector: Detector::Departed,
            loss: 0.0,
            duplicates: 0.0,
            spikes: None,
        }
    }
}

/// Whether a user always asks for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sets {
    /// The same set for ever.
    Fixed,
    /// A new set for each request.
    Fresh,
}

/// What users say of the time that a use will take: a multiple of what such uses take on average, which is 1 if they are right. It is
/// one of these two, each as likely.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Told {
    /// One.
    pub one: f64,
    /// The other.
    pub other: f64,
}

/// Which pools users ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Any, each as likely.
    Uniform,
    /// User `i` asks for the pools `i` and `i + 1`, in a ring.
    Ring,
    /// Half of the requests name pool 0; the rest is uniform.
    Hot,
    /// One user in 16 asks for 8 pools (or all, if there are fewer), the others for one.
    Mix,
}

/// What managers are told of a user that has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Detector {
    /// That it has departed, once its last message has arrived.
    Departed,
    /// To reclaim what it held. Messages of it may still arrive.
    Reclaim,
}

/// How a user fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// It says that it leaves.
    Leave,
    /// It stops silently.
    Stop,
}

/// When a user fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Right after it asked.
    Asking,
    /// Up to four mean delays after it asked, if it still waits then.
    Waiting,
    /// At some moment of the use.
    Using,
}

/// Users that fail: at this stage of a request, with this probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// How.
    pub kind: FaultKind,
    /// When, and how often.
    pub rate: FaultRate,
}

/// A stage and the probability that something happens then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FaultRate {
    /// The stage of a request.
    pub stage: Stage,
    /// For each request.
    pub probability: f64,
}

/// Messages that take long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spikes {
    /// For each message.
    pub probability: f64,
    /// How many times as long it takes.
    pub factor: u32,
}

/// Settings that make no sense, and how to mend them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadSettings {
    /// A number is too small.
    #[error("{what} is {value}: let it be at least {least}")]
    TooSmall {
        /// Which.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        least: u64,
    },
    /// A number is too large.
    #[error("{what} is {value}: let it be at most {most}")]
    TooLarge {
        /// Which.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        most: u64,
    },
    /// Nothing takes any time.
    #[error("think and service are both 0, so time would stand still: let one be at least 1")]
    NoTime,
    /// Sizes are drawn only by some workloads.
    #[error("unequal sizes need the workload uniform or hot: the others have sizes of their own")]
    UnequalSizes,
    /// In a ring everybody has two pools of its own.
    #[error("in a ring a user always asks for the same: leave out fresh sets")]
    FreshRing,
    /// Two ways to draw sets at once.
    #[error("of needs the workload uniform and fixed sets: it says itself what is drawn each time")]
    Of,
    /// A multiple that nobody can tell.
    #[error("nobody can say {0} times the time of a use: let it be above 0")]
    Told(f64),
    /// It is not from 0 to 1.
    #[error("{0} is no probability: let it be from 0 to 1")]
    Probability(f64),
    /// A word that is not known.
    #[error("'{text}' is none of {}", known.join(", "))]
    Word {
        /// The word.
        text: String,
        /// What it may be.
        known: Vec<&'static str>,
    },
    /// A text without the colon that it should have.
    #[error("'{text}' is not of the form {form}")]
    Form {
        /// The text.
        text: String,
        /// The form, with an example.
        form: &'static str,
    },
    /// A text that is no number.
    #[error("'{0}' is not a number that can be used here")]
    Number(String),
}

const MOST_RESOURCES: u32 = 1 << 24;
const MOST_GRAPHS: u32 = 100_000;
const MOST_TICKS: u64 = super::waiting::END_OF_TIME;

impl Settings {
    /// Whether the settings make sense together.
    ///
    /// # Errors
    /// Says what does not, and how to mend it.
    pub fn validate(&self) -> Result<(), BadSettings> {
        within("users", self.users.into(), 1, (UserId::LANES - 1).into())?;
        within("resources", self.resources.into(), 1, MOST_RESOURCES.into())?;
        within("per-request", self.per_request.into(), 1, self.most_per_request().into())?;
        within("of", self.widest().into(), 1, self.resources.into())?;
        within("units", self.units.into(), 1, u32::MAX.into())?;
        within("nodes", self.nodes.unwrap_or(1).into(), 1, u32::MAX.into())?;
        within("ticks", self.ticks, 1, MOST_TICKS)?;
        within("graphs", self.graphs.into(), 1, MOST_GRAPHS.into())?;
        refuse_if(self.think == 0 && self.service == 0, BadSettings::NoTime)?;
        refuse_if(self.unequal && !self.draws_size(), BadSettings::UnequalSizes)?;
        refuse_if(
            self.sets == Sets::Fresh && self.workload == Workload::Ring,
            BadSettings::FreshRing,
        )?;
        refuse_if(
            self.of.is_some() && (self.workload != Workload::Uniform || self.sets == Sets::Fresh),
            BadSettings::Of,
        )?;
        for multiple in self.told.iter().flat_map(|told| [told.one, told.other]) {
            refuse_if(multiple <= 0.0 || !multiple.is_finite(), BadSettings::Told(multiple))?;
        }
        for fault in &self.faults {
            probability(fault.rate.probability)?;
        }
        probability(self.named)?;
        probability(self.loss)?;
        probability(self.duplicates)?;
        let Some(spikes) = self.spikes else { return Ok(()) };
        probability(spikes.probability)?;
        within("the factor of spikes", spikes.factor.into(), 1, u32::MAX.into())
    }

    /// The node of the pool, or of the lane, of this number: dealt in turn.
    pub(super) fn node(&self, number: u32) -> NodeId {
        NodeId(u64::from(number % self.nodes.unwrap_or(self.resources)))
    }

    /// The pools.
    pub fn pools(&self) -> Vec<Pool> {
        let pool =
            |pool| Pool { capacity: self.units, node: self.node(pool), listed: self.is_listed() };
        (0..self.resources).map(pool).collect()
    }

    /// Whether units have numbers.
    pub(super) fn is_listed(&self) -> bool {
        self.named > 0.0
    }

    /// The most pools any request may name.
    pub(super) fn largest_request(&self) -> u32 {
        let largest = match self.workload {
            Workload::Ring => 2,
            Workload::Mix => WIDE,
            Workload::Uniform | Workload::Hot if self.unequal => {
                self.per_request.saturating_mul(2) - 1
            }
            Workload::Uniform | Workload::Hot => self.per_request,
        };
        largest.min(self.widest())
    }

    /// How many pools a user chooses from.
    pub(super) fn widest(&self) -> u32 {
        self.of.unwrap_or(self.resources)
    }

    /// How long a use takes on average.
    pub(super) fn typical_use(&self) -> u64 {
        let mean = u64::from(self.service);
        let wide_and_narrow = u64::from(WIDE + WIDE_EVERY - 1);
        match self.workload {
            Workload::Ring if !self.apart => 2 * mean,
            Workload::Mix if !self.apart => mean * wide_and_narrow / u64::from(WIDE_EVERY),
            _ => mean * u64::from(self.per_request),
        }
    }

    /// The first fifth of a run, in which nothing but grants, messages and violations counts.
    pub(super) fn warm_up(&self) -> u64 {
        self.ticks / 5
    }

    fn draws_size(&self) -> bool {
        matches!(self.workload, Workload::Uniform | Workload::Hot)
    }

    fn most_per_request(&self) -> u32 {
        if self.draws_size() { self.widest() } else { u32::MAX }
    }
}

fn within(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), BadSettings> {
    match value {
        _ if value < least => Err(BadSettings::TooSmall { what, value, least }),
        _ if value > most => Err(BadSettings::TooLarge { what, value, most }),
        _ => Ok(()),
    }
}

fn refuse_if(bad: bool, why: BadSettings) -> Result<(), BadSettings> {
    if bad { Err(why) } else { Ok(()) }
}

fn probability(p: f64) -> Result<(), BadSettings> {
    refuse_if(!(0.0..=1.0).contains(&p), BadSettings::Probability(p))
}

impl FromStr for Sets {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<Self, BadSettings> {
        choose(text, &[("fixed", Self::Fixed), ("fresh", Self::Fresh)])
    }
}

impl FromStr for Workload {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<Self, BadSettings> {
        let all = [
            ("uniform", Self::Uniform),
            ("ring", Self::Ring),
            ("hot", Self::Hot),
            ("mix", Self::Mix),
        ];
        choose(text, &all)
    }
}

impl FromStr for Detector {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<Self, BadSettings> {
        choose(text, &[("departed", Self::Departed), ("reclaim", Self::Reclaim)])
    }
}

impl FromStr for FaultRate {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<Self, BadSettings> {
        let (stage, probability) = halves(text, "STAGE:P, such as waiting:0.1")?;
        let all = [("asking", Stage::Asking), ("waiting", Stage::Waiting), ("using", Stage::Using)];
        Ok(Self { stage: choose(stage, &all)?, probability: number(probability)? })
    }
}

impl FromStr for Told {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<Self, BadSettings> {
        let (one, other) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { one: number(one)?, other: number(other)? })
    }
}

impl FromStr for Spikes {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<Self, BadSettings> {
        let (probability, factor) = halves(text, "P:F, such as 0.01:20")?;
        Ok(Self { probability: number(probability)?, factor: number(factor)? })
    }
}

fn choose<T: Copy>(text: &str, all: &[(&'static str, T)]) -> Result<T, BadSettings> {
    all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let known = all.iter().map(|(name, _)| *name).collect();
        BadSettings::Word { text: text.into(), known }
    })
}

fn halves<'a>(text: &'a str, form: &'static str) -> Result<(&'a str, &'a str), BadSettings> {
    text.split_once(':').ok_or_else(|| BadSettings::Form { text: text.into(), form })
}

fn number<T: FromStr>(text: &str) -> Result<T, BadSettings> {
    text.parse().map_err(|_| BadSettings::Number(text.into()))
}
