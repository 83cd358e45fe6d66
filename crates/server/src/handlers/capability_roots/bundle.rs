//! The texts and warnings that are returned for a root, within the limits of a file, of a root and of the whole answer. What does
//! not fit is left out, and a warning says so. Which files a root has is not known here.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{MAX_CAPABILITY_FILE_BYTES, MAX_CAPABILITY_ROOT_BYTES};
use files::Follow;
use protocol::{CapabilityFile, PathUri};

/// JSON around a text: names of members, quotes, braces.
const AROUND_FILE_BYTES: usize = 128;
/// JSON around a warning: quotes and a comma.
const AROUND_WARNING_BYTES: usize = 4;
/// JSON of a root without texts, and the fixed words of its `error` or of its last warning.
const AROUND_ROOT_BYTES: usize = 512;

/// The bytes that are left in an answer, shared by all roots of a request.
pub(super) struct AnswerRoom {
    most: usize,
    files: AtomicUsize,
    warnings: AtomicUsize,
}

impl AnswerRoom {
    /// Room in an answer of at most `most` bytes that must have `taken` bytes whatever is found.
    pub(super) fn new(most: usize, taken: usize) -> Self {
        let left = most.saturating_sub(taken);
        // Texts must not take the room of the warnings that say which texts have no room.
        let warnings = left / 8;
        Self { most, files: AtomicUsize::new(left - warnings), warnings: AtomicUsize::new(warnings) }
    }
}

/// What an answer has of a root whatever is found there. An `error` repeats the path.
pub(super) fn root_bytes(id: &str, path: &PathUri) -> usize {
    AROUND_ROOT_BYTES + json_len(id) + 3 * path.as_str().len()
}

/// The texts and warnings of one root.
pub(super) struct Bundle<'a> {
    left: u64,
    room: &'a AnswerRoom,
    warnings: Vec<String>,
    lacks_warnings: bool,
}

impl<'a> Bundle<'a> {
    pub(super) fn new(room: &'a AnswerRoom) -> Self {
        Self { left: MAX_CAPABILITY_ROOT_BYTES, room, warnings: Vec::new(), lacks_warnings: false }
    }

    /// The text of a file that stands in the answer `copies` times. There is none of what does not exist and of what is no
    /// regular file; a file that cannot be returned has none and a warning.
    pub(super) fn read(&mut self, path: &Path, copies: usize) -> Option<CapabilityFile> {
        let uri = PathUri::from_native(path)?;
        let size = match files::metadata(path, Follow::Yes) {
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
        let bytes = match files::read_file(path, Follow::Yes, MAX_CAPABILITY_FILE_BYTES.min(self.left)) {
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

    fn leave_out(&mut self, warning: String) -> Option<CapabilityFile> {
        self.warn(warning);
        None
    }

    /// Something of the root is left out.
    pub(super) fn warn(&mut self, warning: String) {
        // After the first that is left out all are: the order of the others says what was looked at.
        self.lacks_warnings |= !take(&self.room.warnings, json_len(&warning) + AROUND_WARNING_BYTES);
        if !self.lacks_warnings {
            self.warnings.push(warning);
        }
    }

    pub(super) fn into_warnings(mut self) -> Vec<String> {
        if self.lacks_warnings {
            // There is room for this one: `root_bytes` counts it.
            self.warnings.push(format!("further warnings do not {}", self.fit_the_answer()));
        }
        self.warnings
    }

    fn fit_the_answer(&self) -> String {
        format!(
            "fit the answer of at most {} bytes (--max-message-bytes); ask for fewer roots at once",
            self.room.most
        )
    }
}

/// Takes so many bytes, if as many are left.
fn take(left: &AtomicUsize, bytes: usize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

/// How long a text is inside a JSON string.
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
    fn the_length_in_a_message_is_what_it_will_be() {
        for text in ["", "plain", "a \"b\" \\ \n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}", "déjà 🦀"] {
            assert_eq!(json_len(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_reports_no_size_is_read_up_to_the_limit() {
        let room = AnswerRoom::new(1 << 20, 0);
        let mut tight = Bundle { left: 10, ..Bundle::new(&room) };
        assert_eq!(tight.read(Path::new("/proc/self/status"), 1), None);
        assert_eq!(tight.into_warnings(), ["capability file file:///proc/self/status exceeded its read limit"]);
    }
}
