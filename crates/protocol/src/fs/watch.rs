//! Extension `fsWatch` of the published protocol: reporting changes of a file or a directory tree. Watches belong to
//! the session, the server's state of a client, so a client can continue a watch over another connection. How
//! changes are detected is in the crate `files`.

use serde::{Deserialize, Serialize};

use super::default_true;
use crate::{PathUri, SandboxContext};

/// Params of `fs/watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchParams {
    /// Chosen by the client, at most 32 bytes. Unique among the watches of the session.
    pub watch_id: String,
    /// The file or directory to watch.
    pub path: PathUri,
    /// True, or absent: a directory is watched with everything below it. False: only its own entries.
    #[serde(default = "default_true")]
    pub recursive: bool,
    /// Continues an existing watch after the client has resumed the session: the number of the last `fs/changed`
    /// that the client has. Later notifications are sent again. An unknown watch is an error. Absent: a new watch
    /// begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<u64>,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/unwatch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnwatchParams {
    /// The watch to end. An unknown watch is no error.
    pub watch_id: String,
}

/// Params of the notification `fs/changed`: the changes since the previous `fs/changed` of the same watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedNotification {
    /// The watch that has seen the changes.
    pub watch_id: String,
    /// Number of the notification: 1 for the first of a watch, 2 for the second, and so on, over all connections of
    /// the session.
    pub seq: u64,
    /// The changes, in an order in which the client can apply them. Absent: empty.
    #[serde(default)]
    pub changes: Vec<FileChange>,
    /// True: some changes were lost, so the client must examine the whole tree again. Later changes are reported as usual.
    /// Absent: false.
    #[serde(default)]
    pub overflow: bool,
    /// True: the watched file or directory is gone, or can no longer be watched, and the watch has ended. Absent: false.
    #[serde(default)]
    pub ended: bool,
}

/// A change of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// The path that changed. After a rename, the new path.
    pub path: PathUri,
    /// What happened to the path.
    pub kind: ChangeKind,
    /// The old path of a rename. Absent for other changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathUri>,
    /// Whether the path is or was a directory. Absent: false.
    #[serde(default)]
    pub is_directory: bool,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The path is new. Also used if a file was moved to this path from outside of the watched tree and may have
    /// replaced another one.
    Created,
    /// The contents or the metadata of the file or directory changed, or another file has replaced the file.
    Modified,
    /// The path no longer exists in the watched tree, nor does anything below it.
    Removed,
    /// A file or directory was moved to this path from another path of the watched tree. It replaces a file that had
    /// this path before, if there was one.
    Renamed,
}
