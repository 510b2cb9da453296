//! Who is wanted: asked by the links on their thread, answered from what the service has told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdall_cell::books::GivenUp;
use holdall_cell::greeting::{Known, Presence, Stranger};
use holdall_cell::lease::Terms;
use holdall_http::token::Tokens;
use holdall_links::{Above, Cell, CellId};

use super::forgotten::{Forgotten, Meant};
use super::frame::{KNOWS, REPLICATED};
use super::greeting::Greeting;
use super::number;

/// What follows from a word to forget a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nothing: it was heard before.
    Known,
    /// Nothing: it comes late, and the member has come back since in another life; or does not say which life it means, and one is known
    /// here.
    NotMeant,
    /// The member is given up, in this life if one is known.
    Meant(Option<u128>),
}

/// What the service and the links both know.
pub(crate) struct Greeter {
    state: Mutex<State>,
    /// Who may come from machines that are no members.
    pub(crate) tokens: Arc<Tokens>,
}

struct State {
    own: CellId,
    presence: Presence,
    /// Whether whoever was greeted was told more than how this start began.
    distinct: bool,
    is_replicated: bool,
    /// Why nobody is wanted, if nobody is.
    alone: Option<String>,
    terms: Terms,
    peers: BTreeMap<CellId, Peer>,
    forgotten: Forgotten,
}

/// What is known of another cell.
#[derive(Clone, Copy, Default)]
struct Peer {
    presence: Option<Presence>,
    is_linked: bool,
    /// Whether several machines host it, as it has said.
    is_replicated: bool,
    /// The version that it speaks, if it has a link.
    version: u32,
    /// The life in which it has said that it knows more of this cell than its log tells.
    outdoes: Option<u128>,
}

