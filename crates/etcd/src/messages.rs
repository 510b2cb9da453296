//! The messages of etcd's interface that are needed here, field by field as `rpc.proto` of etcd 3.4
//! numbers them. By hand, because generating them would need a protobuf compiler; what is not
//! listed is left out by whoever sends it and passed over by whoever reads it.

use bytes::Bytes;
use prost::{Message, Oneof};

/// What every answer begins with.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    /// Which etcd: the same for all of its members.
    #[prost(uint64, tag = "1")]
    pub cluster: u64,
    /// The member that answers.
    #[prost(uint64, tag = "2")]
    pub member: u64,
    /// The revision of the store when it was answered.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The term of the members' leader, as the member that answers knows it.
    #[prost(uint64, tag = "4")]
    pub term: u64,
}

/// A key with its value.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The revision at which it was made.
    #[prost(int64, tag = "2")]
    pub created: i64,
    /// The revision at which it was last written.
    #[prost(int64, tag = "3")]
    pub modified: i64,
    /// Its value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// The lease that it goes with; 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// Asks for keys.
#[derive(Clone, PartialEq, Message)]
pub struct Range {
    /// The key, or the first of them.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end, exclusive; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub end: Vec<u8>,
    /// How many at most; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// As of which revision; 0 for the last.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// 0: by key, 2: by key, the last first.
    #[prost(int32, tag = "5")]
    pub order: i32,
    /// Without the values.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

/// The keys that were asked for.
#[derive(Clone, PartialEq, Message)]
pub struct Ranged {
    /// As of when; not within a transaction.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The keys.
    #[prost(message, repeated, tag = "2")]
    pub found: Vec<KeyValue>,
    /// Whether there are more than the limit.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub struct Put {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Its value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The lease that it goes with; 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

/// Deletes keys.
#[derive(Clone, PartialEq, Message)]
pub struct Delete {
    /// The key, or the first of them.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end, exclusive; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub end: Vec<u8>,
}

/// A part of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    /// Which.
    #[prost(oneof = "Operations", tags = "1, 2, 3")]
    pub operation: Option<Operations>,
}

/// What a transaction is made of.
#[derive(Clone, PartialEq, Oneof)]
pub enum Operations {
    /// Asks for keys.
    #[prost(message, tag = "1")]
    Range(Range),
    /// Writes a key.
    #[prost(message, tag = "2")]
    Put(Put),
    /// Deletes keys.
    #[prost(message, tag = "3")]
    Delete(Delete),
}

impl From<Range> for Operation {
    fn from(range: Range) -> Self {
        Self { operation: Some(Operations::Range(range)) }
    }
}

impl From<Put> for Operation {
    fn from(put: Put) -> Self {
        Self { operation: Some(Operations::Put(put)) }
    }
}

impl From<Delete> for Operation {
    fn from(delete: Delete) -> Self {
        Self { operation: Some(Operations::Delete(delete)) }
    }
}

/// What came of a part of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct Outcome {
    /// Of the outcomes, only what a range has found is looked at.
    #[prost(message, optional, tag = "1")]
    pub range: Option<Ranged>,
}

/// Compares a revision of a key, which is 0 if there is none, or its value.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// 0: equal.
    #[prost(int32, tag = "1")]
    pub result: i32,
    /// 1: the revision at which it was made, 2: at which it was last written, 3: the value.
    #[prost(int32, tag = "2")]
    pub target: i32,
    /// The key.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// Sent even if it is 0, as a member of a `oneof` is.
    #[prost(int64, optional, tag = "5")]
    pub created: Option<i64>,
    /// The same.
    #[prost(int64, optional, tag = "6")]
    pub modified: Option<i64>,
    /// The same.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub value: Option<Bytes>,
}

impl Compare {
    /// A key was made at a revision, and not deleted since; 0: there is none.
    pub fn was_created(key: Vec<u8>, at: i64) -> Self {
        Self { target: 1, key, created: Some(at), ..Self::default() }
    }

    /// A key was last written at a revision; 0: there is none.
    pub fn was_modified(key: Vec<u8>, at: i64) -> Self {
        Self { target: 2, key, modified: Some(at), ..Self::default() }
    }

    /// A key is there and has a value.
    pub fn has_value(key: Vec<u8>, value: Bytes) -> Self {
        Self { target: 3, key, value: Some(value), ..Self::default() }
    }
}

/// If all comparisons hold, the operations of `success` are done, else those of `failure`.
#[derive(Clone, PartialEq, Message)]
pub struct Transaction {
    /// What must hold.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// What is done if it does.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<Operation>,
    /// What is done if it does not.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<Operation>,
}

/// What came of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct Transacted {
    /// As of when.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Whether all comparisons held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// What came of each operation.
    #[prost(message, repeated, tag = "3")]
    pub outcomes: Vec<Outcome>,
}

impl Transacted {
    /// All keys that its operations have found.
    pub fn found(self) -> Vec<KeyValue> {
        let ranges = self.outcomes.into_iter().filter_map(|outcome| outcome.range);
        ranges.flat_map(|range| range.found).collect()
    }
}

/// Asks for a lease.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrant {
    /// How long it is good for.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// A lease.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseGranted {
    /// As of when.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Its number.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// How long it is good for: perhaps more than was asked for.
    #[prost(int64, tag = "3")]
    pub seconds: i64,
}

/// Ends a lease, or renews it.
#[derive(Clone, PartialEq, Message)]
pub struct Lease {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Forgets how keys were before a revision.
#[derive(Clone, PartialEq, Message)]
pub struct Compact {
    /// The revision.
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// Done.
#[derive(Clone, PartialEq, Message)]
pub struct Done {}

/// Asks a member how it is.
#[derive(Clone, PartialEq, Message)]
pub struct Status {}

/// How a member is.
#[derive(Clone, PartialEq, Message)]
pub struct StatusTold {
    /// Which member it is.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The member that leads all of them, as far as this one knows; 0 if none does.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// What is wrong: the alarms that are raised, in words.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
}

/// Says who is asking.
#[derive(Clone, PartialEq, Message)]
pub struct Authenticate {
    /// The user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Their password.
    #[prost(string, tag = "2")]
    pub password: String,
}

/// What to show from then on.
#[derive(Clone, PartialEq, Message)]
pub struct Authenticated {
    /// The token.
    #[prost(string, tag = "2")]
    pub token: String,
}

/// Begins or ends a watch.
#[derive(Clone, PartialEq, Message)]
pub struct Watch {
    /// Begins one.
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreate>,
    /// Ends one.
    #[prost(message, optional, tag = "2")]
    pub cancel: Option<WatchCancel>,
}

/// Begins a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCreate {
    /// The key, or the first.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key after those that are watched; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub end: Vec<u8>,
    /// From which revision on.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// 0: puts are not told.
    #[prost(int32, repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// A number that the caller chooses.
    #[prost(int64, tag = "7")]
    pub id: i64,
}

/// Ends a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCancel {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// What a watch tells.
#[derive(Clone, PartialEq, Message)]
pub struct Watched {
    /// Its number.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// It has ended.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// What has happened.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// Something has happened to a key.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// 0: it was put, 1: it was deleted.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// The key as it is from then on; of one that was deleted its name, and when that was.
    #[prost(message, optional, tag = "2")]
    pub found: Option<KeyValue>,
}

impl Event {
    /// Whether the key was deleted.
    pub fn is_deletion(&self) -> bool {
        self.kind == 1
    }
}
