//! How a connection becomes a link.
//!
//! The one who connects greets; the other looks whether it wants it, and greets back; the first looks, too, and says
//! that it is ready, which is the first frame in its queue ([`Hub::admit`]). Either may refuse instead. So those
//! above seldom hear of a link that the other side did not want: only if it changed its mind since it greeted, because
//! another connection became the link or somebody was removed; then the link is down at once.

use std::io;
use std::time::Duration;

use crate::card::Card;
use crate::frame::{self, Frame, GREETING_MAX, LINK_MAX, Purpose, Refusal};
use crate::hub::{Hub, Line};
use crate::peer::{Outgoing, Stop};
use crate::tls::{self, Stream};

/// A connection that is a link.
pub(crate) struct Greeted {
    pub(crate) stream: Stream,
    pub(crate) line: Line,
    pub(crate) outgoing: Outgoing,
    pub(crate) greeting: Vec<u8>,
}

/// Why a connection did not become a link, or why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    #[error("{}", tls::told(.0))]
    Broken(#[from] io::Error),
    #[error("{0}")]
    Refused(Refusal),
    #[error("this cell refuses it: {0}")]
    Refusing(Refusal),
    #[error("no answer for {0:?}")]
    Silent(Duration),
    #[error("its certificate has expired")]
    Expired,
    #[error("{0}")]
    Stopped(Stop),
    #[error("it misbehaved: {0}")]
    Misbehaved(String),
    #[error("it says more than this cell can take in")]
    Behind,
}

impl Ending {
    /// For people. Some of it may come from the peer.
    pub(crate) fn told(&self) -> String {
        brief(&self.to_string())
    }
}

/// A text of a bounded length, on one line, that does nothing to a terminal.
pub(crate) fn brief(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect()
}

/// The longest reason that is told.
const WORDS_MAX: usize = 500;
/// The longest first frame.
const FIRST_MAX: usize = GREETING_MAX + 64;
const GREETLESS: &str = "it does not greet";

/// Greets a peer to whom we have connected.
pub(crate) async fn as_dialer(
    hub: &Hub,
    mut stream: Stream,
    card: Card,
) -> Result<Greeted, Ending> {
    frame::hello(&mut stream, Purpose::Link).await?;
    hub.may_greet().await;
    frame::send(&mut stream, &greeting(hub, &card)?).await?;
    let (start, bytes) = match frame::receive(&mut stream, FIRST_MAX).await? {
        Frame::Greeting { start, bytes } => (start, bytes),
        Frame::Refused(refusal) => return Err(hub.refused(card.cell.id, refusal).await),
        _ => return Err(Ending::Misbehaved(GREETLESS.into())),
    };
    let admitted = match welcome(hub, &card, &bytes) {
        Ok(()) => hub.admit(&card, hub.own().id, start).await,
        Err(refusal) => Err(refusal),
    };
    let (line, outgoing) = or_refuse(&mut stream, admitted).await?;
    Ok(Greeted { stream, line, outgoing, greeting: bytes })
}

/// Greets a peer that has connected to us. Hello is said.
pub(crate) async fn as_acceptor(
    hub: &Hub,
    mut stream: Stream,
    card: Option<Card>,
) -> Result<Greeted, Ending> {
    let card = or_refuse(&mut stream, card.ok_or(Refusal::Stranger)).await?;
    let peer = &card.cell;
    // It is read also of somebody who was removed: what is left unread would take our answer with it.
    let first = frame::receive(&mut stream, FIRST_MAX).await?;
    or_refuse(&mut stream, hub.would_talk(peer.id)).await?;
    let Frame::Greeting { start, bytes } = first else {
        return Err(Ending::Misbehaved(GREETLESS.into()));
    };
    let wanted = hub.would_admit(peer.id, peer.id, start);
    let wanted = wanted.and_then(|()| welcome(hub, &card, &bytes));
    or_refuse(&mut stream, wanted).await?;
    frame::send(&mut stream, &greeting(hub, &card)?).await?;
    match frame::receive(&mut stream, LINK_MAX).await? {
        Frame::Ready => {}
        Frame::Refused(refusal) => return Err(hub.refused(peer.id, refusal).await),
        _ => return Err(Ending::Misbehaved("it is neither ready nor refuses".into())),
    }
    let admitted = hub.admit(&card, peer.id, start).await;
    let (line, outgoing) = or_refuse(&mut stream, admitted).await?;
    Ok(Greeted { stream, line, outgoing, greeting: bytes })
}

fn welcome(hub: &Hub, card: &Card, greeting: &[u8]) -> Result<(), Refusal> {
    let wanted = hub.above.welcome(&card.cell, greeting);
    wanted.map_err(|why| Refusal::Above(brief(&why)))
}

fn greeting(hub: &Hub, card: &Card) -> Result<Frame, Ending> {
    let bytes = hub.above.greeting(&card.cell);
    if bytes.len() > GREETING_MAX {
        let why = format!("its greeting has {} bytes, more than {GREETING_MAX}", bytes.len());
        return Err(Ending::Refusing(Refusal::Failed(why)));
    }
    Ok(Frame::Greeting { start: hub.start, bytes })
}

/// Tells the peer if it is refused.
async fn or_refuse<T>(stream: &mut Stream, wanted: Result<T, Refusal>) -> Result<T, Ending> {
    match wanted {
        Ok(wanted) => Ok(wanted),
        Err(refusal) => {
            frame::send(stream, &Frame::Refused(refusal.clone())).await?;
            frame::close(stream).await;
            Err(Ending::Refusing(refusal))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_others_are_short_and_harmless() {
        let why = format!("\u{1b}[2Jno\n{}", "x".repeat(5000));
        let told = Ending::Refused(Refusal::Above(why)).told();
        assert!(told.starts_with("[2Jnox") && told.chars().count() == WORDS_MAX);
    }
}
