//! All sessions of a server, by id. Their number is limited (`--max-sessions`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use protocol::SessionId;
use transport::Principal;

use super::Session;

/// The limit `--max-sessions` is reached, and no session may be ended in favour of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManySessions;

/// Why a connection does not get the session that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRefusal {
    /// No session has this id, or the session has ended.
    Unknown,
    /// Another principal (user or token) has made the session.
    OwnedByAnother,
}

/// All sessions that have not ended.
#[derive(Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
}

impl Sessions {
    /// Adds a session. If there are `limit` sessions already, a detached session is ended and returned; the caller must kill its processes.
    pub(crate) fn insert(
        &self,
        session: &Arc<Session>,
        limit: usize,
    ) -> Result<Option<Arc<Session>>, TooManySessions> {
        let mut by_id = self.by_id.lock();
        let evicted = if by_id.len() < limit { None } else { Some(evict(&mut by_id, Instant::now())?) };
        by_id.insert(session.id.clone(), Arc::clone(session));
        Ok(evicted)
    }

    /// The session with this id, if `principal` has made it. Knowing the id is not enough.
    pub(crate) fn get(&self, id: &SessionId, principal: &Principal) -> Result<Arc<Session>, SessionRefusal> {
        let session = self.by_id.lock().get(id).cloned().ok_or(SessionRefusal::Unknown)?;
        if session.owner == *principal { Ok(session) } else { Err(SessionRefusal::OwnedByAnother) }
    }

    pub(crate) fn remove(&self, id: &SessionId) {
        self.by_id.lock().remove(id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.by_id.lock().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }
}

/// Ends the session with the lowest [`Session::eviction_rank`] and removes it. If the client of that session
/// reconnects before the session is ended, another session is chosen.
fn evict(by_id: &mut HashMap<SessionId, Arc<Session>>, now: Instant) -> Result<Arc<Session>, TooManySessions> {
    loop {
        let ranked = by_id.values().filter_map(|session| Some((session.eviction_rank(now)?, session)));
        let (_, candidate) = ranked.min_by_key(|(rank, _)| *rank).ok_or(TooManySessions)?;
        if candidate.end_if_evictable(now) {
            let id = candidate.id.clone();
            return by_id.remove(&id).ok_or(TooManySessions);
        }
    }
}
