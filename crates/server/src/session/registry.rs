//! Every session of the server by id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use protocol::SessionId;

use super::Session;

/// Every session is one that has to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManySessions;

/// The sessions of a server.
#[derive(Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
}

impl Sessions {
    /// Adds a session. If there are `limit` already, one that can be spared has to go, and is handed out to be ended. Fails if none can.
    pub(crate) fn insert(
        &self,
        session: &Arc<Session>,
        limit: usize,
    ) -> Result<Option<Arc<Session>>, TooManySessions> {
        let mut by_id = self.by_id.lock();
        let spared = if by_id.len() < limit { None } else { Some(take_spare(&mut by_id, Instant::now())?) };
        by_id.insert(session.id.clone(), Arc::clone(session));
        Ok(spared)
    }

    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.by_id.lock().get(id).cloned()
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

/// Takes out the session that is the easiest to spare. Its client may come back just now: then the next one is tried.
fn take_spare(by_id: &mut HashMap<SessionId, Arc<Session>>, now: Instant) -> Result<Arc<Session>, TooManySessions> {
    loop {
        let ranked = by_id.values().filter_map(|session| Some((session.eviction_rank(now)?, session)));
        let (_, spare) = ranked.min_by_key(|(rank, _)| *rank).ok_or(TooManySessions)?;
        if spare.end_if_evictable(now) {
            let id = spare.id.clone();
            return by_id.remove(&id).ok_or(TooManySessions);
        }
    }
}
