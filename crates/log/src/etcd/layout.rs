//! How a log lies in etcd: keys and values, pure. `docs/replication.md` has it as a table.
//!
//! What people may want to see is text (`etcdctl get --prefix holdall/licences/meta/`), in pairs of
//! a word and a value.

use bytes::Bytes;
use holdall_etcd::messages::{Event, KeyValue, Range, Ranged};

use crate::{Identity, Index, Life};

/// The version of all this.
const FORMAT: u32 = 1;

/// The keys of one cell.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// What they begin with, the last slash included.
    prefix: String,
}

impl Keys {
    pub(super) fn new(name: &str) -> Self {
        Self { prefix: format!("holdall/{name}/") }
    }

    fn key(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    pub(super) fn meta(&self, what: &str) -> Vec<u8> {
        self.key(&format!("meta/{what}"))
    }

    /// What the keys begin with that say something of the log.
    fn name_of_meta(&self) -> String {
        format!("{}meta/", self.prefix)
    }

    /// All keys: the first, and the end.
    pub(super) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        let mut end = self.key("");
        if let Some(slash) = end.last_mut() {
            *slash += 1;
        }
        (self.key(""), end)
    }

    /// All that is said of the log.
    pub(super) fn all_meta(&self) -> Range {
        Range { key: self.key("meta/"), end: self.key("meta0"), ..Range::default() }
    }

    pub(super) fn leader(&self) -> Vec<u8> {
        self.meta("leader")
    }

    /// Whom the leader has called to lead next.
    pub(super) fn called(&self) -> Vec<u8> {
        self.meta("leader/called")
    }

    /// What that one says when it is ready.
    pub(super) fn ready(&self) -> Vec<u8> {
        self.meta("leader/ready")
    }

    /// The leader's key and those below it: the first, and the end.
    pub(super) fn around_leader(&self) -> (Vec<u8>, Vec<u8>) {
        (self.leader(), self.meta("leader0"))
    }

    /// All that a log consists of, but snapshots: the first key, and the end.
    pub(super) fn all_but_snapshots(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key("log/"), self.key("meta0"))
    }

    /// The batch that begins with a record.
    pub(super) fn batch(&self, first: Index) -> Vec<u8> {
        self.key(&format!("log/{:016x}", first.0))
    }

    /// Whether a key is that of a batch.
    pub(super) fn is_batch(&self, key: &[u8]) -> bool {
        let (first, end) = self.batches();
        first[..] <= *key && *key < end[..]
    }

    /// All batches: the first key, and the end.
    pub(super) fn batches(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key("log/"), self.key("log0"))
    }

    /// A piece of a snapshot.
    pub(super) fn piece(&self, snapshot: &str, number: u32) -> Vec<u8> {
        self.key(&format!("snapshot/{snapshot}/{number:08x}"))
    }

    /// The pieces of a snapshot: the first key, and the end.
    pub(super) fn pieces(&self, snapshot: &str) -> (Vec<u8>, Vec<u8>) {
        (self.key(&format!("snapshot/{snapshot}/")), self.key(&format!("snapshot/{snapshot}0")))
    }

    /// The name of the snapshot that a piece belongs to.
    pub(super) fn snapshot_of(&self, piece: &[u8]) -> Option<String> {
        let (first, _) = self.all_pieces();
        let rest = std::str::from_utf8(piece.strip_prefix(&first[..])?).ok()?;
        Some(rest.split_once('/')?.0.into())
    }

    /// The pieces of all snapshots: the first key, and the end.
    pub(super) fn all_pieces(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key("snapshot/"), self.key("snapshot0"))
    }
}

/// What a value says, word by word.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        Some(Self(std::str::from_utf8(value).ok()?.split_whitespace().collect()))
    }

    fn after(&self, name: &str) -> Option<&'a str> {
        let pair = self.0.chunks_exact(2).find(|pair| pair[0] == name)?;
        Some(pair[1])
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.after(name)?.parse().ok()
    }

    fn wide(&self, name: &str) -> Option<u128> {
        u128::from_str_radix(self.after(name)?, 16).ok()
    }
}

/// Which cell this is, in which life, and in which etcd it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellValue {
    pub(super) identity: Identity,
    pub(super) life: Life,
    pub(super) cluster: u64,
}

impl CellValue {
    pub(super) fn write(self) -> Bytes {
        let Self { identity, life, cluster } = self;
        format!("holdall {FORMAT} cell {identity} life {life} etcd {cluster:016x}").into()
    }

    fn read(words: &Words<'_>) -> Option<Self> {
        let identity = Identity(words.wide("cell")?);
        let cluster = words.wide("etcd")?.try_into().ok()?;
        Some(Self { identity, life: Life(words.wide("life")?), cluster })
    }
}

