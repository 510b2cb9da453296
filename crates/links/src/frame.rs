//! What is said on a connection, once TLS stands.
//!
//! A frame is a length in four bytes, little end first, and so many bytes. The length is looked at before anything
//! is read for it, and memory grows with what arrives, not with what is announced. The first frame of each side is
//! a [`Hello`] of a form that no version may change; it says why the connection was made and which versions are
//! spoken. What follows is postcard, in the newest version that both speak; the tests hold the bytes of each.
//!
//! Who connects speaks first. On a link: greeting, greeting, ready, and from then on anything by anybody. Whoever
//! joins or is a client says one thing and gets one answer.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::cell::{CellId, CellName};
use crate::member::{Known, Record};
use crate::token::{NoGood, Secret};

/// The version of everything after the hello.
pub const VERSION: u16 = 1;
/// The oldest version that is understood, too.
pub const OLDEST: u16 = 1;
/// The longest message that is carried for those above.
pub const MESSAGE_MAX: usize = 1 << 20;
/// The longest greeting of those above.
pub const GREETING_MAX: usize = 16 << 10;
/// The longest frame on a link.
pub(crate) const LINK_MAX: usize = MESSAGE_MAX + 64;
/// The longest frame of somebody who has not shown yet who he is.
pub(crate) const STRANGER_MAX: usize = 32 << 10;
/// The longest answer to somebody who joins: all that is known of all members.
pub(crate) const JOINED_MAX: usize = 128 << 20;

const MAGIC: &[u8; 8] = b"hallink\n";
const HEAD: usize = 4;
/// How much is read and written at once; and made room for before it has arrived.
pub(crate) const AT_ONCE: usize = 32 << 10;

/// Why a connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be the link between two members.
    Link = 1,
    /// To become a member.
    Join = 2,
    /// To speak to the agent.
    Client = 3,
}

/// The first frame of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) purpose: Purpose,
    pub(crate) oldest: u16,
    pub(crate) newest: u16,
}

/// What members say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// Words from above, and a number that is drawn whenever the links are started.
    Greeting { start: u64, bytes: Vec<u8> },
    /// The end, and why.
    Refused(Refusal),
    /// The other's greeting is accepted.
    Ready,
    /// Say the same number.
    Ping(u64),
    /// The number of a ping.
    Pong(u64),
    /// Something from above.
    Message(Vec<u8>),
    /// What is known of the members, in short: tell me what I lack.
    Known(Vec<Known>),
    /// What is known of members.
    Told(Vec<Record>),
    /// A request for another certificate.
    Renew(Vec<u8>),
    /// The certificate that was asked for.
    Renewed(Vec<u8>),
}

/// What somebody says who wants to become a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Joining {
    pub(crate) secret: Secret,
    pub(crate) id: CellId,
    pub(crate) name: CellName,
    pub(crate) addresses: Vec<String>,
    pub(crate) request: Vec<u8>,
}

/// What he is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JoinAnswer {
    Joined { certificate: Vec<u8>, records: Vec<Record> },
    Refused(Refusal),
}

/// What a client is answered when it has shown its token, which is the frame before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ClientAnswer {
    Welcome,
    Refused(Refusal),
}

/// Why somebody is turned away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another connection between the two is the link.
    #[error("another connection is the link")]
    Crossed,
    /// He was removed.
    #[error(
        "it says that this cell was removed from the cluster; to join again, as a new member, stop this agent, move `cluster` in its data \
         directory away, and join with a token that `holdall cluster token` makes elsewhere"
    )]
    Removed,
    /// Whoever says this was removed himself.
    #[error("it was itself removed from the cluster")]
    Expelled,
    /// Those above do not want him.
    #[error("{0}")]
    Above(String),
    /// He shows no certificate.
    #[error("only members have links; join first")]
    Stranger,
    /// The join token is not accepted.
    #[error("{0}; `holdall cluster token` at a member makes another")]
    Token(NoGood),
    /// Another member has the name.
    #[error("a member is called {0} already; take another name, or remove that one first")]
    NameTaken(CellName),
    /// Another member has the id.
    #[error(
        "this cell is a member already; a token made for it alone (`holdall cluster token --for NAME`) lets it join again"
    )]
    IdTaken,
    /// The authority's key is elsewhere.
    #[error("this member cannot let others join: the key of the authority is with {0}; join there")]
    NoKey(String),
    /// There are as many members as there can be.
    #[error("the cluster knows as many cells as it can")]
    Full,
    /// Too many wrong tokens came from there.
    #[error("too many wrong tokens; wait a minute")]
    Guessing,
    /// The client's token is not known.
    #[error(
        "the token is not known here, was removed, or has expired; `holdall token add` makes another"
    )]
    Client,
    /// It could not be done.
    #[error("it failed there: {0}")]
    Failed(String),
}

