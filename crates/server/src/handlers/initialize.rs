//! `initialize`: a new session, or an old one taken up again.

use std::sync::Arc;
use std::time::Instant;

use protocol::{ErrorCode, InitializeParams, InitializeResult, SessionId, WireError};
use session::Attachment;

use crate::connection::{Call, Phase};
use crate::session::Session;

pub(super) async fn initialize(call: Call, params: Result<InitializeParams, WireError>) {
    let connection = Arc::clone(&call.connection);
    let result = async {
        let params = params?;
        if !matches!(connection.phase(), Phase::Fresh) {
            return Err(WireError::invalid_request("initialize may only be sent once per connection"));
        }
        let session = match params.resume_session_id {
            Some(id) => resume(&call, id).await?,
            None => open(&call)?,
        };
        tracing::debug!(client = params.client_name, "session attached");
        connection.greeted(Arc::clone(&session));
        Ok(InitializeResult { session_id: session.id.clone() })
    };
    let result = result.await;
    call.finish(result);
}

fn open(call: &Call) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    let config = &shared.config;
    let session = Arc::new(Session::new(
        SessionId::from(uuid::Uuid::new_v4().to_string()),
        shared.spawner.session_tags(),
        Attachment::new(call.connection.number(), config.session_ttl, config.detached_hold),
        Arc::clone(&call.connection.outbound),
    ));
    if !shared.sessions.insert(&session, config.max_sessions) {
        let limit = config.max_sessions;
        return Err(WireError::invalid_request(format!(
            "server has reached its limit of {limit} sessions (--max-sessions)"
        )));
    }
    shared.metrics.sessions(shared.sessions.len());
    Ok(session)
}

async fn resume(call: &Call, id: SessionId) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    let unknown = || WireError::invalid_request(format!("unknown session id {id}"));
    let attached = || {
        let message = format!("session {id} is already attached to another connection");
        WireError::new(ErrorCode::SessionAttached, message)
    };
    let session = shared.sessions.get(&id).ok_or_else(unknown)?;
    if let Some(holder) = session.outbound() {
        // Whoever presents the id is its client; only a connection that still answers keeps it out.
        if holder.is_alive(shared.config.takeover_after).await {
            return Err(attached());
        }
        holder.shut();
        session.detach(holder.number, Instant::now());
    }
    match session.resume(&call.connection.outbound, Instant::now()) {
        Ok(true) => Ok(session),
        Ok(false) => {
            shared.end_session_in_background(session);
            Err(unknown())
        }
        Err(_) => Err(attached()),
    }
}
