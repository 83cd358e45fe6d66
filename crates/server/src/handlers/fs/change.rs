//! The `fs/*` methods that change files, except uploads, which are in `blocks`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use files::{Cancel, FileError, FileRoot};
use protocol::fs::{
    CopyParams, CreateDirectoryParams, RemoveParams, RenameParams, SetMetadataParams, SymlinkParams, WriteFileParams,
};
use protocol::{NoResult, WireError, decode_base64};

use super::super::request_root::RequestRoot;
use super::super::waiting::WaitingBytes;
use super::{failed, follow, locate, locate_both, spawn_change};
use crate::connection::Call;
use crate::session::Session;

pub(in crate::handlers) fn write_file(call: Call, params: WriteFileParams, session: Arc<Session>) {
    let prepared = locate(&params.path, params.sandbox.as_ref(), &session).and_then(|(root, path)| {
        let data = decode_base64(&params.data_base64).map_err(|error| {
            WireError::invalid_request(format!("fs/writeFile requires valid base64 dataBase64: {error}"))
        })?;
        let waiting = WaitingBytes::for_disk(&call.connection, data.len())?;
        Ok((root, (path, data, waiting)))
    });
    // Only the decoded data is kept while the operation waits.
    drop(params.data_base64);
    let follow = follow(params.follow_symlinks);
    spawn_if_prepared(call, session, prepared, move |root, (path, data, _waiting)| {
        files::write_file(root, &path, &data, follow)
    });
}

pub(in crate::handlers) fn create_directory(call: Call, params: CreateDirectoryParams, session: Arc<Session>) {
    let path = locate(&params.path, params.sandbox.as_ref(), &session);
    let follow = follow(params.follow_symlinks);
    spawn_if_prepared(call, session, path, move |root, path| {
        files::create_directory(root, &path, params.recursive, follow)
    });
}

pub(in crate::handlers) fn set_metadata(call: Call, params: SetMetadataParams, session: Arc<Session>) {
    let path = locate(&params.path, params.sandbox.as_ref(), &session);
    let follow = follow(params.follow_symlinks);
    let mtime = params.mtime.map(|time| (time.secs, time.nanos));
    spawn_if_prepared(call, session, path, move |root, path| {
        files::set_metadata(root, &path, params.mode, mtime, follow)
    });
}

pub(in crate::handlers) fn remove(call: Call, params: RemoveParams, session: Arc<Session>) {
    let path = locate(&params.path, params.sandbox.as_ref(), &session);
    let follow = follow(params.follow_symlinks);
    spawn_if_prepared(call, session, path, move |root, path| {
        // A change is never cancelled.
        files::remove(root, &path, params.recursive, params.force, follow, &Cancel::new())
    });
}

pub(in crate::handlers) fn copy(call: Call, params: CopyParams, session: Arc<Session>) {
    let paths = locate_both(&params.source_path, &params.destination_path, params.sandbox.as_ref(), &session);
    spawn_if_prepared(call, session, paths, move |root, (source, destination)| {
        // A change is never cancelled.
        files::copy(root, &source, &destination, params.recursive, &Cancel::new())
    });
}

pub(in crate::handlers) fn rename(call: Call, params: RenameParams, session: Arc<Session>) {
    let paths = locate_both(&params.source_path, &params.destination_path, params.sandbox.as_ref(), &session);
    spawn_if_prepared(call, session, paths, move |root, (source, destination)| {
        files::rename(root, &source, &destination, params.replace)
    });
}

pub(in crate::handlers) fn symlink(call: Call, params: SymlinkParams, session: Arc<Session>) {
    let path = locate(&params.path, params.sandbox.as_ref(), &session);
    let target = match params.target.raw {
        Some(raw) => OsString::from_vec(raw.0),
        None => OsString::from(params.target.target),
    };
    spawn_if_prepared(call, session, path, move |root, path| files::symlink(root, &target, &path));
}

/// Runs `operation` with the prepared values, or answers with the error of the preparation.
fn spawn_if_prepared<P: Send + 'static>(
    call: Call,
    session: Arc<Session>,
    prepared: Result<(RequestRoot, P), WireError>,
    operation: impl FnOnce(&FileRoot, P) -> Result<(), FileError> + Send + 'static,
) {
    match prepared {
        Ok((root, prepared)) => spawn_change(call, session, root, move |root| {
            operation(root, prepared).map(|()| NoResult {}).map_err(failed)
        }),
        Err(error) => call.finish::<()>(Err(error)),
    }
}
