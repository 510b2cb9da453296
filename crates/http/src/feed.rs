//! What those are told who listen: first everything, then what changes, and each line of the audit log.
//!
//! One task looks for all of them, and only while there is somebody: whenever the audit log has
//! grown, and now and then besides, it asks the agent for its status and tells what is different. So a
//! busy agent is asked a few times a second at most, however many listen. Whoever does not keep up is
//! dropped, and begins anew with everything.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{Mutex, broadcast};
use tracing::debug;

use crate::audit::{Audit, Line, Place};
use crate::caller::{Peer, Service};
use crate::link::Link;
use crate::problem::Problem;
use crate::view::{Agent, Grant, Pool, Status, Wait};

/// How often it is looked whether something has changed.
const TICK: Duration = Duration::from_millis(250);
/// How often the agent is asked although nothing was written: processes stop, drains run out.
const AT_LEAST: Duration = Duration::from_secs(5);
/// How many messages one who listens may be behind.
const BEHIND: usize = 64;
/// How many lines of the audit log are told at a time.
const LINES: usize = 1000;
/// Of how many that wait it is told each time that something else keeps them.
const FIRST: usize = 200;

/// Everything.
#[derive(Serialize)]
struct Snapshot<'a> {
    at: u64,
    /// Whether lines of the audit log are missing since the last time.
    missed: bool,
    agent: &'a Agent,
    #[serde(flatten)]
    status: &'a Status,
}

/// What is different.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Change<'a> {
    at: u64,
    pools: Vec<&'a Pool>,
    gone_pools: Vec<&'a str>,
    grants: Vec<&'a Grant>,
    ended: Vec<&'a str>,
    waiting: Vec<&'a Wait>,
    left: Vec<&'a str>,
    /// The order of service, if it is not that of before without those who left and with the new ones
    /// at the end.
    order: Option<Vec<&'a str>>,
}

impl Change<'_> {
    fn is_nothing(&self) -> bool {
        *self == Self { at: self.at, ..Self::default() }
    }
}

/// What is known while somebody listens.
struct Current {
    status: Status,
    place: Place,
    sender: broadcast::Sender<Bytes>,
}

/// The feed.
pub(crate) struct Feed {
    service: Arc<dyn Service>,
    own: Peer,
    audit: Audit,
    current: Mutex<Option<Current>>,
}

impl Feed {
    pub(crate) fn new(service: Arc<dyn Service>, own: Peer, audit: Audit) -> Self {
        Self { service, own, audit, current: Mutex::new(None) }
    }

    /// Begins to listen: what to say first, and where the rest comes from.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        agent: &Agent,
        last: Option<Place>,
    ) -> Result<(Vec<Bytes>, broadcast::Receiver<Bytes>), Problem> {
        let mut current = self.current.lock().await;
        let known = match &mut *current {
            Some(known) => known,
            none => {
                let place = self.audit.end();
                let status = self.look().await?;
                let sender = broadcast::Sender::new(BEHIND);
                tokio::spawn(self.clone().watch());
                none.insert(Current { status, place, sender })
            }
        };
        let missed = last.map(|last| self.lines(last, known.place));
        let snapshot = Snapshot {
            at: now(),
            missed: matches!(missed, Some(None)),
            agent,
            status: &known.status,
        };
        let mut first = vec![message("snapshot", known.place, &snapshot)];
        first.extend(missed.flatten().unwrap_or_default());
        Ok((first, known.sender.subscribe()))
    }

    async fn look(&self) -> Result<Status, Problem> {
        let mut link = Link::open(&*self.service, &self.own).await?;
        Ok(link.status(&[]).await?.into())
    }

    /// The lines between two places, as messages; none if the first is not known.
    fn lines(&self, from: Place, upto: Place) -> Option<Vec<Bytes>> {
        if from == upto {
            return Some(Vec::new());
        }
        let mut lines = self.audit.after(from).ok().flatten()?;
        if let Some(last) = lines.iter().position(|(_, after)| *after == upto) {
            lines.truncate(last + 1);
        }
        Some(messages(&lines))
    }

    /// Looks for changes until nobody listens any more.
    async fn watch(self: Arc<Self>) {
        let mut looked = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(TICK).await;
            let Some(place) = self.still_wanted().await else { return };
            let lines = if self.audit.end() == place { None } else { self.audit.after(place).ok() };
            let quiet = lines.is_none();
            if quiet && looked.elapsed() < AT_LEAST {
                continue;
            }
            // A status that takes long is asked for less often.
            let began = tokio::time::Instant::now();
            let status = self.look().await;
            looked = tokio::time::Instant::now();
            match status {
                Ok(status) => self.tell(status, lines.flatten().unwrap_or_default()).await,
                Err(problem) => {
                    debug!(?problem, "the status cannot be had; those who listen are let go");
                    *self.current.lock().await = None;
                    return;
                }
            }
            tokio::time::sleep(began.elapsed() * 4).await;
        }
    }

    /// Up to where the audit log was told; nowhere if nobody listens any more.
    async fn still_wanted(&self) -> Option<Place> {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|known| known.sender.receiver_count() == 0) {
            *current = None;
        }
        current.as_ref().map(|known| known.place)
    }

    async fn tell(&self, status: Status, lines: Vec<(Line, Place)>) {
        let mut current = self.current.lock().await;
        let Some(known) = &mut *current else { return };
        known.place = lines.last().map_or_else(
            || if known.place == Place::default() { self.audit.end() } else { known.place },
            |(_, after)| *after,
        );
        // If nobody listens any more, that is found out next time.
        for line in messages(&lines) {
            let _ = known.sender.send(line);
        }
        let change = difference(&known.status, &status, now());
        if !change.is_nothing() {
            let _ = known.sender.send(message("change", known.place, &change));
        }
        known.status = status;
    }
}

