//! A thread whose descriptor table is its own and nearly empty, to spawn from when the server has many descriptors. A child begins
//! with a copy of its parent's table and closes all of it when it executes, which takes longer the more processes there are; the
//! copy of this table costs nothing.

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

use crate::descriptors::{above_stdio, leave_common_table};
use crate::execute::execute;
use crate::image::Image;
use crate::rlimit::ChildLimits;
use crate::vfork::{Executing, FileActions};

/// A child has a stdin, stdout, stderr and a working directory from us at the most.
const MOST_DESCRIPTORS: usize = 4;

/// Where the thread has its end of the socket. Every child has its own stdin there.
const SOCKET_NUMBER: RawFd = 0;

/// The thread, as others see it.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// Taken for one launch. Whoever finds it taken does not wait: the launch in progress may hang in `exec`.
    desk: Mutex<Desk>,
}

#[derive(Debug)]
struct Desk {
    descriptors: OwnedFd,
    jobs: Sender<Job>,
}

struct Job {
    path: CString,
    image: Arc<Image>,
    actions: Arc<FileActions>,
    limits: ChildLimits,
    /// The numbers by which the actions mean the descriptors that were sent.
    numbers: Vec<RawFd>,
    /// None: nothing was started.
    result: SyncSender<Option<Result<Pid, Errno>>>,
}

impl Launcher {
    /// Starts the thread. None where it cannot have a table of its own.
    pub(crate) fn start() -> Option<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()?;
        let theirs = above_stdio(theirs).ok()?;
        let (jobs, queue) = channel();
        let (ready, is_ready) = sync_channel(1);
        let number = theirs.as_raw_fd();
        let work = move || {
            let prepared = prepare(number);
            let may_begin = prepared.is_ok();
            let _starter_waits = ready.send(prepared);
            if may_begin {
                serve(&queue);
            }
        };
        thread::Builder::new().name("launcher".into()).spawn(work).ok()?;
        // Until here `theirs` must stay open in the common table, of which the thread takes its copy.
        is_ready.recv().ok()?.ok()?;
        Some(Self { desk: Mutex::new(Desk { descriptors: ours, jobs }) })
    }

    /// Spawns from the thread. None if it is busy or has failed, and nothing was started.
    pub(crate) fn launch(
        &self,
        path: &CStr,
        image: &Arc<Image>,
        actions: &Arc<FileActions>,
        limits: ChildLimits,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<Result<Executing, Errno>> {
        let desk = self.desk.try_lock().ok()?;
        send(desk.descriptors.as_fd(), descriptors).ok()?;
        let (result, outcome) = sync_channel(1);
        let numbers = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let (image, actions) = (Arc::clone(image), Arc::clone(actions));
        let job = Job { path: path.to_owned(), image, actions, limits, numbers, result };
        desk.jobs.send(job).ok()?;
        outcome.recv().ok()?.map(|result| result.map(|pid| Executing { pid, pidfd: None }))
    }
}

/// Leaves the common table, and moves the socket to where no descriptor of a child comes.
fn prepare(socket: RawFd) -> io::Result<()> {
    // SAFETY: this thread owns no descriptor but the socket, which it refers to by number. Whoever waits for a launch is woken without
    // one.
    unsafe { leave_common_table(socket) }?;
    // SAFETY: nothing is at the number in this thread's table, which is its own.
    check(unsafe { libc::dup3(socket, SOCKET_NUMBER, libc::O_CLOEXEC) })?;
    close(socket);
    Ok(())
}

fn serve(queue: &Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        let placed = receive(job.numbers.len()).and_then(|received| place(received, &job.numbers));
        // The pidfd is in this thread's table, where nobody else can use it.
        let result =
            placed.map(|()| execute(&job.path, &job.image, &job.actions, &job.limits).map(|executing| executing.pid));
        job.numbers.iter().for_each(|number| close(*number));
        let _whoever_asked_waits = job.result.send(result.ok());
    }
}

fn send(socket: BorrowedFd<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // SAFETY: `prepare` has put the socket at this number and nothing else ever closes it.
    let socket = unsafe { BorrowedFd::borrow_raw(SOCKET_NUMBER) };
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let received: Vec<OwnedFd> = rights.flatten().collect();
    if received.len() == count { Ok(received) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Gives the descriptors the numbers they have in the common table, by which the actions of the child mean them.
fn place(received: Vec<OwnedFd>, numbers: &[RawFd]) -> io::Result<()> {
    let above = numbers.iter().max().map_or(0, |highest| highest + 1);
    // Out of the way first: a number that is wanted may be one that was just received.
    let moved =
        received.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, above)).collect::<Result<Vec<_>, _>>()?;
    drop(received);
    for (fd, number) in moved.iter().zip(numbers) {
        // SAFETY: nothing in this thread's table is referred to but the socket at 0 and `moved`, which lie above all numbers.
        check(unsafe { libc::dup3(fd.as_raw_fd(), *number, libc::O_CLOEXEC) })?;
    }
    Ok(())
}

fn close(number: RawFd) {
    // SAFETY: at this number in this thread's table is something of this thread's own, or nothing, and it is not used any more.
    unsafe { libc::close(number) };
}

fn check(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
