//! The `fs/*` methods that only read, except those for blocks, searches and watches, which have files of their own.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{Cancel, CancelOnDrop, DanglingLinks, EntryKind, FileError, FileRoot, WalkItem};
use protocol::fs::{
    DirectoryEntry, FileMetadata, FileParams, FileTime, LinkTarget, PathParams, PathResult, ReadDirectoryParams,
    ReadDirectoryResult, WalkAnswer, WalkKind, WalkParams, WalkResult,
};
use protocol::{Base64Bytes, RequestId, WireError, encode_base64_response, encode_response, encoded_len};

use super::super::request_root::RequestRoot;
use super::{AnswerAttempt, answer, answer_in_room, failed, follow, locate, spawn_query, uri, wire_error};
use crate::connection::{Call, Connection, FileMetadataRequest};
use crate::limits::{MAX_DIRECTORY_ENTRIES, MAX_READ_FILE_BYTES};
use crate::session::Session;

/// A file of at most this many bytes is read in the task of the connection if the kernel has it in its cache. That takes less time than
/// handing the work to another thread.
const READ_AT_ONCE_BYTES: u64 = 64 << 10;
/// Bytes of an answer without its data and the id of the request.
const AROUND_DATA_BYTES: usize = 64;
/// From this many requests for metadata on, another worker thread of tokio answers them. For fewer, waking the worker would take longer.
const REQUESTS_FOR_ANOTHER_WORKER: usize = 16;
/// Bytes of an entry in a listing, without its name and without its URI.
const AROUND_ENTRY_BYTES: usize = 80;
/// Memory that is added to the size of a file, because the file may grow before it is read.
const GROWTH_BYTES: u64 = 64 << 10;

