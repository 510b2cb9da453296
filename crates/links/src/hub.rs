//! What all connections of a member share: who is known, which links are up, the own certificate.
//!
//! Everything here is done without waiting, under one lock, except what is told to those above: that is noted as
//! *pending*, saved, and then put into their inbox by a task of its own ([`Hub::announce`]). So what they hear of
//! members is on disk, and whoever tells us something is not held up by those above.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info};

use crate::above::Above;
use crate::bounds::{Patience, Room};
use crate::card::Card;
use crate::cell::{Cell, CellId};
use crate::config::Config;
use crate::event::{Event, Inbox};
use crate::frame::{Frame, Refusal};
use crate::greet::{Ending, brief};
use crate::home::{self, Home};
use crate::member::{ABOUT_MAX, Known, Member, Part, Record, Roster};
use crate::peer::{Live, Outbox, Outgoing, Peer, Stop, Way, outbox};
use crate::renew::Papers;
use crate::tls::Tls;

/// How many bytes of records are told in one frame, about.
const TOLD_TOGETHER: usize = ABOUT_MAX;
/// Wrong tokens within a minute from one address.
const WRONG: usize = 10;
/// How long to wait until what could not be saved is tried again.
const SAVE_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Hub {
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) above: Arc<dyn Above>,
    pub(crate) inbox: Inbox,
    pub(crate) clients: Arc<Room>,
    pub(crate) patience: Patience,
    /// Drawn when the links are started.
    pub(crate) start: u64,
    /// Those who join do so one after another.
    pub(crate) joining: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    pub(crate) papers: Papers,
    /// Told whenever a link or a record has changed.
    changed: watch::Sender<()>,
    /// Whether anybody is greeted; and how many connections wait for that.
    open: watch::Sender<bool>,
    waiting: AtomicUsize,
    saving: tokio::sync::Mutex<()>,
}

struct State {
    roster: Roster,
    peers: BTreeMap<CellId, Peer>,
    pending: Pending,
}

/// What those above are still to be told.
#[derive(Default)]
struct Pending {
    members: bool,
    abouts: BTreeSet<CellId>,
    forgotten: BTreeSet<CellId>,
}

/// One end of a link that has just come up.
pub(crate) struct Line {
    pub(crate) peer: Card,
    pub(crate) way: Way,
    /// The youngest ping that was answered, in microseconds since the link came up.
    pub(crate) answered: AtomicU64,
    pub(crate) since: Instant,
}

impl Hub {
    pub(crate) fn new(
        home: Home,
        config: Config,
        above: Arc<dyn Above>,
        inbox: Inbox,
    ) -> Result<Self, home::Error> {
        let mut roster = home.roster()?;
        let own = roster.member(home.cell().id).map(|own| own.addresses.clone());
        roster.say_member(&own.unwrap_or_default(), home.signs());
        let papers = Papers::new(home.tls()?);
        let mut start = [0; 8];
        getrandom::fill(&mut start)?;
        // Perhaps this cell was ended before those above heard of it: they are told at each start.
        let forgotten = roster.forgotten().map(|(cell, _)| cell).collect();
        let pending = Pending { forgotten, ..Pending::default() };
        let mut state = State { roster, peers: BTreeMap::new(), pending };
        state.meet(home.cell().id);
        Ok(Self {
            clients: Room::new(config.clients.all, config.clients.each),
            patience: Patience::new(WRONG),
            start: u64::from_le_bytes(start),
            joining: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
            papers,
            changed: watch::Sender::new(()),
            open: watch::Sender::new(false),
            waiting: AtomicUsize::new(0),
            saving: tokio::sync::Mutex::default(),
            home,
            config,
            above,
            inbox,
        })
    }

