//! The calls of a session: those that are not over, and where their replies go. No I/O.
//!
//! # Invariants
//! - A call is kept until the agent has said that it has it: it can be made again, under the same number.
//! - Whoever waits for replies gets each of them, however often the agent says it again, or learns that
//!   none will come.
//! - No more than [`WINDOW`] calls are on their way whose end the agent was not told to be known here. It
//!   keeps no more than 4,096 of a session, and would turn others away.

use std::collections::{BTreeMap, HashMap};

use holdall_wire::{Attach, Body, FIRST_QUERY, Fault, Reply};
use tokio::sync::mpsc;

/// The replies to one call.
pub(crate) type Replies = mpsc::UnboundedReceiver<Reply>;

/// After how many calls the agent is told that their replies have come.
const HEARD_AFTER: u64 = 64;
/// After how many later calls a request that waits is passed over when that is told.
const PASSED_OVER: u64 = 1024;
/// How many calls are made beyond those of which the agent was told that their end is known. A request that
/// waits is passed over before it keeps others from being made.
const WINDOW: u64 = 3 * PASSED_OVER;

/// Who a session is to the agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    session: u128,
    secret: u128,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Identity {
    /// One that nobody can guess.
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = [[0; 16]; 2];
        let drawn = getrandom::fill(bytes.as_flattened_mut());
        drawn.map_err(|error| std::io::Error::other(error.to_string()))?;
        let [session, secret] = bytes.map(u128::from_le_bytes);
        Ok(Self { session, secret })
    }
}

/// A call of the session that is not over.
#[derive(Debug)]
struct Made {
    /// What is to be said again if the connection is lost: nothing, once the agent has it.
    body: Option<Body>,
    stands: Stands,
    /// Nobody waits for the reply to what must be done in any case.
    replies: Option<mpsc::UnboundedSender<Reply>>,
}

/// How it stands with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// Nothing is known, or that it is being done.
    Open,
    /// It is a request that waits.
    Waits,
    /// It is a request that was granted.
    Granted,
}

impl Made {
    fn is_wanted(&self) -> bool {
        self.replies.as_ref().is_none_or(|replies| !replies.is_closed())
    }
}

#[derive(Debug)]
struct Query {
    /// What is to be said, if it has not been.
    body: Option<Body>,
    replies: mpsc::UnboundedSender<Reply>,
}

/// The calls of a session that are not over.
#[derive(Debug)]
pub(crate) struct Calls {
    identity: Identity,
    /// How many sessions there were before this one.
    generation: u64,
    /// Whether the agent may know the session.
    tried: bool,
    /// Whether the agent has said that it knows the session.
    known: bool,
    /// The last number that was given.
    last: u64,
    made: BTreeMap<u64, Made>,
    /// How many calls have come to their end, or were granted, since the agent was told.
    settled: u64,
    /// Up to which call the agent was told that the end of all is known.
    told: u64,
    /// The last call that was sent over any connection; they are sent in their order.
    furthest: u64,
    queries: HashMap<u64, Query>,
    last_query: u64,
}

