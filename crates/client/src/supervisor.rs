//! The task that keeps a client connected. It reports to `recovery::Reconnection` what happened, and does what the
//! `Reconnection` says. It has one rule of its own: when the takeover of a session is final. A session is what the
//! server keeps for one client. A [`Generation`] is the number of a connection, or of an attempt to make one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use recovery::{Action, Chance, Generation};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::client_core::{ClientCore, ConnectionState};
use crate::error::ExecServerError;
use crate::handshake;
use crate::rpc::{Disconnect, Rpc};

/// The error text of a client whose session another client has taken over.
const TAKEN_OVER: &str = "another client attached to this session";
/// Reason for closing a connection that was made after the client had stopped waiting for it.
const TOO_LATE: &str = "the connection was made too late";

/// The attempts to reconnect: the current attempt, and abandoned attempts whose tasks have not ended yet.
#[derive(Default)]
struct ReconnectAttempts {
    tasks: JoinSet<ReconnectResult>,
    current: Option<(Generation, AbortHandle)>,
}

type ReconnectResult = (Generation, Result<Arc<Rpc>, ExecServerError>);

/// Runs until the client is closed or has failed for good, and then until all attempts to reconnect have ended.
pub(crate) async fn run(core: Arc<ClientCore>) {
    let mut attempts = ReconnectAttempts::default();
    loop {
        while let Some(action) = next_action(&core) {
            act(&core, action, &mut attempts);
        }
        let (current, rpc, timeout) = {
            let linked = core.link.lock();
            // Another task may have added an action after the loop above.
            if linked.reconnection.has_action() {
                continue;
            }
            if linked.reconnection.failure().is_some() {
                break;
            }
            (linked.reconnection.current(), Arc::clone(&linked.rpc), linked.reconnection.poll_timeout())
        };
        tokio::select! {
            disconnect = rpc.ended(), if current.is_some() => {
                if let Some(generation) = current {
                    handle_disconnect(&core, generation, &rpc, disconnect);
                }
            }
            Some(ended) = attempts.tasks.join_next() => handle_ended_attempt(&core, &mut attempts, ended),
            () = wait_until(timeout), if timeout.is_some() => {
                core.link.lock().reconnection.handle_timeout(Instant::now());
            }
            // Another task has changed the link, so the loop looks at it again.
            () = core.poke.notified() => {}
        }
    }
    attempts.tasks.abort_all();
    while let Some(ended) = attempts.tasks.join_next().await {
        close_late_connection(ended);
    }
}

fn next_action(core: &ClientCore) -> Option<Action> {
    core.link.lock().reconnection.poll_action()
}

fn handle_disconnect(core: &ClientCore, generation: Generation, rpc: &Rpc, disconnect: Disconnect) {
    let mut linked = core.link.lock();
    // An observer is a client that attaches to a session only to list or read, and takes nothing over. If the server
    // knows no observers, such a client takes the session over and leaves soon. So this client reconnects.
    if rpc.was_taken_over() && core.server_knows_observers() {
        core.is_taken_over.store(true, Ordering::Relaxed);
        linked.reconnection.taken_over(generation, TAKEN_OVER);
    } else {
        let Disconnect(reason) = disconnect;
        linked.reconnection.disconnected(generation, reason.as_deref(), Instant::now(), chance());
    }
}

fn act(core: &Arc<ClientCore>, action: Action, attempts: &mut ReconnectAttempts) {
    match action {
        // The connection is lost. Bodies of HTTP responses and TCP streams cannot be continued over another connection.
        Action::FailBodyStreams(text) => {
            tracing::debug!(reason = text, "disconnected");
            core.inbound.fail_streams(&text);
            core.state.send_replace(ConnectionState::Recovering(text));
        }
        Action::Attempt(generation) => {
            let core = Arc::clone(core);
            let task = attempts.tasks.spawn(async move { (generation, handshake::resume(&core, generation).await) });
            attempts.current = Some((generation, task));
        }
        Action::Abandon(_) => {
            if let Some((_, task)) = attempts.current.take() {
                task.abort();
            }
        }
        Action::Connected(_) => {
            core.state.send_replace(ConnectionState::Connected);
        }
        Action::Fail(text) => {
            core.inbound.fail_streams(&text);
            core.inbound.fail_all(&text);
            core.state.send_replace(ConnectionState::Failed(text));
        }
    }
}

fn handle_ended_attempt(
    core: &ClientCore,
    attempts: &mut ReconnectAttempts,
    ended: Result<ReconnectResult, JoinError>,
) {
    let current = attempts.current.as_ref().map(|(generation, task)| (*generation, task.id()));
    let (generation, result) = match (ended, current) {
        (Ok((generation, result)), Some((wanted, _))) if generation == wanted => (generation, result),
        (Err(error), Some((wanted, task))) if error.id() == task => {
            (wanted, Err(ExecServerError::Protocol(error.to_string())))
        }
        // The attempt was abandoned. It may have made a connection before it was aborted.
        (ended, _) => return close_late_connection(ended),
    };
    attempts.current = None;
    let mut linked = core.link.lock();
    match result {
        Ok(rpc) => {
            linked.reconnection.attempt_succeeded(generation, Instant::now());
            if linked.reconnection.current() == Some(generation) {
                linked.rpc = rpc;
            } else {
                rpc.close(TOO_LATE);
            }
        }
        Err(error) => {
            tracing::debug!(%error, "cannot reconnect");
            let is_retryable = error.is_retryable();
            linked.reconnection.attempt_failed(
                generation,
                &error.to_string(),
                is_retryable,
                Instant::now(),
                chance(),
            );
        }
    }
}

/// Closes the connection of an attempt that was abandoned, if it has made one.
fn close_late_connection(ended: Result<ReconnectResult, JoinError>) {
    if let Ok((_, Ok(rpc))) = ended {
        rpc.close(TOO_LATE);
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// The random part of the wait before the next attempt. It is taken from a UUID, so that no other source of
/// randomness is needed.
fn chance() -> Chance {
    let bits = uuid::Uuid::new_v4().as_u64_pair().0 >> 16;
    Chance::new(bits as f64 / (1_u64 << 48) as f64)
}
