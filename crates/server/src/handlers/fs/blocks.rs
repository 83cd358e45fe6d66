//! The `fs/*` methods that read and write files in blocks, through a file handle. Clients send requests about a
//! handle without waiting for answers. So a request for a block waits until the file is open, and a commit waits
//! until the earlier blocks are written.
//!
//! In errors of the published protocol, every handle is a "file read handle" of a connection. Here a handle can also
//! be an upload, and belongs to the session.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use files::{CommitOptions, FileError, FileRoot};
use protocol::fs::{
    BlockAnswer, CloseParams, CommitParams, CreateParams, Extent, ExtentsParams, ExtentsResult, HandleResult,
    OpenParams, ReadBlockParams, WriteBlockParams,
};
use protocol::{ErrorCode, NoResult, WireError, encoded_len};

use super::super::poll_once::poll_once;
use super::super::refused_blocks::note_refused_block;
use super::super::request_root::RequestRoot;
use super::super::waiting::WaitingBytes;
use super::query::to_wire;
use super::{failed, follow, locate};
use crate::connection::Call;
use crate::files::{FileHandle, HandleRefusal, HandleState, MemoryNeed};
use crate::limits::{MAX_BLOCK_BYTES, MAX_EXTENTS, MAX_HANDLE_ID_BYTES};
use crate::session::Session;

/// Bytes that are read before they are encoded in base64. Few enough to stay in the processor cache in between.
const PIECE_BYTES: usize = 48 << 10;
const _: () =
    assert!(PIECE_BYTES.is_multiple_of(3), "the base64 of one piece must continue the base64 of the piece before");
/// Largest size of an answer of `fs/extents`.
const EXTENTS_REPLY_BYTES: usize = 256 << 10;

pub(in crate::handlers) fn open(call: Call, params: OpenParams, session: Arc<Session>) {
    let path = locate(&params.path, params.sandbox.as_ref(), &session);
    open_handle(call, params.handle_id, session, path, |root, path| {
        let file = files::open_file(root, path, files::Follow::Yes)?;
        let metadata = file.metadata()?;
        Ok((HandleState::File(file), Some(to_wire(&metadata))))
    });
}

pub(in crate::handlers) fn create(call: Call, params: CreateParams, session: Arc<Session>) {
    let path = locate(&params.path, params.sandbox.as_ref(), &session);
    open_handle(call, params.handle_id, session, path, move |root, path| {
        let upload = files::Upload::create(root, path, params.replace, follow(params.follow_symlinks))?;
        Ok((HandleState::Upload(upload), None))
    });
}

