//! What clients and nodes of holdall say to each other: names, needs, calls, replies, views, events, the
//! holders of grants as they are kept, and the frames that carry all these. Nothing here does I/O.

#![forbid(unsafe_code)]

mod append;
mod cluster;
pub mod event;
pub mod frame;
pub mod holder;
mod message;
mod name;
mod nested;
mod request_no;
mod right;
mod span;
mod view;

pub use append::append;
pub use cluster::{
    BEING_STARTED, ClusterCall, ClusterView, HostCell, HostedView, JoinTokenView, KNOWS_MORE,
    MemberView,
};
pub use message::{
    Answer, Ask, Attach, Body, Call, Change, FIRST_QUERY, Fault, From, Kind, Lasting, Leftovers,
    Part, Place, Refusal, Reply, Shutdown, TEXT_MAX, Taken,
};
pub use name::{
    Amount, BadNeed, CELL_NAME_MAX, NAME_MAX, NEEDS_MAX, Name, Need, UNITS_MAX, check_cell,
    speaks_of_a_grant,
};
pub use request_no::RequestNo;
pub use right::Right;
pub use span::span;
pub use view::{
    AgentView, Drained, Elsewhere, Expected, Explanation, GrantView, Hindrance, HistoryPage,
    HistoryPlace, Outlook, PoolView, Prospects, State, Status, UnitView, WaitView, Who, needs_size,
};
