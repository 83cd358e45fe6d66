//! The task that keeps a client connected: it does what the rules of the link say.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use recovery::{Action, Chance, Generation};

use crate::error::ExecServerError;
use crate::handshake;
use crate::rpc::{End, Rpc};
use crate::shared::{ConnectionState, Shared};

/// What a client fails with whose session another one has taken.
const TAKEN_OVER: &str = "another client attached to this session";

type Attempt = tokio::task::JoinHandle<Result<Arc<Rpc>, ExecServerError>>;

/// Runs until the client is closed or has failed for good.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut attempt: Option<(Generation, Attempt)> = None;
    loop {
        while let Some(action) = next_action(&shared) {
            act(&shared, action, &mut attempt);
        }
        let (current, rpc, timeout) = {
            let linked = shared.link.lock();
            // Somebody else may have changed it since.
            if linked.link.has_action() {
                continue;
            }
            if linked.link.failure().is_some() {
                return;
            }
            (linked.link.current(), Arc::clone(&linked.rpc), linked.link.poll_timeout())
        };
        tokio::select! {
            end = rpc.ended(), if current.is_some() => {
                if let Some(generation) = current {
                    let End(reason) = end;
                    let mut linked = shared.link.lock();
                    // Where nobody can look without taking the session, whoever took it may only look, and soon be gone.
                    if rpc.was_taken_over() && shared.server_knows_observers() {
                        shared.is_taken_over.store(true, Ordering::Relaxed);
                        linked.link.taken_over(generation, TAKEN_OVER);
                    } else {
                        linked.link.disconnected(generation, reason.as_deref(), Instant::now(), chance());
                    }
                }
            }
            (generation, result) = finished(&mut attempt), if attempt.is_some() => {
                attempt = None;
                settle(&shared, generation, result);
            }
            () = until(timeout), if timeout.is_some() => shared.link.lock().link.handle_timeout(Instant::now()),
            () = shared.poke.notified() => {}
        }
    }
}

fn next_action(shared: &Shared) -> Option<Action> {
    shared.link.lock().link.poll_action()
}

fn act(shared: &Arc<Shared>, action: Action, attempt: &mut Option<(Generation, Attempt)>) {
    match action {
        Action::FailStreams(text) => {
            tracing::debug!(reason = text, "disconnected");
            shared.inbound.bodies.fail_all(&text);
            shared.state.send_replace(ConnectionState::Recovering(text));
        }
        Action::Attempt(generation) => {
            let shared = Arc::clone(shared);
            *attempt = Some((generation, tokio::spawn(async move { handshake::resume(&shared, generation).await })));
        }
        Action::Abandon(_) => {
            if let Some((_, task)) = attempt.take() {
                task.abort();
                // It may have succeeded in this moment.
                tokio::spawn(async move {
                    if let Ok(Ok(rpc)) = task.await {
                        rpc.close("it came too late");
                    }
                });
            }
        }
        Action::Connected(_) => {
            shared.state.send_replace(ConnectionState::Connected);
        }
        Action::Fail(text) => {
            shared.inbound.bodies.fail_all(&text);
            shared.inbound.fail_all(&text);
            shared.state.send_replace(ConnectionState::Failed(text));
        }
    }
}

fn settle(shared: &Shared, generation: Generation, result: Result<Arc<Rpc>, ExecServerError>) {
    let mut linked = shared.link.lock();
    match result {
        Ok(rpc) => {
            linked.link.attempt_succeeded(generation, Instant::now());
            if linked.link.current() == Some(generation) {
                linked.rpc = rpc;
            } else {
                rpc.close("it came too late");
            }
        }
        Err(error) => {
            tracing::debug!(%error, "cannot reconnect");
            let is_retryable = error.is_retryable();
            linked.link.attempt_failed(generation, &error.to_string(), is_retryable, Instant::now(), chance());
        }
    }
}

async fn finished(attempt: &mut Option<(Generation, Attempt)>) -> (Generation, Result<Arc<Rpc>, ExecServerError>) {
    match attempt {
        Some((generation, task)) => {
            let result = task.await.unwrap_or_else(|error| Err(ExecServerError::Protocol(error.to_string())));
            (*generation, result)
        }
        None => std::future::pending().await,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Some randomness, from a source that is here anyway.
fn chance() -> Chance {
    let bits = uuid::Uuid::new_v4().as_u64_pair().0 >> 16;
    Chance::new(bits as f64 / (1_u64 << 48) as f64)
}