/// Who leads a cell, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The name of the host.
    pub host: String,
    /// Where its agent is reached.
    pub address: String,
    /// The epoch that it began with.
    pub epoch: u32,
    /// The cell's life.
    pub life: Life,
    /// The revision at which it was elected, and its key was written: of two leaders the later has the higher.
    pub term: i64,
}

impl Leader {
    pub(super) fn write(&self) -> Bytes {
        let Self { host, address, epoch, life, term: _ } = self;
        format!("epoch {epoch} life {life} host {host} at {address}").into()
    }

    fn read(key: &KeyValue) -> Option<Self> {
        let words = Words::read(&key.value)?;
        Some(Self {
            host: words.after("host")?.into(),
            address: words.after("at")?.into(),
            epoch: words.number("epoch")?,
            life: Life(words.wide("life")?),
            term: key.modified,
        })
    }
}

/// A host that a leader has called to lead next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) host: String,
    /// The term of that leader.
    pub(super) term: i64,
}

impl Called {
    pub(super) fn write(&self) -> Bytes {
        let Self { host, term } = self;
        format!("host {host} term {term}").into()
    }

    fn read(words: &Words<'_>) -> Option<Self> {
        Some(Self { host: words.after("host")?.into(), term: words.number("term")? })
    }
}

/// A host that was called, and is ready: it has read all there is, and hears of all that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) called: Called,
    /// Where it is reached.
    pub(super) address: String,
    /// The lease that goes with the leader's key when it leads, and with this one until then.
    pub(super) lease: i64,
    /// The revision at which it has said so.
    pub(super) said: i64,
}

impl Ready {
    pub(super) fn write(&self) -> Bytes {
        let Self { called: Called { host, term }, address, lease, said: _ } = self;
        format!("host {host} term {term} at {address} lease {lease}").into()
    }

    pub(super) fn read(key: &KeyValue) -> Option<Self> {
        let words = Words::read(&key.value)?;
        let (called, said) = (Called::read(&words)?, key.modified);
        let (address, lease) = (words.after("at")?.into(), words.number("lease")?);
        Some(Self { called, address, lease, said })
    }
}

/// That whoever led has ended on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    /// The highest epoch that was in use by then.
    pub(super) epoch: u32,
    /// The term of the one that has ended; 0 if that was not said.
    pub(super) term: i64,
}

impl Sealed {
    pub(super) fn write(self) -> Bytes {
        let Self { epoch, term } = self;
        format!("epoch {epoch} term {term}").into()
    }
}

/// Where a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) upto: Index,
    pub(super) logic: u32,
    pub(super) pieces: u32,
    pub(super) bytes: u64,
    pub(super) crc: u32,
    pub(super) name: String,
}

impl Pointer {
    pub(super) fn write(&self) -> Bytes {
        let Self { upto: Index(upto), logic, pieces, bytes, crc, name } = self;
        format!("upto {upto} logic {logic} pieces {pieces} bytes {bytes} crc {crc} name {name}")
            .into()
    }

    fn read(words: &Words<'_>) -> Option<Self> {
        Some(Self {
            upto: Index(words.number("upto")?),
            logic: words.number("logic")?,
            pieces: words.number("pieces")?,
            bytes: words.number("bytes")?,
            crc: words.number("crc")?,
            name: words.after("name")?.into(),
        })
    }
}

pub(super) fn write_epoch(epoch: u32) -> Bytes {
    format!("epoch {epoch}").into()
}

/// How far a log has come. Of two heads that one leader has written the later says more: a higher
/// number, or a higher epoch. Only what seals the log may leave it as it is: it deletes the leader's key, or makes it another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    /// The number that the next record has.
    pub(super) next: Index,
    /// The highest epoch that may be in use.
    pub(super) epoch: u32,
}

impl Head {
    pub(super) fn write(self) -> Bytes {
        format!("next {} epoch {}", self.next.0, self.epoch).into()
    }
}

/// All that is said of a log, as of a revision.
#[derive(Clone, Debug, Default)]
pub(super) struct Meta {
    /// The etcd that said it.
    pub(super) cluster: u64,
    pub(super) revision: i64,
    pub(super) cell: Option<CellValue>,
    pub(super) cell_modified: i64,
    pub(super) epoch: u32,
    pub(super) epoch_modified: i64,
    /// The number that the next record has.
    pub(super) next: Option<Index>,
    /// What the head says, to the letter.
    pub(super) head: Bytes,
    pub(super) snapshot: Option<Pointer>,
    pub(super) snapshot_modified: i64,
    pub(super) leader: Option<Leader>,
    pub(super) leader_lease: i64,
    /// The host that is to lead next.
    pub(super) heir: Option<String>,
    pub(super) sealed: Option<Sealed>,
    /// The host that the leader has called to lead next, and the revision at which it has.
    pub(super) called: Option<Called>,
    pub(super) called_modified: i64,
    pub(super) ready: Option<Ready>,
    /// What was said of its memory, and nothing was appended since.
    pub(super) lost: Option<crate::Lost>,
}

