//! Creates file descriptors and changes their flags. Every descriptor made here is close-on-exec, so that no child inherits it by accident.
//! Its number is at least 3, so that setting up descriptors 0, 1 and 2 of a child never overwrites a descriptor that is still needed. This
//! module does not know what the descriptors are for.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The lowest descriptor that is not a standard stream.
pub(crate) const FIRST_AFTER_STDIO: i32 = 3;

/// Marks every descriptor from 3 on close-on-exec, so that children do not inherit descriptors that the server itself has inherited.
pub fn set_inherited_fds_close_on_exec() -> io::Result<()> {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors and touches no memory.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST_AFTER_STDIO, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if done == 0 { Ok(()) } else { set_close_on_exec_one_by_one() }
}

/// For kernels before 5.11, which do not know `CLOSE_RANGE_CLOEXEC`.
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

/// Gives this thread its own descriptor table, in which only stderr (for panic messages) and `kept` are open. `kept` must be at least 3.
/// From then on descriptors that other threads open are not in the table of this thread, and this thread can open descriptors even if the
/// other threads have used up the limit.
///
/// This uses `close_range`, because many containers forbid `unshare`. On kernels before 5.9 it fails, and the thread keeps the table that
/// all threads share.
///
/// # Safety
/// From then on the thread must neither use nor close any other descriptor that was opened before, or is opened by another thread. That
/// includes waking a task of the runtime, which writes to a descriptor.
pub(crate) unsafe fn leave_shared_table(kept: RawFd) -> io::Result<()> {
    // SAFETY: the calls touch no memory. They close descriptors only in this thread's copy of the table, and the caller promises not to use
    // those descriptors.
    unsafe {
        let unshare = libc::CLOSE_RANGE_UNSHARE;
        if libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, unshare) < 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel refuses only an empty range, and then there is nothing to close.
        libc::syscall(libc::SYS_close_range, FIRST_AFTER_STDIO, kept - 1, 0);
        libc::syscall(libc::SYS_close_range, 0, 1, 0);
    }
    Ok(())
}

/// Creates a pipe. Returns its read end and its write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_stdio(reader)?, above_stdio(writer)?))
}

/// Creates a pair of connected Unix stream sockets.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok((above_stdio(one)?, above_stdio(other)?))
}

/// Moves a descriptor to a number of at least 3. Lower numbers occur only if the server was started with a closed standard stream.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST_AFTER_STDIO {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_AFTER_STDIO)?)
}

/// Makes a descriptor non-blocking. Use this only for the server's end of a pipe or terminal. All copies of a
/// descriptor share the flag, so on the child's end every program that inherits the descriptor would get it, and
/// programs break if their stdout returns `EAGAIN`.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// Registers a descriptor with the tokio runtime, to wait until it is readable. Panics outside of a runtime.
pub fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch(fd, Interest::READABLE)
}

/// Registers a descriptor with the tokio runtime. Panics outside of a runtime.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives and never changes its number.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
