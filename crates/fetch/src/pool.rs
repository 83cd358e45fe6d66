//! Connections that wait for another request.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::http1::Http1Connection;
use crate::proxy::Route;

/// Over all routes. More would only be descriptors held for nothing.
const MAX_IDLE: usize = 16;
/// Most servers close a connection at about this age.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How often closed and old connections are thrown out.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<VecDeque<Idle>>,
    /// Runs while anything is idle.
    sweeper: Mutex<Option<AbortHandle>>,
}

struct Idle {
    route: Route,
    connection: Http1Connection,
    since: Instant,
}

impl ConnectionPool {
    /// The connection that was used last: it is the most likely to be still open.
    pub(crate) fn take(&self, route: &Route) -> Option<Http1Connection> {
        let mut idle = self.idle.lock();
        while let Some(position) = idle.iter().rposition(|idle| idle.route == *route) {
            let mut connection = idle.remove(position)?.connection;
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection if it can be used again.
    pub(crate) fn put(self: &Arc<Self>, route: Route, mut connection: Http1Connection) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() >= MAX_IDLE {
            idle.pop_front();
        }
        idle.push_back(Idle { route, connection, since: Instant::now() });
        self.sweeper.lock().get_or_insert_with(|| tokio::spawn(sweep(Arc::downgrade(self))).abort_handle());
    }

    /// Whether anything is left.
    fn throw_out(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain_mut(|idle| idle.since.elapsed() < IDLE_FOR && idle.connection.is_usable());
        if idle.is_empty() {
            *self.sweeper.lock() = None;
        }
        !idle.is_empty()
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        if let Some(sweeper) = self.sweeper.lock().take() {
            sweeper.abort();
        }
    }
}

async fn sweep(pool: Weak<ConnectionPool>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        if !pool.upgrade().is_some_and(|pool| pool.throw_out()) {
            return;
        }
    }
}
