//! The Standard Workload Format, in which logs of parallel machines are published.
//!
//! Source: the format's definition in the Parallel Workloads Archive (version 2.2). Comments begin with `;`, and some of them say what the machine has
//! (`; MaxProcs: 128`). A job is a line of 18 numbers, -1 where something is not known: 1 its number, 2 when it was
//! submitted, 3 how long it waited, 4 how long it ran, 5 the processors it got, 8 those it asked for, 11 its status (5 if it was
//! cancelled), 12 its user, 14 its program; times in seconds. The other fields do not matter here. A job that was interrupted has a line
//! for all of it, and one for each part, of status 2, 3 or 4: who studies the workload is to leave these out.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdall_core::{Need, Needs, PoolId};
use holdall_sim::{Asked, Fate, Trace, TracePool};

use crate::note::Note;
use crate::replay::{Asker, MOST_REQUESTS, Replay};

/// What the processors are called.
const POOL: &str = "processors";
const FIELDS: usize = 18;
/// What is larger is no number of anything: three thousand years, in seconds.
const LARGEST: f64 = 1e11;
/// The status of a job that was cancelled.
const CANCELLED: f64 = 5.0;
/// Those of a part of a job: it goes on later, it was the last one, or the job failed in it.
const PARTS: [f64; 3] = [2.0, 3.0, 4.0];

/// Why there is nothing to play.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSwf {
    /// No line is a job.
    #[error(
        "no line is a job of the Standard Workload Format: 18 numbers, comments begin with ';'"
    )]
    Empty,
    /// Lines are jobs, but none can be played.
    #[error("none of its {0} jobs can be played; of most: {1}")]
    Unplayed(usize, &'static str),
    /// It would take days to play.
    #[error("it has more than {MOST_REQUESTS} jobs, and no more are played: give a part of it")]
    TooMany,
}

/// Why a job is left out.
const UNKNOWN: &str =
    "when they were submitted, how long they ran, or on how many processors, is not known";
/// Why a line is left out.
const PART: &str = "they are parts of jobs that are told as a whole";
/// If so many lines are none and no job was among them, it is something else.
const MOST_BAD: usize = 1000;
/// What is said of the machine and matters here.
const HEADS: [&str; 3] = ["MaxProcs", "MaxNodes", "UnixStartTime"];

/// What a line tells.
enum Row {
    Job(Job),
    /// A job that cannot be played, and why.
    Unplayed(&'static str),
}

/// The fields of a job that matter.
#[derive(Debug)]
struct Job {
    submitted: u64,
    waited: Option<u64>,
    ran: Option<u64>,
    processors: u32,
    cancelled: bool,
    user: i64,
    program: i64,
}

/// Reads a log.
#[cfg(test)]
fn parse(file: &str, text: &str) -> Result<Replay, BadSwf> {
    let mut jobs = Jobs::default();
    for (line, number) in text.lines().zip(1..) {
        jobs.add(number, line)?;
    }
    jobs.finish(file)
}

/// The jobs of a log, put in one line after another.
#[derive(Default)]
pub(crate) struct Jobs {
    head: BTreeMap<String, u64>,
    jobs: Vec<Job>,
    /// How many lines are no jobs, and the first of them; and how many jobs cannot be played, and why.
    bad: usize,
    first_bad: usize,
    unplayed: BTreeMap<&'static str, usize>,
}

impl Jobs {
    /// Whether none was found so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.unplayed.is_empty()
    }

    /// Takes in a line.
    ///
    /// # Errors
    /// If there are too many jobs, or this is something else.
    pub(crate) fn add(&mut self, number: usize, line: &str) -> Result<(), BadSwf> {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            let parts = comment.split_once(':');
            let value = parts.and_then(|(_, value)| value.split_whitespace().next()?.parse().ok());
            let value = value.filter(|value| *value <= LARGEST as u64);
            let told = parts.zip(value).map(|((key, _), value)| (key.trim().to_owned(), value));
            self.head.extend(told.filter(|(key, _)| HEADS.contains(&key.as_str())));
            return Ok(());
        }
        match job(line) {
            _ if line.is_empty() => {}
            None => {
                self.first_bad = if self.bad == 0 { number } else { self.first_bad };
                self.bad += 1;
            }
            Some(Row::Unplayed(why)) => *self.unplayed.entry(why).or_default() += 1,
            Some(Row::Job(job)) => self.jobs.push(job),
        }
        match self.jobs.len() {
            0 if self.bad >= MOST_BAD => Err(BadSwf::Empty),
            jobs if jobs > MOST_REQUESTS => Err(BadSwf::TooMany),
            _ => Ok(()),
        }
    }

    /// Nothing follows.
    ///
    /// # Errors
    /// If there are no jobs.
    pub(crate) fn finish(mut self, file: &str) -> Result<Replay, BadSwf> {
        if self.jobs.is_empty() {
            let jobs = self.unplayed.values().sum();
            let most = self.unplayed.iter().max_by_key(|(_, jobs)| **jobs);
            return Err(most.map_or(BadSwf::Empty, |(why, _)| BadSwf::Unplayed(jobs, why)));
        }
        let mut notes = Vec::new();
        if self.bad > 0 {
            let (line, lines) = (self.first_bad, self.bad);
            notes.push(Note::Unreadable { file: file.into(), line, lines });
        }
        let left_out = |(why, requests)| Note::LeftOut { requests, why };
        notes.extend(std::mem::take(&mut self.unplayed).into_iter().map(left_out));
        self.jobs.sort_by_key(|job| job.submitted);
        Ok(replay(&self.jobs, &self.head, notes))
    }
}

