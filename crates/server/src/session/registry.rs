//! Every session of the server by id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::SessionId;

use super::Session;

/// The sessions of a server.
#[derive(Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
}

impl Sessions {
    /// Adds a session. False if there are `limit` already.
    pub(crate) fn insert(&self, session: &Arc<Session>, limit: usize) -> bool {
        let mut by_id = self.by_id.lock();
        if by_id.len() >= limit {
            return false;
        }
        by_id.insert(session.id.clone(), Arc::clone(session));
        true
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
