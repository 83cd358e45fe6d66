//! Params and results of `fs/*`. What is streamed, watched or searched is in files of its own.

mod block;
mod refused_block;
mod search;
mod upload;
mod watch;

use serde::{Deserialize, Serialize};

use crate::{Base64Bytes, PathUri, SandboxContext};

pub use block::{BlockAnswer, encode_write_block, recognise_block, recognise_block_answer, recognise_write_block};
pub use refused_block::{RefusedBlock, refused_block};
pub use search::{
    CancelSearchParams, FoundFile, FoundLine, FoundNotification, MatchRange, SearchCase, SearchError, SearchParams,
    SearchResult,
};
pub use upload::{CommitParams, CreateParams, Extent, ExtentsParams, ExtentsResult, WriteBlockParams};
pub use watch::{ChangeKind, ChangedNotification, FileChange, UnwatchParams, WatchParams};

fn default_true() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_true(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Params of `fs/readFile` and `fs/getMetadata`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsReadFileParams", rename_all = "camelCase")]
pub struct FileParams {
    /// Which file.
    pub path: PathUri,
    /// False: no part of the path may be a symbolic link.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readFile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFileResult {
    /// All of it.
    #[serde(rename = "dataBase64")]
    pub data: Base64Bytes,
}

/// Params of `fs/open`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsOpenParams", rename_all = "camelCase")]
pub struct OpenParams {
    /// Chosen by the client, at most 32 bytes, unique among the open handles of the session.
    pub handle_id: String,
    /// Which file.
    pub path: PathUri,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/open` and `fs/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleResult {
    /// As it was asked for.
    pub handle_id: String,
    /// Of an opened file: what it is now; an older server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FileMetadata>,
}

/// Params of `fs/readBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsReadBlockParams", rename_all = "camelCase")]
pub struct ReadBlockParams {
    /// Which open file.
    pub handle_id: String,
    /// From where.
    pub offset: u64,
    /// How much: 1 to 1,048,576.
    pub len: u64,
}

/// Result of `fs/readBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBlockResult {
    /// The bytes.
    pub chunk: Base64Bytes,
    /// Whether there were fewer than asked for.
    pub eof: bool,
}

/// Params of `fs/close`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCloseParams", rename_all = "camelCase")]
pub struct CloseParams {
    /// Which open file, or an upload that is given up.
    pub handle_id: String,
}

/// Params of `fs/writeFile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsWriteFileParams", rename_all = "camelCase")]
pub struct WriteFileParams {
    /// Which file.
    pub path: PathUri,
    /// What is to be in it. Still text: whether it is base64 is not a question of the params' shape.
    pub data_base64: String,
    /// False: no part of the path may be a symbolic link.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/createDirectory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCreateDirectoryParams", rename_all = "camelCase")]
pub struct CreateDirectoryParams {
    /// Which directory.
    pub path: PathUri,
    /// With its parents, and no matter whether it is there.
    #[serde(default = "default_true")]
    pub recursive: bool,
    /// False: no part of the path may be a symbolic link.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/getMetadata`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileMetadata {
    /// A directory, or a link to one.
    pub is_directory: bool,
    /// A regular file, or a link to one.
    pub is_file: bool,
    /// The path itself is a symbolic link; all else describes its target.
    pub is_symlink: bool,
    /// In bytes.
    pub size: u64,
    /// When it was made; 0 if nobody knows.
    pub created_at_ms: i64,
    /// When its contents were changed.
    pub modified_at_ms: i64,
    /// Extension `fsSetMetadata`: the permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Extension `fsSetMetadata`: `modifiedAtMs` in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
}

/// A time as file systems keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTime {
    /// Since 1970, negative before.
    pub secs: i64,
    /// 0 to 999,999,999, counted forwards.
    pub nanos: u32,
}

/// Params of `fs/canonicalize` and `fs/readLink`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCanonicalizeParams")]
pub struct PathParams {
    /// Which one.
    pub path: PathUri,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/canonicalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathResult {
    /// Without links.
    pub path: PathUri,
}

/// Params of `fs/readDirectory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsReadDirectoryParams", rename_all = "camelCase")]
pub struct ReadDirectoryParams {
    /// Which one.
    pub path: PathUri,
    /// Extension `fsLinks`: links that lead nowhere are listed too, and each entry says whether it is a link.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dangling_links: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readDirectory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDirectoryResult {
    /// In the order of the file system.
    pub entries: Vec<DirectoryEntry>,
}

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryEntry {
    /// Its name; what is not UTF-8 is replaced.
    pub file_name: String,
    /// A directory, or a link to one.
    pub is_directory: bool,
    /// A regular file, or a link to one.
    pub is_file: bool,
    /// Whether the name itself is a symbolic link, if that was asked for. One that is neither file nor directory may lead nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_symlink: Option<bool>,
    /// Where it really is, if the name had to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathUri>,
}

/// Params of `fs/walk`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsWalkParams")]
pub struct WalkParams {
    /// Where to begin.
    pub path: PathUri,
    /// How far to go.
    pub options: WalkOptions,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// How far a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WalkOptions {
    /// 0: only what is directly below the root; at most 64.
    pub max_depth: usize,
    /// Directories that are opened, the root included; at most 10,000.
    pub max_directories: usize,
    /// Names that are looked at; at most 50,000.
    pub max_entries: usize,
    /// Whether links to directories are entered.
    pub follow_directory_symlinks: bool,
    /// Whether directories with a dot in front are listed only.
    #[serde(default)]
    pub prune_hidden_directories: bool,
}

/// Result of `fs/walk`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkResult {
    /// Level by level, sorted within each directory.
    pub entries: Vec<WalkEntry>,
    /// What could not be looked at.
    pub errors: Vec<WalkFailure>,
    /// Whether there was more.
    pub truncated: bool,
}

/// Something a walk found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkEntry {
    /// Where.
    pub path: PathUri,
    /// What.
    pub kind: WalkKind,
}

