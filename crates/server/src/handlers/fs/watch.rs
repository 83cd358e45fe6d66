//! `fs/watch` and `fs/unwatch`. The watches themselves are in `files/watches.rs`.

use std::sync::Arc;

use protocol::fs::{UnwatchParams, WatchParams};
use protocol::{ErrorCode, NoResult, WireError};

use super::{failed, locate};
use crate::connection::Call;
use crate::files::{SessionWatch, WatchRefusal};
use crate::limits::MAX_HANDLE_ID_BYTES;
use crate::session::Session;

pub(in crate::handlers) fn watch(call: Call, params: WatchParams, session: Arc<Session>) {
    if let Some(seq) = params.after_seq {
        return resume(call, &params, &session, seq);
    }
    let listener = call.connection.number();
    let created = check_id(&params.watch_id)
        .and_then(|()| locate(&params.path, params.sandbox.as_ref(), &session))
        .and_then(|located| {
            Ok((
                located,
                session
                    .files
                    .watches
                    .create(&params.watch_id, listener)
                    .map_err(|why| refused(&why, &params.watch_id))?,
            ))
        });
    let ((root, path), watched) = match created {
        Ok(created) => created,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let shared = Arc::clone(&call.connection.shared);
    let tasks = shared.tasks.clone();
    shared.tasks.spawn(async move {
        let starting = Arc::clone(&watched);
        let started = match root.ready().await {
            Ok(root) => {
                let start = move || starting.start(&root, &path, params.recursive).map_err(failed);
                session.files.operations.run(start).await
            }
            Err(error) => Some(Err(error)),
        };
        match started {
            Some(Ok(())) => {
                call.finish(Ok(NoResult {}));
                let session = Arc::downgrade(&session);
                tasks.spawn(SessionWatch::send_changes(watched, move || session.upgrade()?.outbound()));
            }
            Some(Err(error)) => {
                session.files.watches.close(&watched);
                call.finish::<()>(Err(error));
            }
            // The operation panicked. Dropping `call` answers with an error.
            None => {}
        }
    });
}

/// `fs/watch` with `afterSeq`: the client has reconnected, has all messages up to `seq`, and continues the watch.
fn resume(call: Call, params: &WatchParams, session: &Session, seq: u64) {
    match session.files.watches.find(&params.watch_id) {
        Some(watched) => {
            let listener = call.connection.number();
            // The answer is queued before the first changes.
            call.finish(Ok(NoResult {}));
            watched.resume(seq, listener);
        }
        None => {
            let text = format!("unknown watch `{}`", protocol::shortened(&params.watch_id));
            call.finish::<()>(Err(WireError::new(ErrorCode::NotFound, text)));
        }
    }
}

/// `fs/unwatch`. Closing a watch does not block; its thread ends later by itself.
pub(in crate::handlers) fn unwatch(call: Call, params: UnwatchParams, session: Arc<Session>) {
    if let Some(watched) = session.files.watches.find(&params.watch_id) {
        session.files.watches.close(&watched);
    }
    call.finish(Ok(NoResult {}));
}

fn check_id(id: &str) -> Result<(), WireError> {
    if id.len() <= MAX_HANDLE_ID_BYTES {
        return Ok(());
    }
    Err(WireError::invalid_request(format!("watch ID must not exceed {MAX_HANDLE_ID_BYTES} bytes")))
}

fn refused(refusal: &WatchRefusal, id: &str) -> WireError {
    match refusal {
        WatchRefusal::Exists => WireError::invalid_request(format!("watch `{id}` already exists")),
        WatchRefusal::TooMany(limit) => {
            WireError::invalid_request(format!("session has reached its limit of {limit} watches (--max-watches)"))
        }
    }
}
