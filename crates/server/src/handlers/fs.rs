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
use crate::session::Session;

/// Looks at files: ends with the connection, because nobody else wants to know. The answer is encoded where it was found, and
/// waits for room before more may be looked for.
fn look<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    operation: impl FnOnce() -> Result<R, WireError> + Send + 'static,
) {
    let connection = Arc::clone(&call.connection);
    connection.spawn(answer(call, session, Weight::Ordinary, operation));
}

async fn answer<R: Serialize + Send + 'static>(
    call: Call,
    session: Arc<Session>,
    weight: Weight,
    operation: impl FnOnce() -> Result<R, WireError> + Send + 'static,
) {
    let id = call.id().clone();
    let encoded = move || operation().map(|result| encode_response(&id, &result));
    match session.files.work.run_for_reply(weight, encoded).await {
        Some((Ok(message), slot)) => {
            let Some(room) = call.connection.outbound.room_for_reply(message.len()).await else { return };
            drop(slot);
            call.finish_encoded(message, Some(room));
        }
        Some((Err(error), _)) => call.finish::<()>(Err(error)),
        None => {}
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