impl Greeter {
    pub(crate) fn new(
        own: CellId,
        presence: Presence,
        terms: Terms,
        forgotten: Forgotten,
        tokens: Arc<Tokens>,
    ) -> Self {
        let (peers, is_replicated) = (BTreeMap::new(), false);
        let (alone, distinct) = (None, true);
        let state =
            State { own, presence, distinct, is_replicated, alone, terms, peers, forgotten };
        Self { state: Mutex::new(state), tokens }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is such a cell, and it was last heard of in this start.
    pub(crate) fn know(&self, cell: CellId, presence: Option<Presence>) {
        self.state().peers.entry(cell).or_default().presence = presence;
    }

    /// There is such a cell.
    pub(crate) fn know_of(&self, cell: CellId) {
        self.state().peers.entry(cell).or_default();
    }

    /// The log of this cell has come so far.
    pub(crate) fn has_come_to(&self, length: u64) {
        self.state().presence.has_come_to(length);
    }

    /// Several machines host this cell, and its log sees to it that one of them counts.
    pub(crate) fn is_replicated(&self) {
        self.state().is_replicated = true;
    }

    /// Which start of which life of this cell it is.
    pub(crate) fn presence(&self) -> Presence {
        self.state().presence
    }

    /// What a peer that refuses this start with these words has known of its log, if that is a later state. What one knows that was given up
    /// does not count.
    pub(crate) fn outdone(&self, by: CellId, words: &str) -> Option<Stranger> {
        let why = Stranger::told(words)?;
        let state = self.state();
        if state.forgotten.is_away(by) {
            return None;
        }
        state.presence.is_outdone(&why, state.distinct).then_some(why)
    }

    /// Nobody is wanted any more.
    pub(crate) fn stay_alone(&self, why: String) {
        self.state().alone = Some(why);
    }

    /// A peer knows more of this cell than its log tells: in this life it is not wanted. It would be met again and again otherwise.
    pub(crate) fn outdoes(&self, cell: CellId, life: u128) {
        self.state().peers.entry(cell).or_default().outdoes = Some(life);
    }

    /// What is known of a peer: what is in the log, or what was heard since of the same start of it.
    pub(crate) fn knows(&self, cell: CellId, mut known: Known) -> Known {
        let heard = self.peer(cell).presence;
        let heard = heard.filter(|it| (it.life, it.nonce) == (known.life, known.nonce));
        known.length = known.length.max(heard.map_or(0, |heard| heard.length));
        known
    }

    /// There is a link to a peer with this greeting, if it may be one still. Says which start it is, and whether it has come
    /// back after it was forgotten.
    pub(crate) fn linked(&self, peer: &Cell, greeting: &[u8]) -> Result<(Presence, bool), String> {
        let Greeting { presence: begun, version, is_replicated, .. } =
            self.check(peer, greeting)?;
        let mut state = self.state();
        let is_back = state.forgotten.comes_back(peer.id).map_err(|error| error.to_string())?;
        let it = state.peers.entry(peer.id).or_default();
        let presence = Some(begun);
        *it = Peer { presence, is_linked: true, is_replicated, version, outdoes: None };
        Ok((begun, is_back))
    }

    /// Whether a peer understands what is said about replicated cells.
    pub(crate) fn knows_of_replicated(&self, cell: CellId) -> bool {
        self.state().peers.get(&cell).is_some_and(|peer| peer.version >= REPLICATED)
    }

    /// Whether a peer says what it knows of this cell.
    pub(crate) fn says_what_it_knows(&self, cell: CellId) -> bool {
        self.state().peers.get(&cell).is_some_and(|peer| peer.version >= KNOWS)
    }

    pub(crate) fn unlinked(&self, cell: CellId) {
        if let Some(peer) = self.state().peers.get_mut(&cell) {
            peer.is_linked = false;
        }
    }

    /// The log of a peer has come so far.
    pub(crate) fn heard(&self, cell: CellId, length: u64) {
        let mut state = self.state();
        let presence = state.peers.get_mut(&cell).and_then(|peer| peer.presence.as_mut());
        presence.into_iter().for_each(|presence| presence.has_come_to(length));
    }

    /// What is said with it that a member is given up ([`Meant`]), and whether that says which life is meant.
    pub(crate) fn word_to_forget(&self, cell: CellId) -> std::io::Result<(Vec<u8>, bool)> {
        let known = self.peer(cell).presence;
        Ok((Meant::word(known.as_ref())?, known.is_some()))
    }

    fn peer(&self, cell: CellId) -> Peer {
        self.state().peers.get(&cell).copied().unwrap_or_default()
    }

    /// A member is given up, in the life that is meant. Says what follows from it, and whether that is kept: it follows all the same.
    pub(crate) fn forget(&self, cell: CellId, word: &[u8]) -> (Word, std::io::Result<()>) {
        let Peer { presence, is_replicated, .. } = self.peer(cell);
        let mut state = self.state();
        if state.forgotten.is_known(cell, word) {
            return (Word::Known, Ok(()));
        }
        let meant = Meant::by(word);
        let is_about_it =
            |known: Presence| meant.is_some_and(|meant| meant.is_about(&known, is_replicated));
        let (is_meant, life) = (presence.is_none_or(is_about_it), meant.map(|meant| meant.life));
        let away = is_meant || state.forgotten.is_away(cell);
        let kept = state.forgotten.add(cell, word, life, away);
        (if is_meant { Word::Meant(life) } else { Word::NotMeant }, kept)
    }

    /// What the log says of how a member was given up, and in which start it was heard of since.
    pub(crate) fn agree(
        &self,
        cell: CellId,
        logged: Option<&GivenUp>,
        met: Option<&Presence>,
    ) -> std::io::Result<()> {
        self.state().forgotten.agree(cell, logged, met)
    }

    /// Whether a member was given up, and has not come back.
    pub(crate) fn is_away(&self, cell: CellId) -> bool {
        self.state().forgotten.is_away(cell)
    }

    fn check(&self, peer: &Cell, greeting: &[u8]) -> Result<Greeting, String> {
        let state = self.state();
        if let Some(why) = &state.alone {
            return Err(why.clone());
        }
        let greeting = Greeting::read(greeting, &state.terms).map_err(|unfit| unfit.to_string())?;
        let others = state.peers.keys().chain([&state.own]);
        if let Some(other) = others
            .into_iter()
            .find(|other| **other != peer.id && number(**other) == number(peer.id))
        {
            return Err(format!(
                "its id begins as that of {other} does, and cells cannot be told apart by the rest; \
                 remove it, and let it join again under a new id"
            ));
        }
        if !state.forgotten.lets_in(peer.id, &greeting.presence, greeting.is_replicated) {
            return Err(format!(
                "{peer} was forgotten in this life (`holdall cluster forget`), and what it held may have been given to \
                 others; to begin a new life, stop its agent and move segment-* and snapshot-* in its data directory away"
            ));
        }
        let known = state.peers.get(&peer.id).copied().unwrap_or_default();
        if known.outdoes == Some(greeting.presence.life) {
            return Err(format!(
                "{peer} knows more of this cell than its log tells, and is waited for: give this cell a new life with `holdall cell adopt`, or say \
                 `holdall cluster forget {}`, if it holds nothing",
                peer.name
            ));
        }
        let is_later = known.presence.is_some_and(|before| {
            before.life == greeting.presence.life && before.epoch < greeting.presence.epoch
        });
        let takes_over = greeting.is_replicated && is_later;
        let is_linked = known.is_linked && !takes_over;
        let is_known = greeting.presence.check(known.presence.as_ref(), is_linked);
        is_known.map_err(|stranger| format!("{stranger}; {}", stranger.remedy()))?;
        Ok(greeting)
    }
}

impl Above for Greeter {
    fn greeting(&self, _: &Cell) -> Vec<u8> {
        let mut state = self.state();
        state.distinct &= state.presence.length > state.presence.began;
        let State { presence, terms, is_replicated, .. } = &*state;
        Greeting::new(*presence, terms, *is_replicated).encode()
    }

