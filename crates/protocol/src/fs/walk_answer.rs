//! Collects the answer to `fs/walk`, up to the maximum size that the published protocol of `codex exec-server` sets.
//! The server uses this, and so does a client that walks a tree of its own machine.

use std::ops::ControlFlow;
use std::path::Path;

use super::{WalkEntry, WalkFailure, WalkKind, WalkResult};
use crate::PathUri;

/// Maximum size of the answer to a walk, in bytes: the length of all paths and error texts, and 64 bytes for each entry and each error.
pub const MAX_WALK_ANSWER_BYTES: usize = 4 << 20;

/// Bytes that an entry or an error counts in addition to its text.
const ENTRY_BYTES: usize = 64;

/// A [`WalkResult`] that grows up to [`MAX_WALK_ANSWER_BYTES`]. A path that has no URI is left out.
#[derive(Debug)]
pub struct WalkAnswer {
    result: WalkResult,
    /// How many bytes the answer may still grow.
    remaining_bytes: usize,
}

impl WalkAnswer {
    /// Adds a file or a directory. If the answer is full, adds nothing and returns `Break`, which ends the walk.
    pub fn add_entry(&mut self, path: &Path, kind: WalkKind) -> ControlFlow<()> {
        let Some(path) = PathUri::from_native(path) else { return ControlFlow::Continue(()) };
        self.reserve(path.as_str().len())?;
        self.result.entries.push(WalkEntry { path, kind });
        ControlFlow::Continue(())
    }

    /// Adds a path that could not be examined. If the answer is full, adds nothing and returns `Break`, which ends
    /// the walk.
    pub fn add_failure(&mut self, path: &Path, message: String) -> ControlFlow<()> {
        let Some(path) = PathUri::from_native(path) else { return ControlFlow::Continue(()) };
        self.reserve(path.as_str().len() + message.len())?;
        self.result.errors.push(WalkFailure { path, message });
        ControlFlow::Continue(())
    }

    /// The result of a walk that has ended. `truncated` says whether a part of the tree is missing in the result.
    pub fn finish(self, truncated: bool) -> WalkResult {
        WalkResult { truncated, ..self.result }
    }

    /// Counts an entry or an error with this many bytes of text. Returns `Break` if the answer has no room for it.
    fn reserve(&mut self, text_bytes: usize) -> ControlFlow<()> {
        match self.remaining_bytes.checked_sub(text_bytes + ENTRY_BYTES) {
            Some(remaining) => {
                self.remaining_bytes = remaining;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }
}

impl Default for WalkAnswer {
    fn default() -> Self {
        Self { result: WalkResult::default(), remaining_bytes: MAX_WALK_ANSWER_BYTES }
    }
}
