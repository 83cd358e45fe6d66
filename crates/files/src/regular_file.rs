//! An open file that is read in blocks, in any order and from several threads at once.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::io::{pread, retry_on_intr};

use crate::extents::{self, DataExtents};
use crate::stat::{Metadata, describe, stat_open};
use crate::{FileError, Follow};

/// An open regular file. Made by [`open_file`](crate::open_file).
#[derive(Debug)]
pub struct RegularFile {
    file: OwnedFd,
    path: PathBuf,
}

impl RegularFile {
    pub(crate) fn new(file: OwnedFd, path: &Path) -> Self {
        Self { file, path: path.to_owned() }
    }

    /// The present metadata of the open file, even if its path names another file by now.
    pub fn metadata(&self) -> Result<Metadata, FileError> {
        let stat = stat_open(&self.file).map_err(FileError::at(&self.path))?;
        Ok(describe(&stat, Follow::Yes))
    }

    /// Appends up to `len` bytes, from `offset` on, to `into`. Returns whether the file ended before `len` bytes were read.
    pub fn read_block(&self, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<bool, FileError> {
        let end = self.end_of_range(offset, len)?;
        let start = into.len();
        into.reserve(len);
        let mut at = offset;
        while at < end {
            let read =
                retry_on_intr(|| pread(&self.file, spare_capacity(into), at)).map_err(FileError::at(&self.path))?;
            if read == 0 {
                return Ok(true);
            }
            at += read as u64;
        }
        // `pread` can fill all the spare capacity, which may be more than `len`.
        into.truncate(start + len);
        Ok(false)
    }

    /// As [`read_block`](Self::read_block), but passes the data to `take` in pieces that share one buffer. All pieces
    /// but the last have `piece_len` bytes, which must not be 0. The last piece can be empty.
    pub fn read_pieces(
        &self,
        offset: u64,
        len: usize,
        piece_len: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<bool, FileError> {
        let mut buffer = Vec::with_capacity(piece_len.min(len));
        let mut done = 0;
        // A range beyond the largest file offset is refused before `take` gets any piece.
        self.end_of_range(offset, len)?;
        while done < len {
            buffer.clear();
            let ended = self.read_block(offset + done as u64, piece_len.min(len - done), &mut buffer)?;
            take(&buffer);
            if ended {
                return Ok(true);
            }
            done += buffer.len();
        }
        Ok(false)
    }

    /// The offset after the last byte of a range. Fails if it exceeds the largest file offset, `i64::MAX`.
    fn end_of_range(&self, offset: u64, len: usize) -> Result<u64, FileError> {
        let overflowed = || FileError::refused("file read offset overflowed", &self.path);
        offset.checked_add(len as u64).filter(|end| i64::try_from(*end).is_ok()).ok_or_else(overflowed)
    }

    /// The first `max` ranges that hold data, at or after offset `from`.
    pub fn extents(&self, from: u64, max: usize) -> Result<DataExtents, FileError> {
        extents::find(&self.file, self.metadata()?.size, from, max).map_err(FileError::at(&self.path))
    }
}
