//! The calls to the kernel for which there is no safe wrapper: starting a process inside a cgroup
//! with code of ours before it becomes the command, on a stack of its own in our memory or as a copy of us, the signals that a command finds blocked, signals to the group behind a pidfd, the pidfd
//! of a peer, how a signal is disposed of, descriptors that were left open for us, and descriptors for the runtime to watch. Nothing else in this crate is `unsafe`.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::ptr;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use rustix::process::{Pid, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What a new process does before it becomes a command. All of it is prepared: between fork and
/// exec nothing may be allocated.
pub(crate) struct Plan {
    /// The programs to try, as a shell finds them.
    pub(crate) programs: Vec<CString>,
    pub(crate) args: Vec<CString>,
    pub(crate) env: Vec<CString>,
    /// The signals that are blocked.
    pub(crate) mask: SigSet,
    /// Whether it leads a process group of its own.
    pub(crate) own_group: bool,
    /// Whether it is killed when the thread that starts it ends.
    pub(crate) dies_with_parent: bool,
    /// Whether whoever starts it in a cgroup stands still until it is the command, which is cheaper.
    pub(crate) stands_still: bool,
    /// A pipe: both ends. It waits for a byte, and ends if the pipe does.
    pub(crate) gate: Option<(RawFd, RawFd)>,
    /// What to say if it cannot be run, by error number; the last one for all others.
    pub(crate) complaints: Vec<(c_int, Vec<u8>)>,
}

/// The arguments of `clone3`, as in `linux/sched.h`.
#[derive(Default)]
#[repr(C)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 4;
const SO_PEERPIDFD: c_int = 77;
const SO_PASSRIGHTS: c_int = 83;
const SHELL: &CStr = c"/bin/sh";
/// The stack of a child that has our memory, in parts that are aligned as a stack has to be: 32 KiB.
const STACK: usize = 2048;

/// The pointers that `execve` wants, ended by a null.
fn pointers<'a>(texts: impl IntoIterator<Item = &'a CString>) -> Vec<*const c_char> {
    texts.into_iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// What a child needs, prepared, and as the kernel wants it.
struct Prepared<'a> {
    plan: &'a Plan,
    args: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// For a script without an interpreter: sh SCRIPT ARGS. The script is put in by the child.
    shell: Vec<*const c_char>,
    parent: libc::pid_t,
}

/// Starts a process, in a cgroup if one is given.
///
/// # Errors
/// If it cannot be started, or not there.
pub(crate) fn start(plan: &Plan, cgroup: Option<BorrowedFd<'_>>) -> io::Result<(Pid, OwnedFd)> {
    let shell_name = c"sh".to_owned();
    let shell = [&shell_name, &shell_name].into_iter().chain(plan.args.iter().skip(1));
    let mut prepared = Prepared {
        plan,
        args: pointers(&plan.args),
        env: pointers(&plan.env),
        shell: pointers(shell),
        parent: std::process::id() as libc::pid_t,
    };
    let mut handle: c_int = -1;
    // SAFETY: what is prepared outlives the call, and with it what the child does with it.
    let pid = unsafe {
        match cgroup {
            Some(cgroup) => clone_into(cgroup, &mut prepared, &mut handle)?,
            // Containers and services often may not call `clone3`, whose flags no filter can see.
            None => in_both(fork(&mut handle), &mut prepared)?,
        }
    };
    // SAFETY: the kernel has just made this descriptor for us.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok((pid.ok_or_else(|| io::Error::other("the child has no number"))?, handle))
}

