//! Protocols that are wrong on purpose, to see that the checker finds out.
//!
//! Most wrong protocols are sound ones without one of their rules (`--without`). Here are those
//! that take a rule of their own; and the algorithms of papers as they were printed, under the name
//! `printed-P`, whose rules are the repairs (`--as-printed`).

pub mod no_twice;
pub mod printed_winkowski;

holdall_protocols::registry! {
    no_twice::NoTwice,
    printed_winkowski::PrintedWinkowski,
}
