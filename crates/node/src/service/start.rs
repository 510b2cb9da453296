//! How a service comes to be: what the log leads to, and what is to be seen to since.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdall_cell::books::Ties;
use holdall_cell::engine::Member;
use holdall_cell::greeting::Presence;
use holdall_cell::replay::Replayed;
use holdall_cell::session::SessionId;
use holdall_cell::{Cluster, Declared, Input, Limits, Start, events};
use holdall_holders::boot;
use holdall_log::{Index, Log, Lost, Memory, Opened};
use holdall_wire::{Change, Name};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, Semaphore};
use tracing::{error, info, warn};

use super::cells::{Cells, cluster};
use super::connection::VISITORS;
use super::host::Host;
use super::memory::{Awaited, await_forgotten};
use super::names::{self, Names};
use super::quota::Quota;
use super::replaying::of_log;
use super::round::Round;
use super::{Service, Shared, dump, files_for_clients};
use crate::clock::{Clock, clamp};
use crate::cluster::Known;
use crate::cluster::behind::{Behind, FOREVER};
use crate::cluster::identity::Loss;
use crate::config::Config;
use crate::data::Data;
use crate::history::{Before, History};
use crate::hosted::Hosted;
use crate::hosted::children::Children;
use crate::hosted::prepared::Begun;
use crate::import::{self, HOLDERS, STATE};

/// How long what follows from a start may take to be written.
const FIRST_ROUND: Duration = Duration::from_secs(20);

impl Service {
    /// A service that goes on from where the one before was, in the same directory; with the connections
    /// of some sessions, if it is in the same process.
    ///
    /// # Errors
    /// If the log cannot be understood.
    pub(crate) async fn new(
        data: Data,
        (log, opened, begun): (Box<dyn Log>, Opened, Option<Begun>),
        config: Config,
        socket: &Path,
        kept: Vec<SessionId>,
        known: Option<&Known>,
        hosted: Option<Hosted>,
    ) -> anyhow::Result<Shared> {
        tell(&opened);
        let children = Children::new(data.dir().path(), config.cluster.lease_seconds);
        let clock = Clock::new();
        let begun = match begun {
            Some(begun) => begun,
            None => {
                let (dir, snapshot) = (data.dir(), opened.snapshot.as_ref());
                Begun::new(dir, &config, opened.identity, snapshot, &clock)?
            }
        };
        let Begun { kept: noted, mut replaying, audit, rights, containment } = begun;
        replaying.take(&opened.records)?;
        let (Replayed { cell, from_facts, diverged }, before) = replaying.finish()?;
        if let Some(diverged) = &diverged {
            error!(
                "the log does not lead to what it led to before; going on from what came of it: {diverged}"
            );
            data.report("diverged.txt", &diverged.to_string());
        }
        dump::note_in(data.dir());
        let history = noted.map(|noted| {
            let standing = events::standing(cell.books());
            let before = Before { standing, now: clock.wall(), ..before };
            History::start(data.dir().path(), noted, of_log(opened.identity), before)
        });
        let known = of_this_cell(known, cell.books().ties(), &opened)?;
        let known = known.as_ref();
        if let (Some(known), None) = (known, &hosted)
            && let Some(twin) = data.beside_as_member(socket)?
        {
            known.keep_beside(&twin)?;
        }
        let behind = match hosted {
            None => Behind::noted(data.dir(), opened.life.0)?,
            Some(_) => None,
        };
        let behind = behind.map(|behind| behind.told(data.dir().path()));
        behind.iter().for_each(|why| error!("{why}"));
        let host = Host::new(cell, log, &opened, config.snapshots());
        let limits = config.limits;
        let history = history.transpose()?;
        let cells = known.map(|known| cells_of(known, &opened, &clock)).transpose()?;
        if let (Some(cells), Some(_)) = (&cells, &hosted) {
            cells.greeter.is_replicated();
        }
        let service = Rc::new_cyclic(|me| {
            RefCell::new(Self {
                me: me.clone(),
                host,
                data,
                config,
                since: clock.wall(),
                clock,
                deadline: None,
                audit,
                history,
                readers: Arc::new(Semaphore::new(1)),
                containment,
                peers: FxHashMap::default(),
                sessions: FxHashMap::default(),
                watched: BTreeMap::new(),
                holders: FxHashMap::default(),
                known: FxHashMap::default(),
                awaited: Awaited::of(behind),
                turns: BTreeMap::new(),
                user_names: Rc::new(Names::new(names::look_up)),
                rights,
                last_peer: 0,
                connections: Quota::new(usize::MAX, limits.connections),
                visitors: Quota::new((files_for_clients() / 32).max(2), VISITORS),
                files: Quota::of_two_thirds(files_for_clients()),
                // Apart, so that whoever has asked too much can still see what it has asked.
                requests: Quota::new(limits.memory_bytes / 2, usize::MAX),
                traffic: Quota::new(limits.memory_bytes / 2, usize::MAX),
                ended: VecDeque::new(),
                round: Round::default(),
                snapshots: 0,
                inputs: VecDeque::new(),
                stepping: false,
                admitted: None,
                timers: BTreeMap::new(),
                epoch: opened.epoch,
                listens: true,
                draining: false,
                drainers: Vec::new(),
                restarting: None,
                end: None,
                changed: Rc::new(Notify::new()),
                moment: None,
                touched: Instant::now(),
                socket: socket.to_owned(),
                no_http: None,
                happened: Arc::default(),
                host_name: rustix::system::uname().nodename().to_string_lossy().into(),
                cells,
                hosted,
                noted: None,
                children,
            })
        });
        service.borrow().stay_alone();
        let imported = begin(&service, &opened, from_facts, &kept, known).await?;
        let is_lost = matches!(opened.memory, Memory::Lost(lost) if lost != Lost::Rebooted);
        let (grace, of_others) = what_others_have(&service).await?;
        let is_behind = service.borrow().awaited.is_behind();
        if !is_behind && (is_lost && !imported || of_others.is_some()) {
            await_forgotten(&service, grace, of_others).await?;
        }
        service.borrow_mut().snapshot_if_scattered()?;
        Ok(service)
    }

