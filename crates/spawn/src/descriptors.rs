//! File descriptors that no child inherits by accident. Every descriptor made here is close-on-exec and lies above the standard
//! streams, so that wiring a child's 0, 1 and 2 can never overwrite a descriptor that is still to be used.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The lowest descriptor that is not a standard stream.
pub(crate) const FIRST_AFTER_STDIO: i32 = 3;

/// Marks every descriptor above stderr close-on-exec, so that what the server was started with does not leak into children.
pub fn set_inherited_fds_close_on_exec() -> io::Result<()> {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors and touches no memory.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST_AFTER_STDIO, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if done == 0 { Ok(()) } else { set_close_on_exec_one_by_one() }
}

/// For kernels before 5.11, which have no such flag.
fn set_close_on_exec_one_by_one() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if fd >= FIRST_AFTER_STDIO {
            // SAFETY: F_SETFD only sets a flag; a descriptor closed meanwhile is refused with EBADF.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Gives this thread a descriptor table of its own, in which nothing is open but stderr, for panics, and `kept`, which is 3 or more.
/// Descriptors that others open or close from then on change nothing here, and however many they have open, this thread can open more.
///
/// It is one call to a function that containers allow; many of them forbid `unshare`. Kernels before 5.9 do not have it, and the
/// thread then stays in the common table.
///
/// # Safety
/// From then on the thread must neither use nor close any other descriptor that was opened before, or is opened by another thread. That
/// includes waking a task of the runtime, which writes to a descriptor.
pub(crate) unsafe fn leave_common_table(kept: RawFd) -> io::Result<()> {
    // SAFETY: the calls touch no memory. What they close is closed in this thread's copy of the table, of which the caller promises that
    // nothing is used.
    unsafe {
        let unshare = libc::CLOSE_RANGE_UNSHARE;
        if libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, unshare) < 0 {
            return Err(io::Error::last_os_error());
        }
        // They cannot fail: an empty range is refused, which is as good.
        libc::syscall(libc::SYS_close_range, FIRST_AFTER_STDIO, kept - 1, 0);
        libc::syscall(libc::SYS_close_range, 0, 1, 0);
    }
    Ok(())
}

/// Read end and write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_stdio(reader)?, above_stdio(writer)?))
}

/// Moves a descriptor out of the way of the standard streams; it can only be there if the server was started without them.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST_AFTER_STDIO {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_AFTER_STDIO)?)
}

/// For our end of a pipe only: the flag belongs to the open file, and a program that gets `EAGAIN` on its stdout breaks.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// Lets the runtime watch a descriptor. Panics outside of a tokio runtime.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives and never changes its number.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
