//! Who leads a cell, for those who look for it: hosts that pass sessions on, and clients.

use tokio::sync::watch;

use super::kv::Kv;
use super::layout::Leader;
use super::lead::{Place, pause};
use crate::Error;

/// Tells who leads a cell, now and later.
#[derive(Clone, Debug)]
pub struct Following(watch::Receiver<State>);

/// What is known of it.
#[derive(Clone, Debug, Default)]
struct State {
    leader: Option<Leader>,
    /// Why nothing is known at the moment; then the leader is the last that was.
    trouble: Option<Error>,
}

pub(super) struct Sender(watch::Sender<State>);

pub(super) fn channel() -> (Sender, Following) {
    let (sender, receiver) = watch::channel(State::default());
    (Sender(sender), Following(receiver))
}

impl Following {
    /// Who leads, as far as is known: the leader itself may know better.
    pub fn leader(&self) -> Option<Leader> {
        self.0.borrow().leader.clone()
    }

    /// Why it is not known at the moment, if it is not.
    pub fn trouble(&self) -> Option<Error> {
        self.0.borrow().trouble.clone()
    }

    /// Waits until another one leads, or nobody, or it is not known.
    ///
    /// # Errors
    /// If nobody looks any more.
    pub async fn changed(&mut self) -> Result<(), Error> {
        self.0.changed().await.map_err(|_| Error::Closed("who leads".into()))
    }
}

/// Looks who leads until nobody wants to know.
pub(super) async fn run<K: Kv>(place: &Place<K>, sender: Sender) {
    let sender = sender.0;
    let looking = async {
        loop {
            match place.meta().await {
                Ok(meta) => {
                    sender.send_if_modified(|state| {
                        let is_news = state.leader != meta.leader || state.trouble.is_some();
                        *state = State { leader: meta.leader.clone(), trouble: None };
                        is_news
                    });
                    place.stand_by(&meta).await;
                }
                Err(error) => {
                    let failure = holdall_etcd::Failure::unknown(error.to_string());
                    sender.send_modify(|state| state.trouble = Some(place.error(&failure)));
                    tokio::time::sleep(pause(6)).await;
                }
            }
        }
    };
    tokio::select! {
        () = sender.closed() => {}
        () = looking => {}
    }
}
