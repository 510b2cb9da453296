//! Requests over HTTP: each is a session of the wire with a lease, found again by the id that its
//! client has picked.
//!
//! The number and the secret of the session are computed from a key of the agent's, the user and that
//! id, so nothing needs to be remembered. Somebody who calls about a request attaches to its session for as long as
//! the call lasts; then the lease counts. Calls about one request at the same time share one
//! connection, since a session has one at most.
//!
//! Within the session there is one request, whose mark ([`Mark`]) is the number of the call that asks for it; the next
//! number gives it back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hmac_sha256::HMAC;
use holdall_wire::{
    Answer, Ask, Attach, Body, FIRST_QUERY, Fault, Refusal, Reply, RequestNo, Taken,
};
use tokio::sync::{OnceCell, mpsc, watch};
use tracing::debug;

use crate::caller::{Peer, Service};
use crate::link::{Link, in_time, unexpected};
use crate::mark::{LEAVE, Mark};
use crate::problem::{Kind, Problem};
use crate::waiters::Waiters;

/// The number of the call that attaches.
const ATTACH: u64 = FIRST_QUERY;
/// How long the service may take for what it does at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How it stands with a request.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// It was not asked for yet.
    New,
    /// It was asked for, and nothing was said yet.
    Asked,
    /// It waits.
    Waiting(RequestNo),
    /// It is held.
    Granted(Granted),
    /// Its owner has given it back, or did not want it any more.
    Released,
    /// It is over for another reason.
    Over(Problem),
    /// The connection has ended, and how it stands is not known: whoever comes back is told.
    Away(Problem),
}

/// What is held.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) request: RequestNo,
    pub(crate) taken: Arc<[Taken]>,
    pub(crate) limit: Option<u64>,
}

impl Standing {
    fn is_settled(&self) -> bool {
        !matches!(self, Self::New | Self::Asked | Self::Waiting(_))
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::Released | Self::Over(_) | Self::Away(_))
    }
}

/// What is known of a request.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) standing: Standing,
    /// What tells it from others; none if it was not asked for yet.
    pub(crate) mark: Option<Mark>,
    /// Until when it may be used, by the time since the boot, if other cells guard something of it: without another
    /// word not longer, whatever its lease.
    pub(crate) lent_until: Option<u64>,
    pub(crate) warnings: Vec<String>,
}

impl State {
    fn new() -> Self {
        Self { standing: Standing::New, mark: None, lent_until: None, warnings: Vec::new() }
    }

    /// Of a request that was given back.
    pub(crate) fn released(mark: Mark) -> Self {
        Self { standing: Standing::Released, mark: Some(mark), ..Self::new() }
    }
}

/// Everything that is being done about one request.
pub(crate) struct Lease {
    /// Who waits for it.
    pub(crate) waiters: Waiters,
    state: watch::Receiver<State>,
    orders: mpsc::UnboundedSender<Order>,
}

/// What is done within the session.
enum Order {
    /// Asks, unless that was done.
    Ask(Box<Ask>, Mark),
    /// Gives back.
    GiveBack,
    /// Ends the session.
    Leave,
}

impl Lease {
    /// How it stands.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Asks for something, unless this was done before. Tells the mark of what was asked for.
    pub(crate) async fn ask(&self, ask: Ask, mark: Mark) -> Option<Mark> {
        self.order(Order::Ask(Box::new(ask), mark));
        let mut state = self.state.clone();
        let asked = state.wait_for(|state| !matches!(state.standing, Standing::New));
        let _ = tokio::time::timeout(PATIENCE, asked).await;
        self.state().mark
    }

    /// How it stands when it is granted or over, or after some time.
    pub(crate) async fn settled(&self, patience: Duration) -> State {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| state.standing.is_settled());
        // Nobody tells any more: the connection has ended, and that was the last word.
        let _ = tokio::time::timeout(patience, settled).await;
        self.state()
    }

    /// How it stands when it is over, or after some time.
    pub(crate) async fn over(&self, patience: Duration) -> State {
        let mut state = self.state.clone();
        let over = state.wait_for(|state| state.standing.has_ended());
        let _ = tokio::time::timeout(patience, over).await;
        self.state()
    }

    /// How it stands as soon as anything was said. That is at once, but for a grant of which other cells guard something: whether
    /// these still do is found out first when an agent has just started.
    pub(crate) async fn heard(&self, patience: Duration) -> State {
        let mut state = self.state.clone();
        let heard =
            state.wait_for(|state| !matches!(state.standing, Standing::New | Standing::Asked));
        let _ = tokio::time::timeout(patience, heard).await;
        self.state()
    }

    /// Gives it back, granted or not.
    pub(crate) async fn give_back(&self) -> State {
        self.order(Order::GiveBack);
        self.over(PATIENCE).await
    }

    /// Waits until nobody talks about it any more.
    async fn silent(&self) {
        let mut state = self.state.clone();
        let _ = tokio::time::timeout(PATIENCE, state.wait_for(|_| false)).await;
    }

    fn order(&self, order: Order) {
        // If nobody takes it, the connection has ended, and the state says so.
        let _ = self.orders.send(order);
    }
}