/// Makes a handle and opens it with `operation`. The operation is finished even if the connection ends, because
/// handles belong to the session.
fn open_handle(
    call: Call,
    handle_id: String,
    session: Arc<Session>,
    located: Result<(RequestRoot, PathBuf), WireError>,
    operation: impl FnOnce(&FileRoot, &Path) -> Result<(HandleState, Option<protocol::fs::FileMetadata>), FileError>
    + Send
    + 'static,
) {
    let created = check_id(&handle_id).and(located).and_then(|located| {
        let locked =
            session.files.handles.create_locked(&handle_id).map_err(|refusal| refused(&refusal, &handle_id))?;
        Ok((located, locked))
    });
    let ((root, path), (handle, mut guard)) = match created {
        Ok(created) => created,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let shared = Arc::clone(&call.connection.shared);
    shared.tasks.spawn(async move {
        let opened = match root.ready().await {
            Ok(root) => session.files.operations.run(move || operation(&root, &path).map_err(failed)).await,
            Err(error) => Some(Err(error)),
        };
        let result = match opened {
            Some(Ok((opened, metadata))) => {
                *guard = opened;
                Ok(HandleResult { handle_id, metadata })
            }
            Some(Err(error)) => {
                session.files.handles.remove_if_same(&handle_id, &handle);
                Err(error)
            }
            // The operation panicked. Dropping `call` answers with an error.
            None => return,
        };
        drop(guard);
        call.finish(result);
    });
}

fn refused(refusal: &HandleRefusal, id: &str) -> WireError {
    WireError::invalid_request(match refusal {
        HandleRefusal::Exists => format!("file read handle `{id}` already exists"),
        HandleRefusal::TooMany(limit) => {
            format!("at most {limit} file reads may be open per connection")
        }
    })
}

pub(in crate::handlers) fn read_block(call: Call, params: ReadBlockParams, session: Arc<Session>) {
    let len = usize::try_from(params.len).ok().filter(|len| (1..=MAX_BLOCK_BYTES).contains(len));
    let checked = check_id(&params.handle_id).and_then(|()| {
        let len = len.ok_or_else(|| {
            WireError::invalid_request(format!("file read block length must be between 1 and {MAX_BLOCK_BYTES}"))
        })?;
        Ok((len, find(&session, &params.handle_id)?))
    });
    let (len, handle) = match checked {
        Ok(checked) => checked,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let locking = queue_for_lock(handle.lock_shared());
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let state = locking.await;
        let Some(permit) = session.files.operations.session_permit(MemoryNeed::Ordinary).await else { return };
        // The memory permits come before the read, so that unsent blocks cannot pile up.
        let Some(room) = call.connection.outbound.room_for_reply(encoded_len(len)).await else { return };
        // The buffer is allocated by this task and not by the thread that reads, because the allocator keeps memory for each thread that has
        // allocated some.
        let mut answer = BlockAnswer::begin(call.id(), len);
        let read = session.files.operations.run_with_session_permit(permit, move || {
            let HandleState::File(file) = &*state else { return Ok(None) };
            let eof = file.read_pieces(params.offset, len, PIECE_BYTES, |piece| answer.push(piece))?;
            Ok::<_, FileError>(Some(answer.end(eof)))
        });
        match read.await {
            Some((Ok(Some(message)), _)) => call.finish_encoded(message, Some(room)),
            Some((Ok(None), _)) => call.finish::<()>(Err(unknown_handle(&params.handle_id))),
            Some((Err(error), _)) => {
                // After an error of the operating system the handle is forgotten. Other errors are about the offset,
                // for example an offset that is too large, and the file stays readable.
                if error.io().raw_os_error().is_some() {
                    session.files.handles.remove_if_same(&params.handle_id, &handle);
                }
                call.finish::<()>(Err(failed(error)));
            }
            None => {}
        }
    });
}

pub(in crate::handlers) fn extents(call: Call, params: ExtentsParams, session: Arc<Session>) {
    let handle = match check_id(&params.handle_id).and_then(|()| find(&session, &params.handle_id)) {
        Ok(handle) => handle,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let locking = queue_for_lock(handle.lock_shared());
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let state = locking.await;
        let found = session.files.operations.run(move || match &*state {
            HandleState::File(file) => file.extents(params.offset, MAX_EXTENTS).map(Some),
            _ => Ok(None),
        });
        let result = match found.await {
            Some(Ok(Some(found))) => Ok(ExtentsResult {
                next: found.extents.last().filter(|_| found.more).map(|last| last.end()),
                size: found.size,
                extents: found
                    .extents
                    .iter()
                    .map(|extent| Extent { offset: extent.offset, len: extent.length })
                    .collect(),
            }),
            Some(Ok(None)) => Err(unknown_handle(&params.handle_id)),
            Some(Err(error)) => Err(failed(error)),
            None => return,
        };
        let room = call.connection.outbound.room_for_reply(EXTENTS_REPLY_BYTES).await;
        call.finish_in_room(result, room);
    });
}

pub(in crate::handlers) fn write_block(call: Call, params: WriteBlockParams, session: Arc<Session>) {
    let block = params.chunk.0;
    let checked = check_id(&params.handle_id).and_then(|()| {
        if !(1..=MAX_BLOCK_BYTES).contains(&block.len()) {
            let text = format!("file write block length must be between 1 and {MAX_BLOCK_BYTES}");
            return Err(WireError::invalid_request(text));
        }
        let handle = find(&session, &params.handle_id)?;
        check_upload(&handle)?;
        Ok((handle, WaitingBytes::for_disk(&call.connection, block.len())?))
    });
    let (handle, waiting) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            note_refused_block(&session, &params.handle_id, &error.message);
            return call.finish::<()>(Err(error));
        }
    };
    let locking = queue_for_lock(handle.lock_shared());
    let shared = Arc::clone(&call.connection.shared);
    shared.tasks.spawn(async move {
        let state = locking.await;
        let written = session.files.operations.run(move || {
            let HandleState::Upload(upload) = &*state else { return Ok(None) };
            let written = upload.write_block(params.offset, &block).map(Some);
            drop((block, waiting));
            written
        });
        match written.await {
            Some(Ok(Some(()))) => call.finish(Ok(NoResult {})),
            Some(Ok(None)) => call.finish::<()>(Err(unknown_handle(&params.handle_id))),
            Some(Err(error)) => call.finish::<()>(Err(failed(error))),
            None => {}
        }
    });
}

