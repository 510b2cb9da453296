//! The gateway before a service that speaks the wire and is just clever enough.

mod client;
mod doors;
mod endings;
mod events;
mod fake;
mod limits;
mod patience;
mod requests;
mod spanning;
mod world;
