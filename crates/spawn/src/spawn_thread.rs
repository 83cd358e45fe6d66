//! A thread that starts children from its own, nearly empty descriptor table. A child begins with a copy of its parent's descriptors and
//! closes all of them when it executes the program. With many descriptors in the server this takes longer than the rest of the start. Copying the
//! small table takes hardly any time. The descriptors that a child needs are sent to the thread over a socket. Start with [`SpawnThread::spawn`].

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::Pid;

use crate::descriptors::{above_stdio, leave_shared_table};
use crate::exec_args::ExecArgs;
use crate::execute::execute;
use crate::rlimit::ChildLimits;
use crate::vfork::{FileActions, StartedChild};

/// A child needs at most its stdin, stdout, stderr, working directory and cgroup.
const MAX_DESCRIPTORS: usize = 5;

/// The descriptor number of the socket in the thread's table. A child does not inherit the socket, because its own stdin replaces it.
const SOCKET_FD: RawFd = 0;

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct SpawnThread {
    /// Locked while a child is started. A caller that finds it locked does not wait, because the other start may hang in `exec`.
    channel: Mutex<SpawnThreadChannel>,
}

#[derive(Debug)]
struct SpawnThreadChannel {
    socket: OwnedFd,
    requests: Sender<SpawnThreadRequest>,
}

struct SpawnThreadRequest {
    path: CString,
    args: Arc<ExecArgs>,
    actions: Arc<FileActions>,
    limits: ChildLimits,
    /// The numbers that the sent descriptors have in the server's table. The actions refer to them by these numbers.
    numbers: Vec<RawFd>,
    /// Gets the PID of the child, or None if the descriptors could not be received, so that nothing was started.
    result: SyncSender<Option<Result<Pid, Errno>>>,
}

impl SpawnThread {
    /// Starts the thread. None if it cannot have its own descriptor table.
    pub(crate) fn start() -> Option<Self> {
        let (our_end, thread_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()?;
        let thread_end = above_stdio(thread_end).ok()?;
        let (requests, queue) = channel();
        let (ready, prepared) = sync_channel(1);
        let number = thread_end.as_raw_fd();
        let work = move || {
            let result = prepare(number);
            let is_prepared = result.is_ok();
            let _cannot_fail_while_caller_waits = ready.send(result);
            if is_prepared {
                serve(&queue);
            }
        };
        thread::Builder::new().name("spawn".into()).spawn(work).ok()?;
        // Until here `thread_end` must stay open in the shared table, because the thread copies that table.
        prepared.recv().ok()?.ok()?;
        Some(Self { channel: Mutex::new(SpawnThreadChannel { socket: our_end, requests }) })
    }

    /// Starts a child from the thread. None if the thread is busy or has failed; nothing was started then.
    pub(crate) fn spawn(
        &self,
        path: &CStr,
        args: &Arc<ExecArgs>,
        actions: &Arc<FileActions>,
        limits: &ChildLimits,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<Result<StartedChild, Errno>> {
        let channel = self.channel.try_lock().ok()?;
        send(channel.socket.as_fd(), descriptors).ok()?;
        let (result, started) = sync_channel(1);
        let numbers = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let (args, actions) = (Arc::clone(args), Arc::clone(actions));
        let limits = limits.clone();
        let request = SpawnThreadRequest { path: path.to_owned(), args, actions, limits, numbers, result };
        channel.requests.send(request).ok()?;
        started.recv().ok()?.map(|result| result.map(|pid| StartedChild { pid, pidfd: None }))
    }
}

/// Gives this thread its own descriptor table, and moves the socket to a number that no descriptor for a child has.
fn prepare(socket: RawFd) -> io::Result<()> {
    // SAFETY: this thread owns no descriptor but the socket, which it refers to by number. The channels between the threads need no
    // descriptor.
    unsafe { leave_shared_table(socket) }?;
    // SAFETY: this thread's table is its own, and nothing is open at this number in it.
    check(unsafe { libc::dup3(socket, SOCKET_FD, libc::O_CLOEXEC) })?;
    close(socket);
    Ok(())
}

fn serve(queue: &Receiver<SpawnThreadRequest>) {
    while let Ok(request) = queue.recv() {
        let renumbered = receive(request.numbers.len()).and_then(|received| renumber(received, &request.numbers));
        // The pidfd is not returned: it is in this thread's table, where other threads cannot use it.
        let result = renumbered.map(|()| {
            execute(&request.path, &request.args, &request.actions, &request.limits).map(|started| started.pid)
        });
        request.numbers.iter().for_each(|number| close(*number));
        let _cannot_fail_while_caller_waits = request.result.send(result.ok());
    }
}

fn send(socket: BorrowedFd<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // SAFETY: `prepare` has put the socket at this number and nothing else ever closes it.
    let socket = unsafe { BorrowedFd::borrow_raw(SOCKET_FD) };
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let received: Vec<OwnedFd> = rights.flatten().collect();
    if received.len() == count { Ok(received) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Gives the received descriptors the numbers that they have in the server's table, because the actions of the child
/// refer to those numbers.
fn renumber(received: Vec<OwnedFd>, numbers: &[RawFd]) -> io::Result<()> {
    let first_unused = numbers.iter().max().map_or(0, |highest| highest + 1);
    // All are moved to higher numbers first, because a wanted number may be that of another received descriptor.
    let moved =
        received.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, first_unused)).collect::<Result<Vec<_>, _>>()?;
    drop(received);
    for (fd, number) in moved.iter().zip(numbers) {
        // SAFETY: this thread uses no descriptor of its table but the socket at 0 and those in `moved`, and none of
        // them has this number.
        check(unsafe { libc::dup3(fd.as_raw_fd(), *number, libc::O_CLOEXEC) })?;
    }
    Ok(())
}

fn close(number: RawFd) {
    // SAFETY: this number in this thread's table is free, or is a descriptor that only this thread owns and does not use any more.
    unsafe { libc::close(number) };
}

fn check(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
