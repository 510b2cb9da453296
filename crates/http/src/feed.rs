//! What those are told who listen: first everything, then what changes, and each line of the audit log.
//!
//! One task looks for all of them, and only while there is somebody: whenever something has happened in the
//! agent or was written to the audit log, and now and then besides, it asks the agent for its status and tells what is different. So a
//! busy agent is asked a few times a second at most, however many listen. Whoever does not keep up is
//! dropped, and begins anew with everything.
//!
//! Lines come from the files of the audit log, since these outlive the agent: whoever comes back is told what it has
//! missed, whichever agent it listened to, as far as it may see the past. (What happens now, whoever may look sees.) Nothing is missed or told twice: somebody is told everything as it is known
//! at a place in the log, and begins to listen there at the same moment.
//!
//! What waits for the disk, or takes long, is done on other threads than that of the gateway.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use holdall_wire as wire;
use serde::Serialize;
use tokio::sync::{Mutex, broadcast};
use tracing::debug;

use crate::audit::{Audit, Line, Place, Reader, Since, unreadable};
use crate::caller::{Peer, Service};
use crate::link::Link;
use crate::problem::Problem;
use crate::threads::off_thread;
use crate::view::{Agent, Grant, Pool, Status, Wait};

/// How often it is looked whether something has changed.
const TICK: Duration = Duration::from_millis(250);
/// How often the agent is asked although nothing has happened: processes stop.
const AT_LEAST: Duration = Duration::from_secs(5);
/// How many messages one who listens may be behind.
const BEHIND: usize = 64;
/// How many bytes of lines of the audit log are told at a time.
const LINES: usize = 256 << 10;
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
    status: Arc<Status>,
    /// The audit log is told up to here.
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

/// What the next look is compared with.
#[derive(PartialEq)]
struct Seen {
    happened: u64,
    written: Option<(u64, u64)>,
}

impl Feed {
    pub(crate) fn new(service: Arc<dyn Service>, own: Peer, audit: Audit) -> Self {
        Self { service, own, audit, current: Mutex::new(None) }
    }

    /// Begins to listen: what to say first, and where the rest comes from.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        agent: Agent,
        reader: Reader,
        last: Option<Place>,
    ) -> Result<(Bytes, broadcast::Receiver<Bytes>), Problem> {
        let mut current = self.current.lock().await;
        let known = match &mut *current {
            Some(known) => known,
            none => {
                let seen = self.seen();
                let audit = self.audit.clone();
                let place =
                    off_thread(move || audit.end()).await?.map_err(|error| unreadable(&error))?;
                let status = self.look().await?;
                let status = off_thread(move || Arc::new(status.into())).await?;
                let sender = broadcast::Sender::new(BEHIND);
                tokio::spawn(self.clone().watch(seen));
                none.insert(Current { status, place, sender })
            }
        };
        let (status, place) = (known.status.clone(), known.place);
        let receiver = known.sender.subscribe();
        drop(current);
        let audit = self.audit.clone();
        let first =
            off_thread(move || first(&audit, &agent, &reader, &status, last, place)).await?;
        Ok((first, receiver))
    }

    async fn look(&self) -> Result<wire::Status, Problem> {
        Link::open(&*self.service, &self.own).await?.status(&[]).await
    }

    fn seen(&self) -> Seen {
        Seen { happened: self.service.happened(), written: self.audit.version() }
    }

    /// Looks for changes until nobody listens any more.
    async fn watch(self: Arc<Self>, mut seen: Seen) {
        let mut looked = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(TICK).await;
            let Some((then, place)) = self.still_wanted().await else { return };
            let now = self.seen();
            if now == seen && looked.elapsed() < AT_LEAST {
                continue;
            }
            // A status that takes long is asked for less often.
            let began = tokio::time::Instant::now();
            let told = match self.look().await {
                Ok(status) => {
                    let audit = self.audit.clone();
                    off_thread(move || News::new(&audit, place, &then, status.into())).await
                }
                Err(problem) => Err(problem),
            };
            match told {
                Ok(news) => self.tell(news).await,
                Err(problem) => {
                    debug!(?problem, "the status cannot be had; those who listen are let go");
                    *self.current.lock().await = None;
                    return;
                }
            }
            (looked, seen) = (tokio::time::Instant::now(), now);
            tokio::time::sleep(began.elapsed() * 4).await;
        }
    }

    /// What was told so far; nothing if nobody listens any more.
    async fn still_wanted(&self) -> Option<(Arc<Status>, Place)> {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|known| known.sender.receiver_count() == 0) {
            *current = None;
        }
        current.as_ref().map(|known| (known.status.clone(), known.place))
    }

    async fn tell(&self, news: News) {
        let mut current = self.current.lock().await;
        let Some(known) = &mut *current else { return };
        // If nobody listens any more, that is found out next time.
        for message in news.messages {
            let _ = known.sender.send(message);
        }
        (known.status, known.place) = (news.status, news.place);
    }
}

