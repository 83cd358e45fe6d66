//! Extensions `fsWriteBlocks` and `fsExtents`: a file that is written or read in pieces.

use serde::{Deserialize, Serialize};

use super::{FileTime, default_true, is_true};
use crate::{Base64Bytes, PathUri, SandboxContext};

/// Params of `fs/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateParams {
    /// Chosen by the client, at most 32 bytes, unique among the open handles of the session.
    pub handle_id: String,
    /// Which file. It is untouched until `fs/commit`.
    pub path: PathUri,
    /// Whether a file that is there is replaced.
    #[serde(default = "default_true")]
    pub replace: bool,
    /// False: no part of the path may be a symbolic link.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub follow_symlinks: bool,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/writeBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteBlockParams {
    /// Which upload.
    pub handle_id: String,
    /// Where to. Blocks come in any order and may be repeated; what none of them covers is zero.
    pub offset: u64,
    /// The bytes: 1 to 1,048,576.
    pub chunk: Base64Bytes,
}

/// Params of `fs/commit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitParams {
    /// Which upload.
    pub handle_id: String,
    /// How long the file is; without it, it ends with the last block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its permission bits; without them, those of the file it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Its permission bits if it replaces no file, less those that the umask of the server takes. `mode` wins. Extension `fsModeIfNew`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_if_new: Option<u32>,
    /// When its contents were changed, if not now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// Whether it must be on the disk before the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync: bool,
}

/// Params of `fs/extents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtentsParams {
    /// Which open file.
    pub handle_id: String,
    /// From where.
    #[serde(default)]
    pub offset: u64,
}

/// Result of `fs/extents`: where a file has data, so that holes need not travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentsResult {
    /// In order, the first at or after the asked offset.
    pub extents: Vec<Extent>,
    /// How long the file is now.
    pub size: u64,
    /// Where to ask on, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A stretch of a file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}
