//! Hosts of a cell over a simulated store, and what must be true of what they tell.

mod copies;
mod events;
mod handover;
mod store;
mod tests;
mod world;
