//! How a machine becomes a member.
//!
//! It believes the member that made its token, by its id and the digest of the authority, which are part of the
//! token; then, not before, it shows the token's secret. It
//! sends its name and a request for a certificate; its key stays where it was made. The answer is the certificate and
//! all that is known of the members.
//!
//! The member that lets it join keeps on disk who has used the token and who is a member before it answers. If the
//! answer is lost, the same cell may ask again with the same token. Whoever is refused has not used it: else a second
//! try would pass for one whose answer was lost, and get the certificate of a member.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::ca::REQUEST_MAX;
use crate::card::Card;
use crate::cell::Cell;
use crate::dial;
use crate::frame::{self, JOINED_MAX, JoinAnswer, Joining, Purpose, Refusal, STRANGER_MAX};
use crate::greet::brief;
use crate::home::{self, Asked, Home, check_addresses};
use crate::hub::Hub;
use crate::member::Roster;
use crate::tls::{self, Stream};
use crate::token::{Good, JoinToken};

/// How long joining may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a machine did not join.
#[derive(Debug, thiserror::Error)]
pub enum Unjoined {
    /// The member cannot be reached, or is not of the cluster that the token is for.
    #[error("{0}: {1}")]
    Unreachable(String, String),
    /// The member refuses.
    #[error("{at} refuses: {why}", at = .0, why = brief(&.1.to_string()))]
    Refused(String, Refusal),
    /// The own directory cannot be used.
    #[error(transparent)]
    Home(#[from] home::Error),
}

/// Joins a cluster at the member with this address. A member whose certificate has expired may join its own
/// cluster again.
///
/// # Errors
/// If the member is not reached, is of another cluster, or refuses; or if the directory belongs to another member.
pub async fn join(
    dir: &Path,
    cell: &Cell,
    addresses: &[String],
    at: &str,
    token: &JoinToken,
) -> Result<Home, Unjoined> {
    check_addresses(addresses)?;
    let mut known = known_before(dir, cell, token)?;
    let asked = Asked::new().map_err(home::Error::from)?;
    let joining = Joining {
        secret: token.secret,
        id: cell.id,
        name: cell.name.clone(),
        addresses: addresses.to_vec(),
        request: asked.request.clone(),
    };
    let unreachable = |why| Unjoined::Unreachable(at.into(), why);
    let (authority, answer) = match timeout(PATIENCE, ask(at, token, &joining)).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => return Err(unreachable(tls::told(&error))),
        Err(_) => return Err(unreachable("no answer".into())),
    };
    let (certificate, records) = match answer {
        JoinAnswer::Joined { certificate, records } => (CertificateDer::from(certificate), records),
        JoinAnswer::Refused(refusal) => return Err(Unjoined::Refused(at.into(), refusal)),
    };
    let card = Card::read(&certificate).map_err(|error| unreachable(error.to_string()))?;
    if card.cell != *cell {
        return Err(unreachable("it gave a certificate for another cell".into()));
    }
    known.merge(records).map_err(|error| unreachable(error.to_string()))?;
    // Who was a member before may be elsewhere now.
    let signs = known.member(cell.id).is_some_and(|own| own.signs);
    known.say_member(addresses, signs);
    Ok(Home::found(dir, cell, &authority, None, &asked, &certificate, &known)?)
}

/// What is known of the members before: nothing, unless the cell was a member of the same cluster.
fn known_before(dir: &Path, cell: &Cell, token: &JoinToken) -> Result<Roster, home::Error> {
    if !Home::is_in(dir) {
        return Ok(Roster::new(cell.id, Vec::new()));
    }
    let home = Home::open(dir)?;
    if home.cell() != cell || home.pin() != token.pin {
        return Err(home::Error::Member(dir.into()));
    }
    home.roster()
}

