//! What can be done with files, as blocking calls on native paths. Knows nothing of JSON-RPC, of URIs or of tasks: whoever calls
//! decides on which thread.

#![forbid(unsafe_code)]

mod cached;
mod cancel;
mod contents;
mod copy;
mod create_directory;
mod descent;
mod error;
mod extents;
mod links;
mod listing;
mod local_devices;
mod names;
mod one_writer;
mod place;
mod read;
mod regular_file;
mod remove;
mod rename;
mod search;
mod set_metadata;
mod stat;
mod temporary;
mod upload;
mod walk;
mod watch;
mod write;

pub use cached::{metadata_if_cached, read_file_if_cached};
pub use cancel::Cancel;
pub use copy::copy;
pub use create_directory::create_directory;
pub use error::FileError;
pub use extents::{DataExtent, DataExtents};
pub use links::{canonicalize, read_link, symlink};
pub use listing::{DanglingLinks, ListedEntry, read_directory, read_directory_while};
pub use place::Follow;
pub use read::{open_file, read_file};
pub use regular_file::RegularFile;
pub use remove::remove;
pub use rename::rename;
pub use search::{
    CaseSensitivity, HitLine, MAX_BRACES, MAX_CONTEXT_LINES, MAX_GLOB_BYTES, MAX_GLOBS, MAX_LINE_BYTES,
    MAX_PATTERN_BYTES, MAX_SEARCH_ERRORS, MAX_SEARCHED_BYTES, Pattern, PrepareSearchError, PreparedSearch,
    SearchCompletion, SearchFailure, SearchHit, SearchQuery, SearchSummary, check_search_size,
};
pub use set_metadata::set_metadata;
pub use stat::{Metadata, metadata};
pub use upload::{CommitOptions, Upload};
pub use walk::{EntryKind, TreeWalkOptions, WalkItem, WalkSummary, walk};
pub use watch::{ChangeBatch, PathChange, PathChangeKind, PathWatch, WatchEnd, WatchOptions, WatchedDirectoryCount};
pub use write::write_file;
