//! A flag that cancels the start of a process. Once the new child has executed the program, the flag has no effect.
//! Any thread may set the flag, and the child reads it; see [`CancelFlag`] for the order that makes this reliable.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::net::Shutdown;

use crate::lock::lock;

/// Cancels the start of a process. Any thread may set the flag at any time.
///
/// The first thing a child does is to set its tag, a number by which the child and its descendants are found (see
/// `tag`). The last thing before it executes the program is to read this flag. So a thread can set the flag and then
/// kill all processes with that tag, and the program does not run afterwards: if the child read the flag before it
/// was set, the child has its tag, and the kill finds it.
///
/// A child that another process makes (see `maker`) cannot read the flag. It checks a socket instead, whose other end
/// is shut down for writing when the flag is set. The answer, with the process id, can still be read.
#[derive(Debug, Default)]
pub struct CancelFlag {
    is_set: AtomicBool,
    hang_up: Mutex<Option<OwnedFd>>,
}

impl CancelFlag {
    /// Sets the flag. It cannot be unset.
    pub fn cancel(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        // The flag must be visible before the caller starts to search for the tag.
        fence(Ordering::SeqCst);
        if let Some(socket) = lock(&self.hang_up).take() {
            shut_down(&socket);
        }
    }

    /// Shuts `socket` down when the flag is set, or now if it is set already.
    pub(crate) fn hang_up_when_cancelled(&self, socket: OwnedFd) {
        // The lock orders this with `cancel`: one of the two shuts the socket down.
        let mut hang_up = lock(&self.hang_up);
        if self.is_cancelled() {
            shut_down(&socket);
        } else {
            *hang_up = Some(socket);
        }
    }

    /// Forgets the socket. The start has ended.
    pub(crate) fn keep_connection(&self) {
        lock(&self.hang_up).take();
    }

    /// Whether the flag is set. Makes no system call and takes no lock, so that a child that shares the memory of the server may call it.
    pub fn is_cancelled(&self) -> bool {
        // The child must have set its tag before it reads the flag.
        fence(Ordering::SeqCst);
        self.is_set.load(Ordering::SeqCst)
    }
}

fn shut_down(socket: &OwnedFd) {
    let _peer_may_be_gone = rustix::net::shutdown(socket, Shutdown::Write);
}
