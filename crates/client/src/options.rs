//! What a user of the client may choose.

use std::time::Duration;

use protocol::SessionId;
use recovery::{Backoff, DEFAULT_SILENCE_TIMEOUT, WhenRecovering};
use transport::{ConnectOptions, TlsRoots};

use crate::connector::UrlConnector;

/// How a client connects and behaves.
#[derive(Clone, Debug)]
pub struct ExecServerClientConnectOptions {
    /// Who we are, for the server's logs.
    pub client_name: String,
    /// How long connecting may take, each time.
    pub connect_timeout: Duration,
    /// How long the handshake may take, each time.
    pub initialize_timeout: Duration,
    /// How long the server may give no sign of life before its connection counts as lost; it is pinged after half of that. Bytes that
    /// come, and bytes that leave a full connection, are signs of life, so a slow link is none the worse for it. A link on which
    /// nothing moves for longer now and then needs more. It applies to WebSockets: the kernel reports the end of other connections.
    pub silence_timeout: Duration,
    /// A session of an earlier client to take up.
    pub resume_session_id: Option<SessionId>,
    /// Detach whoever else holds that session.
    pub takeover: bool,
    /// Look at that session beside whoever is attached to it: no events are sent to this client, which can list, read, signal and end
    /// processes, and start them with `paused`. From a server without the extension `sessionObserve` the session is taken instead.
    pub observe: bool,
    /// How long the session shall outlive the connection, if not as long as the server says. Extension `sessionKeep`.
    pub keep_for: Option<Duration>,
    /// From a lost connection until the client gives up.
    pub recovery_budget: Duration,
    /// The waits between attempts to reconnect.
    pub backoff: Backoff,
    /// What calls do meanwhile.
    pub when_recovering: WhenRecovering,
}

impl Default for ExecServerClientConnectOptions {
    fn default() -> Self {
        Self {
            client_name: "codex-core".to_owned(),
            connect_timeout: Duration::from_secs(10),
            initialize_timeout: Duration::from_secs(10),
            silence_timeout: DEFAULT_SILENCE_TIMEOUT,
            resume_session_id: None,
            takeover: false,
            observe: false,
            keep_for: None,
            recovery_budget: Duration::from_secs(25),
            backoff: Backoff::default(),
            when_recovering: WhenRecovering::Wait,
        }
    }
}

/// Where a server is and how to connect to it.
///
/// ```
/// let mut args = client::RemoteExecServerConnectArgs::new("ws://127.0.0.1:7000", "my-harness");
/// args.bearer_token = Some("from a file".into());
/// ```
#[derive(Clone, Debug)]
pub struct RemoteExecServerConnectArgs {
    /// `ws://`, `wss://` or `unix://`.
    pub websocket_url: String,
    /// Sent as `Authorization: Bearer …`.
    pub bearer_token: Option<String>,
    /// Whose certificates are trusted by `wss://`.
    pub tls_roots: TlsRoots,
    /// The rest.
    pub options: ExecServerClientConnectOptions,
}

impl RemoteExecServerConnectArgs {
    /// With everything else as usual.
    pub fn new(websocket_url: impl Into<String>, client_name: impl Into<String>) -> Self {
        Self {
            websocket_url: websocket_url.into(),
            bearer_token: None,
            tls_roots: TlsRoots::default(),
            options: ExecServerClientConnectOptions {
                client_name: client_name.into(),
                ..ExecServerClientConnectOptions::default()
            },
        }
    }

    pub(crate) fn into_parts(self) -> (UrlConnector, ExecServerClientConnectOptions) {
        let connect = ConnectOptions {
            bearer_token: self.bearer_token,
            tls_roots: self.tls_roots,
            ..ConnectOptions::default()
        };
        (UrlConnector::new(self.websocket_url, connect), self.options)
    }
}
