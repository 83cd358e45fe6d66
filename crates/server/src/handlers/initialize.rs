//! `initialize`: opens a new session, resumes an old session, takes a session over from another connection, or
//! observes a session. In all functions, `keep` is the time for which the session outlives this connection; None
//! keeps the default or the earlier value.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{ErrorCode, InitializeParams, InitializeResult, SessionId, WireError, shortened};
use session::Departure;

use crate::connection::{Call, ConnectionRole, HandshakePhase};
use crate::session::{Session, SessionRefusal, TooManySessions};

pub(super) async fn initialize(call: Call, params: Result<InitializeParams, WireError>) {
    let connection = Arc::clone(&call.connection);
    let result = async {
        let params = params?;
        if !matches!(connection.phase(), HandshakePhase::Fresh) {
            return Err(WireError::invalid_request("initialize may only be sent once per connection"));
        }
        let longest = connection.shared.config.max_session_ttl;
        let keep = params.keep_for_ms.map(|ms| Duration::from_millis(ms).min(longest));
        let (session, role) = match params.resume_session_id {
            Some(id) if params.observe && !params.takeover => observe(&call, &id, keep)?,
            _ if params.observe => {
                return Err(WireError::invalid_params(
                    "observe needs resumeSessionId and cannot be combined with takeover",
                ));
            }
            Some(id) if params.takeover => (take_over(&call, id, keep)?, ConnectionRole::Attached),
            Some(id) => (resume(&call, id, keep).await?, ConnectionRole::Attached),
            None => (open(&call, keep)?, ConnectionRole::Attached),
        };
        tracing::debug!(client = params.client_name, ?role, "session opened or resumed");
        connection.note_greeted(Arc::clone(&session), role);
        Ok(InitializeResult { session_id: Some(session.id.clone()) })
    };
    let result = result.await;
    call.finish(result);
}

fn open(call: &Call, keep: Option<Duration>) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    let config = &shared.config;
    let session = Arc::new(Session::new(
        SessionId::from(uuid::Uuid::new_v4().to_string()),
        call.connection.principal.clone(),
        shared.spawner.session_tags(),
        Arc::clone(&call.connection.outbound),
        (shared.session_files(), shared.session_sandboxes()),
        config,
        // The server does not count as idle while the session exists.
        shared.presence.enter(),
    ));
    if let Some(keep) = keep {
        session.keep_for(keep);
    }
    match shared.sessions.insert(&session, config.max_sessions) {
        Ok(None) => {}
        Ok(Some(evicted)) => {
            tracing::info!("ended a detached session in favour of a new one (--max-sessions)");
            shared.end_session_in_background(evicted);
        }
        Err(TooManySessions) => {
            let limit = config.max_sessions;
            return Err(WireError::invalid_request(format!(
                "server has reached its limit of {limit} sessions (--max-sessions)"
            )));
        }
    }
    shared.metrics.set_session_count(shared.sessions.len());
    Ok(session)
}

/// Attaches this connection to the session. Refused if another connection is attached and alive.
async fn resume(call: &Call, id: SessionId, keep: Option<Duration>) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    let already_attached = || {
        let message = format!("session {id} is already attached to another connection");
        WireError::new(ErrorCode::SessionAttached, message)
    };
    let session = find(call, &id)?;
    if let Some(holder) = session.outbound() {
        // The client owns the session, so its request is refused only if the attached connection is still alive.
        if holder.is_alive(shared.config.takeover_after).await {
            return Err(already_attached());
        }
        holder.end_now();
        session.detach(holder.number, Departure::Lost, Instant::now());
    }
    match session.resume(&call.connection.outbound, keep, Instant::now()) {
        Ok(resumed) => finish_resume(call, session, resumed),
        Err(_) => Err(already_attached()),
    }
}

/// The session with this id, if the principal of the connection, a user or a token, owns it.
fn find(call: &Call, id: &SessionId) -> Result<Arc<Session>, WireError> {
    let connection = &call.connection;
    connection.shared.sessions.get(id, &connection.principal).map_err(|refusal| match refusal {
        SessionRefusal::Unknown => unknown_session(id),
        SessionRefusal::OwnedByAnother => {
            connection.shared.note_foreign_session(&connection.principal, &connection.peer);
            WireError::invalid_request(format!("session {id} belongs to another user or token"))
        }
    })
}

/// Attaches this connection to the session, and displaces the connection that is attached, even if it is alive.
fn take_over(call: &Call, id: SessionId, keep: Option<Duration>) -> Result<Arc<Session>, WireError> {
    let session = find(call, &id)?;
    let taken = session.take_over(&call.connection.outbound, keep, Instant::now());
    finish_resume(call, session, taken)
}

/// Makes this connection an observer: it uses the session while another connection may be attached, is sent no
/// events, and can use only some methods.
fn observe(call: &Call, id: &SessionId, keep: Option<Duration>) -> Result<(Arc<Session>, ConnectionRole), WireError> {
    let session = find(call, id)?;
    let observer = session.observe(keep, Instant::now());
    let session = finish_resume(call, session, observer.is_some())?;
    observer.map(|observer| (session, ConnectionRole::Observing(observer))).ok_or_else(|| unknown_session(id))
}

/// Returns the session if `succeeded`: the connection is now attached to it or observes it. Otherwise the session has
/// ended. Then its processes are killed in the background, and the client gets an error.
fn finish_resume(call: &Call, session: Arc<Session>, succeeded: bool) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    if succeeded {
        // `keepForMs` of the client may have changed the time for which closed processes are kept.
        shared.janitor.forget_expired_processes(&session, &shared.metrics);
        return Ok(session);
    }
    let error = unknown_session(&session.id);
    shared.end_session_in_background(session);
    Err(error)
}

pub(super) fn unknown_session(id: &SessionId) -> WireError {
    WireError::invalid_request(format!("unknown session id {}", shortened(id.as_str())))
}
