//! The note that an agent leaves when it breaks: what was wrong, and which call was being done. The
//! next agent builds its engine again from the facts, and spares itself that call.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use holdall_cell::session::{CallNo, SessionId};
use holdall_wire::Status;
use tracing::error;

use super::Service;
use super::host::Broken;
use crate::data;
use crate::directory::Directory;

thread_local! {
    /// Where it is left, by whoever panics on the thread of a service.
    static PLACE: RefCell<Option<Arc<Directory>>> = const { RefCell::new(None) };
    /// The call that is being done.
    static CULPRIT: Cell<Option<(SessionId, CallNo)>> = const { Cell::new(None) };
}

/// From now on a panic on this thread is noted in a directory.
pub(super) fn note_in(dir: &Arc<Directory>) {
    PLACE.set(Some(dir.clone()));
    CULPRIT.set(None);
}

/// A call is being done, or something that no call has caused.
pub(super) fn blame(culprit: Option<(SessionId, CallNo)>) {
    CULPRIT.set(culprit);
}

/// Leaves a note of a panic, if this is the thread of an agent.
pub fn note_panic(what: &str) {
    let place = PLACE.try_with(|place| place.try_borrow().ok().and_then(|place| place.clone()));
    let Some(dir) = place.ok().flatten() else { return };
    let culprit = CULPRIT.try_with(Cell::get).ok().flatten();
    if let Err(error) = data::leave_dump(&dir, what, culprit, &Status::default()) {
        error!("cannot leave a dump: {error:#}");
    }
}

impl Service {
    /// A broken invariant: say so, leave a dump, and end before anybody is told anything. What broke it
    /// is not in the log; if it is a call, its client makes it again, and the next agent spares itself
    /// that.
    pub(super) fn break_off(&mut self, broken: &Broken) -> ! {
        error!("nothing is granted any more: {broken}");
        let (status, culprit) = (self.engine().status(&[]), CULPRIT.get());
        if let Err(error) = data::leave_dump(self.data.dir(), &broken.to_string(), culprit, &status)
        {
            error!("cannot leave a dump: {error:#}");
        }
        // What was logged before it is as it was.
        drop(self.host.flush());
        self.flush_history();
        std::process::exit(70)
    }
}
