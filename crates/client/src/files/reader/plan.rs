//! Decides which block of a file is requested next. The plan knows offsets and lengths, and reads nothing. An extent
//! is a part of a file that is not a hole; a server lists the extents of a file in pages.

use std::collections::VecDeque;

use protocol::fs::{Extent, ExtentsResult};

use super::super::{BLOCK_BYTES, FileSystemError};
use super::unexpected;

/// Size of a block if the whole file is read. The protocol allows no larger block.
const WHOLE_BLOCK_BYTES: usize = 1 << 20;
/// How many blocks may be in flight if the whole file is read.
const WHOLE_BLOCKS: usize = 8;
/// How many blocks may be in flight if only extents are read. These blocks have `BLOCK_BYTES` each.
const EXTENT_BLOCKS: usize = 16;

/// The position and the length of a block, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRange {
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// The blocks of a file that were not requested yet, and how far the file was read.
pub(super) enum ReadPlan {
    /// Read everything up to the end of the file.
    Whole {
        /// Offset of the next block to request.
        next: u64,
        /// The size of the file when it was opened, if it is known. The file may have grown.
        expected: Option<u64>,
        /// Offset up to which the file was read.
        reached: u64,
    },
    /// Read the parts of the file that are not holes.
    Extents {
        /// Extents that were not requested yet.
        waiting: VecDeque<Extent>,
        /// The offset from which the next page of extents is requested. `None` if there is no further page.
        page_from: Option<u64>,
        /// The size of the file in bytes, as the newest answer says.
        size: u64,
    },
}

impl ReadPlan {
    pub(super) fn whole(expected: Option<u64>) -> Self {
        Self::Whole { next: 0, expected, reached: 0 }
    }

    pub(super) fn extents(size: u64) -> Self {
        Self::Extents { waiting: VecDeque::new(), page_from: Some(0), size }
    }

    /// The next block, if it may be requested now. `is_alone` says that no other block is in flight.
    pub(super) fn next(&mut self, is_alone: bool) -> Option<BlockRange> {
        match self {
            Self::Whole { next, expected, .. } => {
                // Only a block that is not full shows the end of the file, so one more block is requested at the expected end.
                let is_expected = expected.is_none_or(|expected| *next <= expected);
                (is_expected || is_alone).then(|| {
                    let range = BlockRange { offset: *next, len: WHOLE_BLOCK_BYTES };
                    *next += WHOLE_BLOCK_BYTES as u64;
                    range
                })
            }
            Self::Extents { waiting, .. } => {
                let extent = waiting.front_mut()?;
                let range = BlockRange { offset: extent.offset, len: next_block_bytes(extent.len) };
                extent.offset += range.len as u64;
                extent.len -= range.len as u64;
                if extent.len == 0 {
                    waiting.pop_front();
                }
                Some(range)
            }
        }
    }

    /// How many blocks of a remote file may be in flight.
    pub(super) fn most_blocks(&self) -> usize {
        match self {
            Self::Whole { .. } => WHOLE_BLOCKS,
            Self::Extents { .. } => EXTENT_BLOCKS,
        }
    }

    /// The offset from which to request more extents, if there are more.
    pub(super) fn page_from(&self) -> Option<u64> {
        match self {
            Self::Whole { .. } => None,
            Self::Extents { page_from, .. } => *page_from,
        }
    }

    /// Takes a page of extents. The extents must be in order and not before the requested offset; otherwise reading might never end.
    pub(super) fn take_page(&mut self, page: ExtentsResult) -> Result<(), FileSystemError> {
        let Self::Extents { waiting, page_from, size } = self else { return Ok(()) };
        let mut at = page_from.take().unwrap_or(0);
        for extent in page.extents.into_iter().filter(|extent| extent.len > 0) {
            let end = extent.offset.checked_add(extent.len).filter(|_| extent.offset >= at);
            at = end.ok_or_else(|| unexpected("the extents of a file are not in order"))?;
            waiting.push_back(extent);
        }
        if let Some(next) = page.next {
            if waiting.is_empty() || next < at {
                return Err(unexpected("a page of extents does not continue the page before it"));
            }
            *page_from = Some(next);
        }
        *size = page.size;
        Ok(())
    }

    /// A complete block was read, up to the offset `end`.
    pub(super) fn note_full_block(&mut self, end: u64) {
        if let Self::Whole { reached, .. } = self {
            *reached = end;
        }
    }

    /// The file ends at the offset `end`.
    pub(super) fn note_end_of_file(&mut self, end: u64) {
        match self {
            Self::Whole { reached, expected, .. } => (*reached, *expected) = (end, Some(end)),
            Self::Extents { size, .. } => *size = end,
        }
    }

    /// A block came only up to the offset `end`, although the file goes on. The next block begins there.
    pub(super) fn go_back_to(&mut self, end: u64) -> Result<(), FileSystemError> {
        match self {
            Self::Whole { next, reached, .. } => {
                (*next, *reached) = (end, end);
                Ok(())
            }
            Self::Extents { .. } => Err(unexpected("a block is short although the file goes on")),
        }
    }

    /// The size of the file in bytes, as far as it is known.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Whole { reached, expected, .. } => (*reached).max(expected.unwrap_or(0)),
            Self::Extents { size, .. } => *size,
        }
    }
}

/// The length of the next block if `rest` bytes are left.
fn next_block_bytes(rest: u64) -> usize {
    usize::try_from(rest).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn blocks_beyond_the_expected_end_are_requested_one_at_a_time() {
        let mut plan = ReadPlan::whole(Some(2 * MIB));
        let offsets: Vec<u64> = std::iter::from_fn(|| plan.next(false)).map(|range| range.offset).collect();
        assert_eq!(offsets, [0, MIB, 2 * MIB]);
        assert_eq!(plan.next(true).map(|range| range.offset), Some(3 * MIB));
    }

    #[test]
    fn extents_are_cut_into_blocks() {
        let mut plan = ReadPlan::extents(10 * MIB);
        assert_eq!((plan.next(true), plan.page_from()), (None, Some(0)));
        let block = BLOCK_BYTES as u64;
        let extents = vec![Extent { offset: 5, len: block + 1 }, Extent { offset: 4 * MIB, len: 7 }];
        plan.take_page(ExtentsResult { extents, size: 9 * MIB, next: None }).unwrap();
        let range: Vec<_> = std::iter::from_fn(|| plan.next(false)).map(|one| (one.offset, one.len)).collect();
        assert_eq!(range, [(5, BLOCK_BYTES), (5 + block, 1), (4 * MIB, 7)]);
        assert_eq!((plan.page_from(), plan.size()), (None, 9 * MIB));
    }

    #[test]
    fn pages_of_extents_that_do_not_advance_or_overflow_are_refused() {
        let page = |extents: &[(u64, u64)], next| ExtentsResult {
            extents: extents.iter().map(|&(offset, len)| Extent { offset, len }).collect(),
            size: 100,
            next,
        };
        for bad in [
            page(&[], Some(0)),
            page(&[(0, 5)], Some(4)),
            page(&[(9, 1), (3, 1)], None),
            page(&[(1, u64::MAX)], None),
        ] {
            assert!(ReadPlan::extents(100).take_page(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
