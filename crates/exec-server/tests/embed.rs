//! Tests a program that embeds both the client and the server.

use exec_server::{
    ExecParams, ExecServerClient, ExecServerListenUrlParseError, ExecServerRuntimePaths, RemoteExecServerConnectArgs,
    ServeError, run_main_with_listen_url,
};
use testkit::{Signal, eventually_async, send_signal};

#[tokio::test]
async fn a_server_and_its_client_work_in_one_program_until_sigterm_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}/exec.sock", folder.path().display());
    let serving = tokio::spawn({
        let url = url.clone();
        async move { run_main_with_listen_url(&url, ExecServerRuntimePaths::unguarded()).await }
    });
    let client = eventually_async("the server listens", async || {
        ExecServerClient::connect_websocket(RemoteExecServerConnectArgs::new(&url, "embedder")).await.ok()
    })
    .await;
    let process = client.start(ExecParams::new("p", ["echo", "hello"], "file:///".parse().unwrap())).await.unwrap();
    assert_eq!(process.wait_with_output().await.unwrap().stdout, b"hello\n");
    client.close().await;
    send_signal(std::process::id(), Signal::TERM);
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_listen_url_with_the_scheme_http_is_refused() {
    let refused = run_main_with_listen_url("http://127.0.0.1:1", ExecServerRuntimePaths::unguarded()).await;
    let Err(ServeError::ListenUrl(ExecServerListenUrlParseError::UnsupportedListenUrl(url))) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(url, "http://127.0.0.1:1");
}