/// What one who begins to listen is told at first.
fn first(
    audit: &Audit,
    agent: &Agent,
    reader: &Reader,
    status: &Status,
    last: Option<Place>,
    place: Place,
) -> Bytes {
    let since = match last.map(|last| audit.after(last, Some(place))) {
        None => Since::default(),
        // A place that is not known is one since which something is missing.
        Some(found) => {
            found.ok().flatten().unwrap_or_else(|| Since { left_out: 1, ..Since::default() })
        }
    };
    let snapshot = Snapshot { at: now(), missed: since.left_out > 0, agent, status };
    let mut all = message("snapshot", place, &snapshot);
    for (line, place) in since.lines {
        all += &message("audit", place, &reader.told(line));
    }
    all.into()
}

/// What has become of everything since the last look.
struct News {
    messages: Vec<Bytes>,
    status: Arc<Status>,
    place: Place,
}

impl News {
    fn new(audit: &Audit, place: Place, then: &Status, status: Status) -> Self {
        let (lines, place) = match audit.after(place, None) {
            Ok(Some(since)) => (lines(&since), since.end),
            // Somebody has put another log in its place. What it has is not what happened now.
            Ok(None) => {
                let end = audit.end().unwrap_or_default();
                (missing(end, now(), "the audit log is another one now"), end)
            }
            // It can perhaps be read next time.
            Err(error) => {
                debug!("the audit log cannot be read: {error}");
                (String::new(), place)
            }
        };
        let mut messages: Vec<Bytes> = Vec::new();
        if !lines.is_empty() {
            messages.push(lines.into());
        }
        let change = difference(then, &status, now());
        if !change.is_nothing() {
            messages.push(message("change", place, &change).into());
        }
        Self { messages, status: Arc::new(status), place }
    }
}

/// Lines as one piece, so that many of them do not leave others behind; of very many, the last.
fn lines(since: &Since) -> String {
    let told = since.lines.iter().map(|(line, place)| message("audit", *place, line));
    let told: Vec<String> = told.collect();
    let mut room = LINES;
    let fits = |text: &&String| room.checked_sub(text.len()).inspect(|left| room = *left).is_some();
    let fitting = told.iter().rev().take_while(fits).count();
    let left_out = told.len() - fitting;
    let mut all = String::new();
    if left_out > 0 || since.left_out > 0 {
        let last = since.lines.get(left_out.saturating_sub(1));
        let (at, place) =
            last.map_or_else(|| (now(), since.end), |(line, place)| (line.at, *place));
        let bytes =
            since.left_out + told[..left_out].iter().map(|one| one.len() as u64).sum::<u64>();
        all += &missing(place, at, &format!("{bytes} bytes of lines: they came too fast"));
    }
    all.extend(told.into_iter().skip(left_out));
    all
}

/// A message that says what is missing.
fn missing(place: Place, at: u64, what: &str) -> String {
    message("audit", place, &Line::missing(at, what))
}

fn message(event: &str, id: Place, data: &impl Serialize) -> String {
    // Views can always be written; JSON has no line ends.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\nid: {id}\ndata: {data}\n\n")
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
