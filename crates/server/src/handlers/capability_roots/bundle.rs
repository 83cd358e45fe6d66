//! Reads the files that are returned for a capability root, a directory with plugins and skills, and collects
//! warnings. There are limits for a file, for a root and for the whole answer. A file that does not fit is left out,
//! and a warning says so. This module does not know which files a root has.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{MAX_CAPABILITY_FILE_BYTES, MAX_CAPABILITY_ROOT_BYTES};
use files::{FileRoot, Follow};
use protocol::{CapabilityFile, PathUri};

/// Bytes of JSON around the text of a file: names of members, quotes, braces.
const AROUND_FILE_BYTES: usize = 128;
/// Bytes of JSON around a warning: quotes and a comma.
const AROUND_WARNING_BYTES: usize = 4;
/// Bytes of JSON of a root without files, and of the fixed words of its `error` or of the warning that further
/// warnings do not fit.
const AROUND_ROOT_BYTES: usize = 512;

/// Counts the bytes that are left in an answer. All roots of a request share them.
pub(super) struct AnswerRoom {
    /// Largest size of the whole answer.
    most: usize,
    /// Bytes that are left for files.
    files: AtomicUsize,
    /// Bytes that are left for warnings.
    warnings: AtomicUsize,
}

impl AnswerRoom {
    /// For an answer of at most `most` bytes, of which `taken` bytes are needed whatever is found.
    pub(super) fn new(most: usize, taken: usize) -> Self {
        let left = most.saturating_sub(taken);
        // An eighth is reserved for warnings, so that the answer can always say which files do not fit.
        let warnings = left / 8;
        Self { most, files: AtomicUsize::new(left - warnings), warnings: AtomicUsize::new(warnings) }
    }
}

/// Bytes that a root takes in the answer whatever is found in it. The path counts more than once, because an `error` repeats it.
pub(super) fn root_bytes(id: &str, path: &PathUri) -> usize {
    AROUND_ROOT_BYTES + json_len(id) + 3 * path.as_str().len()
}

/// Reads the files of one root within the limits, and collects the warnings about files that are left out.
pub(super) struct Bundle<'a> {
    file_root: &'a FileRoot,
    /// Bytes of files that the root may still return.
    left: u64,
    room: &'a AnswerRoom,
    warnings: Vec<String>,
    /// Whether a warning did not fit into the answer.
    lacks_warnings: bool,
}

impl<'a> Bundle<'a> {
    pub(super) fn new(file_root: &'a FileRoot, room: &'a AnswerRoom) -> Self {
        Self { file_root, left: MAX_CAPABILITY_ROOT_BYTES, room, warnings: Vec::new(), lacks_warnings: false }
    }

    /// The root in which the files of the capability root are read.
    pub(super) fn file_root(&self) -> &'a FileRoot {
        self.file_root
    }

    /// Reads a file that the answer will contain `copies` times. If the file does not exist or is not a regular file,
    /// returns None. If the file cannot be read or does not fit, returns None and adds a warning.
    pub(super) fn read(&mut self, path: &Path, copies: usize) -> Option<CapabilityFile> {
        let uri = PathUri::from_native(path)?;
        let size = match files::metadata(self.file_root, path, Follow::Yes) {
            Ok(metadata) if !metadata.is_file => return None,
            Ok(metadata) => metadata.size,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => return self.leave_out(format!("failed to inspect capability file {uri}: {error}")),
        };
        if size > MAX_CAPABILITY_FILE_BYTES {
            return self
                .leave_out(format!("capability file {uri} exceeds the {MAX_CAPABILITY_FILE_BYTES}-byte limit"));
        }
        if size > self.left {
            return self
                .leave_out(format!("capability root bundle exceeds the {MAX_CAPABILITY_ROOT_BYTES}-byte limit"));
        }
        let bytes =
            match files::read_file(self.file_root, path, Follow::Yes, MAX_CAPABILITY_FILE_BYTES.min(self.left)) {
                Ok(bytes) => bytes,
                Err(error) if error.size_limit().is_some() => {
                    return self.leave_out(format!("capability file {uri} exceeded its read limit"));
                }
                Err(error) => return self.leave_out(format!("failed to read capability file {uri}: {error}")),
            };
        let contents = match String::from_utf8(bytes) {
            Ok(contents) => contents,
            Err(error) => {
                return self.leave_out(format!("capability file {uri} is not UTF-8: {}", error.utf8_error()));
            }
        };
        let in_answer = copies * (json_len(&contents) + uri.as_str().len() + AROUND_FILE_BYTES);
        if !take(&self.room.files, in_answer) {
            return self.leave_out(format!("capability file {uri} does not {}", self.fit_the_answer()));
        }
        self.left -= contents.len() as u64;
        Some(CapabilityFile { path: uri, contents })
    }

    /// Adds a warning about a file that is left out. Always returns None.
    fn leave_out(&mut self, warning: String) -> Option<CapabilityFile> {
        self.warn(warning);
        None
    }

    /// Adds a warning that something of the root is left out.
    pub(super) fn warn(&mut self, warning: String) {
        // After the first warning that does not fit, all further ones are left out, so that the returned ones have no gaps.
        self.lacks_warnings |= !take(&self.room.warnings, json_len(&warning) + AROUND_WARNING_BYTES);
        if !self.lacks_warnings {
            self.warnings.push(warning);
        }
    }

    pub(super) fn into_warnings(mut self) -> Vec<String> {
        if self.lacks_warnings {
            // This warning always fits, because `root_bytes` counts it.
            self.warnings.push(format!("further warnings do not {}", self.fit_the_answer()));
        }
        self.warnings
    }

    /// The end of a warning about a file or a warning that does not fit.
    fn fit_the_answer(&self) -> String {
        format!(
            "fit the answer of at most {} bytes (--max-message-bytes); ask for fewer roots at once",
            self.room.most
        )
    }
}

/// Subtracts `bytes` from `left` if `left` is large enough. Returns whether it was.
fn take(left: &AtomicUsize, bytes: usize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

/// Length of a text inside a JSON string, in bytes, without the quotes.
fn json_len(text: &str) -> usize {
    let escaped = |byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_len_is_the_encoded_length() {
        for text in ["", "plain", "a \"b\" \\ \n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}", "déjà 🦀"] {
            assert_eq!(json_len(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_reports_no_size_is_left_out_if_its_contents_exceed_the_limit() {
        let room = AnswerRoom::new(1 << 20, 0);
        let mut tight = Bundle { left: 10, ..Bundle::new(FileRoot::host(), &room) };
        assert_eq!(tight.read(Path::new("/proc/self/status"), 1), None);
        assert_eq!(tight.into_warnings(), ["capability file file:///proc/self/status exceeded its read limit"]);
    }
}