    /// Takes in what the books say, before anything is added to them.
    fn remember_all(&mut self) {
        for (session, means) in self.books().sessions().means().collect::<Vec<_>>() {
            let uid = self.books().sessions().uid(session).unwrap_or_default();
            self.know_session(session, uid, means);
        }
        let grants = self.books().grants().map(|(request, entry, _)| (request, entry.clone()));
        let waiting = self.books().waiting().map(|(request, entry)| (request, entry.clone()));
        let all: Vec<_> = grants.chain(waiting).collect();
        // What other homes hold costs nobody here anything.
        let own =
            all.into_iter().filter(|(request, _)| self.books().ties().foreign(*request).is_none());
        for (request, entry) in own.collect::<Vec<_>>() {
            let session = entry.session.map(|(session, _)| session);
            self.know(request, session, &entry.who, &entry.ask);
            if let Some(known) = self.known.get_mut(&request) {
                known.left = entry.left.is_some();
            }
            // What is left behind is looked for when it is waited for.
            let record = entry.holder.as_ref().filter(|_| entry.left.is_none());
            if let Some(holder) = record.and_then(|record| self.containment.find_again(record)) {
                self.holders.insert(request, Rc::new(holder));
            }
        }
    }

    /// Tells the cell that its host has started. What an agent without a log has left is taken over first; the
    /// record that says so is returned.
    fn begin(
        &mut self,
        opened: &Opened,
        from_facts: bool,
        kept: &[SessionId],
        known: Option<&Known>,
    ) -> anyhow::Result<Option<Index>> {
        self.remember_all();
        self.remember_cells();
        let imported = self.import(opened)?;
        // Whatever broke it would break it again: its engine is built anew.
        let broke = self.data.take_dump(opened.epoch)?;
        let rebuilt = from_facts || broke.is_some() || imported.is_some();
        self.start(opened, rebuilt, kept, known)?;
        if let Some((session, call)) = broke.and_then(|dump| dump.culprit) {
            self.input(Input::Spare { session, call });
        }
        let entries = self.books().grants().map(|(_, entry, _)| entry);
        let in_use: Vec<_> = entries.filter_map(|entry| entry.holder.as_deref().cloned()).collect();
        self.containment.sweep(&in_use);
        self.end_round();
        Ok(imported)
    }

    /// Has the cell look once more at the configuration.
    fn begin_again(
        &mut self,
        opened: &Opened,
        kept: &[SessionId],
        known: Option<&Known>,
    ) -> anyhow::Result<()> {
        self.start(opened, false, kept, known)?;
        self.end_round();
        // Its name would mean something else.
        if let Some(missing) = self.missing_pool()? {
            anyhow::bail!(
                "pool '{missing}' of the configuration does not fit the pools and locks that are in \
                 use; wait until these are given back, or change the configuration back"
            );
        }
        Ok(())
    }

    fn start(
        &mut self,
        opened: &Opened,
        rebuilt: bool,
        kept: &[SessionId],
        known: Option<&Known>,
    ) -> anyhow::Result<()> {
        if !kept.is_empty() {
            self.input(Input::Keep { epoch: opened.epoch, sessions: kept.to_vec() });
        }
        self.input(Input::Started(Box::new(self.started(opened, rebuilt, known)?)));
        Ok(())
    }

