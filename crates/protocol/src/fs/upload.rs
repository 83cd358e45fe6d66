//! Files in pieces: uploads (extension `fsWriteBlocks`), and the extents of a file, which are the parts that have
//! data (extension `fsExtents`). An upload is `fs/create`, any number of `fs/writeBlock`, and `fs/commit`. Reading
//! in blocks is in `fs.rs`.

use serde::{Deserialize, Serialize};

use super::{FileTime, default_true, is_true};
use crate::{Base64Bytes, PathUri, SandboxContext};

/// Params of `fs/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateParams {
    /// Chosen by the client, at most 32 bytes. Unique among the open files and uploads of the session.
    pub handle_id: String,
    /// The file that the upload creates or replaces. It stays untouched until `fs/commit`.
    pub path: PathUri,
    /// True, or absent: an existing file is replaced. False: no file may exist at `path`, neither now nor at `fs/commit`.
    #[serde(default = "default_true")]
    pub replace: bool,
    /// False: a symbolic link anywhere in the path is an error. Absent: true.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/writeBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteBlockParams {
    /// The upload that the block belongs to.
    pub handle_id: String,
    /// Position of the block in the file. Blocks may come in any order and repeatedly. Bytes that no block covers are zero.
    pub offset: u64,
    /// Bytes of the block, 1 to 1,048,576.
    pub chunk: Base64Bytes,
}

/// Params of `fs/commit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitParams {
    /// The upload to finish. After a commit has succeeded, repeating it is no error until the handle is closed. A
    /// commit that fails closes the handle.
    pub handle_id: String,
    /// Length of the file in bytes. Absent: the file ends with the block that reaches furthest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits of the file, for example `0o644`; bits above `0o7777` are ignored. Absent: those of the file that is
    /// replaced, or else `modeIfNew`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Extension `fsModeIfNew`: permission bits if no file is replaced, without those in the umask of the server and
    /// without those above `0o777`. `mode` takes precedence. Absent: `0o666`, reduced by the umask in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_if_new: Option<u32>,
    /// Modification time of the file. Absent: the time of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// True: the file is on the disk before the answer comes. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync: bool,
}

/// Params of `fs/extents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtentsParams {
    /// The open file whose extents are wanted.
    pub handle_id: String,
    /// Position from which extents are returned. Absent: 0.
    #[serde(default)]
    pub offset: u64,
}

/// Result of `fs/extents`: where a file has data. Everything else up to `size` reads as zeros and need not be transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentsResult {
    /// The extents at or after the wanted offset, in order, at most 4,096. An extent that begins earlier is cut at
    /// the offset.
    pub extents: Vec<Extent>,
    /// Current length of the file in bytes.
    pub size: u64,
    /// The `offset` for the next request. Absent if there are no more extents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A part of a file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Position of the first byte of the extent.
    pub offset: u64,
    /// Length of the extent in bytes.
    pub len: u64,
}
