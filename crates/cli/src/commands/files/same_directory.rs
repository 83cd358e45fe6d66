//! Whether two paths on machines with different names lead to one directory. Paths and times cannot tell: machines that were made from one
//! image have the same ones, and one machine can be reached by several names. So a directory that is about to be written to anyway is given
//! something new for a moment, and the other path is looked at.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use client::{CreateDirectoryOptions, FileOptions, FileSystemError, RemoveOptions};

use super::file_hosts::HostPath;

/// Whether `source` and `target`, two directories, are the same one. A directory in which nothing can be made is not: no copy can grow
/// inside it.
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
    // Nobody else knows the name, so a failure leaves an empty directory and nothing to decide.
    let _stays = remove(&probe).await;
    is_seen
}

fn probe_name() -> OsString {
    format!(".exec-server-{:016x}.probe", RandomState::new().build_hasher().finish()).into()
}

/// Recursive, because only such a request is repeated when a connection is lost.
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
