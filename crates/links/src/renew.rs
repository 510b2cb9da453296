//! The own certificate, and how it is renewed in time.
//!
//! A certificate in the last third of its time is stale. A member that signs makes itself another; all others ask
//! one of those who sign, over a link, with a fresh key. Links that are up stay up; what is connected from then on
//! shows the new certificate. A member that finds nobody to sign for it asks again until its time is over; then it
//! has no links any more and must join again.

use std::sync::{Arc, Mutex};

use rustls::pki_types::CertificateDer;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::card;
use crate::cell::Cell;
use crate::dial;
use crate::frame::Frame;
use crate::home::Asked;
use crate::hub::{Hub, locked};
use crate::tls::Tls;

/// What the own cell shows, and the key for what it has asked for.
pub(crate) struct Papers {
    tls: Mutex<Arc<Tls>>,
    asked: Mutex<Option<Asked>>,
}

impl Papers {
    pub(crate) fn new(tls: Tls) -> Self {
        Self { tls: Mutex::new(Arc::new(tls)), asked: Mutex::default() }
    }

    pub(crate) fn tls(&self) -> Arc<Tls> {
        locked(&self.tls).clone()
    }

    /// A request that is still unanswered, or a new one.
    fn request(&self) -> Option<Vec<u8>> {
        let mut asked = locked(&self.asked);
        if asked.is_none() {
            let made =
                Asked::new().inspect_err(|error| error!("no key for a certificate: {error}"));
            *asked = made.ok();
        }
        asked.as_ref().map(|asked| asked.request.clone())
    }
}

/// Renews the own certificate in time, for ever.
pub(crate) async fn keep_certificate(hub: Arc<Hub>) {
    loop {
        renew_if_stale(&hub);
        let well = !hub.tls().card.is_stale(card::now());
        let soon = hub.config.compare.min(hub.config.renewal);
        sleep(if well { hub.config.renewal } else { soon }).await;
    }
}

fn renew_if_stale(hub: &Hub) {
    if !hub.tls().card.is_stale(card::now()) {
        return;
    }
    let Some(request) = hub.papers.request() else { return };
    if hub.home.signs() {
        if let Some(Frame::Renewed(certificate)) = sign(hub, hub.own(), &request) {
            renewed(hub, certificate);
        }
        return;
    }
    let signers = hub.signers();
    match (dial::random() as usize).checked_rem(signers.len()) {
        Some(turn) => signers[turn].say(Frame::Renew(request)),
        None => {
            warn!("the own certificate is stale, and there is no link with a member that signs");
        }
    }
}

/// A certificate for a member that asks.
pub(crate) fn sign(hub: &Hub, member: &Cell, request: &[u8]) -> Option<Frame> {
    let issued = hub.home.issue(member, request);
    let issued = issued.inspect_err(|error| warn!(%member, "no certificate is issued: {error}"));
    Some(Frame::Renewed(issued.ok()?.to_vec()))
}

/// The certificate that was asked for. Nobody's is taken who was not asked.
pub(crate) fn renewed(hub: &Hub, certificate: Vec<u8>) {
    let Some(asked) = locked(&hub.papers.asked).take() else { return };
    match hub.home.renew(&asked, &CertificateDer::from(certificate)) {
        Ok(tls) => {
            info!(until = tls.card.until, "the own certificate was renewed");
            *locked(&hub.papers.tls) = Arc::new(tls);
        }
        Err(error) => error!("the new certificate is of no use: {error}"),
    }
}