/// What a line tells, if it is a job.
fn job(line: &str) -> Option<Row> {
    let fields: Vec<f64> =
        line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let fields = <[f64; FIELDS]>::try_from(fields).ok()?;
    if fields.iter().any(|value| value.is_nan() || value.abs() > LARGEST) {
        return None;
    }
    let known = |number: usize| Some(fields[number - 1]).filter(|value| *value >= 0.0);
    let millis = |number: usize| known(number).map(|seconds| (seconds * 1000.0).round() as u64);
    let processors = [5, 8].into_iter().filter_map(known).find(|processors| *processors > 0.0);
    let status = known(11);
    if status.is_some_and(|status| PARTS.contains(&status)) {
        return Some(Row::Unplayed(PART));
    }
    let cancelled = status == Some(CANCELLED) && known(4).is_none_or(|ran| ran == 0.0);
    let (Some(submitted), Some(processors)) = (millis(2), processors) else {
        return Some(Row::Unplayed(UNKNOWN));
    };
    if millis(4).is_none() && !cancelled {
        return Some(Row::Unplayed(UNKNOWN));
    }
    Some(Row::Job(Job {
        submitted,
        waited: millis(3),
        ran: millis(4),
        processors: processors.min(f64::from(u32::MAX)) as u32,
        cancelled,
        user: fields[11] as i64,
        program: fields[13] as i64,
    }))
}