/// Lines as one piece, so that many of them do not leave others behind; of very many, the last.
fn messages(lines: &[(Line, Place)]) -> Vec<Bytes> {
    let left_out = lines.len().saturating_sub(LINES);
    let mut all = Vec::new();
    if left_out > 0 {
        let (line, place) = &lines[left_out - 1];
        let told = format!("{left_out} lines: they came too fast");
        all.extend(message("audit", *place, &Line::missing(line.at, &told)));
    }
    for (line, place) in &lines[left_out..] {
        all.extend(message("audit", *place, line));
    }
    if all.is_empty() { Vec::new() } else { vec![all.into()] }
}

fn message(event: &str, id: Place, data: &impl Serialize) -> Bytes {
    // Views can always be written; JSON has no line ends.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\nid: {id}\ndata: {data}\n\n").into()
}

/// What is different between then and now.
fn difference<'a>(then: &'a Status, now: &'a Status, at: u64) -> Change<'a> {
    let mut change = Change { at, ..Change::default() };
    (change.pools, change.gone_pools) =
        compare(&then.pools, &now.pools, |pool| &pool.name, |_, one, other| one == other);
    (change.grants, change.ended) =
        compare(&then.grants, &now.grants, |grant| &grant.request, |_, one, other| one == other);
    (change.waiting, change.left) = compare(
        &then.waiting,
        &now.waiting,
        |wait| &wait.request,
        |at, one, other| {
            if at < FIRST { one == other } else { one.is_as(other) }
        },
    );
    let left: HashSet<&str> = change.left.iter().copied().collect();
    let before: HashSet<&str> = then.waiting.iter().map(|wait| &*wait.request).collect();
    let kept = then.waiting.iter().map(|wait| &*wait.request).filter(|wait| !left.contains(wait));
    let new = now.waiting.iter().map(|wait| &*wait.request).filter(|wait| !before.contains(wait));
    if !kept.chain(new).eq(now.waiting.iter().map(|wait| &*wait.request)) {
        change.order = Some(now.waiting.iter().map(|wait| &*wait.request).collect());
    }
    change
}

/// What is new or another, and the names of what is gone.
fn compare<'a, T>(
    then: &'a [T],
    now: &'a [T],
    name: impl Fn(&'a T) -> &'a str,
    same: impl Fn(usize, &T, &T) -> bool,
) -> (Vec<&'a T>, Vec<&'a str>) {
    let mut before: HashMap<&str, &T> = then.iter().map(|one| (name(one), one)).collect();
    let mut new = Vec::new();
    for (at, one) in now.iter().enumerate() {
        let known = before.remove(name(one));
        if !known.is_some_and(|known| same(at, known, one)) {
            new.push(one);
        }
    }
    let gone = then.iter().map(name).filter(|name| before.contains_key(name)).collect();
    (new, gone)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use holdall_wire as wire;

    use super::*;

    fn status(order: &[u64]) -> Status {
        let wait = |n: &u64| wire::WaitView {
            request: wire::RequestNo(*n),
            needs: Vec::new(),
            who: wire::Who::default(),
            since: 0,
            within: None,
            part_of: None,
            hindrances: Vec::new(),
        };
        wire::Status { waiting: order.iter().map(wait).collect(), ..wire::Status::default() }.into()
    }

    #[test]
    fn the_order_of_service_can_be_followed() {
        let then = status(&[1, 2, 3]);
        let (next, jumped) = (status(&[1, 3, 4]), status(&[4, 1, 2, 3]));
        let change = difference(&then, &next, 0);
        assert_eq!((change.waiting.len(), &*change.left), (1, &["0-2"][..]));
        assert_eq!(change.order, None);
        let change = difference(&then, &jumped, 0);
        assert_eq!(change.order.as_deref(), Some(&["0-4", "0-1", "0-2", "0-3"][..]));
        assert!(difference(&then, &status(&[1, 2, 3]), 7).is_nothing());
    }
}
