//! The client that all forwarded connections share. If the client has given up, for example because the server was
//! restarted, the next forwarded connection starts an attempt to connect another client: forwarded ports need no
//! particular session. All connections that wait meanwhile share this attempt and its result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use client::{ConnectionState, ExecServerClient, ExecServerError, PortStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::commands::destination::Destination;
use crate::terminal_text::error_line;

pub(super) struct EnvironmentLink {
    destination: Destination,
    state: Mutex<LinkState>,
}

struct LinkState {
    client: ExecServerClient,
    /// The attempt to connect another client. Only the connections that wait for the attempt own it, so it ends when the
    /// last of them is gone.
    attempt: Weak<ConnectAttempt>,
}

/// An attempt to connect another client.
struct ConnectAttempt {
    /// `None` until the attempt has ended.
    outcome: watch::Receiver<Option<Result<ExecServerClient, String>>>,
    /// The one task of the attempt. It does not run in a waiting connection, because that may be reset before the others.
    _task: JoinSet<()>,
}

impl EnvironmentLink {
    pub(super) fn new(destination: Destination, client: ExecServerClient) -> Self {
        Self { destination, state: Mutex::new(LinkState { client, attempt: Weak::new() }) }
    }

    /// Opens a stream. While the connection to the server is lost, this waits until the connection is back or the client
    /// gives up. An error is the reason, for the user of this command.
    pub(super) async fn connect_port(&self, host: &str, port: u16) -> Result<PortStream, String> {
        let client = self.usable_client().await?;
        let result = match client.connect_port(host, port).await {
            // The client has given up meanwhile, so the server does not know of the stream.
            Err(ExecServerError::Disconnected(_)) if has_failed(&client) => {
                self.usable_client().await?.connect_port(host, port).await
            }
            result => result,
        };
        result.map_err(|error| error_line(&error.into()))
    }

    /// The client, for the end of the command, which closes it.
    pub(super) fn client(&self) -> ExecServerClient {
        self.state().client.clone()
    }

    async fn usable_client(&self) -> Result<ExecServerClient, String> {
        let attempt = {
            let mut state = self.state();
            if !has_failed(&state.client) {
                return Ok(state.client.clone());
            }
            state.attempt.upgrade().unwrap_or_else(|| {
                let attempt = Arc::new(ConnectAttempt::start(self.destination.clone()));
                state.attempt = Arc::downgrade(&attempt);
                attempt
            })
        };
        let client = attempt.outcome().await?;
        let mut state = self.state();
        if has_failed(&state.client) {
            state.client = client;
        }
        Ok(state.client.clone())
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectAttempt {
    fn start(destination: Destination) -> Self {
        let (sender, outcome) = watch::channel(None);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let connected = destination.connect().await.map_err(|error| error_line(&error));
            sender.send_replace(Some(connected));
        });
        Self { outcome, _task: task }
    }

    async fn outcome(&self) -> Result<ExecServerClient, String> {
        let mut receiver = self.outcome.clone();
        let outcome = receiver.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err("the attempt to connect was interrupted".to_owned()))
    }
}

fn has_failed(client: &ExecServerClient) -> bool {
    matches!(&*client.connection_state().borrow(), ConnectionState::Failed(_))
}
