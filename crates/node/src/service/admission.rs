//! Who may ask: rights, limits, memory, files, and room in the log. What is turned away here never
//! becomes an input, and leaves no record.

use std::sync::Arc;

use holdall_cell::session::ConnNo;
use holdall_wire::{Ask, From, Lasting, Need, Refusal, Right, TEXT_MAX, Who};

use super::rights::lacks;
use super::{Peer, Service};
use crate::audit::Line;

/// How many files a command takes, mostly.
const FILES_OF_A_COMMAND: usize = 3;

/// What was found for a request.
#[derive(Clone, Copy)]
pub(super) struct Admitted {
    pub(super) uid: u32,
    pub(super) size: usize,
    pub(super) files: usize,
}

impl Service {
    /// Finds room for a request.
    pub(super) fn admit(&mut self, conn: ConnNo, id: u64, ask: &Ask) -> Result<Admitted, Refusal> {
        self.guards_only()?;
        let closed = |why: String| Err(Refusal::Closed(why));
        let limits = self.config.limits;
        let Some(peer) = self.peers.get(&conn) else { return Err(Refusal::Withdrawn) };
        let From { command, name, reason } = &ask.from;
        let texts = [Some(command), name.as_ref(), reason.as_ref()];
        let reserves = matches!(ask.lasting, Lasting::Reservation(_));
        let right = if reserves { Right::Reserve } else { Right::Ask };
        if !peer.rights.has(right) {
            return Err(Refusal::Denied(lacks(&peer.who.user, right)));
        } else if self.draining {
            return closed("the agent is stopping and takes no more requests".into());
        } else if peer.visitor {
            let what =
                "this user has as many connections (limits.connections) or open files as it may";
            return closed(format!("{what}; it can look and release, but not ask"));
        } else if self.open_requests(peer) >= limits.requests {
            return closed(format!("more than {} requests on one connection", limits.requests));
        } else if peer.calls.is_in_use(id) {
            return Err(Refusal::Senseless("the number of this call is in use".into()));
        } else if reserves
            && self.books().reservations_of(peer.who.uid) as usize >= limits.reservations
        {
            let most = limits.reservations;
            return closed(format!("a user has {most} reservations at most (limits.reservations)"));
        } else if texts.into_iter().flatten().any(|text| text.len() > TEXT_MAX) {
            let text = format!("a command, name or reason has at most {TEXT_MAX} bytes");
            return Err(Refusal::Senseless(text));
        } else if peer.who.pid == 0 && matches!(ask.lasting, Lasting::Command(_)) {
            return closed(
                "the agent is in another pid namespace (container) and cannot see this process; \
                 run the agent outside, or in the same container"
                    .into(),
            );
        } else if peer.unseen && ask.lasting == Lasting::Connection {
            return closed(
                "the agent cannot see this process (it is in another container), and would not \
                 notice its end: connect with a lease"
                    .into(),
            );
        }
        if let Some(why) = self.cut_off(&ask.needs) {
            return Err(why);
        }
        // Whoever can wait does.
        if let Some(why) = self.awaited.told() {
            return Err(Refusal::Busy(why));
        }
        if let Some(why) = self.awaited_members().filter(|_| ask.now && self.needs_own(&ask.needs))
        {
            return Err(Refusal::Busy(why));
        }
        self.admit_span(ask.lasting, &ask.needs)?;
        let (uid, size) = (peer.who.uid, size(&peer.who, &ask.from, &ask.needs));
        if !self.requests.take(uid, size) {
            let what = "the requests of this user take as much memory as they may";
            return closed(format!("{what} (limits.memory_bytes)"));
        }
        let files = files_for(ask.lasting);
        if !self.files.take(uid, files) {
            self.requests.give(uid, size);
            let what = "the commands of this user take as many open files as they may";
            return closed(format!("{what} (`ulimit -n` of the agent)"));
        }
        Ok(Admitted { uid, size, files })
    }

    /// What was found is not needed after all.
    pub(super) fn give_up_admission(&mut self, Admitted { uid, size, files }: Admitted) {
        self.requests.give(uid, size);
        self.files.give(uid, files);
    }

    fn open_requests(&self, peer: &Peer) -> usize {
        let session = peer.calls.session().and_then(|session| self.sessions.get(&session));
        session.map_or(0, |session| session.open)
    }

    /// A request that was not even admitted has no number, but somebody who asked.
    pub(super) fn log_turned_away(&mut self, conn: ConnNo, ask: &Ask, why: &Refusal) {
        let Some(peer) = self.peers.get(&conn) else { return };
        let line = Line::new(self.clock.wall(), "refused").of(Some(Arc::new(peer.who.clone())));
        self.audit.add(line.asks(&Arc::new(ask.clone())).detail(Some(why.to_string())));
        if let Some(history) = &mut self.history {
            let (at, user) = (self.clock.wall(), &peer.who.user);
            history.turn_away(at, user, ask);
        }
    }
}

impl Peer {
    /// Who asks, with what it says of itself.
    pub(super) fn asks_as(&mut self, from: &From) -> Arc<Who> {
        match &self.asker {
            Some(asker) if asker.from == *from => asker.clone(),
            _ => {
                let who = Arc::new(Who { from: from.clone(), ..self.who.clone() });
                // What is long counts against its user's memory only as long as a request lasts.
                self.asker = (who.size() <= WORDS_MAX).then(|| who.clone());
                who
            }
        }
    }
}

/// The longest words of a client that are kept between its requests.
const WORDS_MAX: usize = 2048;

/// How many files a request takes beside its connection: the cgroup of a command, or its processes.
pub(super) fn files_for(lasting: Lasting) -> usize {
    if matches!(lasting, Lasting::Command(_)) { FILES_OF_A_COMMAND } else { 0 }
}

/// About how many bytes a request takes here: its names are also those of locks, and its client
/// is told them in the end.
pub(super) fn size(who: &Who, from: &From, needs: &[Need]) -> usize {
    1024 + 2 * (who.size() + from.size()) + 3 * holdall_wire::needs_size(needs)
}
