//! The connections that can take another request: idle HTTP/1.1 connections, and HTTP/2 connections on which another
//! stream can be opened. This module does not know the content of requests. Start with [`ConnectionPool::lease`].
//!
//! The pools of hyper-util are not used for two reasons. They hold any number of idle connections, so a client of the
//! exec-server could use up the file descriptors of this process. And they open one HTTP/2 connection for each
//! origin, so a client that does not take its bodies could use up the streams of all other clients, or
//! end their responses.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::ByteStream;
use crate::error::RequestFailure;
use crate::http1::Http1Connection;
use crate::http2::{Http2Connection, StreamSlot};
use crate::owner::RequestOwner;
use crate::proxy::Route;

/// Limit for the idle connections of all owners and routes together. Each holds a file descriptor.
pub const MAX_IDLE_CONNECTIONS: usize = 16;

/// A connection that is idle for this long is closed. Most servers close it after about the same time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two sweeps, which remove the connections that are closed or idle for too long.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// All connections of a fetcher that can take a request, and the tasks of its connections.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    state: Mutex<PoolState>,
    tasks: TaskTracker,
    /// Cancelled to end the tasks.
    ended: CancellationToken,
}

#[derive(Default)]
struct PoolState {
    /// In the order in which they were added to the pool.
    connections: VecDeque<PooledConnection>,
    /// The sweep task runs. It ends when the pool is empty.
    has_sweep_task: bool,
}

/// The requests that can share a connection: those of one owner that take the same way to a server. Owners share no
/// connection, because a request can end its HTTP/2 connection for all others, for example when the server breaks
/// the protocol in its response.
#[derive(Clone, PartialEq)]
pub(crate) struct PoolKey {
    pub(crate) owner: RequestOwner,
    pub(crate) route: Route,
}

struct PooledConnection {
    key: PoolKey,
    kind: PooledKind,
}

enum PooledKind {
    Http1 { connection: Box<Http1Connection>, idle_since: Instant },
    Http2(Arc<Http2Connection>),
}

impl PooledConnection {
    fn is_usable(&mut self) -> bool {
        match &mut self.kind {
            PooledKind::Http1 { connection, .. } => connection.is_usable(),
            PooledKind::Http2(connection) => connection.is_open(),
        }
    }

    /// Time since the last request on this connection ended. `None` while a request uses the connection.
    fn idle_time(&self) -> Option<Duration> {
        match &self.kind {
            PooledKind::Http1 { idle_since, .. } => Some(idle_since.elapsed()),
            PooledKind::Http2(connection) => connection.idle_time(),
        }
    }
}

impl ConnectionPool {
    /// Leases a connection of the pool for one request: a stream of an HTTP/2 connection, else the HTTP/1.1
    /// connection that was used last, because it is the most likely to be still open. `None` if the pool has no
    /// connection for this key.
    pub(crate) fn lease(self: &Arc<Self>, key: &PoolKey) -> Option<ConnectionLease> {
        self.lease_http2(key).or_else(|| {
            let mut state = self.state.lock();
            loop {
                let is_wanted =
                    |pooled: &PooledConnection| matches!(pooled.kind, PooledKind::Http1 { .. }) && pooled.key == *key;
                let position = state.connections.iter().rposition(is_wanted)?;
                let PooledKind::Http1 { mut connection, .. } = state.connections.remove(position)?.kind else {
                    continue;
                };
                if connection.is_usable() {
                    return Some(self.make_lease(key, LeasedConnection::Http1(connection), ConnectionAge::Reused));
                }
            }
        })
    }

    /// Leases a stream of an HTTP/2 connection of the pool.
    pub(crate) fn lease_http2(self: &Arc<Self>, key: &PoolKey) -> Option<ConnectionLease> {
        let mut state = self.state.lock();
        state.connections.retain_mut(|pooled| matches!(pooled.kind, PooledKind::Http1 { .. }) || pooled.is_usable());
        let slot = state.connections.iter().rev().find_map(|pooled| match &pooled.kind {
            PooledKind::Http2(connection) if pooled.key == *key => connection.reserve(),
            _ => None,
        })?;
        Some(self.make_lease(key, LeasedConnection::Http2(slot), ConnectionAge::Reused))
    }

    /// Starts HTTP/1.1 on a new byte stream and leases the connection. It is added to the pool when the lease is
    /// finished.
    pub(crate) async fn start_http1(
        self: &Arc<Self>,
        key: &PoolKey,
        stream: Box<dyn ByteStream>,
    ) -> Result<ConnectionLease, RequestFailure> {
        let connection = Box::new(Http1Connection::new(stream).await?);
        Ok(self.make_lease(key, LeasedConnection::Http1(connection), ConnectionAge::New))
    }

