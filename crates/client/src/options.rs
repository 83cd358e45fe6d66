//! The options of a client.

use std::time::Duration;

use protocol::SessionId;
use recovery::{Backoff, DEFAULT_SILENCE_TIMEOUT, WhenRecovering};
use transport::{ConnectOptions, TlsRoots};

use crate::connector::UrlConnector;

/// The options of a client: how it connects, and what it does when its connection is lost.
#[derive(Clone, Debug)]
pub struct ExecServerClientConnectOptions {
    /// A name for this program, which the server writes into its log.
    pub client_name: String,
    /// How long each attempt to make a connection may take.
    pub connect_timeout: Duration,
    /// How long the handshake of each connection may take.
    pub initialize_timeout: Duration,
    /// A WebSocket counts as lost when the server has given no sign of life for this long. The client pings the
    /// server after half of the time. Received bytes are a sign of life. So is a full socket that accepts bytes to
    /// send again: a slow link does not count as lost. A link that may carry no byte for longer needs a larger value.
    /// Connections that are no WebSockets ignore the option, because the kernel reports their end.
    pub silence_timeout: Duration,
    /// The session of an earlier client to resume. `None` opens a new session.
    pub resume_session_id: Option<SessionId>,
    /// Whether this client takes the resumed session over from another client that is attached to it. If neither this
    /// option nor `observe` is set, connecting fails while another client is attached.
    pub takeover: bool,
    /// Whether to observe the resumed session beside the client that is attached to it. An observer gets no events;
    /// it can list, read, signal and kill processes, and start them with `paused`. If the server lacks the extension
    /// `sessionObserve`, the client takes the session over instead. Cannot be combined with `takeover`.
    pub observe: bool,
    /// How long the server keeps the session after a lost connection. With `None`, the server keeps a new session for
    /// its default time, and does not change the time of a resumed session. Needs the extension `sessionKeep`.
    pub keep_for: Option<Duration>,
    /// Time from a lost connection until the client gives up. The time starts again when an attempt to reconnect has
    /// brought some of the missed output.
    pub recovery_budget: Duration,
    /// The waits between attempts to reconnect.
    pub backoff: Backoff,
    /// What calls do while the client reconnects: wait, or fail at once.
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

/// The URL of a server, and how to connect to it.
///
/// ```
/// let mut args = client::RemoteExecServerConnectArgs::new("ws://127.0.0.1:7000", "my-harness");
/// args.bearer_token = Some("from a file".into());
/// ```
#[derive(Clone, Debug)]
pub struct RemoteExecServerConnectArgs {
    /// The URL of the server. It begins with `ws://`, `wss://` or `unix://`.
    pub websocket_url: String,
    /// The token that is sent as `Authorization: Bearer TOKEN`. `None` sends no such header.
    pub bearer_token: Option<String>,
    /// The certificate authorities that are trusted for `wss://`.
    pub tls_roots: TlsRoots,
    /// All other options of the client.
    pub options: ExecServerClientConnectOptions,
}

impl RemoteExecServerConnectArgs {
    /// Arguments with this URL and this client name. Everything else has its default.
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