    /// A pool of the configuration that is not there.
    fn missing_pool(&self) -> anyhow::Result<Option<Name>> {
        let declared = self.config.pools()?.into_iter().filter_map(|change| match change {
            Change::Add { name, .. } => Some(name),
            _ => None,
        });
        Ok(declared.into_iter().find(|name| self.engine().kind(name).is_none()))
    }

    /// Takes over what an agent without a log has left, if this is the first start with one.
    fn import(&mut self, opened: &Opened) -> anyhow::Result<Option<Index>> {
        let is_first = opened.snapshot.is_none() && opened.records.is_empty();
        let dir = self.data.dir();
        if !is_first || !(dir.has(STATE) || dir.has(HOLDERS)) {
            return Ok(None);
        }
        info!("taking over what an agent without a log has left");
        let import = import::read(dir, &self.containment, self.clock.reads())?;
        self.input(Input::Import(import));
        Ok(Some(self.host.last()))
    }

    /// A host of a replicated cell may not have heard of all members that the host before it had.
    fn with_all_known(&self, cluster: Cluster) -> Cluster {
        match self.hosted {
            Some(_) => with_others(cluster, self.engine().links().map(|(member, ..)| member)),
            None => cluster,
        }
    }

    /// How the cell is told that its host has started.
    fn started(
        &self,
        opened: &Opened,
        rebuilt: bool,
        known: Option<&Known>,
    ) -> anyhow::Result<Start> {
        let now = self.clock.reads();
        let limits = self.config.limits;
        let last_boot = &*self.books().clock().boot;
        // Also at the start after it was.
        let is_behind = self.awaited.is_behind();
        let was_behind = self.books().ties().recovery().until.is_some_and(|until| until >= FOREVER);
        let is_other_boot = !last_boot.is_empty() && *last_boot != *boot();
        let pools = self.config.pools()?.into_iter().filter_map(|change| match change {
            Change::Add { name, kind } => {
                let limit = self.config.pools.get(name.as_str()).and_then(crate::Pool::limit);
                Some(Declared { name, kind, limit })
            }
            _ => None,
        });
        // Who is behind waits also if nobody is left to be waited for.
        let cluster = known.and_then(|known| cluster(known, is_behind));
        Ok(Start {
            epoch: opened.epoch,
            life: opened.life.0,
            nonce: self.cells.as_ref().map_or(0, |cells| cells.greeter.presence().nonce),
            began: length_of(opened),
            lost: matches!(opened.memory, Memory::Lost(_)),
            // What the machine was restarted with may be an older state of its disk. A cell that was never started is no
            // copy, and neither is the log of a hosted one.
            doubtful: (is_other_boot || is_behind || was_behind) && self.hosted.is_none(),
            boot: boot().into(),
            boottime: clamp(now.boottime),
            wall: clamp(now.wall),
            rebuilt,
            ephemeral: self.config.ephemeral,
            pools: pools.collect(),
            limits: Limits {
                overtime: limits.overtime_minutes.saturating_mul(60_000),
                sessions: u32::try_from(limits.sessions).unwrap_or(u32::MAX),
                lease: limits.lease_hours.saturating_mul(3_600_000),
                waiting: u32::try_from(limits.waiting).unwrap_or(u32::MAX),
            },
            cluster: cluster.map(|cluster| self.with_all_known(cluster)),
            patience: if is_behind { FOREVER } else { self.config.cluster.terms().patience() },
            waits: self.config.waits(),
        })
    }
}

/// How long nothing is granted after a loss of memory, and why, if it is for what others had of a member that has lost its directory. As
/// a member again it waits for what all say; that it does is in the log before the loss is forgotten.
async fn what_others_have(service: &Shared) -> anyhow::Result<(Duration, Option<String>)> {
    let (dir, grace) = {
        let service = service.borrow();
        (service.data.dir().clone(), service.config.forgotten()?)
    };
    let loss = Loss::noted(dir.path())?;
    let Some(loss) = loss.filter(|_| service.borrow().hosted.is_none()) else {
        return Ok((grace, None));
    };
    if service.borrow().cells.is_none() {
        let endless = !service.borrow().config.waits().is_empty();
        let why = loss.told(dir.path(), endless);
        warn!("{why}");
        let least = if endless { Duration::MAX } else { loss.patience };
        return Ok((grace.max(least), Some(why)));
    }
    let (watch, last) = (service.borrow().host.watch(), service.borrow().host.last());
    let kept = until(service, || watch.progress().may_leave >= last).await;
    anyhow::ensure!(kept, "that others are waited for cannot be written; is the disk full?");
    Loss::is_over(&dir)?;
    Ok((grace, None))
}

/// With those that were members; but for whom an operator has given up, whether that was carried out or not.
fn with_others<'a>(mut cluster: Cluster, others: impl Iterator<Item = &'a Member>) -> Cluster {
    let is_known = |cell| cluster.members.iter().any(|member| member.cell == cell);
    let is_news = |cell| !is_known(cell) && !cluster.forgotten.contains(&cell);
    let others: Vec<_> = others.filter(|member| is_news(member.cell)).cloned().collect();
    cluster.members.extend(others);
    cluster
}

