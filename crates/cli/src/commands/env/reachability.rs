//! Checks whether environments can be reached, how fast they answer and what their servers offer. Each check makes one connection with a
//! session of its own, and closes both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Capabilities, EnvironmentInfo, ExecServerError, Way};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use transport::ConnectError;

use crate::commands::destination::Destination;
use crate::terminal_text::error_line;

/// How many environments are checked at once. Each check may start a program.
const CHECKS_AT_ONCE: usize = 8;

/// How long a server may take to close the connection. The result of the check is known by then.
const GOODBYE: Duration = Duration::from_secs(2);

/// The result of a check, or a sentence that says why the environment cannot be reached and what to do.
pub(super) type Checked = Result<Reached, String>;

/// What a server has said, and how long that took.
#[derive(Debug)]
pub(super) struct Reached {
    /// Time for the connection and the handshake, including the start of a server program.
    pub(super) connecting: Duration,
    /// Time for one request and its answer.
    pub(super) round_trip: Duration,
    /// `None` from a server that does not know the request.
    pub(super) info: Option<EnvironmentInfo>,
}

/// Checks these environments, several at a time, each within `timeout`. The results come as they are ready, with the index of the
/// environment.
pub(super) fn check_all(
    destinations: impl Iterator<Item = Destination>,
    timeout: Duration,
) -> JoinSet<(usize, Checked)> {
    let room = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
    let mut checks = JoinSet::new();
    for (index, destination) in destinations.enumerate() {
        let room = Arc::clone(&room);
        checks.spawn(async move {
            // The semaphore is never closed.
            let _room = room.acquire().await;
            (index, check(destination, timeout).await)
        });
    }
    checks
}

async fn check(destination: Destination, timeout: Duration) -> Checked {
    let way = destination.way.clone();
    match tokio::time::timeout(timeout, reach(destination)).await {
        Ok(Ok(reached)) => Ok(reached),
        Ok(Err(error)) => Err(with_next_step(&error, &way)),
        Err(_) => Err(format!("there was no answer within {timeout:?}; give more time with --timeout")),
    }
}

async fn reach(destination: Destination) -> anyhow::Result<Reached> {
    let begun = Instant::now();
    let client = destination.connect().await?;
    let connecting = begun.elapsed();
    let asked = Instant::now();
    let info = match client.environment_info().await {
        Err(error) if error.is_unknown_method() => Ok(None),
        answer => answer.map(Some),
    };
    let round_trip = asked.elapsed();
    let _closed_or_late = tokio::time::timeout(GOODBYE, client.close()).await;
    Ok(Reached { connecting, round_trip, info: info? })
}

/// The names of the extensions that a server offers, as they are on the wire.
pub(super) fn offered(capabilities: &Capabilities) -> Vec<String> {
    let Ok(Value::Object(all)) = serde_json::to_value(capabilities) else { return Vec::new() };
    all.into_iter().filter(|(_, is_offered)| *is_offered == Value::Bool(true)).map(|(name, _)| name).collect()
}

/// The error, and what the user can do about it unless the error says so itself.
fn with_next_step(error: &anyhow::Error, way: &Way) -> String {
    let step = match (error.downcast_ref(), way) {
        (Some(ExecServerError::WebSocketConnect(error)), _) => next_step_of_connecting(error).map(str::to_owned),
        (Some(ExecServerError::WebSocketConnectTimeout { .. }), _) => {
            Some("check the address and the firewalls on the way, or raise connect_timeout_sec".to_owned())
        }
        (Some(ExecServerError::InitializeTimedOut { .. }), _) => {
            Some("check that an exec-server listens there, or raise initialize_timeout_sec".to_owned())
        }
        (Some(ExecServerError::Spawn(_)), Way::Ssh { .. }) => Some("install ssh".to_owned()),
        (Some(ExecServerError::Spawn(_)), _) => Some("check `program` in the configuration".to_owned()),
        (Some(_), Way::Ssh { host, program, .. }) => {
            Some(format!("`ssh {host} {program} --version` has to work without a password"))
        }
        (Some(_), Way::Program { .. }) => Some("run the program by hand to see what it says".to_owned()),
        (Some(_), Way::Url { .. }) => Some("look at the log of the server".to_owned()),
        (Some(_), Way::Local) => Some("run `exec-server --listen stdio` to see what it says".to_owned()),
        // A file of the configuration cannot be read, and the error names it.
        (None, _) => Some("correct the path in the configuration".to_owned()),
    };
    let reason = error_line(error);
    step.map_or(reason.clone(), |step| format!("{reason}; {step}"))
}

/// `None`: the error says itself what to do.
fn next_step_of_connecting(error: &ConnectError) -> Option<&'static str> {
    match error {
        ConnectError::Unresolved { .. } => Some("check the name of the host"),
        ConnectError::Io { .. } => Some("check that a server listens there"),
        ConnectError::Tls { .. } => Some("check that the server uses TLS, or write ws:// instead of wss://"),
        ConnectError::BadResponse(_) => Some("check that the address is that of an exec-server"),
        ConnectError::InvalidHeader(_) => Some("check the token file"),
        _ => None,
    }
}
