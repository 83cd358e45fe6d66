//! Checks whether environments (the machines that commands can choose) can be reached, how fast they answer and which
//! extensions their servers offer. Each check makes one connection with a session of its own, and closes both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{
    Capabilities, ConnectionPath, EnvironmentInfo, EnvironmentLocation, ExecServerClient, ExecServerError,
    HarnessError, RegistryError,
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use transport::ConnectError;

use crate::commands::destination::{Destination, UnusableFile};
use crate::terminal_text::error_line;

/// How many environments are checked at once. Each check may start a program.
const CHECKS_AT_ONCE: usize = 8;

/// How long a server may take to close the connection, after it has answered.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait until the client knows whether there is a direct path.
const PATH_PATIENCE: Duration = Duration::from_secs(4);

/// How long a service may take to say why an environment was not reached in time.
const REASON_PATIENCE: Duration = Duration::from_secs(2);

/// The server that was reached, or a sentence that says why the environment cannot be reached and what to do.
pub(super) type CheckResult = Result<ReachedServer, String>;

/// A server that was reached: how fast it answered, and how it describes itself.
#[derive(Debug)]
pub(super) struct ReachedServer {
    /// Time for the connection and the handshake, including the start of a server program.
    pub(super) connecting: Duration,
    /// Time for one request and its answer.
    pub(super) round_trip: Duration,
    /// Whether the connection uses the relay or a direct path. `None` if the environment is not behind a relay.
    pub(super) path: Option<ConnectionPath>,
    /// The answer to `environment/info`. `None` if the server does not know this request.
    pub(super) info: Option<EnvironmentInfo>,
}

/// Checks these environments, several at a time, each within `timeout`. The results come as they are ready, with the
/// index of the environment.
pub(super) fn check_all(
    destinations: impl Iterator<Item = Destination>,
    timeout: Duration,
) -> JoinSet<(usize, CheckResult)> {
    let permits = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
    let mut checks = JoinSet::new();
    for (index, destination) in destinations.enumerate() {
        let permits = Arc::clone(&permits);
        checks.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            (index, check(destination, timeout).await)
        });
    }
    checks
}

async fn check(destination: Destination, timeout: Duration) -> CheckResult {
    let location = destination.location.clone();
    let (reached, client) = match tokio::time::timeout(timeout, reach(destination.clone())).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => return Err(with_next_step(&error, &location)),
        Err(_) => {
            let late = format!("there was no answer within {timeout:?}; give more time with --timeout");
            return Err(reason_of_service(&destination).await.unwrap_or(late));
        }
    };
    // The server has answered in time, however long it takes to close the connection.
    let _closed_or_late = tokio::time::timeout(CLOSE_PATIENCE, client.close()).await;
    reached.map_err(|error| with_next_step(&error.into(), &location))
}

/// Why a service gives no way to an environment. A harness that connects asks again and again, and would tell only at the end.
async fn reason_of_service(destination: &Destination) -> Option<String> {
    let EnvironmentLocation::Remote(location) = &destination.location else { return None };
    let connector = destination.relay_connector(location).ok()?;
    let asked = tokio::time::timeout(REASON_PATIENCE, connector.harness().named_key()).await.ok()?;
    let error = ExecServerError::from(asked.err()?);
    Some(with_next_step(&error.into(), &destination.location))
}

/// Connects and asks the server about itself. Returns the answer, and the client, which is still connected.
async fn reach(
    destination: Destination,
) -> anyhow::Result<(Result<ReachedServer, ExecServerError>, ExecServerClient)> {
    let begun = Instant::now();
    let client = destination.connect().await?;
    let connecting = begun.elapsed();
    let asked = Instant::now();
    let info = match client.environment_info().await {
        Err(error) if error.is_unknown_method() => Ok(None),
        answer => answer.map(Some),
    };
    let round_trip = asked.elapsed();
    let path = client.connection_path(PATH_PATIENCE).await;
    Ok((info.map(|info| ReachedServer { connecting, round_trip, path, info }), client))
}

