//! What came of a play, beside what the simulator says of it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use holdall_sim::{Report, run_graph};
use serde::Serialize;

use crate::cast::Cast;
use crate::clock::{MICROSECOND, Nanos, SECOND};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::stage::Performance;

/// What came of a play. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The name of the protocol.
    pub protocol: String,
    /// How long it lasted, in seconds.
    pub seconds: f64,
    /// Whether somebody ended it before its time.
    pub early: bool,
    /// How many processes with roles there were at the end.
    pub processes: usize,
    /// How long a message took from role to role, on average, if there was one.
    pub delay: Option<f64>,
    /// How long clients thought, on average.
    pub think: f64,
    /// How long they used a pool, on average.
    pub service: f64,
    /// Clients that left.
    pub left: u64,
    /// Clients that were killed.
    pub stopped: u64,
    /// What happened.
    pub measured: Figures,
    /// What the simulator says, with the same sets and the times measured; nothing if it says that the
    /// protocol goes wrong, or if a signal came before it was ready.
    pub predicted: Option<Figures>,
}

/// The figures of a play or of a simulation. Times are in milliseconds. Waits are those of requests
/// that were asked for after the first fifth of the time, and granted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Requests granted.
    pub grants: u64,
    /// Requests granted in a second.
    pub grants_per_second: f64,
    /// How long they waited, on average.
    pub wait_mean: Option<f64>,
    /// Half of them waited at most this long.
    pub wait_p50: Option<f64>,
    /// 99 % of them waited at most this long.
    pub wait_p99: Option<f64>,
    /// The longest wait.
    pub wait_max: Option<f64>,
    /// Requests that wait at the end.
    pub unfinished: u64,
    /// How long the oldest of them has waited.
    pub unfinished_longest: Option<f64>,
    /// Messages between processes for each grant.
    pub messages_per_grant: Option<f64>,
    /// Jain's index of the clients' grants: 1 if all got the same number.
    pub jain: Option<f64>,
}

const NANOS_A_MILLISECOND: f64 = 1e6;
const TICKS_A_MILLISECOND: f64 = 1e3;
/// Waits of requests asked for in the first of so many parts do not count.
const WARM_UP: Nanos = 5;

/// How often to look for a signal.
const PAUSE: Duration = Duration::from_millis(20);

/// Compares what was seen with what the simulator says.
pub(crate) fn outcome(
    cast: &Cast,
    settings: &Settings,
    seen: &Performance,
    signals: &mut Signals,
) -> Outcome {
    let scaled = |ticks: u32, factor: f64| f64::from(ticks) * factor / TICKS_A_MILLISECOND;
    let workload = &settings.workload;
    let think = scaled(workload.think, seen.seen.think.factor());
    let service = scaled(workload.service, seen.seen.service.factor());
    let delay = seen.seen.delays.mean().map(|nanos| nanos / NANOS_A_MILLISECOND);
    let predicted = predict(cast, settings, seen, [delay.unwrap_or(0.0), think, service], signals);
    Outcome {
        protocol: cast.name().into(),
        seconds: (seen.ended - seen.began) as f64 / SECOND as f64,
        early: seen.early,
        processes: seen.processes,
        delay,
        think,
        service,
        left: seen.seen.left,
        stopped: seen.stopped,
        measured: measure(seen),
        predicted,
    }
}

fn measure(seen: &Performance) -> Figures {
    let length = seen.ended - seen.began;
    let from = seen.began + length / WARM_UP;
    let late = seen.seen.grants.iter().filter(|(asked, _)| *asked >= from);
    let mut waits: Vec<Nanos> = late.map(|(_, waited)| *waited).collect();
    waits.sort_unstable();
    let milliseconds = |nanos: Nanos| nanos as f64 / NANOS_A_MILLISECOND;
    let percentile = |percent: usize| {
        let rank = (waits.len() * percent).div_ceil(100).checked_sub(1)?;
        waits.get(rank).copied().map(milliseconds)
    };
    let sum: Nanos = waits.iter().sum();
    let grants = seen.seen.grants.len() as u64;
    let oldest = seen.waiting.iter().min();
    Figures {
        grants,
        grants_per_second: grants as f64 * SECOND as f64 / length as f64,
        wait_mean: (!waits.is_empty()).then(|| milliseconds(sum) / waits.len() as f64),
        wait_p50: percentile(50),
        wait_p99: percentile(99),
        wait_max: waits.last().copied().map(milliseconds),
        unfinished: seen.waiting.len() as u64,
        unfinished_longest: oldest.map(|since| milliseconds(seen.ended.saturating_sub(*since))),
        messages_per_grant: (grants > 0).then(|| seen.seen.messages as f64 / grants as f64),
        jain: jain(&seen.grants),
    }
}

fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Simulates the same with the delay, think and service times that were measured. A client that
/// stops is noticed as fast as a message. A simulation that nobody waits for any more ends with the program.
fn predict(
    cast: &Cast,
    settings: &Settings,
    seen: &Performance,
    times: [f64; 3],
    signals: &mut Signals,
) -> Option<Figures> {
    let [delay, think, service] =
        times.map(|milliseconds| (milliseconds * TICKS_A_MILLISECOND).round() as u32);
    let ticks = ((seen.ended - seen.began) / MICROSECOND).max(1);
    let workload = holdall_sim::Settings {
        delay,
        think,
        service,
        ticks,
        detect: delay,
        graphs: 1,
        ..settings.workload.clone()
    };
    let contender = cast.contender().clone();
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || {
        let report = run_graph(&workload, &contender, 0).ok();
        let sound = report.filter(|report| report.violations == 0);
        let _ = answer.send(sound.map(|report| figures(&report, ticks)));
    });
    let before = signals.came();
    loop {
        match answered.recv_timeout(PAUSE) {
            Ok(figures) => return figures,
            Err(RecvTimeoutError::Timeout) if signals.came() == before => {}
            Err(_) => return None,
        }
    }
}

fn figures(report: &Report, ticks: u64) -> Figures {
    let milliseconds = |ticks: f64| ticks / TICKS_A_MILLISECOND;
    let whole = |ticks: Option<u64>| ticks.map(|ticks| milliseconds(ticks as f64));
    Figures {
        grants: report.grants,
        grants_per_second: report.grants as f64 * 1000.0 / milliseconds(ticks as f64),
        wait_mean: report.response.mean.map(milliseconds),
        wait_p50: whole(report.response.p50),
        wait_p99: whole(report.response.p99),
        wait_max: whole(report.response.max),
        unfinished: report.unfinished,
        unfinished_longest: whole(report.unfinished_longest),
        messages_per_grant: report.messages_per_grant,
        jain: report.jain,
    }
}
