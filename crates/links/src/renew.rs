//! The own certificate, and how it is renewed in time.
//!
//! A certificate in the last third of its time is stale. A member that signs makes itself another; all others ask
//! one of those who sign, over a link, with a fresh key. Links that are up stay up; what is connected from then on
//! shows the new certificate. An answer counts if it comes from the one who was asked, is signed by the authority and
//! lasts longer than what there is; any other changes nothing. A member that finds nobody to sign for it asks again until its time is over; then it
//! has no links any more and must join again.

use std::sync::{Arc, Mutex};

use rustls::pki_types::CertificateDer;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::card;
use crate::cell::{Cell, CellId};
use crate::dial;
use crate::frame::Frame;
use crate::home::Asked;
use crate::hub::{Hub, locked};
use crate::tls::Tls;

/// What the own cell shows, and what it has asked for.
pub(crate) struct Papers {
    tls: Mutex<Arc<Tls>>,
    asked: Mutex<Option<Request>>,
}

/// The key for a certificate, and who was asked last to sign it. It stays until a good answer comes.
#[derive(Clone)]
struct Request {
    asked: Arc<Asked>,
    of: CellId,
}

impl Papers {
    pub(crate) fn new(tls: Tls) -> Self {
        Self { tls: Mutex::new(Arc::new(tls)), asked: Mutex::default() }
    }

    pub(crate) fn tls(&self) -> Arc<Tls> {
        locked(&self.tls).clone()
    }

    /// A request that is still unanswered, or a new one, for this member to sign.
    pub(crate) fn request(&self, of: CellId) -> Option<Vec<u8>> {
        let mut kept = locked(&self.asked);
        let asked = match kept.take() {
            Some(unanswered) => unanswered.asked,
            None => {
                let made = Asked::new();
                let made = made.inspect_err(|error| error!("no key for a certificate: {error}"));
                Arc::new(made.ok()?)
            }
        };
        let request = asked.request.clone();
        *kept = Some(Request { asked, of });
        Some(request)
    }

    /// What this member was asked for.
    fn asked_of(&self, member: CellId) -> Option<Arc<Asked>> {
        let asked = locked(&self.asked).clone();
        asked.filter(|asked| asked.of == member).map(|it| it.asked)
    }

    fn put(&self, tls: Tls) {
        *locked(&self.asked) = None;
        *locked(&self.tls) = Arc::new(tls);
    }
}

/// Renews the own certificate in time, for ever.
pub(crate) async fn keep_certificate(hub: Arc<Hub>) {
    loop {
        renew_if_stale(&hub).await;
        let well = !hub.tls().card.is_stale(card::now());
        let soon = hub.config.compare.min(hub.config.renewal);
        sleep(if well { hub.config.renewal } else { soon }).await;
    }
}

async fn renew_if_stale(hub: &Hub) {
    if !hub.tls().card.is_stale(card::now()) {
        return;
    }
    if hub.home.signs() {
        let Some(request) = hub.papers.request(hub.own().id) else { return };
        if let Some(Frame::Renewed(certificate)) = sign(hub, hub.own(), request).await {
            renewed(hub, hub.own().id, certificate).await;
        }
        return;
    }
    let signers = hub.signers();
    let Some(turn) = (dial::random() as usize).checked_rem(signers.len()) else {
        warn!("the own certificate is stale, and there is no link with a member that signs");
        return;
    };
    let (signer, outbox) = &signers[turn];
    if let Some(request) = hub.papers.request(*signer) {
        outbox.say(Frame::Renew(request));
    }
}

/// A certificate for a member that asks.
pub(crate) async fn sign(hub: &Hub, member: &Cell, request: Vec<u8>) -> Option<Frame> {
    if hub.roster(|roster| roster.is_removed(member.id)) {
        return None;
    }
    let (home, cell) = (hub.home.clone(), member.clone());
    let issued = spawn_blocking(move || home.issue(&cell, &request)).await.ok()?;
    let issued = issued.inspect_err(|error| warn!(%member, "no certificate is issued: {error}"));
    Some(Frame::Renewed(issued.ok()?.to_vec()))
}

/// The certificate that was asked for. Nobody's is taken who was not asked.
pub(crate) async fn renewed(hub: &Hub, from: CellId, certificate: Vec<u8>) {
    let Some(asked) = hub.papers.asked_of(from) else { return };
    let home = hub.home.clone();
    let renew = move || home.renew(&asked, &CertificateDer::from(certificate));
    match spawn_blocking(renew).await {
        Ok(Ok(tls)) => {
            info!(until = tls.card.until, "the own certificate was renewed");
            hub.papers.put(tls);
        }
        Ok(Err(error)) => error!(%from, "the new certificate is of no use: {error}"),
        Err(error) => error!("the new certificate was not kept: {error}"),
    }
}