/// What is wrong with what somebody says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Bad {
    #[error("it sent a frame of {0} bytes, longer than allowed")]
    Long(usize),
    #[error("it sent a frame that cannot be read")]
    Content,
    #[error("whoever is there does not speak holdall's links")]
    Magic,
    #[error(
        "it speaks versions {0} to {1} of the links, this one {OLDEST} to {VERSION}; upgrade the older one"
    )]
    Version(u16, u16),
}

impl From<Bad> for io::Error {
    fn from(bad: Bad) -> Self {
        Self::new(io::ErrorKind::InvalidData, bad)
    }
}

impl Hello {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self { purpose, oldest: OLDEST, newest: VERSION }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.purpose as u8);
        bytes.extend(self.oldest.to_le_bytes());
        bytes.extend(self.newest.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Bad> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(Bad::Magic)?;
        let [purpose, a, b, c, d] = *rest else { return Err(Bad::Magic) };
        let purpose = match purpose {
            1 => Purpose::Link,
            2 => Purpose::Join,
            3 => Purpose::Client,
            _ => return Err(Bad::Magic),
        };
        let (oldest, newest) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        Ok(Self { purpose, oldest, newest })
    }

    /// The newest version that both speak.
    pub(crate) fn common(self) -> Result<u16, Bad> {
        let version = self.newest.min(VERSION);
        let spoken = version >= self.oldest.max(OLDEST);
        if spoken { Ok(version) } else { Err(Bad::Version(self.oldest, self.newest)) }
    }
}

/// Says hello and hears it; the version to speak. Whoever speaks no common one is told so by the hello.
pub(crate) async fn hello<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    purpose: Purpose,
) -> io::Result<u16> {
    send_bytes(stream, &Hello::new(purpose).to_bytes()).await?;
    let theirs = Hello::from_bytes(&receive_bytes(stream, 64).await?)?;
    if theirs.purpose != purpose {
        return Err(Bad::Magic.into());
    }
    Ok(theirs.common()?)
}

/// Hears hello and says it; what the other wants and the version to speak.
pub(crate) async fn answer_hello<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
) -> io::Result<(Purpose, u16)> {
    let theirs = Hello::from_bytes(&receive_bytes(stream, 64).await?)?;
    send_bytes(stream, &Hello::new(theirs.purpose).to_bytes()).await?;
    Ok((theirs.purpose, theirs.common()?))
}

/// A frame with its length.
pub(crate) fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(value, vec![0; HEAD]).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - HEAD).map_err(|_| Bad::Long(bytes.len()))?;
    bytes[..HEAD].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// The value of a frame without its length. All of it is used.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Bad> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Bad::Content),
    }
}

/// Sends one frame at once.
pub(crate) async fn send<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> io::Result<()> {
    to.write_all(&encode(value)?).await?;
    to.flush().await
}

/// Waits for one frame.
pub(crate) async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> io::Result<T> {
    Ok(decode(&receive_bytes(from, max).await?)?)
}

async fn send_bytes(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| Bad::Long(bytes.len()))?;
    to.write_all(&[&length.to_le_bytes(), bytes].concat()).await?;
    to.flush().await
}

/// Says that nothing more will be said.
pub(crate) async fn close(stream: &mut (impl AsyncWrite + Unpin)) {
    drop(stream.shutdown().await);
}

/// The bytes of one frame. Not more is read than belongs to it.
pub(crate) async fn receive_bytes(
    from: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> io::Result<Vec<u8>> {
    let length = from.read_u32_le().await? as usize;
    if length > max {
        return Err(Bad::Long(length).into());
    }
    let mut bytes = Vec::with_capacity(length.min(AT_ONCE));
    from.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
