//! The names in one directory, in a single buffer instead of one allocation for each name.

use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::FileType;

/// Names of a directory, each with the file type that the directory listing gave. They are in byte order only after
/// [`sort`](Self::sort).
#[derive(Default)]
pub(crate) struct SortableNames {
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, FileType)>,
}

impl SortableNames {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Adds a name. When this makes twice `wanted` names, only the first `wanted` in byte order are kept.
    pub(crate) fn push(&mut self, name: &CStr, kind: FileType, wanted: usize) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.to_bytes());
        self.entries.push((start..self.bytes.len(), kind));
        if self.entries.len() >= wanted.saturating_mul(2) {
            self.keep_first(wanted);
        }
    }

    /// Sorts the names by their bytes.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|(one, _), (other, _)| bytes[one.clone()].cmp(&bytes[other.clone()]));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, FileType)> {
        self.entries.iter().map(|(range, kind)| (OsStr::from_bytes(&self.bytes[range.clone()]), *kind))
    }

    fn keep_first(&mut self, count: usize) {
        self.sort();
        self.entries.truncate(count);
        let mut kept = Vec::with_capacity(self.bytes.len() / 2);
        for (range, _) in &mut self.entries {
            let start = kept.len();
            kept.extend_from_slice(&self.bytes[range.clone()]);
            *range = start..kept.len();
        }
        self.bytes = kept;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn fewer_than_twice_the_wanted_names_are_held_and_the_first_in_byte_order_are_kept() {
        let mut names = SortableNames::default();
        for number in (0..1000).rev() {
            names.push(&CString::new(format!("{number:04}")).unwrap(), FileType::RegularFile, 10);
            assert!(names.entries.len() < 20);
        }
        names.sort();
        let first: Vec<_> = names.iter().take(10).map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(first, ["0000", "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009"]);
    }
}
