//! The methods `fs/*`. Work that can block runs on a thread that may block. This file has what the handlers share:
//! the root and the path of a request, permits, memory for answers, and errors.
//!
//! If an operation panics, or a semaphore is closed, a handler drops its [`Call`]. The client then gets an error,
//! unless the connection has ended.

pub(super) mod blocks;
pub(super) mod change;
pub(super) mod query;
pub(super) mod search;
pub(super) mod watch;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use files::{FileError, FileRoot};
use protocol::{ErrorCode, ErrorData, PathUri, SandboxContext, WireError, encode_response, error_kind};
use serde::Serialize;

use super::request_root::RequestRoot;
use crate::connection::Call;
use crate::files::MemoryNeed;
use crate::limits::SMALL_ANSWER_BYTES;
use crate::session::Session;

/// The result of an attempt to make an answer.
enum AnswerAttempt {
    /// The answer, encoded.
    Answer(Vec<u8>),
    /// The answer would have about this many bytes, which is more than the attempt was allowed.
    NeedsRoom(usize),
    /// The answer is this error.
    Failed(WireError),
}

/// Runs an operation that only reads, on a thread that may block, and answers with its result. The answer is encoded
/// on the same thread. If the connection ends before the operation begins, the operation is dropped. The operation
/// may run several times ([`answer_in_room`]).
fn spawn_query<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    root: RequestRoot,
    operation: impl Fn(&FileRoot) -> Result<R, WireError> + Send + Sync + 'static,
) {
    let connection = Arc::clone(&call.connection);
    connection.spawn(answer(call, session, root, operation));
}

/// As [`spawn_query`], but in the task of the caller.
async fn answer<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    root: RequestRoot,
    operation: impl Fn(&FileRoot) -> Result<R, WireError> + Send + Sync + 'static,
) {
    let id = call.id().clone();
    let attempt = move |root: &FileRoot, _: usize| match operation(root) {
        Ok(result) => AnswerAttempt::Answer(encode_response(&id, &result)),
        Err(error) => AnswerAttempt::Failed(error),
    };
    answer_in_room(call, session, root, attempt).await;
}

/// Answers with the message that `attempt` makes, or with an error if the root of the request cannot be made. The
/// second argument of `attempt` is the size that the answer may have; for the first attempt it is
/// [`SMALL_ANSWER_BYTES`]. An attempt may ignore it and make a larger answer. If the first
/// answer is larger and its memory permits ("room") are not available at once, the answer is dropped, and made again
/// when the permits are there.
///
/// All answers wait for their permits in the same order, so that there is no deadlock: first the room for large
/// answers, which all connections share; then an operation permit of the session; then room of the connection; then
/// an operation permit that all sessions share. An answer that waits for shared room holds no permit that small
/// answers of its session need.
async fn answer_in_room(
    call: Call,
    session: Arc<Session>,
    root: RequestRoot,
    attempt: impl Fn(&FileRoot, usize) -> AnswerAttempt + Send + Sync + 'static,
) {
    let root = match root.ready().await {
        Ok(root) => root,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let connection = Arc::clone(&call.connection);
    let attempt = Arc::new(move |answer_bytes| attempt(&root, answer_bytes));
    let first = Arc::clone(&attempt);
    let tried = session.files.operations.run_for_reply(MemoryNeed::Ordinary, move || first(SMALL_ANSWER_BYTES)).await;
    let mut bytes = match tried {
        Some((AnswerAttempt::Answer(message), permit)) => {
            let room = if message.len() <= SMALL_ANSWER_BYTES {
                let Some(room) = connection.outbound.room_for_reply(message.len()).await else { return };
                Some(room)
            } else {
                connection.room_for_answer_now(message.len())
            };
            drop(permit);
            if room.is_some() {
                return call.finish_encoded(message, room);
            }
            message.len()
        }
        Some((AnswerAttempt::NeedsRoom(bytes), permit)) => {
            // The loop below takes a permit of the session again. If all requests of a session kept their first permit, none would get one.
            drop(permit);
            bytes
        }
        Some((AnswerAttempt::Failed(error), _)) => return call.finish::<()>(Err(error)),
        None => return,
    };
    loop {
        let Some(large_room) = connection.room_if_large(bytes).await else { return };
        let Some(permit) = session.files.operations.session_permit(MemoryNeed::Ordinary).await else { return };
        let Some(room) = connection.outbound.room_for_reply(bytes).await else { return };
        let again = Arc::clone(&attempt);
        match session.files.operations.run_with_session_permit(permit, move || again(bytes)).await {
            Some((AnswerAttempt::Answer(message), _)) => {
                return call.finish_encoded(message, Some(room.with_large(large_room)));
            }
            // The file or directory has grown meanwhile, or the size of the file is not known.
            Some((AnswerAttempt::NeedsRoom(more), _)) => bytes = more.max(bytes.saturating_mul(2)),
            Some((AnswerAttempt::Failed(error), _)) => return call.finish::<()>(Err(error)),
            None => return,
        }
    }
}

/// Runs an operation that changes files, on a thread that may block. The operation is finished even if the connection ends.
fn spawn_change<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    root: RequestRoot,
    operation: impl FnOnce(&FileRoot) -> Result<R, WireError> + Send + 'static,
) {
    let shared = Arc::clone(&call.connection.shared);
    shared.tasks.spawn(async move {
        let root = match root.ready().await {
            Ok(root) => root,
            Err(error) => return call.finish::<()>(Err(error)),
        };
        // The request is answered on the same thread, because waking this task takes as long as a small write.
        session.files.operations.run(move || call.finish(operation(&root))).await;
    });
}