/// After a call that returns in both: the child becomes the command, and here is its number.
fn in_both(pid: c_long, prepared: &mut Prepared<'_>) -> io::Result<c_long> {
    match pid {
        0 => in_child(prepared),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Starts a process in a cgroup: a copy of this one, or one that has our memory while we stand still.
///
/// # Safety
/// What is prepared has to be as it says.
unsafe fn clone_into(
    cgroup: BorrowedFd<'_>,
    prepared: &mut Prepared<'_>,
    handle: &mut c_int,
) -> io::Result<c_long> {
    let mut clone = CloneArgs {
        flags: CLONE_PIDFD | CLONE_INTO_CGROUP,
        pidfd: ptr::from_mut(handle) as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.as_raw_fd() as u64,
        ..CloneArgs::default()
    };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if prepared.plan.stands_still {
        let mut stack = Vec::<u128>::with_capacity(STACK);
        clone.flags |= CLONE_VM | CLONE_VFORK;
        clone.stack = stack.as_mut_ptr() as u64;
        clone.stack_size = (STACK * size_of::<u128>()) as u64;
        // SAFETY: the child has a stack of its own, which outlives it, as everything else does that it uses:
        // this thread stands still until it is another program or has ended.
        return unsafe { clone_on_stack(&mut clone, prepared) };
    }
    // SAFETY: the arguments are valid for the call and of the size that is told. Without CLONE_VM
    // the child has a copy of everything, so it disturbs nothing here. It runs only `in_child`,
    // which makes system calls on what was prepared, and neither allocates, nor locks, nor
    // returns, as is required between fork and exec.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut clone, size_of::<CloneArgs>()) };
    in_both(pid, prepared)
}

/// `clone3` with a child that begins on another stack: it must not return to where this thread will.
/// No signal reaches the child before it sets its own mask; from then until it is the command one may, as with `posix_spawn`.
///
/// # Safety
/// The stack must be free, aligned and not be freed before the child has done.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe fn clone_on_stack(clone: &mut CloneArgs, prepared: &mut Prepared<'_>) -> io::Result<c_long> {
    let result: c_long;
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    // SAFETY: as the caller says. The child comes out of the call on its own stack and goes into `child`,
    // from which it never returns; this thread goes on behind it with its registers as they were.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {prepared}",
            "call {child}",
            "ud2",
            "2:",
            prepared = in(reg) ptr::from_mut(prepared).cast::<c_void>(),
            child = in(reg) child as extern "C" fn(*mut c_void) -> !,
            inout("rax") libc::SYS_clone3 => result,
            in("rdi") ptr::from_mut(clone),
            in("rsi") size_of::<CloneArgs>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    // SAFETY: the same.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {prepared}",
            "blr {child}",
            "brk #1",
            "2:",
            prepared = in(reg) ptr::from_mut(prepared).cast::<c_void>(),
            child = in(reg) child as extern "C" fn(*mut c_void) -> !,
            in("x8") libc::SYS_clone3,
            inout("x0") ptr::from_mut(clone) => result,
            in("x1") size_of::<CloneArgs>(),
        );
    }
    // It was ours before.
    let _ = before.thread_set_mask();
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result) }
}

/// Where a child begins that has a stack of its own.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn child(prepared: *mut c_void) -> ! {
    // SAFETY: it is what `clone_on_stack` was given, whose thread stands still.
    in_child(unsafe { &mut *prepared.cast::<Prepared<'_>>() })
}

/// As `fork`, with a pidfd of the child. Since Linux 5.2.
///
/// # Safety
/// As with `fork`: the child may only call what may be called between fork and exec.
unsafe fn fork(handle: &mut c_int) -> c_long {
    let flags = CLONE_PIDFD | libc::SIGCHLD as u64;
    let (no_stack, no_tls) = (ptr::null_mut::<u8>(), 0usize);
    // SAFETY: with CLONE_PIDFD the third argument says where the descriptor goes, on every
    // architecture; without a stack the child goes on with a copy of ours.
    unsafe {
        #[cfg(target_arch = "s390x")]
        return libc::syscall(libc::SYS_clone, no_stack, flags, ptr::from_mut(handle), 0, no_tls);
        #[cfg(not(target_arch = "s390x"))]
        libc::syscall(libc::SYS_clone, flags, no_stack, ptr::from_mut(handle), 0, no_tls)
    }
}

/// The child, from its first moment until it is the command.
fn in_child(prepared: &mut Prepared<'_>) -> ! {
    let Prepared { plan, args, env, shell, parent } = prepared;
    // SAFETY: nothing but system calls and `signal`, all of which may be called between fork and
    // exec. Every pointer is to something that the plan or the caller's frame keeps; the lists of
    // arguments end with a null.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL); // The Rust runtime ignores it.
        if plan.own_group {
            libc::setpgid(0, 0);
        }
        if plan.dies_with_parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            if libc::getppid() != *parent {
                libc::_exit(1); // It has ended before we could ask to be told.
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, plan.mask.as_ref(), ptr::null_mut());
        if let Some((waits, opens)) = plan.gate {
            libc::close(opens);
            let mut byte = 0u8;
            loop {
                match libc::read(waits, (&raw mut byte).cast(), 1) {
                    1 => break,
                    -1 if *libc::__errno_location() == libc::EINTR => {}
                    _ => libc::_exit(1), // Whoever started us is gone.
                }
            }
        }
        let mut denied = false;
        let mut error = libc::ENOENT;
        for program in &plan.programs {
            libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr());
            error = *libc::__errno_location();
            match error {
                libc::ENOEXEC => {
                    shell[1] = program.as_ptr();
                    libc::execve(SHELL.as_ptr(), shell.as_ptr(), env.as_ptr());
                    break;
                }
                libc::EACCES => denied = true,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => break,
            }
        }
        if denied {
            error = libc::EACCES;
        }
        for (number, text) in &plan.complaints {
            if *number == error || *number == 0 {
                // Whoever stands still until we end does not wait for whoever reads. The status says as much.
                if !plan.stands_still || has_room(libc::STDERR_FILENO) {
                    libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
                }
                break;
            }
        }
        libc::_exit(if error == libc::ENOENT { 127 } else { 126 })
    }
}

