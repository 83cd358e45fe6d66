//! Params and results of `fs/*`. Uploads, watches and searches have files of their own below `fs/`. A *block* is a
//! part of a file: `fs/block.rs` encodes and recognises messages with blocks, and `fs/refused_block.rs` decides
//! whether a refused message was a block of an upload. `fs/walk_answer.rs` collects the answer to `fs/walk`. The
//! server turns URIs into native paths; this file knows no file system. An *extension* is a method or a member that
//! the published protocol of `codex exec-server` does not have.

mod block;
mod refused_block;
mod search;
mod upload;
mod walk_answer;
mod watch;

use serde::{Deserialize, Serialize};

use crate::object_only::objects_only;
use crate::{Base64Bytes, PathUri, SandboxContext};

pub use block::{
    BlockAnswer, decode_block_result, encode_write_block, recognise_block_answer, recognise_write_block,
};
pub use refused_block::{RefusedBlock, classify_refused_message};
pub use search::{
    CancelSearchParams, FoundFile, FoundLine, FoundNotification, MatchRange, SearchCase, SearchError, SearchParams,
    SearchResult,
};
pub use upload::{CommitParams, CreateParams, Extent, ExtentsParams, ExtentsResult, WriteBlockParams};
pub use walk_answer::{MAX_WALK_ANSWER_BYTES, WalkAnswer};
pub use watch::{ChangeKind, ChangedNotification, FileChange, UnwatchParams, WatchParams};

fn default_true() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_true(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Params of `fs/readFile` and `fs/getMetadata`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsReadFileParams", rename_all = "camelCase")]
pub struct FileParams {
    /// The file to read or to describe.
    pub path: PathUri,
    /// False: a symbolic link anywhere in the path is an error. Absent: true.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readFile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFileResult {
    /// Contents of the whole file.
    #[serde(rename = "dataBase64")]
    pub data: Base64Bytes,
}

/// Params of `fs/open`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsOpenParams", rename_all = "camelCase")]
pub struct OpenParams {
    /// Chosen by the client, at most 32 bytes. Unique among the open files and uploads of the session.
    pub handle_id: String,
    /// The file to open. Must be a regular file; a symbolic link is followed.
    pub path: PathUri,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/open` and `fs/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleResult {
    /// The id from the request.
    pub handle_id: String,
    /// Extension `fsExtents`, only from `fs/open`: metadata of the opened file. Absent from `fs/create`, and from an older
    /// server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FileMetadata>,
}

/// Params of `fs/readBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsReadBlockParams", rename_all = "camelCase")]
pub struct ReadBlockParams {
    /// The open file to read.
    pub handle_id: String,
    /// Position of the first byte to read. Past the end of the file, the block is empty.
    pub offset: u64,
    /// Number of bytes to read, 1 to 1,048,576.
    pub len: u64,
}

/// Result of `fs/readBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBlockResult {
    /// The bytes that were read, fewer than `len` only at the end of the file.
    pub chunk: Base64Bytes,
    /// Whether the block has fewer bytes than `len`. If the last block of a file is full, only a further read, of an
    /// empty block, returns true.
    pub eof: bool,
}

/// Params of `fs/close`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCloseParams", rename_all = "camelCase")]
pub struct CloseParams {
    /// The open file to close, or the upload to cancel. An unknown handle is no error.
    pub handle_id: String,
}

/// Params of `fs/writeFile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsWriteFileParams", rename_all = "camelCase")]
pub struct WriteFileParams {
    /// The file to write. It is created if it does not exist; its directory must exist.
    pub path: PathUri,
    /// New contents of the file in base64. The server decodes them in a later step, because the published protocol
    /// has a special error text for invalid base64 in this member.
    pub data_base64: String,
    /// False: a symbolic link anywhere in the path is an error. Absent: true.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/createDirectory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCreateDirectoryParams", rename_all = "camelCase")]
pub struct CreateDirectoryParams {
    /// The directory to create.
    pub path: PathUri,
    /// True, or absent: missing parents are created too, and an existing directory is no error. False: the parent must exist
    /// and the directory must not.
    #[serde(default = "default_true")]
    pub recursive: bool,
    /// False: a symbolic link anywhere in the path is an error. Absent: true.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/getMetadata`, and a part of the result of `fs/open`. A file that is neither a regular file, a
/// directory nor a symbolic link has all three booleans false.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileMetadata {
    /// Whether the path is a directory, or a symbolic link to one.
    pub is_directory: bool,
    /// Whether the path is a regular file, or a symbolic link to one.
    pub is_file: bool,
    /// Whether the path itself is a symbolic link. The other members then describe the target of the link.
    pub is_symlink: bool,
    /// Size in bytes.
    pub size: u64,
    /// When the file was created, in milliseconds since 1970. 0 if that is unknown. A time before 1970 is 0 too,
    /// unless `followSymlinks` is false; then it is negative.
    pub created_at_ms: i64,
    /// When the contents last changed, in milliseconds since 1970. A time before 1970 is 0, unless `followSymlinks`
    /// is false; then it is negative.
    pub modified_at_ms: i64,
    /// Extension `fsSetMetadata`: the permission bits, for example `0o644`. Absent from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Extension `fsSetMetadata`: the time of `modifiedAtMs` with full precision. Absent from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
}

/// A time as file systems store it: `secs` and then `nanos` after 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct FileTime {
    /// Whole seconds since 1970. Negative for earlier times.
    pub secs: i64,
    /// Nanoseconds to add to `secs`, 0 to 999,999,999, also if `secs` is negative.
    pub nanos: u32,
}

/// Params of `fs/canonicalize` and `fs/readLink`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCanonicalizeParams")]
pub struct PathParams {
    /// The path to resolve, or the symbolic link to read. It must exist.
    pub path: PathUri,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/canonicalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathResult {
    /// The path with every symbolic link resolved.
    pub path: PathUri,
}

/// Params of `fs/readDirectory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsReadDirectoryParams", rename_all = "camelCase")]
pub struct ReadDirectoryParams {
    /// The directory to list.
    pub path: PathUri,
    /// Extension `fsLinks`: true lists also symbolic links without a target, and each entry has `isSymlink`. False, or absent:
    /// such links are left out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dangling_links: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readDirectory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDirectoryResult {
    /// The entries of the directory, in no particular order. `.` and `..` are left out.
    pub entries: Vec<DirectoryEntry>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryEntry {
    /// Name of the entry. Bytes that are not UTF-8 are replaced.
    pub file_name: String,
    /// Whether the entry is a directory, or a symbolic link to one.
    pub is_directory: bool,
    /// Whether the entry is a regular file, or a symbolic link to one.
    pub is_file: bool,
    /// Extension `fsLinks`: whether the entry itself is a symbolic link. A link for which both other booleans are false may
    /// have no target. Absent without `danglingLinks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_symlink: Option<bool>,
    /// The exact path of the entry if `fileName` could not express its name. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathUri>,
}

/// Params of `fs/walk`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsWalkParams")]
pub struct WalkParams {
    /// The directory where the walk begins. It is not part of the result.
    pub path: PathUri,
    /// Limits of the walk, and which directories it enters.
    pub options: WalkOptions,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Limits of a walk, and which directories it enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct WalkOptions {
    /// How many levels of directories the walk enters below the root, at most 64. 0 lists only the entries of the root.
    pub max_depth: usize,
    /// How many directories the walk opens, the root included, 1 to 10,000.
    pub max_directories: usize,
    /// How many names the walk examines, those that it leaves out included, 1 to 50,000.
    pub max_entries: usize,
    /// Whether the walk lists and enters symbolic links to directories. False leaves them out.
    pub follow_directory_symlinks: bool,
    /// True lists directories whose names begin with a dot, but does not enter them. Absent: false.
    #[serde(default)]
    pub prune_hidden_directories: bool,
}

/// Result of `fs/walk`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkResult {
    /// What the walk found, level by level, sorted by name within each directory.
    pub entries: Vec<WalkEntry>,
    /// Paths that the walk could not examine.
    pub errors: Vec<WalkFailure>,
    /// Whether the walk ended before everything was listed, because of `maxDirectories`, `maxEntries` or the size of
    /// the answer. `maxDepth` does not count.
    pub truncated: bool,
}

/// A directory or file that a walk found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkEntry {
    /// Path of the directory or file.
    pub path: PathUri,
    /// Whether the path is a directory or a file.
    pub kind: WalkKind,
}

/// Type of an entry that a walk found. Other types are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WalkKind {
    /// A directory, or a symbolic link to one if links are followed.
    Directory,
    /// A regular file. Symbolic links to files are left out.
    File,
}

/// A path that a walk could not examine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkFailure {
    /// The directory or entry that failed.
    pub path: PathUri,
    /// The error of the operating system, as text.
    pub message: String,
}