fn replay(jobs: &[Job], head: &BTreeMap<String, u64>, mut notes: Vec<Note>) -> Replay {
    let most = jobs.iter().map(|job| job.processors).max().unwrap_or(1);
    let told = ["MaxProcs", "MaxNodes"].into_iter().filter_map(|key| head.get(key));
    let told = told.filter_map(|units| u32::try_from(*units).ok()).find(|units| *units > 0);
    let capacity = told.unwrap_or(most);
    let pool: holdall_wire::Name = POOL.parse().expect("a name");
    let too_large = jobs.iter().filter(|job| job.processors > capacity).count();
    if too_large > 0 {
        notes.push(Note::Clamped { pool: pool.clone(), units: capacity, requests: too_large });
    }
    if told.is_none() {
        notes.push(Note::Guessed { pool: pool.clone(), units: capacity });
    }
    let begin = jobs.first().map_or(0, |job| job.submitted);
    let mut users: BTreeMap<i64, u32> = BTreeMap::new();
    let (mut requests, mut recorded, mut askers) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        let next = users.len() as u32;
        let user = *users.entry(job.user).or_insert(next);
        let at = job.submitted - begin;
        let needs = vec![Need::any(PoolId(0), job.processors.min(capacity))];
        let needs = Needs::new(needs).expect("one need of at least one unit");
        let service = job.ran.unwrap_or(0);
        let patience = if job.cancelled { Some(job.waited.unwrap_or(0)) } else { None };
        let granted = job.waited.filter(|_| !job.cancelled).map(|waited| at + waited);
        let ended =
            granted.map(|granted| granted + service).or_else(|| patience.map(|span| at + span));
        requests.push(Asked { at, needs, service, patience, user });
        recorded.push(Some(Fate { granted, ended }));
        let text = |what: &str, n: i64| (n >= 0).then(|| Arc::from(format!("{what} {n}")));
        let (user, name) = (text("user", job.user), text("program", job.program));
        askers.push(Asker { user, name, command: None });
    }
    let last = recorded.iter().flatten().filter_map(|fate| fate.ended).max();
    let submitted = requests.last().map_or(0, |asked| asked.at);
    Replay {
        counted: vec![true; requests.len()],
        of: (0..requests.len()).collect(),
        trace: Trace {
            pools: vec![TracePool { capacity, listed: false }],
            requests,
            watched: None,
        },
        pools: vec![pool],
        locks: std::collections::BTreeSet::new(),
        askers,
        recorded,
        begin: head.get("UnixStartTime").map_or(0, |start| start * 1000) + begin,
        length: last.unwrap_or(0).max(submitted) + 1,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
; Version: 2.2
; Computer: made up for a test
; UnixStartTime: 1000
; MaxProcs: 64
;   1  2  3  4  5 ...
  1    0    0  100   32  -1 -1   32  -1 -1 1   3  1  7 1 -1 -1 -1
  2   10   90   50   64  -1 -1   64  -1 -1 1   4  1  7 1 -1 -1 -1
  3   20   30   -1   -1  -1 -1   16  -1 -1 5   3  1 -1 1 -1 -1 -1
  4   25   -1   10   -1  -1 -1  128  -1 -1 0  -1 -1 -1 1 -1 -1 -1
  5   30   -1   -1   -1  -1 -1    8  -1 -1 -1  3  1 -1 1 -1 -1 -1
  6   31   too few
  7   1e300 -1  inf   nan  -1 -1    8  -1 -1 -1  3  1 -1 1 -1 -1 -1
";

    #[test]
    fn jobs_are_requests_for_processors() {
        let replay = parse("log", LOG).expect("jobs");
        let Trace { pools, requests, .. } = &replay.trace;
        assert_eq!(pools[..], [TracePool { capacity: 64, listed: false }]);
        let seen: Vec<_> = requests
            .iter()
            .map(|r| (r.at, r.needs[0].units, r.service, r.patience, r.user))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 32, 100_000, None, 0),
                (10_000, 64, 50_000, None, 1),
                (20_000, 16, 0, Some(30_000), 0),
                (25_000, 64, 10_000, None, 2),
            ]
        );
        let fates: Vec<_> =
            replay.recorded.iter().flatten().map(|f| (f.granted, f.ended)).collect();
        assert_eq!(fates[1], (Some(100_000), Some(150_000)));
        assert_eq!(fates[2], (None, Some(50_000)));
        assert_eq!(replay.begin, 1_000_000);
        assert_eq!(replay.askers[0].name.as_deref(), Some("program 7"));
        assert_eq!(replay.askers[3].user, None);
        assert_eq!(
            replay.notes,
            [
                Note::Unreadable { file: "log".into(), line: 11, lines: 2 },
                Note::LeftOut { requests: 1, why: UNKNOWN },
                Note::Clamped {
                    pool: "processors".parse().expect("a name"),
                    units: 64,
                    requests: 1
                },
            ]
        );
        assert!(matches!(parse("log", "; nothing\n"), Err(BadSwf::Empty)));
        assert!(matches!(parse("log", "1 2 3\n"), Err(BadSwf::Empty)));
        let unknown = "1 0 0 1 -1 -1 -1 -1 -1 -1 1 3 1 7 1 -1 -1 -1\n".repeat(2);
        assert_eq!(parse("log", &unknown).err(), Some(BadSwf::Unplayed(2, UNKNOWN)));
    }

    #[test]
    fn a_job_that_was_interrupted_is_played_once() {
        // All of it, and two parts; of the second it is not told when it was submitted.
        let job = |submitted: i64, ran: u32, status: u32| {
            format!("1 {submitted} 5 {ran} 8 -1 -1 8 -1 -1 {status} 3 1 7 1 -1 -1 -1\n")
        };
        let (first, last) = (job(0, 60, 2), job(-1, 40, 3));
        let replay = parse("log", &(job(0, 100, 1) + &first + &last)).expect("a job");
        let services: Vec<_> = replay.trace.requests.iter().map(|asked| asked.service).collect();
        assert_eq!(services, [100_000]);
        assert!(replay.notes.contains(&Note::LeftOut { requests: 2, why: PART }), "{replay:?}");
        let parts = parse("log", &(first.clone() + &last)).expect_err("there is no whole job");
        assert_eq!(parts, BadSwf::Unplayed(2, PART));
        let unknown = "1 0 0 1 -1 -1 -1 -1 -1 -1 1 3 1 7 1 -1 -1 -1\n";
        let both = parse("log", &(first + &last + unknown)).expect_err("there is no whole job");
        assert_eq!(both, BadSwf::Unplayed(3, PART));
    }

    #[test]
    fn what_is_no_log_or_too_much_is_not_read_to_its_end() {
        let mut jobs = Jobs::default();
        let taken = (1..).map_while(|n| jobs.add(n, "what is this").ok()).count();
        assert_eq!(taken, MOST_BAD - 1);
        let mut jobs = Jobs::default();
        let line = "1 0 0 1 1 -1 -1 1 -1 -1 1 3 1 7 1 -1 -1 -1";
        let taken = (1..).map_while(|n| jobs.add(n, line).ok()).count();
        assert_eq!(taken, MOST_REQUESTS);
    }
}