/// The words for what was lost.
const LOST: [(&str, crate::Lost); 2] =
    [("adopted", crate::Lost::Adopted), ("missing", crate::Lost::Missing)];

pub(super) fn write_lost(lost: crate::Lost) -> Bytes {
    let word = LOST.iter().find(|(_, known)| *known == lost).map_or("adopted", |(word, _)| word);
    Bytes::from_static(word.as_bytes())
}

/// A value that this version does not understand, or nobody should have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) String);

impl Meta {
    /// Reads what was found for [`Keys::all_meta`].
    pub(super) fn read(keys: &Keys, ranged: &Ranged) -> Result<Self, Unreadable> {
        let header = ranged.header.clone().unwrap_or_default();
        let (cluster, revision) = (header.cluster, header.revision);
        let mut meta = Self { cluster, revision, ..Self::default() };
        for key in &ranged.found {
            let name = String::from_utf8_lossy(&key.key).into_owned();
            let what = name.strip_prefix(&keys.name_of_meta()).unwrap_or_default();
            meta.take(what, key).ok_or(Unreadable(name))?;
        }
        Ok(meta)
    }

    /// Takes in what has happened to a key since, if it says something of the log.
    pub(super) fn hear(&mut self, keys: &Keys, event: &Event) -> Result<(), Unreadable> {
        let Some(key) = &event.found else { return Ok(()) };
        self.revision = self.revision.max(key.modified);
        let name = String::from_utf8_lossy(&key.key).into_owned();
        let Some(what) = name.strip_prefix(&keys.name_of_meta()) else { return Ok(()) };
        match event.is_deletion() {
            true => self.forget(what),
            false => self.take(what, key).ok_or_else(|| Unreadable(name.clone()))?,
        }
        Ok(())
    }

    fn forget(&mut self, what: &str) {
        match what {
            "cell" => (self.cell, self.cell_modified) = (None, 0),
            "epoch" => (self.epoch, self.epoch_modified) = (0, 0),
            "head" => (self.next, self.head) = (None, Bytes::new()),
            "snapshot" => (self.snapshot, self.snapshot_modified) = (None, 0),
            "leader" => (self.leader, self.leader_lease) = (None, 0),
            "leader/called" => (self.called, self.called_modified) = (None, 0),
            "leader/ready" => self.ready = None,
            "heir" => self.heir = None,
            "sealed" => self.sealed = None,
            "lost" => self.lost = None,
            _ => {}
        }
    }

    fn take(&mut self, what: &str, key: &KeyValue) -> Option<()> {
        let words = Words::read(&key.value)?;
        match what {
            "cell" => {
                if words.number::<u32>("holdall")? != FORMAT {
                    return None;
                }
                self.cell = Some(CellValue::read(&words)?);
                self.cell_modified = key.modified;
            }
            "epoch" => (self.epoch, self.epoch_modified) = (words.number("epoch")?, key.modified),
            "head" => {
                self.next = Some(Index(words.number("next")?));
                self.head = key.value.clone();
            }
            "snapshot" => {
                self.snapshot = Some(Pointer::read(&words)?);
                self.snapshot_modified = key.modified;
            }
            "leader" => {
                (self.leader, self.leader_lease) = (Some(Leader::read(key)?), key.lease);
            }
            "heir" => self.heir = Some((*words.0.first()?).into()),
            "sealed" => {
                let (epoch, term) = (words.number("epoch")?, words.number("term").unwrap_or(0));
                self.sealed = Some(Sealed { epoch, term });
            }
            "leader/called" => {
                (self.called, self.called_modified) = (Some(Called::read(&words)?), key.modified);
            }
            "leader/ready" => self.ready = Some(Ready::read(key)?),
            "lost" => {
                let word = words.0.first()?;
                self.lost = Some(LOST.iter().find(|(known, _)| known == word)?.1);
            }
            // Later versions may say more.
            _ => {}
        }
        Some(())
    }

    /// Whether the one that was elected at a revision leads.
    pub(super) fn is_led_by(&self, term: i64) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.term == term)
    }

    /// Whom its leader has called to lead next.
    pub(super) fn heir_called(&self) -> Option<&Called> {
        self.called.as_ref().filter(|called| self.is_led_by(called.term))
    }

    /// Whether whoever led last has ended on purpose, and nobody was elected since.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.is_some_and(|sealed| sealed.epoch == self.epoch)
    }
}
