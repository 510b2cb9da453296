//! A client that knows several members and asks one of them, until it does not answer: the one that leads them, if it
//! was told to look for it ([`Client::seek_leader`]).

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::failure::is_stale_token;
use crate::messages::{
    self, Authenticate, Authenticated, Compact, Done, Lease, LeaseGrant, LeaseGranted, Range,
    Ranged, StatusTold, Transacted, Transaction, Watch, WatchCreate, Watched,
};
use crate::{Address, Failure, Kind};

/// The most that is taken as one answer.
const ANSWER_MAX: usize = 256 << 20;
/// How often a connection that nobody uses is looked after, and how long that may take.
const LOOK_AFTER: Duration = Duration::from_secs(10);
/// How long a member may take to say whether it leads.
const SEEK: Duration = Duration::from_millis(500);

/// An etcd, and how to be let in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// How long a member may take to answer.
    pub timeout: Duration,
}

/// A client; clones share its connections.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    members: Vec<(String, Channel)>,
    /// Which of them is asked.
    current: AtomicUsize,
    user: Option<(String, String)>,
    /// What to show, if there are users.
    token: Mutex<Option<String>>,
    timeout: Duration,
}

/// Makes a call over one connection.
///
/// # Errors
/// What the other side says, or that there is none.
pub async fn call<A, B>(
    grpc: &mut Grpc<Channel>,
    path: &'static str,
    request: Request<A>,
) -> Result<B, Status>
where
    A: Message + Send + Sync + 'static,
    B: Message + Default + Send + Sync + 'static,
{
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<A, B>::default();
    Ok(grpc.unary(request, path, codec).await?.into_inner())
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure {
        kind: Kind::Refused,
        what: format!("cannot read {}: {error}", path.display()),
    })
}

