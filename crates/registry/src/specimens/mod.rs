//! Protocols that are wrong on purpose, to see that the checker finds out.
//!
//! Most wrong protocols are sound ones without one of their rules (`--without`). Here are those
//! that take a rule of their own; one that is sound only where time is kept (`watched`), which it is in the
//! simulator only; and the algorithms of papers as they were printed, under the name
//! `printed-P`, whose rules are the repairs (`--as-printed`).

pub mod no_twice;
pub mod ping_pong;
pub mod printed_datta;
pub mod printed_rhee;
pub mod printed_winkowski;

use holdall_protocols::chandy_misra::ChandyMisra;
use holdall_protocols::datta::Two;
use holdall_protocols::ordered::Ordered;
use holdall_protocols::watched::Watched;

holdall_protocols::registry! {
    no_twice::NoTwice,
    ping_pong::PingPong,
    printed_datta::PrintedDatta,
    printed_rhee::PrintedRhee<ChandyMisra> as "printed-rhee:chandy-misra",
    printed_rhee::PrintedRhee<Ordered> as "printed-rhee:ordered",
    printed_winkowski::PrintedWinkowski,
    Watched<Two> as "watched:datta",
}