/// The root of a request and its native path in this root.
fn locate(
    path: &PathUri,
    sandbox: Option<&SandboxContext>,
    session: &Arc<Session>,
) -> Result<(RequestRoot, PathBuf), WireError> {
    let path = native_path(path)?;
    Ok((RequestRoot::of(sandbox, session), path))
}

/// As [`locate`], for a request with two paths.
fn locate_both(
    source: &PathUri,
    destination: &PathUri,
    sandbox: Option<&SandboxContext>,
    session: &Arc<Session>,
) -> Result<(RequestRoot, (PathBuf, PathBuf)), WireError> {
    let paths = (native_path(source)?, native_path(destination)?);
    Ok((RequestRoot::of(sandbox, session), paths))
}

/// The native path of a URI.
fn native_path(path: &PathUri) -> Result<PathBuf, WireError> {
    path.to_native().map_err(|error| {
        let path = Some(path.as_str().to_owned());
        WireError::invalid_request(error.to_string()).with_data(ErrorData {
            errno: None,
            kind: "invalidInput".to_owned(),
            path,
        })
    })
}

/// The URI of a native path. Every absolute path has one.
fn uri(path: &std::path::Path) -> Result<PathUri, WireError> {
    PathUri::from_native(path).ok_or_else(|| WireError::internal("the path is not absolute"))
}

fn follow(follow_symlinks: bool) -> files::Follow {
    if follow_symlinks { files::Follow::Yes } else { files::Follow::No }
}

/// Converts an error of a file operation. The published protocol has only a few codes; `data` has the exact cause.
fn wire_error(error: &FileError) -> WireError {
    let code = match error.kind() {
        ErrorKind::NotFound => ErrorCode::NotFound,
        ErrorKind::InvalidInput | ErrorKind::PermissionDenied => ErrorCode::InvalidRequest,
        _ => ErrorCode::Internal,
    };
    let mut data = ErrorData::from_io(error.io(), error.path());
    if error.is_sandbox_denial() {
        error_kind::SANDBOX_DENIED.clone_into(&mut data.kind);
    }
    WireError::new(code, error.to_string()).with_data(data)
}

/// [`wire_error`] for use in `map_err`.
fn failed(error: FileError) -> WireError {
    wire_error(&error)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use files::Cancel;

    use super::*;

    /// A mount point of this machine that is not in `/`.
    fn nested_mount_point() -> PathBuf {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount_points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        mount_points.into_iter().find(|path| path.iter().count() > 2 && path.is_dir()).unwrap()
    }

    #[test]
    fn only_an_error_that_a_sandbox_has_caused_has_the_kind_of_a_denial() {
        let mount_point = nested_mount_point();
        // In a sandbox whose root is the directory above, this mount point is one that the host does not have there.
        let top = std::fs::File::open(mount_point.parent().unwrap()).unwrap();
        let inside = Path::new("/").join(mount_point.file_name().unwrap());
        for (root, path, kind) in [
            (FileRoot::sandbox(top.into(), Arc::new(())), inside, error_kind::SANDBOX_DENIED),
            (FileRoot::host().clone(), mount_point, "other"),
        ] {
            let removed = files::remove(&root, &path, false, false, files::Follow::Yes, &Cancel::new());
            let error = wire_error(&removed.unwrap_err());
            assert_eq!(error.data.unwrap().kind, kind, "{}", error.message);
            assert_eq!(error.code, ErrorCode::Internal.number());
        }
    }
}
