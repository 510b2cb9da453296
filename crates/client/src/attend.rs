//! The task of a session: sorts what the agent says, and comes back to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdall_holders::boottime;
use holdall_wire::{Answer, Fault, Reply};

use crate::grant::millis;
use crate::link::{Reader, greeted};
use crate::session::Shared;
use crate::state::{Stage, State};
use crate::{Presence, locked};

/// How long to wait before the agent is looked for again: after the first attempt, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// What it is if an agent on another machine refuses our token, and how long to wait then.
const REFUSED: io::ErrorKind = io::ErrorKind::PermissionDenied;
const AGAIN: Duration = Duration::from_secs(10);

/// Serves a session to its end.
pub(crate) async fn attend(shared: Arc<Shared>, mut reader: Reader) {
    let _over = Over(&shared);
    let mut pause = Duration::ZERO;
    let served = async {
        loop {
            if shared.sort_all(&mut reader).await {
                pause = Duration::ZERO;
            }
            shared.unlink();
            match shared.come_back(&mut pause).await {
                Some(next) => reader = next,
                None => return,
            }
        }
    };
    tokio::select! {
        biased; // That a connection has ended is seen before it is taken for one that is there.
        () = served => {}
        never = shared.watch_lease() => match never {},
    }
}

/// Whatever ends the task, nobody waits for its session any more.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        state.is_over = true;
        state.calls.end();
        drop(state);
        self.0.set_presence(Presence::Away);
    }
}

impl Shared {
    fn set_presence(&self, presence: Presence) {
        let change = |now: &mut Presence| std::mem::replace(now, presence) != presence;
        self.presence.send_if_modified(change);
    }

    /// Whether nobody uses the session any more, and the agent knows.
    fn is_done(&self, state: &State) -> bool {
        state.is_left && !(state.calls.is_tried() && state.calls.any_made())
    }

    /// Sorts replies until the connection ends, or nobody wants it any more. Returns whether the agent has
    /// served us: it may also greet and hang up.
    async fn sort_all(&self, reader: &mut Reader) -> bool {
        let mut heard = false;
        loop {
            tokio::select! {
                answer = reader.next() => match answer {
                    Ok(answer) => {
                        self.sort(answer);
                        heard = true;
                    }
                    Err(_) => break, // Why it ended makes no difference to those who wait.
                },
                () = self.wake.notified() => {}
            }
            let state = locked(&self.state);
            if state.is_left && self.is_done(&state) {
                break;
            }
        }
        heard && !locked(&self.state).stage.is_open()
    }

    fn sort(&self, Answer { id, reply }: Answer) {
        let mut state = locked(&self.state);
        match state.stage {
            Stage::Coming(attach) | Stage::Returning(attach) if attach == id => {}
            stage => {
                if let Reply::Until { boottime_millis, .. } = &reply
                    && self.at.is_remote()
                {
                    let lent = millis(*boottime_millis);
                    self.until.send_modify(|until| until.lends(lent, boottime()));
                }
                state.calls.answer(id, reply);
                if state.has_more() {
                    self.send(state);
                } else {
                    drop(state);
                }
                if !stage.is_open() {
                    self.set_presence(Presence::Here);
                }
                return;
            }
        }
        let is_known = state.calls.is_known();
        match reply {
            Reply::Attached { answers, .. } => {
                state.calls.attached(answers);
                state.stage = Stage::Attached;
                self.send(state);
                return self.set_presence(Presence::Here);
            }
            // Whoever is a stranger now, as after a change of its user, will be one for ever.
            Reply::Failed(Fault::Forgotten | Fault::Denied(_)) if is_known => {
                state.calls.begin_anew();
                state.stage = Stage::Unknown;
            }
            // What is held is held: it may have room for us later.
            Reply::Failed(_) if is_known => {}
            Reply::Failed(fault) => {
                state.calls.fail_all(&fault);
                state.calls.begin_anew();
                state.stage = Stage::Unknown;
            }
            _ => {}
        }
        state.close();
    }

    /// The connection is lost.
    fn unlink(&self) {
        let mut state = locked(&self.state);
        state.close();
        state.link = None;
        state.stage = Stage::Unknown;
        state.calls.lose_connection();
        drop(state);
        self.set_presence(Presence::Away);
    }

    /// Connects again as soon as somebody needs the agent, and it is there; none if nobody will.
    async fn come_back(&self, pause: &mut Duration) -> Option<Reader> {
        loop {
            loop {
                let woken = self.wake.notified();
                let is_needed = {
                    let mut state = locked(&self.state);
                    state.calls.give_up_unwanted();
                    if self.is_done(&state) {
                        return None;
                    }
                    state.calls.need_the_agent()
                };
                if is_needed {
                    break;
                }
                woken.await;
            }
            tokio::time::sleep(*pause).await;
            // Half as long as it is away by then: so it is not missed for much longer than it was away.
            *pause = (*pause * 3 / 2).clamp(PAUSE.0, PAUSE.1);
            if self.at.is_stopped() {
                self.set_presence(Presence::Stopped);
                continue;
            }
            self.set_presence(Presence::Away);
            match self.link_again().await {
                Ok(reader) => return Some(reader),
                // Who shows a token that is refused too often is not listened to at all.
                Err(error) if self.at.is_remote() && error.kind() == REFUSED => *pause = AGAIN,
                Err(_) => {}
            }
        }
    }

    async fn link_again(&self) -> io::Result<Reader> {
        let (attach, generation) = {
            let calls = &mut locked(&self.state).calls;
            (calls.is_tried().then(|| calls.attach(self.lease())), calls.generation())
        };
        let (link, reader, version) = greeted(&self.at, attach.as_slice()).await?;
        let mut state = locked(&self.state);
        if state.calls.generation() != generation {
            return Err(io::Error::other("the session is another by now"));
        }
        state.stage = match (Stage::of(version), attach) {
            (Stage::Unknown, Some((id, _))) => Stage::Returning(id),
            (Stage::Unknown, None) => Stage::Unknown,
            (without, _) => {
                state.calls.begin_anew();
                without
            }
        };
        state.link = Some(link);
        state.sent = 0;
        self.send(state);
        Ok(reader)
    }
}
