//! A lost memory: the log is missing or torn, and the machine was not restarted. Somebody may still use
//! what nobody knows of any more.
//!
//! Commands are found by their environment, in which their grant is, and waited for. Programs that
//! hold by themselves are not; their sessions come back within some seconds, are told that they are
//! forgotten, and stop. Until both is done nothing is granted. Fences are ahead, so what was
//! paused for longer is turned away by what it uses.

use std::rc::Rc;
use std::time::Duration;

use holdall_holders::{Environment, Process, with_environment};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::processes::grant_in;
use super::{Service, Shared};

/// After what time it is looked again where it cannot be told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What has to be over before anything is granted.
#[derive(Default)]
pub(super) struct Awaited {
    processes: Vec<u32>,
    lasts: bool,
    over: Rc<Notify>,
}

impl Awaited {
    /// Why nothing is granted, for people; none if something is.
    pub(super) fn told(&self) -> Option<String> {
        self.lasts.then(|| {
            let why = "the agent has lost its memory, and grants nothing before";
            match &self.processes[..] {
                [] => format!("{why} former clients have had time to come back"),
                pids => format!("{why} {pids:?} have ended, which may use what it has forgotten"),
            }
        })
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

impl Service {
    /// Grants nothing before former clients have come back, and what they have started has ended.
    pub(super) fn await_forgotten(&mut self, grace: Duration) -> anyhow::Result<()> {
        let found = self.find_forgotten()?;
        self.awaited.lasts = true;
        self.awaited.processes = found.iter().map(|process| process.id().pid).collect();
        warn!(pids = ?self.awaited.processes, "memory was lost: nothing is granted until these have ended, which carry grants, and for a while");
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(grace).await;
            let mut found = found;
            loop {
                for process in &found {
                    process.until_ended().await;
                }
                // They may have started others.
                let Some(again) = me.upgrade().map(|service| service.borrow().find_forgotten())
                else {
                    return;
                };
                found = match again {
                    Ok(found) => found,
                    Err(error) => {
                        warn!("it cannot be told what is left of what was forgotten: {error}");
                        tokio::time::sleep(LOOK_AGAIN).await;
                        continue;
                    }
                };
                let Some(service) = me.upgrade() else { return };
                if service.borrow_mut().still_await(&found) {
                    continue;
                }
                return info!("nothing is left of what was forgotten");
            }
        });
        Ok(())
    }

    fn find_forgotten(&self) -> std::io::Result<Vec<Process>> {
        with_environment(|all| self.is_forgotten(all))
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

    /// Whether a process was started under a grant of this agent that is not known.
    fn is_forgotten(&self, all: &Environment) -> bool {
        grant_in(all, &self.socket).is_some_and(|grant| self.books().get(grant).is_none())
    }
}
