//! The `fs/*` methods that change files, except uploads, which are in `blocks`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use files::{Cancel, FileError};
use protocol::fs::{
    CopyParams, CreateDirectoryParams, RemoveParams, RenameParams, SetMetadataParams, SymlinkParams, WriteFileParams,
};
use protocol::{NoResult, WireError, decode_base64};

use super::super::waiting::WaitingBytes;
use super::{failed, follow, native_path, spawn_change};
use crate::connection::Call;
use crate::session::Session;

pub(in crate::handlers) fn write_file(call: Call, params: WriteFileParams, session: Arc<Session>) {
    let prepared = native_path(&params.path, params.sandbox.as_ref()).and_then(|path| {
        let data = decode_base64(&params.data_base64).map_err(|error| {
            WireError::invalid_request(format!("fs/writeFile requires valid base64 dataBase64: {error}"))
        })?;
        let waiting = WaitingBytes::for_disk(&call.connection, data.len())?;
        Ok((path, data, waiting))
    });
    // Only the decoded data is kept while the operation waits.
    drop(params.data_base64);
    let follow = follow(params.follow_symlinks);
    spawn_if_prepared(call, session, prepared, move |(path, data, _waiting)| files::write_file(&path, &data, follow));
}

pub(in crate::handlers) fn create_directory(call: Call, params: CreateDirectoryParams, session: Arc<Session>) {
    let path = native_path(&params.path, params.sandbox.as_ref());
    let follow = follow(params.follow_symlinks);
    spawn_if_prepared(call, session, path, move |path| files::create_directory(&path, params.recursive, follow));
}

pub(in crate::handlers) fn set_metadata(call: Call, params: SetMetadataParams, session: Arc<Session>) {
    let path = native_path(&params.path, params.sandbox.as_ref());
    let follow = follow(params.follow_symlinks);
    let mtime = params.mtime.map(|time| (time.secs, time.nanos));
    spawn_if_prepared(call, session, path, move |path| files::set_metadata(&path, params.mode, mtime, follow));
}

pub(in crate::handlers) fn remove(call: Call, params: RemoveParams, session: Arc<Session>) {
    let path = native_path(&params.path, params.sandbox.as_ref());
    let follow = follow(params.follow_symlinks);
    spawn_if_prepared(call, session, path, move |path| {
        // A change is never cancelled.
        files::remove(&path, params.recursive, params.force, follow, &Cancel::new())
    });
}

pub(in crate::handlers) fn copy(call: Call, params: CopyParams, session: Arc<Session>) {
    let sandbox = params.sandbox.as_ref();
    let paths = native_path(&params.source_path, sandbox)
        .and_then(|source| Ok((source, native_path(&params.destination_path, sandbox)?)));
    spawn_if_prepared(call, session, paths, move |(source, destination)| {
        // A change is never cancelled.
        files::copy(&source, &destination, params.recursive, &Cancel::new())
    });
}

pub(in crate::handlers) fn rename(call: Call, params: RenameParams, session: Arc<Session>) {
    let sandbox = params.sandbox.as_ref();
    let paths = native_path(&params.source_path, sandbox)
        .and_then(|source| Ok((source, native_path(&params.destination_path, sandbox)?)));
    spawn_if_prepared(call, session, paths, move |(source, destination)| {
        files::rename(&source, &destination, params.replace)
    });
}

pub(in crate::handlers) fn symlink(call: Call, params: SymlinkParams, session: Arc<Session>) {
    let path = native_path(&params.path, params.sandbox.as_ref());
    let target = match params.target.raw {
        Some(raw) => OsString::from_vec(raw.0),
        None => OsString::from(params.target.target),
    };
    spawn_if_prepared(call, session, path, move |path| files::symlink(&target, &path));
}

/// Runs `operation` with the prepared values, or answers with the error of the preparation.
fn spawn_if_prepared<P: Send + 'static>(
    call: Call,
    session: Arc<Session>,
    prepared: Result<P, WireError>,
    operation: impl FnOnce(P) -> Result<(), FileError> + Send + 'static,
) {
    match prepared {
        Ok(prepared) => {
            spawn_change(call, session, move || operation(prepared).map(|()| NoResult {}).map_err(failed));
        }
        Err(error) => call.finish::<()>(Err(error)),
    }
}