pub(in crate::handlers) fn commit(call: Call, params: CommitParams, session: Arc<Session>) {
    let handle = match check_id(&params.handle_id).and_then(|()| find(&session, &params.handle_id)) {
        Ok(handle) => handle,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let locking = queue_for_lock(handle.lock_exclusive());
    let options = CommitOptions {
        size: params.size,
        mode: params.mode,
        mode_if_new: params.mode_if_new,
        mtime: params.mtime.map(|time| (time.secs, time.nanos)),
        sync: params.sync,
    };
    // The check is made when the commit arrives, because a block that is refused later was sent after the commit.
    let refused = check_upload(&handle).err();
    let shared = Arc::clone(&call.connection.shared);
    shared.tasks.spawn(async move {
        let mut state = locking.await;
        let committed = session.files.operations.run(move || {
            let committed = match (&*state, refused) {
                (HandleState::Upload(_), Some(refused)) => Err(refused),
                (HandleState::Upload(upload), None) => upload.commit(&options).map_err(failed),
                (HandleState::Committed, _) => Ok(()),
                (HandleState::Closed | HandleState::File(_), _) => return None,
            };
            *state = if committed.is_ok() { HandleState::Committed } else { HandleState::Closed };
            Some(committed)
        });
        match committed.await {
            Some(Some(Ok(()))) => call.finish(Ok(NoResult {})),
            Some(Some(Err(error))) => {
                session.files.handles.remove_if_same(&params.handle_id, &handle);
                call.finish::<()>(Err(error));
            }
            Some(None) => call.finish::<()>(Err(unknown_handle(&params.handle_id))),
            None => {}
        }
    });
}

/// `fs/close`. The file is closed when earlier requests are done. Closing can block, for example on a network file system.
pub(in crate::handlers) fn close(call: Call, params: CloseParams, session: Arc<Session>) {
    if let Err(error) = check_id(&params.handle_id) {
        return call.finish::<()>(Err(error));
    }
    let Some(handle) = session.files.handles.remove(&params.handle_id) else { return call.finish(Ok(NoResult {})) };
    let locking = queue_for_lock(handle.lock_exclusive());
    let shared = Arc::clone(&call.connection.shared);
    shared.tasks.spawn(async move {
        let mut state = locking.await;
        let closed = session.files.operations.run(move || *state = HandleState::Closed);
        if closed.await.is_some() {
            call.finish(Ok(NoResult {}));
        }
    });
}

/// Polls the future `lock` once, so that it queues for its lock now. So requests get the lock in the order of their
/// arrival.
fn queue_for_lock<T: Send + 'static>(
    lock: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    let mut lock = Box::pin(lock);
    match poll_once(lock.as_mut()) {
        Some(guard) => Box::pin(std::future::ready(guard)),
        None => lock,
    }
}

/// Fails if the upload has failed already, because a block of it was refused or may have been refused.
fn check_upload(handle: &FileHandle) -> Result<(), WireError> {
    let Some(sentence) = handle.upload_failure() else { return Ok(()) };
    Err(WireError::invalid_request(format!("the upload has failed: {sentence}")))
}

fn check_id(id: &str) -> Result<(), WireError> {
    if id.len() <= MAX_HANDLE_ID_BYTES {
        return Ok(());
    }
    Err(WireError::invalid_request(format!("file read handle ID must not exceed {MAX_HANDLE_ID_BYTES} bytes")))
}

fn find(session: &Session, id: &str) -> Result<FileHandle, WireError> {
    session.files.handles.find(id).ok_or_else(|| unknown_handle(id))
}

fn unknown_handle(id: &str) -> WireError {
    WireError::new(ErrorCode::NotFound, format!("unknown file read handle `{id}`"))
}
