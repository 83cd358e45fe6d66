//! Notes for the guard: a text that the server writes and that the guard can read after the server has ended, even by
//! `SIGKILL`. It is a file in memory that both have open. This module does not know what the text means.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::fs::MemfdFlags;

use crate::descriptors::above_stdio;

/// The descriptor number at which the guard has the notes.
pub(crate) const NOTES_FD: RawFd = 4;

/// The server's side, which writes.
#[derive(Debug)]
pub struct GuardNotes {
    memory: OwnedFd,
}

impl GuardNotes {
    pub(crate) fn new() -> io::Result<Self> {
        let memory = above_stdio(rustix::fs::memfd_create(c"exec-server notes", MemfdFlags::CLOEXEC)?)?;
        Ok(Self { memory })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Replaces the text. A guard that reads while the server is killed in this function sees the old text, the new text, or a beginning of
    /// the new one.
    pub fn write(&self, text: &[u8]) -> io::Result<()> {
        rustix::io::pwrite(&self.memory, text, 0)?;
        Ok(rustix::fs::ftruncate(&self.memory, text.len() as u64)?)
    }
}

/// The text that the server has written last. For the guard, after [`guard_main`](crate::guard_main) has returned. Empty in every other process.
pub fn guard_notes() -> Vec<u8> {
    let mut text = Vec::new();
    // SAFETY: only the guard calls this, once, and the server has put the notes or `/dev/null` at this number.
    let mut memory = unsafe { File::from_raw_fd(NOTES_FD) };
    if io::Seek::rewind(&mut memory).and_then(|()| memory.read_to_end(&mut text)).is_err() {
        text.clear();
    }
    text
}
