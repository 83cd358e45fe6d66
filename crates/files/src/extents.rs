//! Finding the parts of a sparse file that hold data. The holes between them need not be read, sent or copied.

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// A range of a file that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub length: u64,
}

impl DataExtent {
    /// Offset of the first byte after the range.
    pub fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// Consecutive extents of a file. The bytes between two extents read as zeros. The bytes after the last extent also
/// read as zeros, unless `more` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataExtents {
    /// In ascending order of their offsets, at most as many as the caller asked for.
    pub extents: Vec<DataExtent>,
    /// Size of the file in bytes.
    pub size: u64,
    /// Whether the file has further data after the last extent.
    pub more: bool,
}

/// The first `max` extents at or after offset `from`. An extent that begins earlier is cut at `from`. On a file
/// system that cannot distinguish data from holes, the rest of the file is one extent. Moves the file's offset for
/// `read` and `write`.
pub(crate) fn find<F: AsFd>(file: F, size: u64, from: u64, max: usize) -> Result<DataExtents, Errno> {
    let mut found = DataExtents { extents: Vec::new(), size, more: false };
    let mut at = from;
    while let Some(extent) = next(&file, size, at)? {
        if found.extents.len() == max {
            found.more = true;
            break;
        }
        at = extent.end();
        found.extents.push(extent);
    }
    Ok(found)
}

/// The first of the extents that [`find`] returns. `None` if the file has no data at or after offset `from`.
pub(crate) fn next<F: AsFd>(file: F, size: u64, from: u64) -> Result<Option<DataExtent>, Errno> {
    if from >= size {
        return Ok(None);
    }
    let start = match seek(&file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(DataExtent { offset: from, length: size - from })),
        Err(error) => return Err(error),
    };
    let end = match seek(&file, SeekFrom::Hole(start)) {
        Ok(end) => end.min(size),
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => size,
        Err(error) => return Err(error),
    };
    Ok((start < end).then(|| DataExtent { offset: start, length: end - start }))
}
