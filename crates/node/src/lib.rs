//! The agent of holdall: an engine without I/O, and the service around it.

#![forbid(unsafe_code)]

pub mod engine;