/// The leases about which somebody calls at this moment.
pub(crate) struct Leases {
    service: Arc<dyn Service>,
    key: [u8; 32],
    current: Mutex<HashMap<u128, Weak<OnceCell<Arc<Lease>>>>>,
}

/// Keeps a lease attached.
pub(crate) struct Attached {
    session: u128,
    lease: Arc<Lease>,
    /// Whoever comes meanwhile finds it here.
    shared: Arc<OnceCell<Arc<Lease>>>,
}

impl std::ops::Deref for Attached {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Leases {
    pub(crate) fn new(service: Arc<dyn Service>, key: [u8; 32]) -> Self {
        Self { service, key, current: Mutex::default() }
    }

    /// The request that has this id, if there is one.
    pub(crate) async fn find(&self, peer: &Peer, id: &str) -> Result<Attached, Problem> {
        self.attach(peer, id, None).await
    }

    /// The same; if there is none, it can be asked for, with a lease of so many milliseconds.
    pub(crate) async fn find_or_begin(
        &self,
        peer: &Peer,
        id: &str,
        ttl: u64,
    ) -> Result<Attached, Problem> {
        self.attach(peer, id, Some(ttl)).await
    }

    async fn attach(&self, peer: &Peer, id: &str, ttl: Option<u64>) -> Result<Attached, Problem> {
        let session = self.number("session", peer, id);
        let attach = Attach {
            session,
            secret: self.number("secret", peer, id),
            returns: ttl.is_none(),
            heard: 0,
            lease: Some(ttl.unwrap_or(1000)),
        };
        let shared = self.shared(session);
        let lease = shared.get_or_try_init(|| begin(&*self.service, peer, attach)).await?;
        if let Standing::Away(problem) = lease.state().standing {
            self.forget(session, &shared);
            return Err(problem);
        }
        Ok(Attached { session, lease: lease.clone(), shared })
    }

    /// Ends the session of a request that is over: the agent need not remember it, and whoever asks again
    /// with its id begins anew. Nobody does so before it has ended.
    pub(crate) async fn leave(&self, attached: &Attached) {
        attached.order(Order::Leave);
        attached.silent().await;
        self.forget(attached.session, &attached.shared);
    }

    fn shared(&self, session: u128) -> Arc<OnceCell<Arc<Lease>>> {
        let mut current = self.lock();
        if let Some(shared) = current.get(&session).and_then(Weak::upgrade) {
            return shared;
        }
        if current.len() >= 2 * current.values().filter(|one| one.strong_count() > 0).count() + 16 {
            current.retain(|_, one| one.strong_count() > 0);
        }
        let shared = Arc::new(OnceCell::new());
        current.insert(session, Arc::downgrade(&shared));
        shared
    }

