//! Where a file holds data, and where it has holes that need not be read, sent or copied.

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// A stretch of a file that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

impl DataExtent {
    /// Where it ends.
    pub fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// Some of the data of a file. What lies between, and up to `size`, reads as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataExtents {
    /// In the order of the file.
    pub extents: Vec<DataExtent>,
    /// How many bytes the file has.
    pub size: u64,
    /// Whether there is data behind the last one.
    pub more: bool,
}

/// The first `max` extents of a file at or behind `from`. A file system that does not tell has one.
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

/// The first extent at or behind `from`.
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
