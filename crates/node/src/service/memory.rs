//! A lost memory: the log is missing or torn, and the machine was not restarted. Somebody may still use
//! what nobody knows of any more.
//!
//! Commands are found by their environment, in which their grant is, and waited for. Programs that
//! hold by themselves are not; their sessions come back within some seconds, are told that they are
//! forgotten, and stop. Until both is done nothing is granted. Fences are ahead, so what was
//! paused for longer is turned away by what it uses.
//!
//! If it was a member of a cluster that has lost all of its directory, others may use what they had of it: that is waited for as well.
//! And if another member has known more of it than its log tells ([`Behind`]), nothing is granted until somebody has seen to that.

use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use holdall_cell::Input;
use holdall_cell::greeting::Stranger;
use holdall_holders::Process;
use holdall_links as links;
use holdall_wire::{KNOWS_MORE, RequestNo};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::processes::carriers;
use super::{Service, Shared};
use crate::cluster::behind::Behind;
use crate::cluster::identity::Loss;
use crate::cluster::number;

/// After what time it is looked again where it cannot be told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// What has to be over before anything is granted.
#[derive(Default)]
pub(super) struct Awaited {
    processes: Vec<u32>,
    lasts: bool,
    /// Others may use something that was theirs when all was lost.
    of_others: Option<String>,
    /// Another member has known more of this one than its log tells.
    behind: Option<String>,
    over: Rc<Notify>,
}

impl Awaited {
    /// Why nothing is granted, for people; none if something is.
    pub(super) fn told(&self) -> Option<String> {
        let lost = || {
            let why = "the agent has lost its memory, and grants nothing before";
            match (&self.processes[..], &self.of_others) {
                ([], Some(why)) => why.clone(),
                ([], None) => format!("{why} former clients have had time to come back"),
                (pids, _) => {
                    format!("{why} {pids:?} have ended, which may use what it has forgotten")
                }
            }
        };
        self.behind.clone().or_else(|| self.lasts.then(lost))
    }

    /// Nothing is granted for as long as there is this agent.
    pub(super) fn of(behind: Option<String>) -> Self {
        Self { behind, ..Self::default() }
    }

    /// Whether it is waited for something that ends by itself.
    pub(super) fn lasts(&self) -> bool {
        self.lasts
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Why, for people.
    pub(super) fn why_behind(&self) -> Option<String> {
        self.behind.clone()
    }
}

/// Waits until something may be granted.
pub(super) async fn until_known(service: &Shared) {
    loop {
        let over = {
            let awaited = &service.borrow().awaited;
            if !awaited.lasts {
                return;
            }
            awaited.over.clone()
        };
        over.notified().await;
        over.notify_one(); // There may be others.
    }
}

/// Grants nothing before former clients have come back, and what they have started has ended.
pub(super) async fn await_forgotten(
    service: &Shared,
    grace: Duration,
    of_others: Option<String>,
) -> anyhow::Result<()> {
    let mut found = find_forgotten(service).await?;
    let pids: Vec<_> = found.iter().map(|process| process.id().pid).collect();
    warn!(
        ?pids,
        "memory was lost: nothing is granted until these have ended, which carry grants, and for a while"
    );
    let is_of_others = of_others.is_some();
    service.borrow_mut().awaited =
        Awaited { processes: pids, lasts: true, of_others, ..Awaited::default() };
    let me = Rc::downgrade(service);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(grace).await;
        loop {
            for process in &found {
                process.until_ended().await;
            }
            let Some(service) = me.upgrade() else { return };
            // They may have started others.
            found = match find_forgotten(&service).await {
                Ok(found) => found,
                Err(error) => {
                    warn!("it cannot be told what is left of what was forgotten: {error}");
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
            };
            if !service.borrow_mut().still_await(&found) {
                if is_of_others && let Err(error) = Loss::is_over(service.borrow().data.dir()) {
                    warn!("that others use nothing any more is not kept: {error:#}");
                }
                return info!("nothing is left of what was forgotten");
            }
            // Whoever starts one after the other does not keep us busy.
            tokio::time::sleep(PAUSE).await;
        }
    });
    Ok(())
}