/// What a walk finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WalkKind {
    /// A directory, or a link to one that is followed.
    Directory,
    /// A regular file.
    File,
}

/// Something a walk could not look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkFailure {
    /// Where.
    pub path: PathUri,
    /// Why.
    pub message: String,
}

/// Params of `fs/remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsRemoveParams", rename_all = "camelCase")]
pub struct RemoveParams {
    /// Which one.
    pub path: PathUri,
    /// A directory with everything in it.
    #[serde(default = "default_true")]
    pub recursive: bool,
    /// It need not be there.
    #[serde(default = "default_true")]
    pub force: bool,
    /// False: no part of the path may be a symbolic link.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/copy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct FsCopyParams", rename_all = "camelCase")]
pub struct CopyParams {
    /// From where.
    pub source_path: PathUri,
    /// To where.
    pub destination_path: PathUri,
    /// Needed for directories.
    pub recursive: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/rename`, extension `fsRename`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenameParams {
    /// From where.
    pub source_path: PathUri,
    /// To where, within the same file system.
    pub destination_path: PathUri,
    /// Whether what is there is replaced.
    #[serde(default = "default_true")]
    pub replace: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/setMetadata`, extension `fsSetMetadata`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetMetadataParams {
    /// Which one.
    pub path: PathUri,
    /// The permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// When its contents were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// False: the link itself, and no other part of the path may be one.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readLink`, extension `fsLinks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkTarget {
    /// As it stands in the link; what is not UTF-8 is replaced.
    pub target: String,
    /// The same in full, if it had to be changed.
    #[serde(rename = "targetBase64", default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Base64Bytes>,
}

/// Params of `fs/symlink`, extension `fsLinks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymlinkParams {
    /// Where the link is to be.
    pub path: PathUri,
    /// Where it is to point.
    #[serde(flatten)]
    pub target: LinkTarget,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

#[cfg(test)]
mod tests;