fn tls_of(address: &Address) -> Result<Option<ClientTlsConfig>, Failure> {
    let Some(tls) = &address.tls else { return Ok(None) };
    let ca = Certificate::from_pem(read(&tls.ca)?);
    let mut config = ClientTlsConfig::new().ca_certificate(ca);
    if let Some((cert, key)) = &tls.own {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    if let Some(server) = &tls.server {
        config = config.domain_name(server);
    }
    Ok(Some(config))
}

impl Client {
    /// A client. Nobody is asked before something is to be known; must be called in a runtime.
    ///
    /// # Errors
    /// If a file that the settings name cannot be read, or a member has no name.
    pub fn new(settings: &Settings) -> Result<Self, Failure> {
        let Settings { address, timeout } = settings;
        let tls = tls_of(address)?;
        let wrong = |member: &str, why: &dyn std::error::Error| Failure {
            kind: Kind::Wrong,
            what: format!("{member} cannot be a member of an etcd: {why}"),
        };
        let connect = |member: &String| {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"));
            let mut endpoint = endpoint
                .map_err(|why| wrong(member, &why))?
                .connect_timeout(*timeout)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(LOOK_AFTER)
                .keep_alive_timeout(LOOK_AFTER);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(|why| wrong(member, &why))?;
            }
            Ok((member.clone(), endpoint.connect_lazy()))
        };
        let user = match &address.user {
            Some((name, file)) => Some((name.clone(), read(file)?.trim_end().to_owned())),
            None => None,
        };
        Ok(Self(Arc::new(Shared {
            members: address.members.iter().map(connect).collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            user,
            token: Mutex::new(None),
            timeout: *timeout,
        })))
    }

    /// The member that is asked: its number, its name, and the connection.
    fn member(&self) -> (usize, &str, Grpc<Channel>) {
        let members = &self.0.members;
        let current = self.0.current.load(Ordering::Relaxed);
        let (name, channel) = &members[current % members.len()];
        let grpc = Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_MAX);
        (current, name, grpc)
    }

    /// Another member is asked from now on, unless somebody has said so already.
    fn leave(&self, member: usize) {
        let next = member.wrapping_add(1);
        let _ = self.0.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// From now on the member is asked that leads the others, if it answers: what any other is asked to carry out it passes on to
    /// that one, and hears of the end of it later. Tells whether that one takes nothing new for want of room.
    pub async fn seek_leader(&self) -> bool {
        let (current, ..) = self.member();
        let count = self.0.members.len();
        for number in (0..count).map(|next| (current + next) % count) {
            let mut grpc = Grpc::new(self.0.members[number].1.clone());
            let Ok(request) = self.request(messages::Status {}) else { return false };
            let asked = call(&mut grpc, "/etcdserverpb.Maintenance/Status", request);
            let told: Result<Result<StatusTold, Status>, _> =
                tokio::time::timeout(SEEK.min(self.0.timeout), asked).await;
            let leads = |told: &StatusTold| {
                told.header.as_ref().is_some_and(|it| it.member != 0 && it.member == told.leader)
            };
            if let Ok(Ok(told)) = &told
                && leads(told)
            {
                // Whoever has just found out that a member does not answer knows better.
                let at = &self.0.current;
                let _ = at.compare_exchange(current, number, Ordering::Relaxed, Ordering::Relaxed);
                return told.errors.iter().any(|alarm| alarm.contains("NOSPACE"));
            }
        }
        false
    }

    fn token(&self) -> Option<String> {
        self.0.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn request<A>(&self, message: A) -> Result<Request<A>, Failure> {
        let mut request = Request::new(message);
        if let Some(token) = self.token() {
            let token = token.parse().map_err(|_| Failure {
                kind: Kind::Refused,
                what: "etcd gave a token that cannot be shown".into(),
            })?;
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    /// One try at one member.
    async fn attempt<A, B>(&self, path: &'static str, message: A) -> Result<B, Outcome>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let (number, name, mut grpc) = self.member();
        let request = self.request(message).map_err(Outcome::Failed)?;
        match tokio::time::timeout(self.0.timeout, call(&mut grpc, path, request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) if is_stale_token(&status) => Err(Outcome::StaleToken),
            Ok(Err(status)) => {
                let failure = Failure::told(&status, name);
                if failure.kind == Kind::Unknown {
                    self.leave(number);
                }
                Err(Outcome::Failed(failure))
            }
            Err(_) => {
                self.leave(number);
                let what = format!("etcd at {name} has not answered in {:?}", self.0.timeout);
                Err(Outcome::Failed(Failure::unknown(what)))
            }
        }
    }

    async fn ask<A, B>(&self, path: &'static str, message: A) -> Result<B, Failure>
    where
        A: Message + Clone + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        if self.0.user.is_some() && self.token().is_none() {
            self.authenticate().await?;
        }
        match self.attempt(path, message.clone()).await {
            Err(Outcome::StaleToken) => {
                self.authenticate().await?;
                self.attempt(path, message).await.map_err(Outcome::failure)
            }
            answer => answer.map_err(Outcome::failure),
        }
    }

    async fn authenticate(&self) -> Result<(), Failure> {
        let Some((name, password)) = self.0.user.clone() else { return Ok(()) };
        *self.0.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let message = Authenticate { name, password };
        let answer: Authenticated = self
            .attempt("/etcdserverpb.Auth/Authenticate", message)
            .await
            .map_err(Outcome::failure)?;
        *self.0.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.token);
        Ok(())
    }

    /// Asks for keys. The answer has everything that was carried out before the question.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn range(&self, range: Range) -> Result<Ranged, Failure> {
        self.ask("/etcdserverpb.KV/Range", range).await
    }

    /// Carries out a transaction, at most once.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn transact(&self, transaction: Transaction) -> Result<Transacted, Failure> {
        self.ask("/etcdserverpb.KV/Txn", transaction).await
    }

    /// Forgets how keys were before a revision.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn compact(&self, revision: i64) -> Result<(), Failure> {
        let _: Done = self.ask("/etcdserverpb.KV/Compact", Compact { revision }).await?;
        Ok(())
    }

    /// Gets a lease.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn grant_lease(&self, seconds: i64) -> Result<LeaseGranted, Failure> {
        self.ask("/etcdserverpb.Lease/LeaseGrant", LeaseGrant { seconds }).await
    }

    /// Ends a lease: the keys that go with it are deleted.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn revoke_lease(&self, id: i64) -> Result<(), Failure> {
        let _: Done = self.ask("/etcdserverpb.Lease/LeaseRevoke", Lease { id }).await?;
        Ok(())
    }

    /// Renews a lease: the answer tells for how many seconds from when that was said.
    ///
    /// # Errors
    /// [`Kind::LeaseOver`] if there is none to renew.
    pub async fn renew_lease(&self, id: i64) -> Result<LeaseGranted, Failure> {
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let renewal = async {
            let mut answers: Streaming<LeaseGranted> = self.stream(path, Lease { id }).await?.1;
            let answer = answers.message().await?;
            answer.ok_or_else(|| Status::unavailable("the stream has ended"))
        };
        let (number, name, _) = self.member();
        let answer = tokio::time::timeout(self.0.timeout, renewal).await;
        let failure = match answer {
            Ok(Ok(answer)) if answer.seconds > 0 => return Ok(answer),
            Ok(Ok(_)) => Failure { kind: Kind::LeaseOver, what: "the lease is over".into() },
            Ok(Err(status)) if is_stale_token(&status) => {
                self.authenticate().await?;
                Failure::unknown("etcd did not know our token any more")
            }
            Ok(Err(status)) => Failure::told(&status, name),
            Err(_) => Failure::unknown(format!("etcd at {name} has not renewed our lease")),
        };
        if failure.kind == Kind::Unknown {
            self.leave(number);
        }
        Err(failure)
    }

    /// A stream in both directions, with a first word.
    async fn stream<A, B>(
        &self,
        path: PathAndQuery,
        first: A,
    ) -> Result<(mpsc::UnboundedSender<A>, Streaming<B>), Status>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let (_, _, mut grpc) = self.member();
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let (say, said) = mpsc::unbounded_channel();
        // Somebody listens: the other end is in hand.
        let _ = say.send(first);
        let words = UnboundedReceiverStream::new(said);
        let request =
            self.request(words).map_err(|failure| Status::unauthenticated(failure.what))?;
        let codec = ProstCodec::<A, B>::default();
        Ok((say, grpc.streaming(request, path, codec).await?.into_inner()))
    }

    /// Watches the keys from the first to before the end, or one, from a revision on.
    ///
    /// # Errors
    /// If it cannot be known what happens to them.
    pub async fn watch(
        &self,
        (key, end): (Vec<u8>, Vec<u8>),
        start_revision: i64,
    ) -> Result<Events, Failure> {
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let create = WatchCreate { key, end, start_revision, filters: Vec::new(), id: 1 };
        let first = Watch { create: Some(create), cancel: None };
        let (member, name, _) = self.member();
        let begun = tokio::time::timeout(self.0.timeout, self.stream(path, first)).await;
        let begun = begun.unwrap_or_else(|_| Err(Status::unavailable("no answer to a watch")));
        match begun {
            Ok((say, told)) => Ok(Events { client: self.clone(), member, _say: say, told }),
            Err(status) => {
                self.leave(member);
                Err(Failure::told(&status, name))
            }
        }
    }
}