    fn welcome(&self, peer: &Cell, greeting: &[u8]) -> Result<(), String> {
        self.check(peer, greeting).map(drop)
    }

    fn client(&self, token: &str) -> Option<String> {
        let name = self.tokens.whose(token)?.name?;
        name.strip_prefix("token:").map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(id: u128, name: &str) -> Cell {
        Cell { id: CellId(id), name: name.parse().expect("a name") }
    }

    fn greeter(dir: &tempfile::TempDir) -> Greeter {
        let forgotten = Forgotten::read(dir.path()).expect("whole");
        let tokens = Arc::new(Tokens::new(dir.path()));
        Greeter::new(CellId(1 << 64), Presence::default(), Terms::default(), forgotten, tokens)
    }

    fn forget(greeter: &Greeter, peer: &Cell, word: &[u8]) -> Word {
        let (what, kept) = greeter.forget(peer.id, word);
        kept.expect("kept");
        what
    }

    fn says(life: u128, epoch: u32, nonce: u128, length: u64) -> Vec<u8> {
        let presence = Presence { life, epoch, nonce, began: length, length };
        Greeting::new(presence, &Terms::default(), false).encode()
    }

    #[test]
    fn a_second_start_and_an_older_log_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (greeter, peer) = (greeter(&dir), cell(2 << 64, "b"));
        let wants = |words: &[u8]| greeter.welcome(&peer, words);
        assert_eq!(wants(&says(1, 1, 10, 5)), Ok(()));
        greeter.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        assert!(wants(&says(1, 2, 20, 9)).expect_err("it is up").contains("another start"));
        greeter.unlinked(peer.id);
        assert_eq!(wants(&says(1, 2, 20, 9)), Ok(()));
        greeter.heard(peer.id, 100);
        assert!(wants(&says(1, 2, 20, 9)).expect_err("a copy").contains("had 100"));
        assert_eq!(wants(&says(2, 2, 20, 9)), Ok(()), "it says that it has lost its memory");
    }

    /// Old versions refuse a greeting that was overtaken by what was said later as they refuse one of another start.
    #[test]
    fn a_greeting_that_was_overtaken_is_not_taken_for_a_later_state_of_the_log() {
        let (here, there) = (tempfile::tempdir(), tempfile::tempdir());
        let (here, there) = (here.expect("a directory"), there.expect("a directory"));
        let peer = cell(2 << 64, "b");
        let began = Presence { life: 1, epoch: 2, nonce: 20, began: 100, length: 100 };
        // On a full disk others are greeted before the start is written.
        for written in [true, false] {
            let (greeter, other) = (greeter(&here), greeter(&there));
            greeter.state().presence = began;
            if written {
                greeter.has_come_to(101);
            }
            let late = greeter.greeting(&peer);
            other.linked(&peer, &greeter.greeting(&peer)).expect("wanted");
            greeter.has_come_to(103);
            other.heard(peer.id, 103);
            other.unlinked(peer.id);
            let why = other.welcome(&peer, &late).expect_err("overtaken");
            assert!(why.contains("had 103"), "{why}");
            assert_eq!(greeter.outdone(peer.id, &why), None, "{why}");
            greeter.has_come_to(200);
            let why = Stranger::Shorter { length: 100, known: 103 };
            assert_eq!(greeter.outdone(peer.id, &why.to_string()), written.then_some(why));
            let why = Stranger::Shorter { length: 100, known: 201 };
            assert_eq!(
                greeter.outdone(peer.id, &why.to_string()),
                Some(why),
                "this start told nobody that"
            );
        }
    }

