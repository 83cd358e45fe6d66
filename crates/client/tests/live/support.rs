//! Shared by the tests: connected clients, and the params to start a shell script.

use client::{ExecServerClient, ExecServerClientConnectOptions, ExecServerError, StartParams, UrlConnector};
use testkit::TestServer;

pub(crate) async fn try_connect_to(url: &str) -> Result<ExecServerClient, ExecServerError> {
    let options = ExecServerClientConnectOptions { client_name: "test".into(), ..Default::default() };
    ExecServerClient::connect(UrlConnector::new(url, Default::default()), options).await
}

pub(crate) async fn connect_to(url: &str) -> ExecServerClient {
    try_connect_to(url).await.unwrap()
}

pub(crate) async fn connect(server: &TestServer) -> ExecServerClient {
    connect_to(server.url()).await
}

/// Params that start a shell script whose stdin is empty.
pub(crate) fn sh(id: &str, script: &str) -> StartParams {
    StartParams::new(id, ["/bin/sh", "-c", script], "file:///".parse().unwrap())
}

/// Params that start a shell script whose stdin is a pipe.
pub(crate) fn sh_with_stdin(id: &str, script: &str) -> StartParams {
    StartParams { pipe_stdin: true, ..sh(id, script) }
}
