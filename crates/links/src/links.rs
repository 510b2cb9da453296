//! The links of a member, for those above.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::above::Above;
use crate::card::Card;
use crate::cell::{Cell, CellId};
use crate::config::Config;
use crate::event::{Events, inbox};
use crate::home::{self, Home, check_addresses};
use crate::hub::Hub;
use crate::member::{ABOUT_MAX, Member, Roster, WORD_MAX};
use crate::peer::PeerView;
use crate::{dial, door, renew, store};

/// The links of a member. They end when this is dropped.
///
/// They run in the runtime that started them, which may have a thread of its own: everything here may be called, and
/// events taken, from any thread.
pub struct Links {
    pub(crate) hub: Arc<Hub>,
    _tasks: JoinSet<()>,
}

/// Why something is not said to the members.
#[derive(Debug, thiserror::Error)]
pub enum Unsaid {
    /// There is no such member.
    #[error("no member has the id {0}; `holdall cluster members` lists them")]
    Unknown(CellId),
    /// There is no member of that name.
    #[error("no member is called {0}; `holdall cluster members` lists them")]
    Nobody(String),
    /// There are two members of that name.
    #[error("{0} members are called {1}; say the id of one")]
    Several(usize, String),
    /// The own cell.
    #[error("a cell does not remove itself; say it at another member")]
    Own,
    /// It is too long.
    #[error("{0} bytes are too many; at most {1} are carried")]
    Long(usize, usize),
    /// It holds, and is not kept yet.
    #[error(
        "it holds and others are told, but it is not on disk here: {0}; that is tried again every second. Should this machine stop before, look at another member whether it was heard, and else say it again"
    )]
    Unkept(store::Error),
    /// These are no addresses.
    #[error(transparent)]
    Home(#[from] home::Error),
}

impl Links {
    /// Starts the links of a member, in the tokio runtime of the caller: to all other members, and for whoever comes
    /// in through the listener.
    ///
    /// # Errors
    /// If something in the directory of the member is missing or damaged.
    pub fn start(
        home: Home,
        listener: Option<TcpListener>,
        config: Config,
        above: Arc<dyn Above>,
    ) -> Result<(Self, Events), home::Error> {
        let (links, events) = Self::prepare(home, listener, config, above)?;
        links.open();
        Ok((links, events))
    }

    /// The same, and connects to the members, but neither greets them nor listens to whoever comes in before it is
    /// [opened](Self::open).
    ///
    /// # Errors
    /// The same.
    pub fn prepare(
        home: Home,
        listener: Option<TcpListener>,
        config: Config,
        above: Arc<dyn Above>,
    ) -> Result<(Self, Events), home::Error> {
        let (inbox, events) = inbox(config.inbox_frames, config.inbox_bytes);
        let hub = Arc::new(Hub::new(home, config, above, inbox)?);
        let mut tasks = JoinSet::new();
        tasks.spawn(dial::dial_members(hub.clone()));
        tasks.spawn(renew::keep_certificate(hub.clone()));
        let announcing = hub.clone();
        tasks.spawn(async move { announcing.announce().await });
        if let Some(listener) = listener {
            tasks.spawn(door::open(hub.clone(), listener));
        }
        Ok((Self { hub, _tasks: tasks }, events))
    }

    /// Greets the members from now on, those first to whom it has connected.
    pub fn open(&self) {
        self.hub.open();
    }

    /// To how many members it has connected that are greeted when it is opened.
    pub fn waiting(&self) -> usize {
        self.hub.waiting()
    }

    /// Says something about the own cell to all members, now and when they come.
    ///
    /// # Errors
    /// If it is too long.
    pub fn set_about(&self, bytes: Vec<u8>) -> Result<(), Unsaid> {
        within(bytes.len(), ABOUT_MAX)?;
        self.hub.change(|roster| roster.say_about(bytes));
        Ok(())
    }

    /// Says where the own cell can be reached.
    ///
    /// # Errors
    /// If these are no addresses.
    pub fn set_addresses(&self, addresses: &[String]) -> Result<(), Unsaid> {
        check_addresses(addresses)?;
        self.hub.change(|roster| roster.say_member(addresses, self.hub.home.signs()));
        Ok(())
    }

    /// Removes a member for good: nobody has a link with that cell any more. It is on disk when this returns; others
    /// hear of it as they can be reached.
    ///
    /// # Errors
    /// If it is no member; or if it is removed but that is not on disk yet.
    pub async fn remove(&self, cell: CellId) -> Result<(), Unsaid> {
        if cell == self.hub.own().id {
            return Err(Unsaid::Own);
        }
        if !self.hub.change(|roster| roster.remove(cell, home::now())) {
            return Err(Unsaid::Unknown(cell));
        }
        self.kept().await
    }

    /// Tells all members, this one too, that what a cell holds is forgotten. It is on disk when this returns.
    ///
    /// # Errors
    /// If the cell is not known; or if it was said but that is not on disk yet.
    pub async fn forget(&self, cell: CellId, word: Vec<u8>) -> Result<(), Unsaid> {
        within(word.len(), WORD_MAX)?;
        if self.hub.roster(|roster| roster.member(cell).is_none()) {
            return Err(Unsaid::Unknown(cell));
        }
        self.hub.change(|roster| roster.forget(cell, word));
        self.kept().await
    }

    async fn kept(&self) -> Result<(), Unsaid> {
        self.hub.save().await.map(drop).map_err(Unsaid::Unkept)
    }

    /// Every cell of which it was said that what it holds is forgotten, and what was said with it. All of it is told
    /// again at each start ([`crate::Event::Forget`]).
    pub fn forgotten(&self) -> Vec<(CellId, Vec<u8>)> {
        let said =
            |roster: &Roster| roster.forgotten().map(|(id, it)| (id, it.word.clone())).collect();
        self.hub.roster(said)
    }

    /// The own cell.
    pub fn own(&self) -> &Cell {
        self.hub.own()
    }

    /// Every cell that is or was a member.
    pub fn members(&self) -> Vec<(CellId, Member)> {
        self.hub.members()
    }

    /// The member that people mean by this: a name, or an id.
    ///
    /// # Errors
    /// If it is not exactly one.
    pub fn named(&self, text: &str) -> Result<CellId, Unsaid> {
        let short = || text.chars().take(80).collect();
        self.hub.roster(|roster| {
            if let Some(id) = text.parse().ok().filter(|id| roster.member(*id).is_some()) {
                return Ok(id);
            }
            let found: Vec<_> = roster.named(text).map(|(id, _)| id).collect();
            match found[..] {
                [] => Err(Unsaid::Nobody(short())),
                [one] => Ok(one),
                _ => Err(Unsaid::Several(found.len(), short())),
            }
        })
    }

    /// What a cell last said about itself, as far as it was heard.
    pub fn about(&self, cell: CellId) -> Option<Vec<u8>> {
        self.hub.roster(|roster| roster.about(cell).map(|about| about.bytes.clone()))
    }

    /// All peers: members, and whoever had a link since the start.
    pub fn peers(&self) -> Vec<PeerView> {
        self.hub.peers(|peers| peers.iter().map(|(id, peer)| peer.view(*id)).collect())
    }

    /// What the own certificate says.
    pub fn certificate(&self) -> Card {
        self.hub.tls().card.clone()
    }

    /// Whether this cell was removed: it has no links any more.
    pub fn is_removed(&self) -> bool {
        self.hub.roster(|roster| roster.is_removed(self.hub.own().id))
    }
}

fn within(length: usize, max: usize) -> Result<(), Unsaid> {
    if length > max { Err(Unsaid::Long(length, max)) } else { Ok(()) }
}
