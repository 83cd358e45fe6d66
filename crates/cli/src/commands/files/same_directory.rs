//! Finds out whether two paths lead to the same directory, even if their machines have different names: one machine
//! can be reached by several names. Equal paths and times prove nothing, because they are the same on all machines
//! that were made from one image. So [`is_same_directory`] makes an empty directory with a random name, the probe, in
//! one of the two directories for a moment, and looks for it in the other.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use client::{CreateDirectoryOptions, FileOptions, FileSystemError, RemoveOptions};

use super::host_path::HostPath;

/// Whether `source` and `target` are the same directory. If the probe cannot be made in the target, the answer is no:
/// then no copy can be made in the target either.
pub(crate) async fn is_same_directory(source: &HostPath, target: &HostPath) -> bool {
    if Arc::ptr_eq(&source.host, &target.host) {
        return source.path == target.path;
    }
    let name = probe_name();
    let probe = target.join(&name);
    if make(&probe).await.is_err() {
        return false;
    }
    let is_seen = exists(&source.join(&name)).await;
    // If the probe cannot be removed, an empty directory stays behind. The answer is still right.
    let _removed_or_left = remove(&probe).await;
    is_seen
}

fn probe_name() -> OsString {
    format!(".exec-server-{:016x}.probe", RandomState::new().build_hasher().finish()).into()
}

/// Makes the probe. The default options are recursive, and only a recursive request is repeated when the connection
/// is lost.
async fn make(probe: &HostPath) -> Result<(), FileSystemError> {
    probe.host.files.create_directory(&probe.uri()?, &CreateDirectoryOptions::default()).await
}

async fn exists(probe: &HostPath) -> bool {
    let Ok(uri) = probe.uri() else { return false };
    probe.host.files.metadata(&uri, &FileOptions::default()).await.is_ok()
}

async fn remove(probe: &HostPath) -> Result<(), FileSystemError> {
    let options = RemoveOptions { force: true, ..RemoveOptions::default() };
    probe.host.files.remove(&probe.uri()?, &options).await
}