    /// Starts HTTP/2 on a new byte stream, adds the connection to the pool and leases one of its streams.
    pub(crate) async fn start_http2(
        self: &Arc<Self>,
        key: &PoolKey,
        stream: Box<dyn ByteStream>,
    ) -> Result<ConnectionLease, RequestFailure> {
        let connection = Http2Connection::start(stream, &self.tasks, &self.ended).await?;
        // `None` only if the connection has ended already, or if the settings of the server allow no stream at all.
        let slot = connection.reserve().ok_or_else(RequestFailure::incomplete)?;
        self.add(PooledConnection { key: key.clone(), kind: PooledKind::Http2(connection) });
        Ok(self.make_lease(key, LeasedConnection::Http2(slot), ConnectionAge::New))
    }

    /// Closes the idle HTTP/1.1 connections and all HTTP/2 connections, also those in use, and waits until their
    /// tasks have ended.
    pub(crate) async fn close(&self) {
        self.state.lock().connections.clear();
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn make_lease(
        self: &Arc<Self>,
        key: &PoolKey,
        connection: LeasedConnection,
        age: ConnectionAge,
    ) -> ConnectionLease {
        ConnectionLease { key: key.clone(), connection, age, pool: Arc::clone(self) }
    }

    /// Adds a connection, or closes it if it can take no further request.
    fn add(self: &Arc<Self>, mut pooled: PooledConnection) {
        if !pooled.is_usable() {
            return;
        }
        let mut state = self.state.lock();
        state.connections.push_back(pooled);
        state.close_surplus();
        if !state.has_sweep_task {
            state.has_sweep_task = true;
            self.tasks.spawn(self.ended.clone().run_until_cancelled_owned(sweep_until_empty(Arc::downgrade(self))));
        }
    }
}

impl PoolState {
    /// Closes the connections that have been idle for longest if more than [`MAX_IDLE_CONNECTIONS`] are idle.
    fn close_surplus(&mut self) {
        let mut idle: Vec<_> = self.connections.iter().filter_map(PooledConnection::idle_time).collect();
        if idle.len() <= MAX_IDLE_CONNECTIONS {
            return;
        }
        idle.sort_unstable();
        let mut surplus = idle.len() - MAX_IDLE_CONNECTIONS;
        let shortest_surplus_time = idle[MAX_IDLE_CONNECTIONS];
        self.connections.retain(|pooled| {
            let is_surplus = surplus > 0 && pooled.idle_time().is_some_and(|idle| idle >= shortest_surplus_time);
            surplus -= usize::from(is_surplus);
            !is_surplus
        });
    }

    /// Removes connections that are closed or idle for too long. Returns whether any is left.
    fn sweep(&mut self) -> bool {
        let is_recent = |pooled: &PooledConnection| pooled.idle_time().is_none_or(|idle| idle < IDLE_TIMEOUT);
        self.connections.retain_mut(|pooled| is_recent(pooled) && pooled.is_usable());
        self.close_surplus();
        self.has_sweep_task = !self.connections.is_empty();
        self.has_sweep_task
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn sweep_until_empty(pool: Weak<ConnectionPool>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        if !pool.upgrade().is_some_and(|pool| pool.state.lock().sweep()) {
            return;
        }
    }
}

/// An HTTP/1.1 connection, or a stream of an HTTP/2 connection, in use by one request. Dropping the lease without
/// [`Self::finish`] closes the HTTP/1.1 connection. An HTTP/2 stream is reset when its body is dropped, and dropping
/// the lease lets another request use a stream.
pub(crate) struct ConnectionLease {
    key: PoolKey,
    pub(crate) connection: LeasedConnection,
    pub(crate) age: ConnectionAge,
    pool: Arc<ConnectionPool>,
}

/// Whether a connection was used before. A server may close a reused connection at any moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionAge {
    New,
    Reused,
}

pub(crate) enum LeasedConnection {
    Http1(Box<Http1Connection>),
    Http2(StreamSlot),
}

impl ConnectionLease {
    /// The next bytes of the body of the response, never empty. `None` at its end.
    pub(crate) fn poll_data(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestFailure>>> {
        match &mut self.connection {
            LeasedConnection::Http1(connection) => connection.poll_data(body, cx),
            LeasedConnection::Http2(slot) => slot.poll_data(body, cx),
        }
    }

    /// Makes the connection available to other requests, after the end of the response. Closes an HTTP/1.1 connection
    /// that can take no further request.
    pub(crate) fn finish(self) {
        match self.connection {
            LeasedConnection::Http1(connection) => {
                let kind = PooledKind::Http1 { connection, idle_since: Instant::now() };
                self.pool.add(PooledConnection { key: self.key, kind });
            }
            LeasedConnection::Http2(slot) => {
                drop(slot);
                self.pool.state.lock().close_surplus();
            }
        }
    }
}
