//! Notes for the guard: a text that the server writes and that the guard can read after the server has ended, even by
//! `SIGKILL`. The text is in a file in memory that both have open. This module does not know what the text means.
//!
//! The file begins with a header, which says where the text is. A new text is written beside the old one, and then the
//! header is replaced. So the guard sees the old text or the new one, and never a mixture.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, OnceLock};

use rustix::fs::MemfdFlags;

use crate::descriptors::above_stdio;
use crate::lock::lock;

/// The descriptor number at which the guard has the notes.
pub(crate) const NOTES_FD: RawFd = 4;

/// Two numbers of eight bytes: where the text begins and where it ends. They are in one page of memory, and the kernel does not interrupt a
/// write within one page.
const HEADER_BYTES: u64 = 16;

/// The notes on the server's side, which writes them.
#[derive(Debug)]
pub struct GuardNotes {
    memory: File,
    /// Where in the file the text is that was written last.
    current: Mutex<Range<u64>>,
}

impl GuardNotes {
    pub(crate) fn new() -> io::Result<Self> {
        let memory = above_stdio(rustix::fs::memfd_create(c"exec-server notes", MemfdFlags::CLOEXEC)?)?;
        Ok(Self { memory: memory.into(), current: Mutex::new(HEADER_BYTES..HEADER_BYTES) })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Replaces the text. If the server is killed in this function, the guard reads the old text or the new one. After an error the guard
    /// reads the old text.
    pub fn write(&self, text: &[u8]) -> io::Result<()> {
        let mut current = lock(&self.current);
        let new = self.write_beside(&current, text)?;
        let header = [new.start.to_ne_bytes(), new.end.to_ne_bytes()];
        self.memory.write_all_at(header.as_flattened(), 0)?;
        // What follows the text is not used any more.
        let _only_frees_memory = self.memory.set_len(new.end);
        *current = new;
        Ok(())
    }

    /// Writes a text to a part of the file that the current text does not use.
    fn write_beside(&self, current: &Range<u64>, text: &[u8]) -> io::Result<Range<u64>> {
        let length = text.len() as u64;
        let fits_before = HEADER_BYTES + length <= current.start;
        let start = if fits_before { HEADER_BYTES } else { current.end };
        self.memory.write_all_at(text, start)?;
        Ok(start..start + length)
    }
}

/// The notes of the server whose guard this process is.
static NOTES_OF_ENDED_SERVER: OnceLock<Vec<u8>> = OnceLock::new();

/// The text that the server has written last. For the guard, after [`guard_main`](crate::guard_main) has returned. Empty in every other
/// process, and if the text cannot be read.
pub fn guard_notes() -> Vec<u8> {
    NOTES_OF_ENDED_SERVER.get().cloned().unwrap_or_default()
}

/// Reads the notes for [`guard_notes`]. `memory` is a copy of the server's descriptor, or `/dev/null` if the server has no notes.
pub(crate) fn keep_notes_of_ended_server(memory: BorrowedFd<'_>) {
    let text = memory.try_clone_to_owned().and_then(|memory| read(&memory.into())).unwrap_or_default();
    let _kept_already = NOTES_OF_ENDED_SERVER.set(text);
}

fn read(memory: &File) -> io::Result<Vec<u8>> {
    let mut numbers = [[0; 8]; 2];
    memory.read_exact_at(numbers.as_flattened_mut(), 0)?;
    let [start, end] = numbers.map(u64::from_ne_bytes);
    let length = end.checked_sub(start).filter(|_| end <= memory.metadata().map_or(0, |found| found.len()));
    let mut text = vec![0; length.and_then(|length| length.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?];
    memory.read_exact_at(&mut text, start)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_text_is_read_and_the_file_stays_small() {
        let notes = GuardNotes::new().unwrap();
        assert!(read(&notes.memory).is_err(), "nothing was written yet");
        for length in (0..300).chain((0..300).rev()) {
            let text = vec![length as u8; length];
            notes.write(&text).unwrap();
            assert_eq!(read(&notes.memory).unwrap(), text);
            assert!(notes.memory.metadata().unwrap().len() < 16 + 4 * 300);
        }
    }

    #[test]
    fn the_old_text_stays_until_the_new_one_is_complete() {
        // The lengths of an earlier text, of the old one and of the new one.
        let [short, middle, long] = [1, 40, 5000];
        for [first, old, new] in [
            [0, 0, middle],
            [0, middle, short],
            [0, middle, long],
            [middle, short, middle],
            [middle, short, long],
            [short, middle, short],
            [long, middle, middle],
            [long, long, 0],
        ] {
            let notes = GuardNotes::new().unwrap();
            notes.write(&vec![b'f'; first]).unwrap();
            notes.write(&vec![b'o'; old]).unwrap();
            // The server is killed before it has replaced the header.
            notes.write_beside(&lock(&notes.current), &vec![b'n'; new]).unwrap();
            assert_eq!(read(&notes.memory).unwrap(), vec![b'o'; old], "{first} {old} {new}");
        }
    }

    #[test]
    fn other_processes_have_no_notes_and_damaged_ones_are_empty() {
        assert_eq!(guard_notes(), b"");
        let notes = GuardNotes::new().unwrap();
        for header in [[u64::MAX, 0], [0, u64::MAX], [16, 17], [17, 16]] {
            notes.memory.write_all_at(header.map(u64::to_ne_bytes).as_flattened(), 0).unwrap();
            assert!(read(&notes.memory).is_err(), "{header:?}");
        }
        assert!(read(&File::open("/dev/null").unwrap()).is_err());
    }
}
