//! `fs/watch` and `fs/unwatch`.

use std::sync::Arc;

use protocol::fs::{UnwatchParams, WatchParams};
use protocol::{ErrorCode, NoResult, WireError};

use super::{failed, native};
use crate::connection::Call;
use crate::files::{WatchRefusal, Watched};
use crate::limits::MAX_HANDLE_ID_BYTES;
use crate::session::Session;

pub(in crate::handlers) fn watch(call: Call, params: WatchParams, session: Arc<Session>) {
    if let Some(seq) = params.after_seq {
        return again(call, &params, &session, seq);
    }
    let number = call.connection.number();
    let begun =
        check_id(&params.watch_id).and_then(|()| native(&params.path, params.sandbox.as_ref())).and_then(|path| {
            Ok((
                path,
                session
                    .files
                    .watches
                    .begin(&params.watch_id, number)
                    .map_err(|why| refused(&why, &params.watch_id))?,
            ))
        });
    let (path, watched) = match begun {
        Ok(begun) => begun,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let shared = Arc::clone(&call.connection.shared);
    let tasks = shared.tasks.clone();
    shared.tasks.spawn(async move {
        let eyes = Arc::clone(&watched);
        let opened = session.files.work.run(move || eyes.open_eyes(path, params.recursive)).await;
        match opened {
            Some(Ok(())) => {
                call.finish(Ok(NoResult {}));
                let session = Arc::downgrade(&session);
                tasks.spawn(Watched::tell(watched, move || session.upgrade()?.outbound()));
            }
            Some(Err(error)) => {
                session.files.watches.end(&watched);
                call.finish::<()>(Err(failed(error)));
            }
            None => {}
        }
    });
}

/// The client has come back over another connection.
fn again(call: Call, params: &WatchParams, session: &Session, seq: u64) {
    match session.files.watches.find(&params.watch_id) {
        Some(watched) => {
            let number = call.connection.number();
            call.finish(Ok(NoResult {}));
            watched.resume(seq, number);
        }
        None => {
            let text = format!("unknown watch `{}`", protocol::shortened(&params.watch_id));
            call.finish::<()>(Err(WireError::new(ErrorCode::NotFound, text)));
        }
    }
}

/// Closing the eyes of a watch does not block; the thread behind them ends by itself.
pub(in crate::handlers) fn unwatch(call: Call, params: UnwatchParams, session: Arc<Session>) {
    if let Some(watched) = session.files.watches.find(&params.watch_id) {
        session.files.watches.end(&watched);
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
