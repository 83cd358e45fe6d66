//! Extension `fsWatch`: what changes in a tree.

use serde::{Deserialize, Serialize};

use super::default_true;
use crate::{PathUri, SandboxContext};

/// Params of `fs/watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchParams {
    /// Chosen by the client, at most 32 bytes, unique among the watches of the session.
    pub watch_id: String,
    /// A file or a directory.
    pub path: PathUri,
    /// With everything below it.
    #[serde(default = "default_true")]
    pub recursive: bool,
    /// The watch is there already, and the client knows everything up to this number: what followed is told again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<u64>,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/unwatch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnwatchParams {
    /// Which watch; one that is unknown is fine.
    pub watch_id: String,
}

/// Params of `fs/changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedNotification {
    /// Which watch.
    pub watch_id: String,
    /// From 1, without holes, over all connections of the session.
    pub seq: u64,
    /// What changed, in an order in which it can be applied.
    #[serde(default)]
    pub changes: Vec<FileChange>,
    /// More changed than could be told: look again at everything.
    #[serde(default)]
    pub overflow: bool,
    /// What was watched is gone, and so is the watch.
    #[serde(default)]
    pub ended: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// Where; of a rename, the new place.
    pub path: PathUri,
    /// What.
    pub kind: ChangeKind,
    /// Of a rename, the old place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathUri>,
    /// Whether it is or was a directory.
    #[serde(default)]
    pub is_directory: bool,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It was not there before.
    Created,
    /// Its contents or its metadata are different.
    Modified,
    /// It is gone.
    Removed,
    /// It came from elsewhere in the tree.
    Renamed,
}
