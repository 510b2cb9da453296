//! The yardstick: the smallest server that grants sets of locks over the same socket and frames.
//!
//! A request joins the queues of all its locks at one instant, and is granted when it is the first
//! in each. Nothing is kept, checked, logged or limited, nobody may leave a queue, and nobody is known
//! who comes back: it is a bound on what a server of this kind can do, not one to be used.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use holdall_holders::Stream;
use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{Answer, Body, Call, Name, Reply, RequestNo, Taken};
use rustc_hash::FxHashMap;
use tokio::net::UnixListener;
use tokio::sync::Notify;

/// A request, and how many of its locks others have or get before it.
struct Request {
    peer: Rc<Peer>,
    call: u64,
    locks: Vec<Name>,
    missing: usize,
}

struct Peer {
    stream: Stream,
    unsent: RefCell<Vec<u8>>,
    /// Something could not be sent at once.
    full: Notify,
}

#[derive(Default)]
struct Queues {
    queues: FxHashMap<Name, VecDeque<u64>>,
    requests: FxHashMap<u64, Request>,
    last: u64,
    /// Whom there is something to send to.
    told: Vec<Rc<Peer>>,
}

impl Queues {
    fn ask(&mut self, peer: &Rc<Peer>, call: u64, locks: Vec<Name>) {
        self.last += 1;
        let mut missing = 0;
        for lock in &locks {
            let queue = self.queues.entry(lock.clone()).or_default();
            missing += usize::from(!queue.is_empty());
            queue.push_back(self.last);
        }
        self.requests.insert(self.last, Request { peer: peer.clone(), call, locks, missing });
        if missing == 0 {
            self.grant(self.last);
        } else {
            self.tell(peer, call, Reply::Queued(RequestNo(self.last)));
        }
    }

    fn end(&mut self, number: u64) {
        let Some(ended) = self.requests.remove(&number) else { return };
        for lock in &ended.locks {
            let Some(queue) = self.queues.get_mut(lock) else { continue };
            queue.pop_front();
            let Some(&first) = queue.front() else {
                self.queues.remove(lock);
                continue;
            };
            if let Some(request) = self.requests.get_mut(&first) {
                request.missing -= 1;
                if request.missing == 0 {
                    self.grant(first);
                }
            }
        }
    }

    fn grant(&mut self, number: u64) {
        let Some(request) = self.requests.get(&number) else { return };
        let take = |lock: &Name| Taken { name: lock.clone(), units: vec![(lock.clone(), number)] };
        let taken = request.locks.iter().map(take).collect();
        let (peer, call) = (request.peer.clone(), request.call);
        let (request, variables) = (RequestNo(number), Vec::new());
        let granted = Reply::Granted { request, taken, place: None, variables, limit: None };
        self.tell(&peer, call, granted);
    }

    fn tell(&mut self, peer: &Rc<Peer>, id: u64, reply: Reply) {
        let mut unsent = peer.unsent.borrow_mut();
        // What is too large for a frame is not sent: its client waits for ever, and shows it.
        let _ = frame::write(&Answer { id, reply }, FROM_NODE_MAX, &mut unsent);
        self.told.push(peer.clone());
    }
}

/// Serves at a socket until it is killed.
pub(crate) async fn serve(socket: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    let queues = Rc::new(RefCell::new(Queues::default()));
    loop {
        let (stream, _) = listener.accept().await?;
        let stream = Stream::new(stream.into_std()?)?;
        let peer = Rc::new(Peer { stream, unsent: RefCell::default(), full: Notify::new() });
        let queues = queues.clone();
        // Whoever breaks its connection leaves its requests behind.
        tokio::task::spawn_local(async move { talk(&queues, &peer).await });
    }
}

async fn talk(queues: &RefCell<Queues>, peer: &Rc<Peer>) -> anyhow::Result<()> {
    frame::greet(&mut peer.unsent.borrow_mut(), frame::VERSION);
    flush(peer)?;
    let mut incoming = Incoming::new(FROM_CLIENT_MAX);
    let mut greeted = false;
    loop {
        let unsent = !peer.unsent.borrow().is_empty();
        tokio::select! {
            ready = peer.stream.readable() => match ready?.read(incoming.buffer())? {
                Some(0) => return Ok(()),
                Some(_) => {}
                None => continue,
            },
            ready = peer.stream.writable(), if unsent => {
                ready?;
                flush(peer)?;
                continue;
            }
            () = peer.full.notified() => continue,
        }
        while let Some(content) = incoming.next_frame()? {
            if std::mem::replace(&mut greeted, true) {
                take(&mut queues.borrow_mut(), peer, frame::read(content)?)?;
            }
        }
        let told = std::mem::take(&mut queues.borrow_mut().told);
        for peer in told {
            // Whoever reads from it finds out what is wrong with it.
            let _ = flush(&peer);
        }
    }
}

fn take(queues: &mut Queues, peer: &Rc<Peer>, call: Call) -> anyhow::Result<()> {
    let id = call.id;
    match call.body {
        Body::Ask(ask) => {
            queues.ask(peer, id, ask.needs.into_iter().map(|need| need.name).collect());
        }
        Body::End { request, .. } => {
            queues.end(request.0);
            queues.tell(peer, id, Reply::Done);
        }
        Body::Agent => queues.tell(peer, id, Reply::Agent(Box::default())),
        Body::Attach(_) => {
            queues.tell(peer, id, Reply::Attached { life: 1, last: 0, answers: Vec::new() });
        }
        Body::Leave => queues.tell(peer, id, Reply::Done),
        Body::Heard(_) => {}
        other => anyhow::bail!("the yardstick cannot do this: {other:?}"),
    }
    Ok(())
}

/// Sends what the socket takes; the rest goes when it takes more.
fn flush(peer: &Peer) -> anyhow::Result<()> {
    let mut unsent = peer.unsent.borrow_mut();
    while !unsent.is_empty() {
        match peer.stream.write(&unsent) {
            Ok(n) => drop(unsent.drain(..n)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                peer.full.notify_one();
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