/// The names of the extensions that a server offers, as they are on the wire.
pub(super) fn offered_extensions(capabilities: &Capabilities) -> Vec<String> {
    let Ok(Value::Object(all)) = serde_json::to_value(capabilities) else { return Vec::new() };
    all.into_iter().filter(|(_, is_offered)| *is_offered == Value::Bool(true)).map(|(name, _)| name).collect()
}

/// The error, and what the user can do about it unless the error says so itself.
fn with_next_step(error: &anyhow::Error, location: &EnvironmentLocation) -> String {
    let step = match (error.downcast_ref(), location) {
        (Some(ExecServerError::WebSocketConnect(error)), _) => next_step_of_connecting(error).map(str::to_owned),
        (Some(ExecServerError::RemoteConnect(error)), _) => next_step_of_remote(error).map(str::to_owned),
        (Some(ExecServerError::WebSocketConnectTimeout { .. }), _) => {
            Some("check the address and the firewalls on the way, or raise connect_timeout_sec".to_owned())
        }
        (Some(ExecServerError::InitializeTimedOut { .. }), _) => {
            Some("check that an exec-server listens there, or raise initialize_timeout_sec".to_owned())
        }
        (Some(ExecServerError::Spawn(_)), EnvironmentLocation::Ssh { .. }) => Some("install ssh".to_owned()),
        (Some(ExecServerError::Spawn(_)), _) => Some("check `program` in the configuration".to_owned()),
        (Some(_), EnvironmentLocation::Ssh { host, program, .. }) => {
            Some(format!("`ssh {host} {program} --version` has to work without a password"))
        }
        (Some(_), EnvironmentLocation::Program { .. }) => {
            Some("run the program by hand to see what it says".to_owned())
        }
        (Some(_), EnvironmentLocation::Url { .. } | EnvironmentLocation::Remote(_)) => {
            Some("look at the log of the server".to_owned())
        }
        (Some(_), EnvironmentLocation::Local) => {
            Some("run `exec-server --listen stdio` to see what it says".to_owned())
        }
        // The client has not tried to connect, because a token file or a certificate file cannot be used.
        (None, _) => error.downcast_ref().map(|UnusableFile { setting, .. }| format!("correct {setting}")),
    };
    let reason = error_line(error);
    step.map_or(reason.clone(), |step| format!("{reason}; {step}"))
}

/// `None`: the error says itself what to do.
fn next_step_of_remote(error: &HarnessError) -> Option<&'static str> {
    match error {
        HarnessError::Registry(RegistryError::Offline { .. }) => {
            Some("start `exec-server --remote` on that machine, or look at its log")
        }
        HarnessError::Registry(RegistryError::Transport(_) | RegistryError::TimedOut { .. })
        | HarnessError::Dial(_)
        | HarnessError::SocketLost => Some("check the address of the service and the network"),
        HarnessError::Registry(RegistryError::Refused { status: 404, .. }) => Some("check the id of the environment"),
        HarnessError::Reset | HarnessError::TimedOut | HarnessError::Handshake(_) => {
            Some("look at the log of the executor")
        }
        HarnessError::Registry(_) | HarnessError::KeyChanged { .. } => None,
    }
}

/// `None`: the error says itself what to do.
fn next_step_of_connecting(error: &ConnectError) -> Option<&'static str> {
    match error {
        ConnectError::Unresolved { .. } => Some("check the name of the host"),
        ConnectError::Io { .. } => Some("check that a server listens there"),
        ConnectError::Tls { .. } => Some("check that the server uses TLS, or write ws:// instead of wss://"),
        ConnectError::BadResponse(_) => Some("check that the address is that of an exec-server"),
        // For these answers, the error says itself what to do.
        ConnectError::Refused { status: 300..=399 | 401 | 403 | 404, .. } => None,
        ConnectError::Refused { status: 408 | 429 | 500..=599, .. } => {
            Some("try again, or look at the log of the server")
        }
        ConnectError::Refused { .. } => Some("check that the address is that of an exec-server"),
        ConnectError::InvalidHeader(_) => Some("check the token file"),
        _ => None,
    }
}