pub(in crate::handlers) fn read_file(call: Call, params: FileParams, session: Arc<Session>) {
    let (root, path) = match locate(&params.path, params.sandbox.as_ref(), &session) {
        Ok(located) => located,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let config = &call.connection.shared.config;
    let around = AROUND_DATA_BYTES + call.encoded_id_bytes();
    let fitting_bytes = (config.max_message_bytes.saturating_sub(around) / 4 * 3) as u64;
    if params.follow_symlinks
        && let Some(room) = call.connection.outbound.room_for_reply_now(READ_AT_ONCE_BYTES as usize)
        && let Some(root) = root.if_ready()
        && let Some(Ok(data)) = files::read_file_if_cached(root, &path, READ_AT_ONCE_BYTES.min(fitting_bytes))
    {
        let message = encode_file(call.id(), &data);
        return call.finish_encoded(message, Some(room));
    }
    let message_limit = config.max_message_bytes;
    let follow = follow(params.follow_symlinks);
    let connection = Arc::clone(&call.connection);
    let id = call.id().clone();
    let most = MAX_READ_FILE_BYTES.min(fitting_bytes);
    let attempt = move |root: &FileRoot, answer_bytes: usize| {
        let limit = (answer_bytes.saturating_sub(around) as u64 / 4 * 3).min(most);
        match files::read_file(root, &path, follow, limit) {
            Ok(data) => AnswerAttempt::Answer(encode_file(&id, &data)),
            Err(error) if error.size_limit().is_some() && limit < most => {
                let size = files::metadata(root, &path, follow).map_or(0, |found| found.size);
                // Files in `/proc` report the size 0, so the limit is doubled until the file fits.
                let size = if size > limit { size } else { limit * 2 };
                let expected = usize::try_from(size.saturating_add(GROWTH_BYTES).min(most)).unwrap_or(usize::MAX);
                AnswerAttempt::NeedsRoom(encoded_len(expected) + around)
            }
            Err(error) => AnswerAttempt::Failed(read_file_error(&error, message_limit)),
        }
    };
    connection.spawn(answer_in_room(call, session, root, attempt));
}

fn encode_file(id: &RequestId, data: &[u8]) -> Vec<u8> {
    encode_base64_response(id, r#"{"dataBase64":""#, data, r#""}"#)
}

/// The error of `fs/readFile`. For a file that is too large, it says which limit applies.
fn read_file_error(error: &FileError, message_limit: usize) -> WireError {
    let mut wire = wire_error(error);
    match error.size_limit() {
        Some(MAX_READ_FILE_BYTES) => {
            wire.code = protocol::ErrorCode::InvalidRequest.number();
            wire.message = format!("file is too large to read: limit is {MAX_READ_FILE_BYTES} bytes");
        }
        Some(_) => {
            wire.code = protocol::ErrorCode::InvalidRequest.number();
            wire.message = format!(
                "file does not fit a message of {message_limit} bytes (--max-message-bytes); read it with fs/open and fs/readBlock"
            );
        }
        None => {}
    }
    wire
}

pub(in crate::handlers) fn get_metadata(call: Call, params: FileParams, session: Arc<Session>) {
    let (root, path) = match locate(&params.path, params.sandbox.as_ref(), &session) {
        Ok(located) => located,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    if params.follow_symlinks
        && let Some(root) = root.if_ready()
    {
        // `answer_file_metadata_requests` answers it, together with the other requests that have arrived.
        let connection = Arc::clone(&call.connection);
        let root = root.clone();
        return connection.file_metadata_requests.lock().push(FileMetadataRequest { call, root, path, session });
    }
    metadata_on_thread(call, root, path, follow(params.follow_symlinks), session);
}

/// Answers the requests for metadata that arrived together. If they are many, another worker thread of tokio answers them, and this one
/// decodes further messages meanwhile.
pub(crate) fn answer_file_metadata_requests(connection: &Arc<Connection>) {
    let requests = std::mem::take(&mut *connection.file_metadata_requests.lock());
    if requests.len() < REQUESTS_FOR_ANOTHER_WORKER {
        return answer_together(connection, requests);
    }
    let answering = Arc::clone(connection);
    connection.spawn(async move { answer_together(&answering, requests) });
}

/// Sends the answers in one write, because a write for each answer takes longer than reading the metadata.
fn answer_together(connection: &Connection, requests: Vec<FileMetadataRequest>) {
    let answered = requests.into_iter().filter_map(answer_if_cached).collect();
    Call::finish_together(connection, answered);
}

/// The answer, if the kernel has the metadata in its cache. Otherwise None, and a thread that may block reads the metadata and answers.
fn answer_if_cached(request: FileMetadataRequest) -> Option<(Call, Result<FileMetadata, WireError>)> {
    let FileMetadataRequest { call, root, path, session } = request;
    match files::metadata_if_cached(&root, &path) {
        Some(found) => Some((call, found.map(|metadata| to_wire(&metadata)).map_err(failed))),
        None => {
            metadata_on_thread(call, RequestRoot::existing(root), path, files::Follow::Yes, session);
            None
        }
    }
}

fn metadata_on_thread(call: Call, root: RequestRoot, path: PathBuf, follow: files::Follow, session: Arc<Session>) {
    spawn_query(call, session, root, move |root| {
        files::metadata(root, &path, follow).map(|metadata| to_wire(&metadata)).map_err(failed)
    });
}

pub(super) fn to_wire(metadata: &files::Metadata) -> FileMetadata {
    FileMetadata {
        is_directory: metadata.is_directory,
        is_file: metadata.is_file,
        is_symlink: metadata.is_symlink,
        size: metadata.size,
        created_at_ms: metadata.created_at_ms,
        modified_at_ms: metadata.modified_at_ms,
        mode: Some(metadata.mode),
        mtime: Some(FileTime { secs: metadata.modified_seconds, nanos: metadata.modified_nanos }),
    }
}

pub(in crate::handlers) fn canonicalize(call: Call, params: PathParams, session: Arc<Session>) {
    with_path(call, params, session, |root, path| {
        let path = files::canonicalize(root, path).map_err(failed)?;
        Ok(PathResult { path: uri(&path)? })
    });
}

pub(in crate::handlers) fn read_link(call: Call, params: PathParams, session: Arc<Session>) {
    with_path(call, params, session, |root, path| {
        let target = files::read_link(root, path).map_err(failed)?;
        Ok(match target.into_string() {
            Ok(target) => LinkTarget { target, raw: None },
            Err(target) => LinkTarget {
                target: target.to_string_lossy().into_owned(),
                raw: Some(Base64Bytes(target.into_vec())),
            },
        })
    });
}

pub(in crate::handlers) fn read_directory(call: Call, params: ReadDirectoryParams, session: Arc<Session>) {
    let (root, path) = match locate(&params.path, params.sandbox.as_ref(), &session) {
        Ok(located) => located,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let connection = Arc::clone(&call.connection);
    let id = call.id().clone();
    let attempt = move |root: &FileRoot, answer_bytes: usize| {
        let mut needed = AROUND_DATA_BYTES + id.to_string().len();
        let listed = list(root, &path, params.dangling_links, |name| {
            needed += entry_bytes(&path, name);
            needed <= answer_bytes
        });
        match listed {
            Ok(Some(result)) => AnswerAttempt::Answer(encode_response(&id, &result)),
            Ok(None) => AnswerAttempt::NeedsRoom(needed),
            Err(error) => AnswerAttempt::Failed(error),
        }
    };
    connection.spawn(answer_in_room(call, session, root, attempt));
}

/// Lists a directory. `may_hold` is called with each name. If it returns false for a name, the result is None.
fn list(
    root: &FileRoot,
    path: &Path,
    dangling_links: bool,
    may_hold: impl FnMut(&OsStr) -> bool,
) -> Result<Option<ReadDirectoryResult>, WireError> {
    let dangling = if dangling_links { DanglingLinks::Listed } else { DanglingLinks::LeftOut };
    let listed =
        files::read_directory_if_it_fits(root, path, MAX_DIRECTORY_ENTRIES, dangling, may_hold).map_err(failed)?;
    let Some(entries) = listed else { return Ok(None) };
    let entries = entries.into_iter().map(|entry| {
        let (is_directory, is_file) = (entry.is_directory, entry.is_file);
        // Only a client that asks for dangling links gets this member.
        let is_symlink = dangling_links.then_some(entry.is_symlink);
        let (file_name, path) = match entry.name.into_string() {
            Ok(name) => (name, None),
            Err(name) => (name.to_string_lossy().into_owned(), Some(uri(&path.join(&name))?)),
        };
        Ok(DirectoryEntry { file_name, is_directory, is_file, is_symlink, path })
    });
    Ok(Some(ReadDirectoryResult { entries: entries.collect::<Result<_, WireError>>()? }))
}

/// The most bytes that an entry takes in an answer.
fn entry_bytes(directory: &Path, name: &OsStr) -> usize {
    let as_text: usize = name.as_bytes().iter().map(|byte| json_bytes(*byte)).sum();
    // A name that is not UTF-8 is written with replacement characters, and its URI is added. In both, a byte can take three bytes.
    let of_non_utf8 = if name.to_str().is_some() { 0 } else { 3 * (directory.as_os_str().len() + 2 * name.len()) };
    AROUND_ENTRY_BYTES + as_text + of_non_utf8
}

/// The most bytes that a byte of a text takes in JSON.
fn json_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// Runs `operation` with the native path of the request, and answers with its result.
fn with_path<R: serde::Serialize + Send + 'static>(
    call: Call,
    params: PathParams,
    session: Arc<Session>,
    operation: impl Fn(&FileRoot, &Path) -> Result<R, WireError> + Send + Sync + 'static,
) {
    match locate(&params.path, params.sandbox.as_ref(), &session) {
        Ok((root, path)) => spawn_query(call, session, root, move |root| operation(root, &path)),
        Err(error) => call.finish::<()>(Err(error)),
    }
}

pub(in crate::handlers) fn walk(call: Call, params: WalkParams, session: Arc<Session>) {
    let (root, path) = match locate(&params.path, params.sandbox.as_ref(), &session) {
        Ok(located) => located,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let options = files::TreeWalkOptions {
        max_depth: params.options.max_depth,
        max_directories: params.options.max_directories,
        max_entries: params.options.max_entries,
        follow_directory_symlinks: params.options.follow_directory_symlinks,
        prune_hidden_directories: params.options.prune_hidden_directories,
    };
    let cancel = CancelOnDrop::new();
    let cancelled = cancel.flag();
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        answer(call, session, root, move |root| walk_tree(root, &path, &options, &cancelled)).await;
        // If the connection ends, this task is dropped before it gets here, and `cancel` ends the walk.
        drop(cancel);
    });
}

/// Walks the tree below `root`. May block.
fn walk_tree(
    file_root: &FileRoot,
    root: &Path,
    options: &files::TreeWalkOptions,
    cancel: &Cancel,
) -> Result<WalkResult, WireError> {
    let mut answer = WalkAnswer::default();
    let end = files::walk(file_root, root, options, cancel, &mut |item| match item {
        WalkItem::Entry { path, kind: EntryKind::Directory } => answer.add_entry(path, WalkKind::Directory),
        WalkItem::Entry { path, kind: EntryKind::File } => answer.add_entry(path, WalkKind::File),
        WalkItem::Error { path, error } => answer.add_failure(path, error.to_string()),
    });
    Ok(answer.finish(end.map_err(failed)?.truncated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_bytes_is_at_least_the_encoded_size_and_less_than_three_times_it() {
        let directory = tempfile::tempdir().unwrap();
        for name in [&b"plain"[..], b"\"\\\n\x01\x1f", b"\xff\xfe", "\u{e4}\u{1f980}".as_bytes()] {
            let path = directory.path().join(OsStr::from_bytes(name));
            std::fs::write(&path, "").unwrap();
            let mut estimated = 0;
            let listed = list(FileRoot::host(), directory.path(), true, |name| {
                estimated += entry_bytes(directory.path(), name);
                true
            });
            let encoded = serde_json::to_string(&listed.unwrap().unwrap().entries[0]).unwrap().len();
            assert!((encoded..encoded * 3).contains(&estimated), "{estimated} for {encoded}");
            std::fs::remove_file(&path).unwrap();
        }
    }
}