/// What is known of a cluster, in line with the log; if this agent can be the member that it says.
fn of_this_cell(
    known: Option<&Known>,
    ties: &Ties,
    opened: &Opened,
) -> anyhow::Result<Option<Known>> {
    let Some(known) = known else { return Ok(None) };
    let is_lost = matches!(opened.memory, Memory::Lost(_));
    let known = known.as_logged(ties)?;
    Ok(known.is_this(ties, is_lost)?.then_some(known))
}

/// What is known of other cells when an agent starts that is a member of a cluster.
fn cells_of(known: &Known, opened: &Opened, clock: &Clock) -> anyhow::Result<Box<Cells>> {
    let mut nonce = [0; 16];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    let length = length_of(opened);
    let presence = Presence {
        life: opened.life.0,
        epoch: opened.epoch,
        nonce: u128::from_le_bytes(nonce),
        began: length,
        length,
    };
    Ok(Box::new(Cells::new(known, presence, clamp(clock.reads().boottime))))
}

/// How many records there ever were.
fn length_of(opened: &Opened) -> u64 {
    let length = opened.records.last().map(|record| record.index.0);
    let length = length.or_else(|| opened.snapshot.as_ref().map(|snapshot| snapshot.upto.0));
    length.unwrap_or_default()
}

/// What happened to the log is said.
fn tell(opened: &Opened) {
    if let Some((path, at)) = &opened.cut {
        info!("{} was cut off at byte {at}", path.display());
    }
    match opened.memory {
        Memory::Kept => {
            info!(epoch = opened.epoch, records = opened.records.len(), "going on from the log");
        }
        Memory::New => info!(epoch = opened.epoch, "a new cell"),
        Memory::Lost(Lost::Rebooted) => {
            info!(epoch = opened.epoch, "the machine was restarted: what processes held is free");
        }
        Memory::Lost(how) => warn!(epoch = opened.epoch, ?how, "memory may have been lost"),
    }
}

/// Ends rounds until something is so, and says whether it is.
async fn until(service: &Shared, is_so: impl Fn() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + FIRST_ROUND;
    while !is_so() && tokio::time::Instant::now() < deadline {
        service.borrow_mut().end_round();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_so()
}

/// Waits until what follows from the start may leave, unless there is no room for it, or it is for others to write it. Says what may leave.
pub(super) async fn until_written(service: &Shared) -> Index {
    let (watch, last) = (service.borrow().host.watch(), service.borrow().host.last());
    let in_vain = || service.borrow().hosted.is_some() || service.borrow().host.held_up().is_some();
    until(service, || watch.progress().may_leave >= last || in_vain()).await;
    watch.progress().may_leave
}

/// Has the cell go on, and puts aside what it has taken over when that is in the log for good. Says
/// whether it has taken over something.
async fn begin(
    service: &Shared,
    opened: &Opened,
    from_facts: bool,
    kept: &[SessionId],
    known: Option<&Known>,
) -> anyhow::Result<bool> {
    let imported = service.borrow_mut().begin(opened, from_facts, kept, known)?;
    if let Some(index) = imported {
        let watch = service.borrow().host.watch();
        let kept = until(service, || watch.progress().synced >= index).await;
        anyhow::ensure!(kept, "what was taken over cannot be written; is the disk full?");
    }
    let is_missing = service.borrow().missing_pool()?.is_some();
    if is_missing {
        // What is in its way may be found to be gone, when what follows from the start has left.
        until(service, || service.borrow().host.is_idle()).await;
        service.borrow_mut().begin_again(opened, kept, known)?;
    }
    let own = service.borrow();
    own.data.put_aside(STATE)?;
    own.data.put_aside(HOLDERS)?;
    anyhow::ensure!(own.end.is_none(), "the log cannot be written; the agent's log says why");
    Ok(imported.is_some())
}

#[cfg(test)]
mod tests {
    use holdall_core::CellId;

    use super::*;

    /// The word was heard, and the host was killed before it was in the log.
    #[test]
    fn whoever_was_forgotten_is_no_member_again_at_the_next_start_of_a_host() {
        let member = |cell| Member { name: "lab".parse().expect("a name"), cell: CellId(cell) };
        let (own, known, forgotten, joined) = (member(1), member(2), member(3), member(4));
        let (members, given_up) = (vec![known.clone()], vec![forgotten.cell]);
        let cluster = Cluster { own, members, forgotten: given_up, stopping: 15_000 };
        let logged = [&known, &forgotten, &joined];
        let cluster = with_others(cluster, logged.into_iter());
        assert_eq!(cluster.members, [known, joined]);
    }
}