impl Calls {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            generation: 0,
            tried: false,
            known: false,
            last: 0,
            made: BTreeMap::new(),
            settled: 0,
            told: 0,
            furthest: 0,
            queries: HashMap::new(),
            last_query: FIRST_QUERY,
        }
    }

    /// A number that tells this session from those before it, which are over.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the agent may know the session.
    pub(crate) fn is_tried(&self) -> bool {
        self.tried
    }

    /// Whether the agent has said that it knows the session.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// Whether a call was ever sent: only then the agent may know it.
    pub(crate) fn was_sent(&self, number: u64) -> bool {
        number <= self.furthest
    }

    /// A new call, whose replies somebody waits for.
    pub(crate) fn make(&mut self, body: Body) -> (u64, Replies) {
        let (sender, replies) = mpsc::unbounded_channel();
        (self.enter(body, Some(sender)), replies)
    }

    /// A new call that must be done, whether somebody waits for the reply or not.
    pub(crate) fn oblige(&mut self, body: Body) {
        self.enter(body, None);
    }

    fn enter(&mut self, body: Body, replies: Option<mpsc::UnboundedSender<Reply>>) -> u64 {
        self.last += 1;
        self.made.insert(self.last, Made { body: Some(body), stands: Stands::Open, replies });
        self.last
    }

    /// A new query.
    pub(crate) fn query(&mut self, body: Body) -> Replies {
        let (sender, replies) = mpsc::unbounded_channel();
        let id = self.next_query();
        self.queries.insert(id, Query { body: Some(body), replies: sender });
        replies
    }

    fn next_query(&mut self) -> u64 {
        self.last_query += 1;
        self.last_query
    }

    /// The queries that have not been made. They are made once.
    pub(crate) fn new_queries(&mut self) -> Vec<(u64, Body)> {
        let take = |(id, query): (&u64, &mut Query)| Some((*id, query.body.take()?));
        let mut all: Vec<_> = self.queries.iter_mut().filter_map(take).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// The last call that may be made now.
    fn room(&self) -> u64 {
        self.last.min(self.told + WINDOW)
    }

    /// Whether there are calls that may be made after this one now.
    pub(crate) fn has_after(&self, number: u64) -> bool {
        number < self.last && (number < self.room() || self.has_news())
    }

    /// The calls after a number that the agent may not have and that may be made now, in their order.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = (u64, &Body)> {
        let all = self.made.range(number.saturating_add(1)..);
        let now = all.take_while(|(number, _)| **number <= self.room());
        now.filter_map(|(number, made)| Some((*number, made.body.as_ref()?)))
    }

    /// All that may be made now have been sent. Returns the last of them.
    pub(crate) fn sent(&mut self) -> u64 {
        let room = self.room();
        self.furthest = self.furthest.max(room);
        room
    }

    /// What is said to the agent to be known by it, and under which number.
    pub(crate) fn attach(&mut self, lease: Option<u64>) -> (u64, Body) {
        self.tried = true;
        self.settled = 0;
        let Identity { session, secret } = self.identity;
        let (returns, heard) = (self.known, self.heard());
        self.told = heard;
        (self.next_query(), Body::Attach(Attach { session, secret, returns, heard, lease }))
    }

    /// What is said to the agent from time to time, so that it need not keep its replies.
    pub(crate) fn news(&mut self) -> Option<(u64, Body)> {
        if !self.has_news() {
            return None;
        }
        self.settled = 0;
        self.told = self.heard();
        Some((self.next_query(), Body::Heard(self.told)))
    }

    /// Whether it is time to tell the agent what was heard. If calls wait for that, it counts how far it gets
    /// them.
    fn has_news(&self) -> bool {
        let is_full = self.last > self.told + WINDOW;
        self.settled >= HEARD_AFTER || is_full && self.heard() >= self.told + HEARD_AFTER
    }

    /// Up to which call the end of all is known. That a grant was lost need not be told: it is missing
    /// then. Nor is a request kept up with for ever that waits while many others come and go.
    fn heard(&self) -> u64 {
        let is_unheard = |(number, made): &(&u64, &Made)| match made.stands {
            Stands::Open => true,
            Stands::Waits => **number + PASSED_OVER >= self.last,
            Stands::Granted => false,
        };
        self.made.iter().find(is_unheard).map_or(self.last, |(number, _)| number - 1)
    }

    /// Sorts a reply to whoever waits for it.
    pub(crate) fn answer(&mut self, id: u64, reply: Reply) {
        if let Some(query) = self.queries.remove(&id) {
            // Whoever has gone away does not want it.
            let _ = query.replies.send(reply);
            return;
        }
        // One that is over has been told already.
        let Some(made) = self.made.get_mut(&id) else { return };
        let stands = match &reply {
            // It comes before the call is taken.
            Reply::Warning(_) => Some(made.stands),
            // It comes again and again.
            Reply::Until { .. } => Some(made.stands),
            Reply::Queued(_) => Some(Stands::Waits),
            Reply::Granted { .. } => Some(Stands::Granted),
            _ => None,
        };
        if let Some(stands) = stands.filter(|stands| *stands != made.stands) {
            (made.body, made.stands) = (None, stands);
            self.settled += u64::from(stands == Stands::Granted);
        }
        if let Some(replies) = &made.replies {
            let _ = replies.send(reply);
        }
        if stands.is_none() {
            self.made.remove(&id);
            self.settled += 1;
        }
    }

    /// The agent knows the session, and says how its calls stand.
    pub(crate) fn attached(&mut self, answers: Vec<(u64, Option<Reply>)>) {
        self.known = true;
        let answers: BTreeMap<_, _> = answers.into_iter().collect();
        // What the agent had, and has no more, is over: whoever waits for a reply learns that none comes. What
        // it does not have it has not taken, or turned away, and is told again.
        self.made.retain(|number, made| made.body.is_some() || answers.contains_key(number));
        for (number, reply) in answers {
            match (reply, self.made.get_mut(&number)) {
                (Some(reply), _) => self.answer(number, reply),
                (None, Some(made)) => made.body = None, // Its reply will come.
                (None, None) => {}
            }
        }
    }

    /// Nobody waits for this call any more.
    pub(crate) fn forget(&mut self, number: u64) {
        if self.made.remove(&number).is_some_and(|made| made.stands != Stands::Granted) {
            self.settled += 1;
        }
    }

    /// All calls have failed, for this reason.
    pub(crate) fn fail_all(&mut self, fault: &Fault) {
        let all: Vec<_> = self.made.keys().copied().collect();
        for number in all {
            self.answer(number, Reply::Failed(fault.clone()));
        }
    }

    /// The session is over: whoever waits for a reply learns that none will come. Another one begins, whose
    /// numbers go on, so that nothing that is still said about the one before is taken for its own.
    pub(crate) fn begin_anew(&mut self) {
        self.identity.session = self.identity.session.wrapping_add(1);
        self.generation += 1;
        (self.tried, self.known) = (false, false);
        self.made.clear();
    }

    /// Nothing will be heard any more.
    pub(crate) fn end(&mut self) {
        self.begin_anew();
        self.queries.clear();
    }

    /// The connection is lost. Queries belong to it, and what nobody waits for is not made again.
    pub(crate) fn lose_connection(&mut self) {
        self.queries.retain(|_, query| query.body.is_some());
        self.give_up_unwanted();
    }

    /// Gives up what nobody waits for any more.
    pub(crate) fn give_up_unwanted(&mut self) {
        self.made.retain(|_, made| made.is_wanted());
        self.queries.retain(|_, query| !query.replies.is_closed());
    }

    /// Whether there is something that only the agent can bring to its end.
    pub(crate) fn need_the_agent(&self) -> bool {
        !self.made.is_empty() || !self.queries.is_empty()
    }

    /// Whether calls of the session are not over.
    pub(crate) fn any_made(&self) -> bool {
        !self.made.is_empty()
    }
}
