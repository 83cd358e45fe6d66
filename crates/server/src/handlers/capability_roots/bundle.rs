//! The files that are returned for a root, within what a file, a root and a message may have. What is left out is told.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use files::Follow;
use protocol::{FoundFile, PathUri};

const FILE_BYTES: u64 = 1 << 20;
/// What the files of one root may have together.
pub(super) const BUNDLE_BYTES: usize = 16 << 20;
/// What stands around a file in an answer.
const AROUND_FILE_BYTES: usize = 128;
/// What stands around a warning.
const AROUND_WARNING_BYTES: usize = 4;
/// A tree where everything is wrong is not worth more.
const MOST_WARNINGS: usize = 100;

/// What an answer still has room for, for all roots of a request together.
pub(super) struct Room {
    files: AtomicUsize,
    warnings: AtomicUsize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        // Files must not take the place of the words that say what they have no place for.
        let warnings = bytes / 8;
        Self { files: AtomicUsize::new(bytes - warnings), warnings: AtomicUsize::new(warnings) }
    }
}

/// Reads files until there is no room for more.
pub(super) struct Bundle<'a> {
    left: usize,
    room: &'a Room,
    warnings: Vec<String>,
}

impl<'a> Bundle<'a> {
    pub(super) fn new(room: &'a Room) -> Self {
        Self { left: BUNDLE_BYTES, room, warnings: Vec::new() }
    }

    /// The contents of a file. One that is not there is none; one that cannot be returned is none and a warning.
    pub(super) fn read(&mut self, path: &Path) -> Option<FoundFile> {
        let uri = PathUri::from_native(path)?;
        let bytes = match files::read_file(path, Follow::Yes, FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
            Err(error) => {
                self.warn(path, &error.to_string());
                return None;
            }
        };
        let Ok(contents) = String::from_utf8(bytes) else {
            self.warn(path, "it is not UTF-8");
            return None;
        };
        let Some(left) = self.left.checked_sub(contents.len()) else {
            self.warn(path, &format!("the files of a root may have {BUNDLE_BYTES} bytes together"));
            return None;
        };
        if !take(&self.room.files, json_len(&contents) + uri.as_str().len() + AROUND_FILE_BYTES) {
            self.warn(
                path,
                "the answer would exceed the limit of a message (--max-message-bytes); ask for fewer roots",
            );
            return None;
        }
        self.left = left;
        Some(FoundFile { path: uri, contents })
    }

    /// Something about `path` is left out.
    pub(super) fn warn(&mut self, path: &Path, why: &str) {
        let warning = format!("{}: {why}", path.display());
        if self.warnings.len() < MOST_WARNINGS && take(&self.room.warnings, json_len(&warning) + AROUND_WARNING_BYTES)
        {
            self.warnings.push(warning);
        }
    }

    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }
}

/// Takes so many bytes, if there are as many.
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
    fn what_has_no_room_is_left_out_and_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, "x".repeat(1000)).unwrap();
        let room = Room::new(2400);
        let mut bundle = Bundle::new(&room);
        assert!(bundle.read(&file).is_some());
        assert!(bundle.read(&file).is_none(), "no room in the message");
        let plenty = Room::new(1 << 20);
        let mut tight = Bundle { left: 1500, ..Bundle::new(&plenty) };
        assert!(tight.read(&file).is_some());
        assert!(tight.read(&file).is_none(), "no room in the bundle");
        let warnings = [bundle.into_warnings(), tight.into_warnings()].concat();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].ends_with("ask for fewer roots") && warnings[1].contains("16777216"), "{warnings:?}");
    }
}