    /// From now on others are greeted, and whoever comes in is listened to.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until others are greeted.
    pub(crate) async fn opened(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open).await; // It is there as long as this is.
    }

    /// A connection was made, and waits for that.
    pub(crate) async fn may_greet(&self) {
        struct Waits<'a>(&'a AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        self.opened().await;
    }

    /// How many connections were made, and wait for that.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn own(&self) -> &Cell {
        self.home.cell()
    }

    pub(crate) fn tls(&self) -> Arc<Tls> {
        self.papers.tls()
    }

    /// Looks at, or into, what is known of the members.
    pub(crate) fn roster<T>(&self, look: impl FnOnce(&Roster) -> T) -> T {
        look(&self.state().roster)
    }

    pub(crate) fn peers<T>(&self, look: impl FnOnce(&mut BTreeMap<CellId, Peer>) -> T) -> T {
        look(&mut self.state().peers)
    }

    /// Tells whenever a link or a record has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Changes a record of the own roster, and spreads the news.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Roster) -> Option<Record>) -> bool {
        let mut state = self.state();
        let news: Vec<_> = change(&mut state.roster).into_iter().collect();
        let changed = !news.is_empty();
        self.spread(&mut state, &news, None);
        changed
    }

    /// Takes what a peer tells, and spreads what is new. Nothing is taken of one that was removed.
    pub(crate) fn take(&self, from: CellId, told: Vec<Record>) -> Result<(), Ending> {
        let mut state = self.state();
        if state.roster.is_removed(from) {
            return Err(Ending::Stopped(Stop::Removed));
        }
        let merged = state.roster.merge(told);
        let news = merged.map_err(|bad| Ending::Misbehaved(bad.to_string()))?;
        self.spread(&mut state, &news, Some(from));
        Ok(())
    }

    /// What a peer lacks who knows this, in frames.
    pub(crate) fn lacking(&self, known: &[Known]) -> Vec<Frame> {
        told(&self.state().roster.unknown_to(known))
    }

    /// Tells all peers but the one it came from, who is told only of this cell; ends links with those removed.
    fn spread(&self, state: &mut State, news: &[Record], from: Option<CellId>) {
        if news.is_empty() {
            return;
        }
        let own: Vec<_> = news.iter().filter(|it| it.cell == self.own().id).cloned().collect();
        let (to_all, to_source) = (told(news), told(&own));
        for (id, peer) in &state.peers {
            let Some(live) = &peer.live else { continue };
            let frames = if Some(*id) == from { &to_source } else { &to_all };
            frames.iter().for_each(|frame| live.outbox.say(frame.clone()));
        }
        for record in news {
            state.pending.note(record, self.own().id);
        }
        state.meet(self.own().id);
        let expelled = state.roster.is_removed(self.own().id).then_some(Stop::Expelled);
        for (id, peer) in &state.peers {
            let removed = state.roster.is_removed(*id).then_some(Stop::Removed);
            if let (Some(live), Some(stop)) = (&peer.live, expelled.or(removed)) {
                live.stop.send_replace(Some(stop));
            }
        }
        self.changed.send_replace(());
    }

    /// Whether neither this cell nor the peer was removed.
    pub(crate) fn would_talk(&self, peer: CellId) -> Result<(), Refusal> {
        let state = self.state();
        if state.roster.is_removed(self.own().id) {
            return Err(Refusal::Expelled);
        }
        if state.roster.is_removed(peer) { Err(Refusal::Removed) } else { Ok(()) }
    }

    /// Whether a connection may become the link with this peer.
    pub(crate) fn would_admit(
        &self,
        peer: CellId,
        dialer: CellId,
        start: u64,
    ) -> Result<(), Refusal> {
        self.would_talk(peer)?;
        let state = self.state();
        let live = state.peers.get(&peer).and_then(|peer| peer.live.as_ref());
        let stays = |live: &Live| !live.gives_way(dialer, start, self.config.handshake);
        if live.is_some_and(stays) { Err(Refusal::Crossed) } else { Ok(()) }
    }

    /// Makes a connection the link with this peer; waits until the one before is gone.
    pub(crate) async fn admit(
        &self,
        card: &Card,
        dialer: CellId,
        start: u64,
    ) -> Result<(Line, Outgoing), Refusal> {
        let mut changes = self.changes();
        loop {
            self.would_admit(card.cell.id, dialer, start)?;
            if let Some(line) = self.occupy(card, dialer, start) {
                return Ok(line);
            }
            drop(changes.changed().await);
        }
    }

    /// The line, unless another link is still there, which is told to end.
    fn occupy(&self, card: &Card, dialer: CellId, start: u64) -> Option<(Line, Outgoing)> {
        let mut state = self.state();
        let peer = state.peers.entry(card.cell.id).or_default();
        if let Some(live) = &peer.live {
            live.stop.send_replace(Some(Stop::Replaced));
            return None;
        }
        let (outbox, stop, outgoing) = outbox(&self.config);
        if dialer == self.own().id {
            outbox.say(Frame::Ready);
        }
        let (way_out, counts) = (outbox.clone(), peer.counts.clone());
        let line = Line {
            peer: card.clone(),
            way: Way { outbox: way_out, stop: stop.clone(), counts },
            answered: AtomicU64::new(0),
            since: Instant::now(),
        };
        peer.up(Live { dialer, start, since: Instant::now(), outbox, stop });
        drop(state);
        self.changed.send_replace(());
        Some((line, outgoing))
    }

    /// A peer refuses this cell. If a member says that this cell was removed, it is believed, as if it had told the
    /// record; what those above it say is told above. Not so of one that was removed itself.
    pub(crate) async fn refused(&self, by: CellId, refusal: Refusal) -> Ending {
        let is_removed = self.roster(|roster| roster.is_removed(by));
        match &refusal {
            _ if is_removed => {}
            Refusal::Removed => {
                let own = self.own().id;
                self.change(|roster| roster.remove(own, home::now()));
            }
            Refusal::Above(why) => {
                self.inbox.put(Event::Refused { peer: by, why: brief(why) }).await;
            }
            _ => {}
        }
        Ending::Refused(refusal)
    }

    /// A link is gone: those above are told, then there may be another.
    pub(crate) async fn ended(&self, peer: &Cell, why: String) {
        info!(%peer, why, "a link is down");
        self.inbox.put(Event::Down { peer: peer.clone(), why: why.clone() }).await;
        self.peers(|peers| peers.entry(peer.id).or_default().down(why));
        self.changed.send_replace(());
    }

    /// Writes what is known of the members to disk; what was written.
    pub(crate) async fn save(&self) -> Result<Roster, crate::store::Error> {
        let _one_at_a_time = self.saving.lock().await;
        let (home, roster) = (self.home.clone(), self.roster(Roster::clone));
        let save = move || home.save(&roster).map(|()| roster);
        let saved = tokio::task::spawn_blocking(save).await;
        saved.unwrap_or_else(|error| Err(self.home.unsaved(error.into())))
    }

    /// Saves what has changed and tells those above, for ever. What cannot be saved is tried again until it is.
    pub(crate) async fn announce(&self) {
        let mut changes = self.changes();
        loop {
            let pending = std::mem::take(&mut self.state().pending);
            if pending.is_any() {
                match self.save().await {
                    Ok(saved) => self.tell_above(pending, &saved).await,
                    Err(error) => {
                        error!("what is known of the members is not saved: {error}");
                        self.state().pending.put_back(pending);
                        sleep(SAVE_AGAIN).await;
                        continue;
                    }
                }
            }
            drop(changes.changed().await);
        }
    }

    async fn tell_above(&self, pending: Pending, saved: &Roster) {
        if pending.members {
            let members = saved.members().map(|(id, member)| (id, member.clone()));
            self.inbox.put(Event::Members(members.collect())).await;
        }
        for cell in pending.abouts {
            if let Some(about) = saved.about(cell) {
                self.inbox.put(Event::About { cell, bytes: about.bytes.clone() }).await;
            }
        }
        for (cell, said) in saved.forgotten().filter(|(cell, _)| pending.forgotten.contains(cell)) {
            self.inbox.put(Event::Forget { cell, word: said.word.clone() }).await;
        }
    }

    /// The links to those who sign.
    pub(crate) fn signers(&self) -> Vec<(CellId, Outbox)> {
        let state = self.state();
        let signs = |id: CellId| state.roster.member(id).is_some_and(|it| it.signs && !it.removed);
        let signers = state.peers.iter().filter(|(id, _)| signs(**id));
        signers.filter_map(|(id, peer)| Some((*id, peer.live.as_ref()?.outbox.clone()))).collect()
    }

    pub(crate) fn members(&self) -> Vec<(CellId, Member)> {
        self.roster(|it| it.members().map(|(id, member)| (id, member.clone())).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    /// Every member is a peer, also if there was never a link with it.
    fn meet(&mut self, own: CellId) {
        let others = self.roster.members().filter(|(id, it)| *id != own && !it.removed);
        for (id, _) in others {
            self.peers.entry(id).or_default();
        }
    }
}

impl Pending {
    fn note(&mut self, record: &Record, own: CellId) {
        match &record.part {
            Part::Member(_) => self.members = true,
            Part::About(_) if record.cell == own => {}
            Part::About(_) => drop(self.abouts.insert(record.cell)),
            Part::Forgotten(_) => drop(self.forgotten.insert(record.cell)),
        }
    }

    /// Takes back what could not be told.
    fn put_back(&mut self, mut untold: Self) {
        self.members |= untold.members;
        self.abouts.append(&mut untold.abouts);
        self.forgotten.append(&mut untold.forgotten);
    }

    fn is_any(&self) -> bool {
        self.members || !self.abouts.is_empty() || !self.forgotten.is_empty()
    }
}

/// Records in frames of a bounded size.
fn told(records: &[Record]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut together, mut size) = (Vec::new(), 0);
    for record in records {
        together.push(record.clone());
        size += postcard::to_stdvec(record).map_or(0, |bytes| bytes.len());
        if size > TOLD_TOGETHER {
            frames.push(Frame::Told(std::mem::take(&mut together)));
            size = 0;
        }
    }
    if !together.is_empty() {
        frames.push(Frame::Told(together));
    }
    frames
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{LINK_MAX, encode};
    use crate::member::About;

    #[test]
    fn records_are_told_in_frames_that_are_accepted() {
        let record = |cell, length| Record {
            cell: CellId(cell),
            part: Part::About(About { version: 1, bytes: vec![0; length] }),
        };
        let records: Vec<_> =
            (0..40).map(|n| record(n, ABOUT_MAX / (1 + n as usize % 7))).collect();
        let frames = told(&records);
        let mut back = Vec::new();
        for frame in frames {
            assert!(encode(&frame).expect("written").len() < LINK_MAX);
            let Frame::Told(records) = frame else { panic!("something else") };
            back.extend(records);
        }
        assert_eq!(back, records);
        assert_eq!(told(&[]), vec![]);
    }
}