    /// Whoever comes from now on does not find this one, but another if somebody has begun one meanwhile.
    fn forget(&self, session: u128, shared: &Arc<OnceCell<Arc<Lease>>>) {
        let mut current = self.lock();
        if current.get(&session).is_some_and(|known| known.as_ptr() == Arc::as_ptr(shared)) {
            current.remove(&session);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Weak<OnceCell<Arc<Lease>>>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nobody else can tell.
    fn number(&self, what: &str, peer: &Peer, id: &str) -> u128 {
        let mac = HMAC::mac(format!("{what} {} {id}", peer.uid).as_bytes(), self.key);
        let half: [u8; 16] = std::array::from_fn(|at| mac[at]);
        u128::from_le_bytes(half)
    }
}

/// Attaches to a session, and leaves it to a task that listens.
async fn begin(service: &dyn Service, peer: &Peer, attach: Attach) -> Result<Arc<Lease>, Problem> {
    let mut link = Link::open(service, peer).await?;
    let attached = async {
        link.send(ATTACH, Body::Attach(attach)).await?;
        loop {
            let answer = link.answer().await?;
            if answer.id == ATTACH {
                return Ok(answer.reply);
            }
        }
    };
    let (last, answers) = match in_time(attached).await? {
        Reply::Attached { last, answers, .. } => (last, answers),
        Reply::Failed(Fault::Forgotten) => {
            return Err(Problem::lost(
                "there is no such request any more: it was not renewed in time, or never asked for",
            ));
        }
        // A user has so many sessions, with leases that are not too long.
        Reply::Failed(Fault::Conflict(why)) => return Err(Problem::new(Kind::Limit, why)),
        Reply::Failed(fault) => return Err(fault.into()),
        other => return Err(unexpected(&other)),
    };
    let mut talk = Talk { link, state: watch::Sender::new(State::new()), leaves: false };
    if last > 0 {
        let mark = Mark::of_call(last);
        talk.begin(mark);
        let told = |call| answers.iter().find(|one| one.0 == call).and_then(|one| one.1.clone());
        if last == mark.give_back() {
            talk.set(Standing::Released);
        } else if let Some(reply) = told(mark.ask()) {
            talk.hear(Answer { id: mark.ask(), reply });
        }
    }
    let (orders, taken) = mpsc::unbounded_channel();
    let lease =
        Arc::new(Lease { waiters: Waiters::default(), state: talk.state.subscribe(), orders });
    tokio::spawn(talk.run(taken));
    Ok(lease)
}

/// The talk with the service about one request.
struct Talk {
    link: Link,
    state: watch::Sender<State>,
    /// Whether the session is about to end: several may want that.
    leaves: bool,
}

impl Talk {
    /// Goes on until nobody wants to know any more, or the session or the connection ends.
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            let done = tokio::select! {
                answer = self.link.answer() => match answer {
                    Ok(answer) if answer.id == LEAVE => return,
                    answer => answer.map(|answer| self.hear(answer)),
                },
                order = orders.recv() => match order {
                    Some(order) => self.carry_out(order).await,
                    None => return,
                },
            };
            if let Err(error) = done {
                debug!("a connection to the service ends: {error}");
                if !self.standing().has_ended() {
                    self.set(Standing::Away(Problem::unreachable(&error)));
                }
                return;
            }
        }
    }

    fn standing(&self) -> Standing {
        self.state.borrow().standing.clone()
    }

    fn set(&self, standing: Standing) {
        self.state.send_modify(|state| state.standing = standing);
    }

    /// It is asked for.
    fn begin(&self, mark: Mark) {
        self.state
            .send_modify(|state| (state.standing, state.mark) = (Standing::Asked, Some(mark)));
    }

    async fn carry_out(&mut self, order: Order) -> std::io::Result<()> {
        let State { standing, mark, .. } = self.state.borrow().clone();
        match (order, standing, mark) {
            (Order::Ask(ask, mark), Standing::New, _) => {
                self.begin(mark);
                self.link.send(mark.ask(), Body::Ask(*ask)).await
            }
            (
                Order::GiveBack,
                Standing::Asked | Standing::Waiting(_) | Standing::Granted(_),
                Some(mark),
            ) => self.link.send(mark.give_back(), Body::Withdraw(mark.ask())).await,
            (Order::GiveBack, Standing::New, _) => {
                self.set(Standing::Over(Problem::lost("nothing was asked for under this id")));
                Ok(())
            }
            (Order::Leave, _, _) if !self.leaves => {
                self.leaves = true;
                self.link.send(LEAVE, Body::Leave).await
            }
            (Order::Ask(..) | Order::GiveBack | Order::Leave, _, _) => Ok(()),
        }
    }

    fn hear(&mut self, answer: Answer) {
        let Some(mark) = self.state.borrow().mark else { return };
        if answer.id == mark.give_back() {
            return self.given_back(answer.reply);
        } else if answer.id != mark.ask() {
            return;
        }
        match answer.reply {
            Reply::Queued(request) => self.set(Standing::Waiting(request)),
            Reply::Granted { request, taken, limit, .. } => {
                self.set(Standing::Granted(Granted { request, taken, limit }));
            }
            // Said before it is granted, and whenever that moves.
            Reply::Until { boottime_millis, .. } => {
                self.state.send_modify(|state| state.lent_until = Some(boottime_millis));
            }
            Reply::Warning(text) => self.state.send_modify(|state| state.warnings.push(text)),
            Reply::Lost(request) => {
                let text = format!("{request} was taken away: its use must stop");
                self.set(Standing::Over(Problem::lost(text)));
            }
            Reply::Refused(Refusal::Withdrawn) | Reply::Done => self.set(Standing::Released),
            Reply::Refused(why) => self.set(Standing::Over(why.into())),
            Reply::Failed(fault) => self.set(Standing::Over(fault.into())),
            other => self.set(Standing::Over(unexpected(&other))),
        }
    }

    fn given_back(&self, reply: Reply) {
        match reply {
            Reply::Failed(fault) => self.set(Standing::Over(fault.into())),
            _ => self.set(Standing::Released),
        }
    }
}
