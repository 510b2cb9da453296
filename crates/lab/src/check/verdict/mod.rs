//! From the finished graph to what is said of the protocol.

mod components;
mod crash;
mod fair;
mod for_ever;
pub(crate) mod locality;
pub(crate) mod report;
pub(crate) mod trace;