/// Whether something can be written without waiting. May be called between fork and exec.
fn has_room(descriptor: RawFd) -> bool {
    let mut room = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    // SAFETY: it is one descriptor, as is said, and the call keeps nothing of it.
    unsafe { libc::poll(&raw mut room, 1, 0) != 0 }
}

/// Has a command find these signals blocked, and no others: it inherits ours otherwise.
pub fn set_mask(command: &mut std::process::Command, mask: SigSet) {
    // SAFETY: between fork and exec nothing is done but to call `pthread_sigmask`, which may be
    // called there, on a mask that is part of the closure.
    unsafe {
        command.pre_exec(move || mask.thread_set_mask().map_err(io::Error::from));
    }
}

/// Sends a signal to the process group that the process of a pidfd leads or led, or asks with
/// none whether there is something of it. Since Linux 6.9.
///
/// # Errors
/// `ESRCH` if nothing is left of it, `EINVAL` if the kernel is too old.
pub(crate) fn signal_group(handle: BorrowedFd<'_>, signal: Option<Signal>) -> io::Result<()> {
    let number = signal.map_or(0, Signal::as_raw);
    let none = ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the length of the call, and no signal information is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            handle.as_raw_fd(),
            number,
            none,
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The pidfd of the process that connected a socket. Since Linux 6.5.
///
/// # Errors
/// `ENOPROTOOPT` if the kernel is too old; others if the process is gone.
pub(crate) fn peer_handle(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut handle: c_int = -1;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `handle`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut handle).cast(),
            &raw mut length,
        )
    };
    if done != 0 || handle < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}

/// The groups of the process that connected a socket, beside its own. Since Linux 4.13.
///
/// # Errors
/// If the kernel does not say.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of what `groups` holds; if that
        // is too little it writes nothing but the length that is needed.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let error = io::Error::last_os_error();
        let told = length as usize / size_of::<libc::gid_t>();
        match done {
            0 => {
                groups.truncate(told);
                return Ok(groups);
            }
            _ if error.raw_os_error() == Some(libc::ERANGE) && told > groups.len() => {
                groups.resize(told, 0);
            }
            _ => return Err(error),
        }
    }
}

/// Has a listener refuse descriptors. Since Linux 6.16.
///
/// # Errors
/// If the kernel does not do it.
pub(crate) fn take_no_descriptors(listener: BorrowedFd<'_>) -> io::Result<()> {
    let no: c_int = 0;
    // SAFETY: the kernel reads so many bytes as `no` has.
    let done = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor that the program whose place this one has taken has left open.
///
/// # Errors
/// If it is not open.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the kernel looks whether there is such a descriptor, and marks it.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and was so before this program began. Whoever started it has named the
    // descriptor to us for this process, so nothing else here has it for its own.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Has the runtime watch a descriptor.
///
/// # Errors
/// If too many are open.
pub(crate) fn watch<T: Descriptor>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: each of the types that are `Descriptor` gives the same open descriptor as long as
    // it lives, and has no other closed in its place.
    let watched = unsafe { AsyncFd::register_with_interest(inner, interest) };
    watched.map_err(|error| error.into_parts().1)
}

/// What keeps one descriptor open as long as it lives.
pub(crate) trait Descriptor: AsRawFd {}
impl Descriptor for BorrowedFd<'_> {}
impl Descriptor for File {}
impl Descriptor for SignalFd {}
impl Descriptor for UnixStream {}

/// Whether this process ignores a signal, as `nohup` has it ignore SIGHUP.
pub(crate) fn ignores(signal: Signal) -> bool {
    // SAFETY: a `sigaction` of zeroes is a valid one, and asking changes nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal.as_raw(), ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: Signal) {
    // SAFETY: no handler of ours is involved.
    unsafe {
        libc::signal(signal.as_raw(), libc::SIG_IGN);
    }
}

/// Lets a signal do what it does to a process that has made no arrangements.
pub(crate) fn reset(signal: Signal) {
    // SAFETY: no handler of ours is involved.
    unsafe {
        libc::signal(signal.as_raw(), libc::SIG_DFL);
    }
}