/// The processes that were started under a grant of this agent, of a former time, that is not known.
async fn find_forgotten(service: &Shared) -> io::Result<Vec<Process>> {
    let (socket, known, epoch) = {
        let service = service.borrow();
        let grants = service.books().grants().map(|(request, ..)| request);
        let known: Arc<BTreeSet<RequestNo>> = Arc::new(grants.collect());
        (service.socket.clone(), known, service.epoch)
    };
    carriers(&socket, move |grant| grant.0 >> 32 < u64::from(epoch) && !known.contains(&grant))
        .await
}

impl Service {
    /// Another member does not want this one.
    pub(super) fn on_refused(&mut self, by: links::CellId, why: &str) {
        let why = self.cells.as_ref().and_then(|cells| cells.greeter.outdone(by, why));
        if let Some(why) = why {
            self.on_outdone(by, why);
        }
    }

    /// Another member has known a later state of the log. So nobody else may be given what that tells of: it is kept for all later starts, and
    /// the agent begins once more, as one that does not know what is in use. A replicated cell keeps it in its log, which others go on from.
    pub(super) fn on_outdone(&mut self, by: links::CellId, why: Stranger) {
        let Some(cells) = &self.cells else { return };
        let Some(running) = cells.running.as_ref().filter(|_| !self.awaited.is_behind()) else {
            return;
        };
        if self.hosted.is_some() {
            if !self.host.leads() {
                return; // Others have heard of whoever leads by now, and that is no sign of anything.
            }
            if let Some(cells) = &mut self.cells {
                cells.outdone_by.insert(number(by), why);
            }
            let is_known = self.books().ties().recovery().missing.contains(&number(by));
            if !is_known || self.books().ties().recovery().until.is_some() {
                error!(
                    "a member knows more of this cell than its log tells ({why}): nothing is granted before it has said what it holds"
                );
                self.input(Input::Outdone(number(by)));
            }
            return;
        }
        let members = running.links.members();
        let name = members.iter().find(|(id, _)| *id == by).map(|(_, it)| it.name.to_string());
        let name = name.unwrap_or_else(|| by.to_string());
        let behind = Behind::new(cells.greeter.presence().life, &name, why);
        let told = behind.told(self.data.dir().path());
        error!("{told}");
        let noted = behind.note(self.data.dir());
        self.awaited.behind = Some(told);
        self.stay_alone();
        match noted {
            Ok(()) => self.begin_once_more(),
            Err(error) => self.give_up(format!(
                "that the member '{name}' knows more of this one than its log tells cannot be kept: {error:#}; when that is mended, start \
                 the agent again: it is refused again, and keeps it then"
            )),
        }
    }

    /// That a member knows more of a replicated cell than its log tells, for people, as long as it is waited for.
    pub(super) fn why_outdone(&self) -> Option<String> {
        let (cells, hosted) = (self.cells.as_ref()?, self.hosted.as_ref()?);
        let missing = &self.books().ties().recovery().missing;
        let (by, why) =
            cells.running.as_ref()?.links.members().into_iter().find_map(|(id, it)| {
                let cell = number(id);
                let why = cells.outdone_by.get(&cell).filter(|_| missing.contains(&cell))?;
                Some((it.name.to_string(), why))
            })?;
        Some(format!(
            "nothing is granted, since the member '{by}' {KNOWS_MORE} ({why}): what is in etcd was put back; \
             `holdall cell adopt {}` begins a new life, in which all say what they hold; or say `holdall cluster forget {by}`, if it holds \
             nothing",
            hosted.name
        ))
    }

    /// Why a replicated cell gives nothing to anybody although its log goes on: it waits for what others hold.
    pub(super) fn why_others_are_awaited(&self) -> Option<String> {
        self.hosted.as_ref()?;
        self.why_outdone().or_else(|| self.awaited_members())
    }

    /// No other member is talked to, if the log is behind what others have known.
    pub(super) fn stay_alone(&self) {
        let Some(cells) = self.cells.as_ref().filter(|_| self.awaited.is_behind()) else { return };
        cells.greeter.stay_alone(Behind::told_to_others(&cells.name));
        cells.ways().for_each(|way| way.end("it talks to nobody any more"));
    }

    /// Whether something is still waited for.
    fn still_await(&mut self, found: &[Process]) -> bool {
        self.awaited.processes = found.iter().map(|process| process.id().pid).collect();
        self.awaited.lasts = !found.is_empty();
        if !self.awaited.lasts {
            self.awaited.over.notify_one();
        }
        self.awaited.lasts
    }
}
