//! Shared by the tests: clients that connect to a scripted server.

use client::{
    Connecting, ConnectionState, ExecServerClient, ExecServerClientConnectOptions, ExecServerError, ServerConnector,
    StartParams,
};
use testkit::ScriptedServer;

/// Connects to a scripted server.
pub(crate) struct ScriptedDialler {
    pub(crate) server: ScriptedServer,
    pub(crate) can_reconnect: bool,
}

impl ServerConnector for ScriptedDialler {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Ok(self.server.dial().into()) })
    }

    fn can_reconnect(&self) -> bool {
        self.can_reconnect
    }

    fn address(&self) -> String {
        "a scripted server".to_owned()
    }
}

pub(crate) fn options() -> ExecServerClientConnectOptions {
    ExecServerClientConnectOptions { client_name: "test".into(), ..Default::default() }
}

/// A client that can reconnect, and has finished its handshake.
pub(crate) async fn connect(server: &ScriptedServer) -> ExecServerClient {
    let client = try_connect(server, options()).await.unwrap();
    server.wait_for("initialized", 1).await;
    client
}

pub(crate) async fn try_connect(
    server: &ScriptedServer,
    options: ExecServerClientConnectOptions,
) -> Result<ExecServerClient, ExecServerError> {
    ExecServerClient::connect(ScriptedDialler { server: server.clone(), can_reconnect: true }, options).await
}

/// A client that cannot reconnect.
pub(crate) async fn connect_once(server: &ScriptedServer) -> ExecServerClient {
    let dialler = ScriptedDialler { server: server.clone(), can_reconnect: false };
    let client = ExecServerClient::connect(dialler, options()).await.unwrap();
    server.wait_for("initialized", 1).await;
    client
}

/// The params to start a process with this id.
pub(crate) fn params(id: &str) -> StartParams {
    StartParams::new(id, ["true"], "file:///".parse().unwrap())
}

/// Waits until the state of the connection is as wanted.
pub(crate) async fn wait_for_state(
    client: &ExecServerClient,
    wanted: impl FnMut(&ConnectionState) -> bool,
) -> ConnectionState {
    let mut state = client.connection_state();
    state.wait_for(wanted).await.unwrap().clone()
}

/// Waits until the client has failed, and returns its error text.
pub(crate) async fn wait_for_failure(client: &ExecServerClient) -> String {
    match wait_for_state(client, |state| matches!(state, ConnectionState::Failed(_))).await {
        ConnectionState::Failed(text) => text,
        other => panic!("{other:?}"),
    }
}

/// The text of the error of a call that must fail.
pub(crate) fn error_text<T>(result: Result<T, ExecServerError>) -> String {
    match result {
        Ok(_) => panic!("the call should have failed"),
        Err(error) => error.to_string(),
    }
}
