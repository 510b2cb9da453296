//! etcd: a transaction makes the keys of all resources if there is none of them yet, under the
//! lease of the client. If there is one, the client watches it from the revision of the
//! transaction on, and tries again when it is gone.
//!
//! Beside it locks as `etcdctl lock` has them ([`Queues`]), which are for one key.

use std::rc::Rc;

use anyhow::{Context, ensure};
use holdall_etcd::call;
use holdall_etcd::messages::{
    Compare, Delete, LeaseGrant, LeaseGranted, Put, Range, Transacted, Transaction, Watch,
    WatchCancel, WatchCreate, Watched,
};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::load::Session;

/// Longer than any measurement, so that nothing has to be renewed.
const LEASE_SECONDS: i64 = 86_400;

/// The number of the watch of nothing.
const FIRST_WATCH: i64 = 1;

/// A connection with a lease and a stream of watches.
#[derive(Clone)]
pub(crate) struct Client {
    grpc: Grpc<Channel>,
    /// Part of what the keys are called.
    run: usize,
    lease: i64,
    watches: Rc<Watches>,
}

struct Watches {
    wanted: mpsc::UnboundedSender<Watch>,
    told: Mutex<Told>,
}

/// The answers, and the number of the last watch.
struct Told {
    stream: Streaming<Watched>,
    last: i64,
}

pub(crate) async fn connect(member: &str, run: usize) -> anyhow::Result<Client> {
    let channel = Endpoint::from_shared(format!("http://{member}"))?.connect().await?;
    let mut grpc = Grpc::new(channel);
    let lease = LeaseGrant { seconds: LEASE_SECONDS };
    let LeaseGranted { id: lease, .. } =
        call(&mut grpc, "/etcdserverpb.Lease/LeaseGrant", Request::new(lease)).await?;
    let (wanted, wants) = mpsc::unbounded_channel();
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
    let wants = Request::new(UnboundedReceiverStream::new(wants));
    // The stream is answered with the first watch, not before: so there is one of nothing.
    let nothing = WatchCreate { key: b"nothing".into(), id: FIRST_WATCH, ..WatchCreate::default() };
    wanted.send(Watch { create: Some(nothing), cancel: None })?;
    let told = grpc.streaming(wants, path, ProstCodec::<Watch, Watched>::default()).await?;
    let told = Mutex::new(Told { stream: told.into_inner(), last: FIRST_WATCH });
    let watches = Watches { wanted, told };
    Ok(Client { grpc, run, lease, watches: Rc::new(watches) })
}

impl Client {
    async fn transact(&self, transaction: Transaction) -> anyhow::Result<Transacted> {
        let path = "/etcdserverpb.KV/Txn";
        Ok(call(&mut self.grpc.clone(), path, Request::new(transaction)).await?)
    }

    /// Takes all keys, or none and tells which is taken, and as of which revision.
    async fn try_to_take(&self, keys: &[Vec<u8>]) -> anyhow::Result<Option<(Vec<u8>, i64)>> {
        let lease = self.lease;
        let is_free = |key: &Vec<u8>| Compare::was_created(key.clone(), 0);
        let put = |key: &Vec<u8>| Put { key: key.clone(), lease, ..Put::default() }.into();
        let look = |key: &Vec<u8>| Range { key: key.clone(), ..Range::default() }.into();
        let transaction = Transaction {
            compare: keys.iter().map(is_free).collect(),
            success: keys.iter().map(put).collect(),
            failure: keys.iter().map(look).collect(),
        };
        let done = self.transact(transaction).await?;
        if done.succeeded {
            return Ok(None);
        }
        let revision = done.header.as_ref().context("etcd sent no header")?.revision;
        let taken = done.found().into_iter().next();
        Ok(Some((taken.context("etcd refused keys that are free")?.key, revision)))
    }

    async fn wait_until_gone(&self, key: Vec<u8>, revision: i64) -> anyhow::Result<()> {
        let Watches { wanted, told } = &*self.watches;
        let mut told = told.lock().await;
        told.last += 1;
        let id = told.last;
        let create = WatchCreate {
            key,
            end: Vec::new(),
            start_revision: revision + 1,
            filters: vec![0],
            id,
        };
        wanted.send(Watch { create: Some(create), cancel: None })?;
        loop {
            let event =
                told.stream.message().await?.context("etcd has closed the stream of watches")?;
            ensure!(event.id != id || !event.canceled, "etcd has canceled a watch");
            if event.id == id && !event.events.is_empty() {
                wanted.send(Watch { create: None, cancel: Some(WatchCancel { id }) })?;
                return Ok(());
            }
        }
    }
}

impl Session for Client {
    type Held = Vec<Vec<u8>>;

    async fn acquire(&self, wants: &[usize]) -> anyhow::Result<Self::Held> {
        let key = |one: &usize| format!("{}/{one}", self.run).into();
        let keys: Vec<Vec<u8>> = wants.iter().map(key).collect();
        while let Some((taken, revision)) = self.try_to_take(&keys).await? {
            self.wait_until_gone(taken, revision).await?;
        }
        Ok(keys)
    }

    async fn release(&self, keys: Self::Held) -> anyhow::Result<()> {
        let delete = |key| Delete { key, end: Vec::new() }.into();
        let success = keys.into_iter().map(delete).collect();
        let transaction = Transaction { success, ..Transaction::default() };
        self.transact(transaction).await?;
        Ok(())
    }
}

/// A queue of keys for each lock, as `etcdctl lock` has it, one lock after the other, in order. All are
/// given back in one transaction, which is less than it takes.
#[derive(Clone)]
pub(crate) struct Queues(pub(crate) Client);

impl Queues {
    /// A key behind those that are there, and then a watch of the one before, until there is none.
    async fn lock(&self, queue: String) -> anyhow::Result<Vec<u8>> {
        let Client { lease, .. } = self.0;
        let own = format!("{queue}/{lease}").into_bytes();
        let (key, end) = (format!("{queue}/").into_bytes(), format!("{queue}0").into_bytes());
        let look = Range { key, end, ..Range::default() };
        let put = Put { key: own.clone(), lease, ..Put::default() };
        let mut success = vec![put.into(), look.clone().into()];
        loop {
            let asked = Transaction { success, ..Transaction::default() };
            let done = self.0.transact(asked).await?;
            let revision = done.header.as_ref().context("etcd sent no header")?.revision;
            let found = done.found();
            let mine = found.iter().find(|key| key.key == own).context("the own key is gone")?;
            let before = found.iter().filter(|key| key.created < mine.created);
            let Some(before) = before.max_by_key(|key| key.created) else { return Ok(own) };
            self.0.wait_until_gone(before.key.clone(), revision).await?;
            success = vec![look.clone().into()];
        }
    }
}

impl Session for Queues {
    type Held = Vec<Vec<u8>>;

    async fn acquire(&self, wants: &[usize]) -> anyhow::Result<Self::Held> {
        let mut wants = wants.to_vec();
        wants.sort_unstable();
        let mut held = Vec::with_capacity(wants.len());
        for one in wants {
            held.push(self.lock(format!("{}/{one}", self.0.run)).await?);
        }
        Ok(held)
    }

    async fn release(&self, held: Self::Held) -> anyhow::Result<()> {
        self.0.release(held).await
    }
}
