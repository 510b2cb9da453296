//! From the finished graph to what is said of the protocol.

mod crash;
mod fair;
pub(crate) mod locality;
pub(crate) mod report;
pub(crate) mod trace;