/// What happens to keys that are watched, for as long as this is there.
pub struct Events {
    client: Client,
    member: usize,
    /// The watch ends with it.
    _say: mpsc::UnboundedSender<Watch>,
    told: Streaming<Watched>,
}

impl Events {
    /// What has happened next, in order: all of one revision is told together.
    ///
    /// # Errors
    /// If the watch has ended: something may have happened.
    pub async fn next(&mut self) -> Result<Vec<messages::Event>, Failure> {
        let ended = loop {
            match self.told.message().await {
                Ok(Some(told)) if told.canceled => {
                    break Status::unavailable("the watch was cancelled");
                }
                Ok(Some(told)) if !told.events.is_empty() => return Ok(told.events),
                Ok(Some(_)) => {}
                Ok(None) => break Status::unavailable("the watch has ended"),
                Err(status) => break status,
            }
        };
        self.client.leave(self.member);
        let members = &self.client.0.members;
        Err(Failure::told(&ended, &members[self.member % members.len()].0))
    }
}

/// How a try has failed.
enum Outcome {
    /// The token was not taken: nothing was carried out.
    StaleToken,
    Failed(Failure),
}

impl Outcome {
    fn failure(self) -> Failure {
        match self {
            Self::StaleToken => Failure {
                kind: Kind::Refused,
                what: "etcd has not taken the token that it gave".into(),
            },
            Self::Failed(failure) => failure,
        }
    }
}
