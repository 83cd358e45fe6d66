//! Copying the contents of one open file to another. The kernel copies where it can (`copy_file_range`); otherwise
//! the data passes through a buffer. Holes stay holes if the file system reports them. Names and permissions are the
//! concern of the module `copy`. Start with [`copy_contents`].

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{copy_file_range, ftruncate};
use rustix::io::{Errno, pread, retry_on_intr};

use crate::extents;
use crate::write::write_at;
use crate::{Cancel, FileError};

/// At most this many bytes are copied between two checks for cancellation.
const CANCEL_CHECK_BYTES: usize = 16 * 1024 * 1024;
/// Size of the buffer that is used if the kernel cannot copy.
const BUFFER_BYTES: usize = 256 * 1024;

pub(crate) enum CopyContentsError {
    Os(Errno),
    /// Holds the error that [`Cancel::check`] returned.
    Cancelled(FileError),
}

impl From<Errno> for CopyContentsError {
    fn from(error: Errno) -> Self {
        Self::Os(error)
    }
}

/// Copies the contents of `from`, whose `stat` says that it has `size` bytes, to the empty file `to`.
pub(crate) fn copy_contents(
    from: &OwnedFd,
    size: u64,
    to: &OwnedFd,
    cancel: &Cancel,
) -> Result<(), CopyContentsError> {
    let mut copier = ContentsCopier { from, to, cancel, uses_kernel: true, buffer: Vec::new() };
    // Files whose contents are generated when they are read, as in `/proc`, have size 0.
    if size == 0 {
        copier.uses_kernel = false;
        return copier.copy(0, u64::MAX);
    }
    let mut at = 0;
    while let Some(extent) = extents::next(from, size, at)? {
        copier.copy(extent.offset, extent.length)?;
        at = extent.end();
    }
    // If the file ends with a hole, the copy is still too short.
    if at < size {
        ftruncate(to, size)?;
    }
    Ok(())
}

struct ContentsCopier<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    cancel: &'a Cancel,
    /// Whether `copy_file_range` is tried. If not, the data passes through `buffer`.
    uses_kernel: bool,
    buffer: Vec<u8>,
}

impl ContentsCopier<'_> {
    /// Copies `length` bytes from `offset` on, or fewer if the file ends earlier.
    fn copy(&mut self, offset: u64, length: u64) -> Result<(), CopyContentsError> {
        let mut done = 0;
        while done < length {
            self.cancel.check().map_err(CopyContentsError::Cancelled)?;
            let wanted = usize::try_from(length - done).unwrap_or(usize::MAX).min(CANCEL_CHECK_BYTES);
            let copied = if self.uses_kernel {
                match self.copy_in_kernel(offset + done, wanted) {
                    // Some kernels return 0 for files whose contents are generated when they are read.
                    Ok(0)
                    | Err(
                        Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM | Errno::TXTBSY,
                    ) => {
                        self.uses_kernel = false;
                        continue;
                    }
                    copied => copied?,
                }
            } else {
                self.copy_through_buffer(offset + done, wanted)?
            };
            if copied == 0 {
                break;
            }
            done += copied as u64;
        }
        Ok(())
    }

    fn copy_in_kernel(&self, offset: u64, wanted: usize) -> Result<usize, Errno> {
        retry_on_intr(|| {
            let (mut source, mut target) = (offset, offset);
            copy_file_range(self.from, Some(&mut source), self.to, Some(&mut target), wanted)
        })
    }

    fn copy_through_buffer(&mut self, offset: u64, wanted: usize) -> Result<usize, Errno> {
        self.buffer.clear();
        self.buffer.reserve_exact(BUFFER_BYTES);
        retry_on_intr(|| pread(self.from, spare_capacity(&mut self.buffer), offset))?;
        let count = self.buffer.len().min(wanted);
        write_at(self.to, offset, &self.buffer[..count])?;
        Ok(count)
    }
}