/// Params of `fs/remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsRemoveParams", rename_all = "camelCase")]
pub struct RemoveParams {
    /// The file or directory to remove. If it is a symbolic link, the link is removed and not its target.
    pub path: PathUri,
    /// True, or absent: a directory is removed with everything in it. False: a directory must be empty.
    #[serde(default = "default_true")]
    pub recursive: bool,
    /// True, or absent: a path that does not exist is no error.
    #[serde(default = "default_true")]
    pub force: bool,
    /// False: a symbolic link anywhere in the path is an error, and `recursive` must be false too. Absent: true.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/copy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCopyParams", rename_all = "camelCase")]
pub struct CopyParams {
    /// The file, symbolic link or directory to copy.
    pub source_path: PathUri,
    /// Path of the copy itself, not of a directory to put the copy in. A copied file overwrites an existing file, and a copied
    /// directory is merged into an existing one.
    pub destination_path: PathUri,
    /// Must be true to copy a directory. Required.
    pub recursive: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/rename`, extension `fsRename`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenameParams {
    /// The file or directory to move.
    pub source_path: PathUri,
    /// The new path, in the same file system.
    pub destination_path: PathUri,
    /// True, or absent: an existing file at the new path is replaced. False: the new path must not exist.
    #[serde(default = "default_true")]
    pub replace: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/setMetadata`, extension `fsSetMetadata`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetMetadataParams {
    /// The file or directory to change.
    pub path: PathUri,
    /// New permission bits, for example `0o644`; bits above `0o7777` are ignored. Absent: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// New modification time. Absent: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// True, or absent: a symbolic link is followed. False: if the path itself is a symbolic link, the time of the
    /// link is changed, and a `mode` is an error. A symbolic link earlier in the path is an error.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// The target of a symbolic link: the result of `fs/readLink`, and a part of the params of `fs/symlink`. Extension `fsLinks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkTarget {
    /// The target as the link states it. Bytes that are not UTF-8 are replaced.
    pub target: String,
    /// The exact bytes of the target, if `target` cannot express them. Absent otherwise. `fs/symlink` prefers them to `target`.
    #[serde(rename = "targetBase64", default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Base64Bytes>,
}

/// Params of `fs/symlink`, extension `fsLinks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymlinkParams {
    /// Path of the link to create. It must not exist.
    pub path: PathUri,
    /// The target of the link, which need not exist. On the wire, its members stand beside `path`.
    #[serde(flatten)]
    pub target: LinkTarget,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

objects_only!(FileTime, WalkOptions);

#[cfg(test)]
mod tests;
