//! What the cells of several machines talk over.

mod bounds;
pub mod ca;
pub mod card;
pub mod cell;
mod frame;
pub mod home;
pub mod member;
mod store;
mod tls;
pub mod token;
