//! Moving the contents of one open file to another: by the kernel where it can, with holes left as holes, and never more than a
//! block in memory.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{copy_file_range, ftruncate};
use rustix::io::{Errno, pread, retry_on_intr};

use crate::extents;
use crate::write::write_at;
use crate::{Cancel, FileError};

/// How much is copied before it is asked again whether anybody still wants it.
const STRIDE: usize = 16 * 1024 * 1024;
/// Where we have to copy ourselves.
const BLOCK: usize = 256 * 1024;

/// Why contents could not be moved.
pub(crate) enum Failure {
    Os(Errno),
    Cancelled(FileError),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Os(error)
    }
}

/// Copies everything in `from`, which said to have `size` bytes, to the empty file `to`.
pub(crate) fn copy_contents(from: &OwnedFd, size: u64, to: &OwnedFd, cancel: &Cancel) -> Result<(), Failure> {
    let mut mover = Mover { from, to, cancel, by_kernel: true, block: Vec::new() };
    // Files that are made up while they are read say they are empty.
    if size == 0 {
        mover.by_kernel = false;
        return mover.copy(0, u64::MAX);
    }
    let mut at = 0;
    while let Some(extent) = extents::next(from, size, at)? {
        mover.copy(extent.offset, extent.length)?;
        at = extent.end();
    }
    if at < size {
        ftruncate(to, size)?;
    }
    Ok(())
}

struct Mover<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    cancel: &'a Cancel,
    by_kernel: bool,
    block: Vec<u8>,
}

impl Mover<'_> {
    /// Copies a stretch, or what there is of it.
    fn copy(&mut self, offset: u64, length: u64) -> Result<(), Failure> {
        let mut done = 0;
        while done < length {
            self.cancel.check().map_err(Failure::Cancelled)?;
            let wanted = usize::try_from(length - done).unwrap_or(usize::MAX).min(STRIDE);
            let copied = if self.by_kernel {
                match self.by_kernel(offset + done, wanted) {
                    // Nothing is also what some kernels say of files that are made up while they are read.
                    Ok(0)
                    | Err(
                        Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM | Errno::TXTBSY,
                    ) => {
                        self.by_kernel = false;
                        continue;
                    }
                    copied => copied?,
                }
            } else {
                self.by_hand(offset + done, wanted)?
            };
            if copied == 0 {
                break;
            }
            done += copied as u64;
        }
        Ok(())
    }

    fn by_kernel(&self, offset: u64, wanted: usize) -> Result<usize, Errno> {
        retry_on_intr(|| {
            let (mut source, mut target) = (offset, offset);
            copy_file_range(self.from, Some(&mut source), self.to, Some(&mut target), wanted)
        })
    }

    fn by_hand(&mut self, offset: u64, wanted: usize) -> Result<usize, Errno> {
        self.block.clear();
        self.block.reserve_exact(BLOCK);
        retry_on_intr(|| pread(self.from, spare_capacity(&mut self.block), offset))?;
        let count = self.block.len().min(wanted);
        write_at(self.to, offset, &self.block[..count])?;
        Ok(count)
    }
}
