//! `initialize`: a new session, or an old one taken up again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{ErrorCode, InitializeParams, InitializeResult, SessionId, WireError};
use session::Departure;

use crate::connection::{Call, Phase, Role};
use crate::session::{Session, SessionRefusal, TooManySessions};

pub(super) async fn initialize(call: Call, params: Result<InitializeParams, WireError>) {
    let connection = Arc::clone(&call.connection);
    let result = async {
        let params = params?;
        if !matches!(connection.phase(), Phase::Fresh) {
            return Err(WireError::invalid_request("initialize may only be sent once per connection"));
        }
        let longest = connection.shared.config.max_session_ttl;
        let keep = params.keep_for_ms.map(|ms| Duration::from_millis(ms).min(longest));
        let (session, role) = match params.resume_session_id {
            Some(id) if params.observe && !params.takeover => observe(&call, &id, keep)?,
            _ if params.observe => {
                return Err(WireError::invalid_params("observe needs resumeSessionId, and goes without takeover"));
            }
            Some(id) if params.takeover => (take_over(&call, id, keep)?, Role::Attached),
            Some(id) => (resume(&call, id, keep).await?, Role::Attached),
            None => (open(&call, keep)?, Role::Attached),
        };
        tracing::debug!(client = params.client_name, ?role, "session taken up");
        connection.greeted(Arc::clone(&session), role);
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
        shared.session_files(),
        config,
        shared.presence.enter(),
    ));
    if let Some(keep) = keep {
        session.keep_for(keep);
    }
    match shared.sessions.insert(&session, config.max_sessions) {
        Ok(None) => {}
        Ok(Some(spared)) => {
            tracing::info!("a session that nobody is connected to was ended to make room for a new one");
            shared.end_session_in_background(spared);
        }
        Err(TooManySessions) => {
            let limit = config.max_sessions;
            return Err(WireError::invalid_request(format!(
                "server has reached its limit of {limit} sessions (--max-sessions)"
            )));
        }
    }
    shared.metrics.sessions(shared.sessions.len());
    Ok(session)
}

async fn resume(call: &Call, id: SessionId, keep: Option<Duration>) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    let attached = || {
        let message = format!("session {id} is already attached to another connection");
        WireError::new(ErrorCode::SessionAttached, message)
    };
    let session = find(call, &id)?;
    if let Some(holder) = session.outbound() {
        // The owner of the session has presented its id. Only a connection that still answers keeps it out.
        if holder.is_alive(shared.config.takeover_after).await {
            return Err(attached());
        }
        holder.end_now();
        session.detach(holder.number, Departure::Lost, Instant::now());
    }
    match session.resume(&call.connection.outbound, keep, Instant::now()) {
        Ok(resumed) => taken_up(call, session, resumed),
        Err(_) => Err(attached()),
    }
}

/// The session with this id, if the principal of the connection owns it.
fn find(call: &Call, id: &SessionId) -> Result<Arc<Session>, WireError> {
    let connection = &call.connection;
    connection.shared.sessions.get(id, &connection.principal).map_err(|refusal| match refusal {
        SessionRefusal::Unknown => unknown(id),
        SessionRefusal::OwnedByAnother => {
            connection.shared.note_foreign_session(&connection.principal, &connection.peer);
            WireError::invalid_request(format!("session {id} belongs to another user or token"))
        }
    })
}

/// Takes the session from the connection that is attached to it, alive or not.
fn take_over(call: &Call, id: SessionId, keep: Option<Duration>) -> Result<Arc<Session>, WireError> {
    let session = find(call, &id)?;
    let taken = session.take_over(&call.connection.outbound, keep, Instant::now());
    taken_up(call, session, taken)
}

/// Looks at the session beside the connection that is attached to it.
fn observe(call: &Call, id: &SessionId, keep: Option<Duration>) -> Result<(Arc<Session>, Role), WireError> {
    let session = find(call, id)?;
    let observer = session.observe(keep, Instant::now());
    let session = taken_up(call, session, observer.is_some())?;
    observer.map(|observer| (session, Role::Observing(observer))).ok_or_else(|| unknown(id))
}

fn taken_up(call: &Call, session: Arc<Session>, is_ours: bool) -> Result<Arc<Session>, WireError> {
    let shared = &call.connection.shared;
    if is_ours {
        // The client may want them for a shorter or a longer time than before.
        shared.janitor.look_after_kept(&session);
        return Ok(session);
    }
    let error = unknown(&session.id);
    shared.end_session_in_background(session);
    Err(error)
}

pub(super) fn unknown(id: &SessionId) -> WireError {
    WireError::invalid_request(format!("unknown session id {id}"))
}
