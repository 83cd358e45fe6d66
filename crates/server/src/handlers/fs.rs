//! `fs/*`: what they have in common. Each decodes its path, looks whether a sandbox would have to be enforced, and does its work
//! on a thread that may block.

pub(super) mod blocks;
pub(super) mod change;
pub(super) mod look;
pub(super) mod search;
pub(super) mod watch;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use files::FileError;
use protocol::{ErrorCode, ErrorData, PathUri, SandboxContext, WireError, encode_response};
use serde::Serialize;

use crate::connection::Call;
use crate::files::Weight;
use crate::limits::SMALL_ANSWER_BYTES;
use crate::session::Session;

/// What an attempt to make an answer has led to.
enum Attempt {
    /// The answer, encoded.
    Answer(Vec<u8>),
    /// Nothing was done yet, because the answer would have about so many bytes.
    NeedsRoom(usize),
    Failed(WireError),
}

/// Looks at files: ends with the connection, because nobody else wants to know. The answer is encoded where it was found, and
/// waits for room before more may be looked for.
fn look<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    operation: impl Fn() -> Result<R, WireError> + Send + Sync + 'static,
) {
    let connection = Arc::clone(&call.connection);
    connection.spawn(answer(call, session, operation));
}

async fn answer<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    operation: impl Fn() -> Result<R, WireError> + Send + Sync + 'static,
) {
    let id = call.id().clone();
    let attempt = move |_| match operation() {
        Ok(result) => Attempt::Answer(encode_response(&id, &result)),
        Err(error) => Attempt::Failed(error),
    };
    answer_in_room(call, session, attempt).await;
}

/// Answers with what `attempt` makes, which is told for how many bytes there is room. Small answers are made at once. For others, room is
/// taken first: an answer that turns out to be larger, with no room at once, is dropped, and made again when there is room.
///
/// Room is waited for in one order by everybody, so that nobody waits in a circle: the turn and the shared room of a large answer, then a
/// place of the session, then room of the connection, then a place among those of all sessions. Before it has all shared room, an
/// answer holds nothing that the small answers of its session need.
async fn answer_in_room(
    call: Call,
    session: Arc<Session>,
    attempt: impl Fn(usize) -> Attempt + Send + Sync + 'static,
) {
    let connection = Arc::clone(&call.connection);
    let attempt = Arc::new(attempt);
    let first = Arc::clone(&attempt);
    let tried = session.files.work.run_for_reply(Weight::Ordinary, move || first(SMALL_ANSWER_BYTES)).await;
    let mut bytes = match tried {
        Some((Attempt::Answer(message), slot)) => {
            let room = if message.len() <= SMALL_ANSWER_BYTES {
                let Some(room) = connection.outbound.room_for_reply(message.len()).await else { return };
                Some(room)
            } else {
                connection.room_for_answer_now(message.len())
            };
            drop(slot);
            if room.is_some() {
                return call.finish_encoded(message, room);
            }
            message.len()
        }
        Some((Attempt::NeedsRoom(bytes), _)) => bytes,
        Some((Attempt::Failed(error), _)) => return call.finish::<()>(Err(error)),
        None => return,
    };
    loop {
        let Some(large) = connection.room_if_large(bytes).await else { return };
        let Some(slot) = session.files.work.own_place(Weight::Ordinary).await else { return };
        let Some(room) = connection.outbound.room_for_reply(bytes).await else { return };
        let again = Arc::clone(&attempt);
        match session.files.work.run_with(slot, move || again(bytes)).await {
            Some((Attempt::Answer(message), _)) => return call.finish_encoded(message, Some(room.with_large(large))),
            // It has grown meanwhile.
            Some((Attempt::NeedsRoom(more), _)) => bytes = more.max(bytes.saturating_mul(2)),
            Some((Attempt::Failed(error), _)) => return call.finish::<()>(Err(error)),
            None => return,
        }
    }
}

/// Changes files: what was begun is finished whoever is listening.
fn change<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    operation: impl FnOnce() -> Result<R, WireError> + Send + 'static,
) {
    let shared = Arc::clone(&call.connection.shared);
    shared.tasks.spawn(async move {
        // Answered on the thread that did the work: to wake this task for it takes as long as a small write.
        session.files.work.run(move || call.finish(operation())).await;
    });
}

/// The native path a request is about, if the request may touch files directly.
fn native(path: &PathUri, sandbox: Option<&SandboxContext>) -> Result<PathBuf, WireError> {
    if sandbox.is_some_and(SandboxContext::restricts_files) {
        return Err(WireError::invalid_request("filesystem sandbox cannot be enforced on this executor"));
    }
    path.to_native().map_err(|error| {
        let path = Some(path.as_str().to_owned());
        WireError::invalid_request(error.to_string()).with_data(ErrorData {
            errno: None,
            kind: "invalidInput".to_owned(),
            path,
        })
    })
}

/// A native path as it travels. Every absolute path has a URI.
fn uri(path: &std::path::Path) -> Result<PathUri, WireError> {
    PathUri::from_native(path).ok_or_else(|| WireError::internal("the path is not absolute"))
}

fn follow(follow_symlinks: bool) -> files::Follow {
    if follow_symlinks { files::Follow::Yes } else { files::Follow::No }
}

/// The codes are few, as published; `data` says exactly what happened.
fn wire_error(error: &FileError) -> WireError {
    let code = match error.kind() {
        ErrorKind::NotFound => ErrorCode::NotFound,
        ErrorKind::InvalidInput | ErrorKind::PermissionDenied => ErrorCode::InvalidRequest,
        _ => ErrorCode::Internal,
    };
    WireError::new(code, error.to_string()).with_data(ErrorData::from_io(error.io(), error.path()))
}

/// For `map_err`.
fn failed(error: FileError) -> WireError {
    wire_error(&error)
}
