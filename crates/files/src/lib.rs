//! Operations on files and directories by their native paths: read, write, copy, rename, remove, list, search, watch.
//! Every operation takes a [`FileRoot`] in which its paths are resolved: that of this machine or that of a sandbox.
//! The calls block, on a thread that the caller chooses; only the functions of `cached` do not. The crate knows
//! nothing of JSON-RPC messages, URIs or async tasks, but clients see its error texts, and some of these name
//! methods such as `fs/copy`.
//!
//! Most operations have a module of their own with a few public functions. The two large parts are `search` and
//! `watch`, which also start threads. The shared basics are `root` (the only modules that give a path
//! to the kernel), `resolve` (opening the parent directory of a path), `stat` and `listing`. For `cached`, the module `local_devices` remembers which file systems keep their data on
//! this machine and not behind a network.

#![forbid(unsafe_code)]

mod cached;
mod cancel;
mod contents;
mod copy;
mod create_directory;
mod directory_stack;
mod error;
mod extents;
pub mod limits;
mod links;
mod listing;
mod local_devices;
mod names;
mod read;
mod regular_file;
mod remove;
mod rename;
mod resolve;
mod root;
mod search;
mod set_metadata;
mod stat;
mod temporary_file;
mod upload;
mod walk;
mod watch;
mod write;
mod write_lock;

pub use cached::{metadata_if_cached, read_file_if_cached};
pub use cancel::{Cancel, CancelOnDrop};
pub use copy::copy;
pub use create_directory::create_directory;
pub use error::FileError;
pub use extents::{DataExtent, DataExtents};
pub use links::{canonicalize, read_link, symlink};
pub use listing::{DanglingLinks, ListedEntry, read_directory, read_directory_if_it_fits};
pub use read::{open_file, read_file};
pub use regular_file::RegularFile;
pub use remove::remove;
pub use rename::rename;
pub use resolve::Follow;
pub use root::{FileRoot, FileSandbox};
pub use search::{
    CaseSensitivity, HitLine, Pattern, PrepareSearchError, PreparedSearch, SearchCompletion, SearchFailure,
    SearchHit, SearchQuery, SearchSummary, check_search_size,
};
pub use set_metadata::set_metadata;
pub use stat::{Metadata, check_present, metadata};
pub use upload::{CommitOptions, Upload};
pub use walk::{EntryKind, TreeWalkOptions, WalkItem, WalkSummary, walk};
pub use watch::{ChangeBatch, PathChange, PathChangeKind, PathWatch, WatchEnd, WatchOptions, WatchedDirectoryCount};
pub use write::write_file;
