//! Clients that ask, hold and give back, over and over.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::task::JoinSet;

use crate::case::{Case, Draw, sums};
use crate::figures::{Figures, Tally};

/// One connection of what is measured. It serves many clients at a time if it is cloned.
pub(crate) trait Session: Clone + 'static {
    /// What is held.
    type Held;

    /// Gets all of some resources, by number.
    fn acquire(&self, wants: &[usize]) -> impl Future<Output = anyhow::Result<Self::Held>>;

    /// Gives them back.
    fn release(&self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>>;
}

/// What the clients share.
struct Load {
    measuring: Cell<bool>,
    tally: RefCell<Tally>,
    /// Who has each resource.
    owners: RefCell<Vec<bool>>,
    /// Since when each client waits.
    waiting: RefCell<Vec<Option<Instant>>>,
}

impl Load {
    fn new(case: &Case) -> anyhow::Result<Self> {
        let tally = Tally {
            waits: Histogram::new(3)?,
            grants: vec![0; case.clients],
            wide: vec![false; case.clients],
            violations: 0,
        };
        Ok(Self {
            measuring: Cell::new(false),
            tally: RefCell::new(tally),
            owners: RefCell::new(vec![false; case.resources]),
            waiting: RefCell::new(vec![None; case.clients]),
        })
    }

    fn granted(&self, client: usize, wants: &[usize], since: Instant) {
        let (mut tally, mut owners) = (self.tally.borrow_mut(), self.owners.borrow_mut());
        self.waiting.borrow_mut()[client] = None;
        for one in wants {
            tally.violations += u64::from(std::mem::replace(&mut owners[*one], true));
        }
        if self.measuring.get() {
            // It grows as needed.
            let _ = tally.waits.record(since.elapsed().as_micros() as u64);
            tally.grants[client] += 1;
        }
    }

    fn given_back(&self, wants: &[usize]) {
        let mut owners = self.owners.borrow_mut();
        for one in wants {
            owners[*one] = false;
        }
    }
}

async fn client<S: Session>(
    load: Rc<Load>,
    session: S,
    mut draw: Draw,
    number: usize,
    hold: Duration,
) -> anyhow::Result<()> {
    load.tally.borrow_mut().wide[number] = draw.is_wide();
    let mut wants = Vec::new();
    loop {
        draw.next(&mut wants);
        let since = Instant::now();
        load.waiting.borrow_mut()[number] = Some(since);
        let held = session.acquire(&wants).await?;
        load.granted(number, &wants, since);
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        load.given_back(&wants);
        session.release(held).await?;
    }
}

/// Puts a load on some sessions and measures it. `at` is told when measuring begins and ends.
pub(crate) async fn measure<S: Session>(
    case: &Case,
    sessions: &[S],
    seed: u64,
    span: Duration,
    mut at: impl FnMut(),
) -> anyhow::Result<Figures> {
    let load = Rc::new(Load::new(case)?);
    let sums = sums(case);
    let mut clients = JoinSet::new();
    for number in 0..case.clients {
        let session = sessions[number % sessions.len()].clone();
        let draw = Draw::new(case, number, seed, sums.clone());
        clients.spawn_local(client(load.clone(), session, draw, number, case.hold));
    }
    run_for(&mut clients, span / 5).await?;
    at();
    load.measuring.set(true);
    let start = Instant::now();
    run_for(&mut clients, span).await?;
    let (took, now) = (start.elapsed(), Instant::now());
    at();
    let waiting = load.waiting.borrow();
    let longest = waiting.iter().flatten().map(|since| now - *since).max().unwrap_or_default();
    Ok(load.tally.borrow().figures(took, longest))
}

/// Lets the clients run; an error if one of them ends.
async fn run_for(clients: &mut JoinSet<anyhow::Result<()>>, span: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + span;
    loop {
        heed()?;
        let Some(left) = end.checked_duration_since(Instant::now()) else { return Ok(()) };
        match tokio::time::timeout(left.min(LOOK), clients.join_next()).await {
            Err(_elapsed) => {}
            Ok(Some(ended)) => ended?.context("a client has failed")?,
            Ok(None) => return Ok(()),
        }
    }
}

/// An error if somebody wants an end.
pub(crate) fn heed() -> Result<(), Interrupted> {
    if signalled().load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}

/// How often it is looked whether somebody wants an end.
const LOOK: Duration = Duration::from_millis(50);

/// Somebody wanted an end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

fn signalled() -> &'static Arc<AtomicBool> {
    static SIGNALLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    SIGNALLED.get_or_init(Arc::default)
}

/// From now on, Ctrl-C and its like end what is measured, and clean up.
pub(crate) fn heed_signals() -> std::io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, signalled().clone())?;
    }
    Ok(())
}
