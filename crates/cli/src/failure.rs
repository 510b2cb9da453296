//! What went wrong, as an exit status. `sysexits.h` gives the numbers their meaning.

use holdall_client::Error;
pub(crate) use holdall_commands::Failure;
use holdall_wire::{Fault, Refusal};

/// It does not fit what there is: no such grant, a pool that is held.
pub(crate) const CONFLICT: u8 = 65;
/// The agent cannot be reached.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The grant was lost, and the child was stopped.
pub(crate) const LOST: u8 = 70;
/// The system did not do what was needed.
const SYSTEM: u8 = 71;
/// Not granted in time.
pub(crate) const NOT_NOW: u8 = 75;
/// Whoever asks has no right to.
pub(crate) const DENIED: u8 = 77;
/// Can never be granted.
pub(crate) const NEVER: u8 = 78;
/// The time limit was over, and the command was stopped.
pub(crate) const OVER_LIMIT: u8 = 124;

/// The exit status of an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if let Some(Failure(code, _)) = error.downcast_ref() {
        return *code;
    }
    if error.is::<holdall_node::Unsafe>() {
        return UNAVAILABLE;
    }
    // With no descriptor left nobody can be reached.
    let no_files = |error: &std::io::Error| {
        let number = rustix::io::Errno::from_io_error(error);
        matches!(number, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
    };
    if error.chain().any(|cause| cause.downcast_ref().is_some_and(no_files)) {
        return UNAVAILABLE;
    }
    match error.downcast_ref() {
        Some(Error::NoAgent(_) | Error::Unreachable(..) | Error::Version { .. }) => UNAVAILABLE,
        Some(Error::Lost | Error::Ended | Error::Forked | Error::Protocol(_)) => UNAVAILABLE,
        Some(Error::Refused(Refusal::Busy(_) | Refusal::Withdrawn)) => NOT_NOW,
        Some(Error::Refused(Refusal::Closed(_))) => UNAVAILABLE,
        Some(Error::Refused(Refusal::Never(_))) => NEVER,
        Some(Error::Refused(Refusal::Senseless(_)) | Error::Need(_)) => crate::USAGE,
        Some(Error::Fault(Fault::Wrong(_))) => crate::USAGE,
        Some(Error::Refused(Refusal::Denied(_)) | Error::Fault(Fault::Denied(_))) => DENIED,
        Some(Error::Fault(Fault::Conflict(_)) | Error::Refused(Refusal::Conflict(_))) => CONFLICT,
        Some(Error::TakenAway | Error::Fault(Fault::Forgotten)) => LOST,
        Some(Error::Fault(fault)) if fault.is_silent() => UNAVAILABLE,
        Some(Error::Fault(Fault::Failed(_))) => holdall_commands::UNWRITTEN,
        None => SYSTEM,
    }
}