async fn ask(
    at: &str,
    token: &JoinToken,
    joining: &Joining,
) -> io::Result<(CertificateDer<'static>, JoinAnswer)> {
    let stream = dial::tcp(at).await?;
    let mut stream = tls::connect_as_nobody(token.pin, token.maker, stream).await?;
    let authority = tls::authority_of(&stream, token.pin);
    let authority =
        authority.ok_or_else(|| io::Error::other("it sent no certificate of its authority"))?;
    frame::hello(&mut stream, Purpose::Join).await?;
    frame::send(&mut stream, joining).await?;
    Ok((authority, frame::receive(&mut stream, JOINED_MAX).await?))
}

/// Answers somebody who wants to join.
pub(crate) async fn serve(hub: &Hub, mut stream: Stream, from: IpAddr) -> io::Result<()> {
    let joining: Joining = frame::receive(&mut stream, STRANGER_MAX).await?;
    let answer = match admit(hub, &joining, from).await {
        Ok(certificate) => {
            let (certificate, records) = (certificate.to_vec(), hub.roster(Roster::records));
            JoinAnswer::Joined { certificate, records }
        }
        Err(refusal) => {
            tracing::warn!(%from, name = %joining.name, "somebody is not let in: {refusal}");
            JoinAnswer::Refused(refusal)
        }
    };
    frame::send(&mut stream, &answer).await?;
    frame::close(&mut stream).await;
    Ok(())
}

async fn admit(
    hub: &Hub,
    joining: &Joining,
    from: IpAddr,
) -> Result<CertificateDer<'static>, Refusal> {
    if !hub.patience.lasts(from, Instant::now()) {
        return Err(Refusal::Guessing);
    }
    if !hub.home.signs() {
        return Err(Refusal::NoKey(signers(hub)));
    }
    if hub.roster(|roster| roster.is_removed(hub.own().id)) {
        return Err(Refusal::Expelled);
    }
    let _one_at_a_time = hub.joining.lock().await;
    // The token comes first: without one, nobody learns which names are taken.
    let (home, secret, id) = (hub.home.clone(), joining.secret, joining.id);
    let looked = spawn_blocking(move || home.look(&secret, id)).await;
    let good = looked.map_err(failed)?.map_err(failed)?.map_err(|no_good| {
        hub.patience.tried(from, Instant::now());
        Refusal::Token(no_good)
    })?;
    check(hub, joining, good)?;
    let cell = Cell { id: joining.id, name: joining.name.clone() };
    let (home, joins, request) = (hub.home.clone(), cell.clone(), joining.request.clone());
    let let_in = spawn_blocking(move || home.let_in(&joins, &request, &secret)).await;
    let certificate = let_in.map_err(failed)?.map_err(failed)?.map_err(Refusal::Token)?;
    let added =
        hub.change(|roster| roster.add(cell.id, &cell.name, &joining.addresses, home::now()));
    if !added {
        return Err(Refusal::Full);
    }
    hub.save().await.map_err(failed)?;
    Ok(certificate)
}

/// Whether somebody with a good token may be who he says he is.
fn check(hub: &Hub, joining: &Joining, good: Good) -> Result<(), Refusal> {
    if check_addresses(&joining.addresses).is_err() || joining.request.len() > REQUEST_MAX {
        return Err(Refusal::Failed("the addresses or the request are too long".into()));
    }
    hub.roster(|roster| {
        let known = roster.member(joining.id);
        if known.is_some_and(|known| known.removed) {
            return Err(Refusal::Removed);
        }
        if known.is_some_and(|known| !good.again || known.name != joining.name) {
            return Err(Refusal::IdTaken);
        }
        if roster.named(joining.name.as_str()).any(|(id, _)| id != joining.id) {
            return Err(Refusal::NameTaken(joining.name.clone()));
        }
        if roster.has_room_for(joining.id) { Ok(()) } else { Err(Refusal::Full) }
    })
}

/// Who lets others join, and where.
fn signers(hub: &Hub) -> String {
    let signers = hub.members().into_iter().filter(|(_, it)| it.signs && !it.removed);
    let named: Vec<_> =
        signers.map(|(_, it)| format!("{} ({})", it.name, it.addresses.join(", "))).collect();
    if named.is_empty() { "nobody".into() } else { named.join(" or ") }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}