    /// It is given up, or begins a new life.
    #[test]
    fn who_knows_more_of_a_replicated_cell_is_refused_until_somebody_has_seen_to_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (greeter, peer) = (greeter(&dir), cell(2 << 64, "b"));
        let more = Stranger::Shorter { length: 0, known: 9 }.to_string();
        greeter.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        greeter.unlinked(peer.id);
        greeter.outdoes(peer.id, 1);
        let why = greeter.welcome(&peer, &says(1, 2, 20, 9)).expect_err("it is waited for");
        assert!(why.contains("cluster forget b"), "{why}");
        assert_eq!(Stranger::told(&why), None, "that says nothing of its own log");
        assert_eq!(greeter.welcome(&peer, &says(2, 2, 20, 9)), Ok(()), "another life");
        assert!(greeter.outdone(peer.id, &more).is_some());
        let (word, _) = greeter.word_to_forget(peer.id).expect("random");
        forget(&greeter, &peer, &word);
        assert_eq!(greeter.outdone(peer.id, &more), None, "somebody has seen to it");
        greeter.linked(&peer, &says(2, 2, 20, 9)).expect("another life");
        greeter.unlinked(peer.id);
        assert!(greeter.outdone(peer.id, &more).is_some());
    }

    /// What beats have told since is not in the log.
    #[test]
    fn what_was_heard_of_the_start_that_is_known_is_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let (greeter, peer) = (greeter(&dir), cell(2 << 64, "b"));
        greeter.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        greeter.heard(peer.id, 30);
        let known = Known { life: 1, nonce: 10, length: 20 };
        assert_eq!(greeter.knows(peer.id, known).length, 30);
        assert_eq!(greeter.knows(peer.id, Known { length: 40, ..known }).length, 40);
        for other in [Known { life: 2, ..known }, Known { nonce: 11, ..known }, Known::default()] {
            assert_eq!(greeter.knows(peer.id, other), other);
        }
    }

    /// The one before may not know yet that it leads no longer, nor be seen to be gone.
    #[test]
    fn a_later_host_of_a_replicated_cell_takes_over_and_no_earlier_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let (greeter, peer) = (greeter(&dir), cell(2 << 64, "b"));
        let says = |life, epoch, length| {
            let nonce = u128::from(epoch);
            let presence = Presence { life, epoch, nonce, began: length, length };
            Greeting::new(presence, &Terms::default(), true).encode()
        };
        greeter.linked(&peer, &says(1, 3, 5)).expect("wanted");
        greeter.heard(peer.id, 7);
        assert_eq!(greeter.welcome(&peer, &says(1, 4, 7)), Ok(()));
        let short = greeter.welcome(&peer, &says(1, 4, 6)).expect_err("it has forgotten something");
        assert!(short.contains("had 7"), "{short}");
        greeter.linked(&peer, &says(1, 4, 7)).expect("wanted");
        assert!(greeter.welcome(&peer, &says(1, 3, 7)).is_err(), "the one before");
        assert!(greeter.welcome(&peer, &says(2, 5, 9)).is_err(), "another life, and it is up");
    }

    #[test]
    fn an_older_peer_is_told_nothing_of_replicated_cells() {
        let dir = tempfile::tempdir().expect("a directory");
        let (greeter, peer) = (greeter(&dir), cell(2 << 64, "b"));
        assert!(!greeter.knows_of_replicated(peer.id), "it was never heard of");
        let mut words = says(1, 1, 10, 5);
        greeter.linked(&peer, &words).expect("wanted");
        assert!(greeter.knows_of_replicated(peer.id));
        words[0] = 1;
        greeter.linked(&peer, &words).expect("a version before is understood");
        assert!(!greeter.knows_of_replicated(peer.id));
    }

    #[test]
    fn who_was_forgotten_comes_back_in_another_life() {
        let dir = tempfile::tempdir().expect("a directory");
        let (greeter, peer) = (greeter(&dir), cell(2 << 64, "b"));
        greeter.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        greeter.unlinked(peer.id);
        let (word, _) = greeter.word_to_forget(peer.id).expect("random");
        assert_eq!(forget(&greeter, &peer, &word), Word::Meant(Some(1)));
        assert_eq!(forget(&greeter, &peer, &word), Word::Known);
        assert!(greeter.is_away(peer.id));
        assert!(
            greeter
                .welcome(&peer, &says(1, 2, 20, 9))
                .expect_err("that life")
                .contains("forgotten")
        );
        let (_, is_back) = greeter.linked(&peer, &says(2, 2, 20, 9)).expect("another life");
        assert!(is_back && !greeter.is_away(peer.id));
    }

    /// Otherwise what the new life uses would be given to others at once.
    #[test]
    fn a_word_that_comes_late_means_the_life_of_then() {
        let (here, there) = (tempfile::tempdir(), tempfile::tempdir());
        let (here, there) = (here.expect("a directory"), there.expect("a directory"));
        let (early, late, peer) = (greeter(&here), greeter(&there), cell(2 << 64, "b"));
        early.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        early.unlinked(peer.id);
        let (word, says_life) = early.word_to_forget(peer.id).expect("random");
        assert!(says_life && word != early.word_to_forget(peer.id).expect("random").0);
        assert_eq!(forget(&early, &peer, &word), Word::Meant(Some(1)));
        late.linked(&peer, &says(2, 2, 20, 9)).expect("it has come back");
        assert_eq!(forget(&late, &peer, &word), Word::NotMeant);
        assert!(!late.is_away(peer.id) && late.welcome(&peer, &says(2, 2, 20, 9)).is_ok());
        late.unlinked(peer.id);
        assert!(late.welcome(&peer, &says(1, 3, 30, 9)).is_err(), "that life is over");
    }

    /// On a full disk, what is not meant is not carried out either; and what is, in the life that is meant.
    #[test]
    fn a_word_that_cannot_be_kept_means_what_it_says() {
        let (here, there) = (tempfile::tempdir(), tempfile::tempdir());
        let (here, there) = (here.expect("a directory"), there.expect("a directory"));
        let (early, late, peer) = (greeter(&here), greeter(&there), cell(2 << 64, "b"));
        early.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        let (word, _) = early.word_to_forget(peer.id).expect("random");
        late.linked(&peer, &says(2, 2, 20, 9)).expect("it has come back");
        for dir in [&here, &there] {
            std::fs::create_dir(dir.path().join("forgotten.new")).expect("ours");
        }
        let (what, kept) = early.forget(peer.id, &word);
        assert!(what == Word::Meant(Some(1)) && kept.is_err());
        assert!(early.welcome(&peer, &says(1, 1, 10, 5)).is_err(), "that life is over");
        let (what, kept) = late.forget(peer.id, &word);
        assert!(what == Word::NotMeant && kept.is_err());
        assert!(!late.is_away(peer.id));
    }

    /// Said at a member that was never linked with it, it might mean any life.
    #[test]
    fn a_word_that_means_no_life_counts_only_where_none_is_known() {
        let (here, there) = (tempfile::tempdir(), tempfile::tempdir());
        let (here, there) = (here.expect("a directory"), there.expect("a directory"));
        let (stranger, knows, peer) = (greeter(&here), greeter(&there), cell(2 << 64, "b"));
        let (word, says_life) = stranger.word_to_forget(peer.id).expect("random");
        assert!(!says_life);
        assert_eq!(forget(&stranger, &peer, &word), Word::Meant(None));
        knows.linked(&peer, &says(2, 2, 20, 9)).expect("wanted");
        assert_eq!(forget(&knows, &peer, &word), Word::NotMeant);
        assert!(!knows.is_away(peer.id) && knows.welcome(&peer, &says(2, 2, 20, 9)).is_ok());
    }

    /// It was given up while another host led, and has come back since: the word is heard again here.
    #[test]
    fn a_host_that_was_away_knows_from_the_log_who_was_given_up() {
        let (here, there) = (tempfile::tempdir(), tempfile::tempdir());
        let (here, there) = (here.expect("a directory"), there.expect("a directory"));
        let (before, after, peer) = (greeter(&here), greeter(&there), cell(2 << 64, "b"));
        before.linked(&peer, &says(1, 1, 10, 5)).expect("wanted");
        let (word, _) = before.word_to_forget(peer.id).expect("random");
        let Word::Meant(life) = forget(&before, &peer, &word) else { panic!() };
        let logged = GivenUp { life, word: word.clone() };
        after.agree(peer.id, Some(&logged), None).expect("kept");
        assert!(after.welcome(&peer, &says(1, 2, 20, 9)).is_err(), "it may hold what others have");
        assert!(after.is_away(peer.id));
        after.linked(&peer, &says(2, 2, 20, 9)).expect("another life");
        assert_eq!(forget(&after, &peer, &word), Word::Known);
    }

    #[test]
    fn cells_that_cannot_be_told_apart_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let greeter = greeter(&dir);
        let twin = cell((1 << 64) + 5, "b");
        assert!(greeter.welcome(&twin, &says(1, 1, 1, 1)).expect_err("as our own").contains("id"));
        greeter.know(CellId(7 << 64), None);
        let twin = cell((7 << 64) + 5, "c");
        assert!(greeter.welcome(&twin, &says(1, 1, 1, 1)).is_err());
    }
}
